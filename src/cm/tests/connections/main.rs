//! Two or more connection managers in virtual time, and single messages.

mod hostile;
mod ledger;
mod managers;
mod pairs;
mod storm;
mod timers;
mod world;
