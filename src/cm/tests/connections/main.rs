//! Two and more connection managers in virtual time, and messages one by one.

mod hostile;
mod ledger;
mod pairs;
mod storm;
mod timers;
mod world;
