//! Loads that only the Rust API makes: many QPs, many senders, large objects, and none at all.

mod end;
pub mod fan;
pub mod holds;
pub mod idle;
pub mod resident;
