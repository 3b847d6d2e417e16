//! Loads that only the Rust API makes: many QPs, many senders, many connections, large objects, and none at all; and networks
//! in virtual time.

pub mod connections;
mod end;
pub mod fan;
pub mod holds;
pub mod idle;
pub mod network;
pub mod resident;
