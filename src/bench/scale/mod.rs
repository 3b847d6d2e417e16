//! Loads that only the Rust API makes: many QPs, many senders, and none at all.

mod end;
pub mod fan;
pub mod idle;
pub mod resident;
