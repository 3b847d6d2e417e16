//! The crate against frames and code that others wrote, and properties that must hold.

mod frames;
mod layout;
mod legal;
mod mads;
mod oracles;
mod properties;
mod refusals;
mod tables;
mod vectors;
