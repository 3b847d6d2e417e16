//! Whole NICs on a simulated network in virtual time, and what must hold whatever happens there.
//!
//! Everything runs on one thread and follows from a seed. [`traffic`] is random traffic under faults with a
//! model of what every byte must be, [`scenario`] are scripts against one NIC; [`recorded`] are
//! two NICs whose packets are captured; `world` are the NICs and the clock.

pub mod arena;
pub mod fuzz;
pub mod goodput;
mod pages;
pub mod recorded;
pub mod rng;
pub mod scenario;
pub mod switches;
pub mod tap;
pub mod traffic;
pub mod world;
