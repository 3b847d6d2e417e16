//! Whole NICs, against arithmetic and a public simulator.

mod congestion;
mod loss;
mod setup;
mod timing;
