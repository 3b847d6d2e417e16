//! A [fabric](softrnic_fabric) in real time, for the NICs of running programs: `softrnic fabric up`.
//!
//! NICs join by `softrnic-fabric-link`. [`Live`] takes their packets from the rings, lets the model carry them, and writes
//! into the rings what arrives. The wall clock drives the model: what is due happens, in the order of its virtual times. A
//! process that is late is late as a whole, and counts how much; the model's order and its rates stay what they are.
//!
//! Start reading with `live.rs`, the loop; `member.rs` is a NIC as the fabric sees it, and `host.rs` what its NICs share.

#![forbid(unsafe_code)]
#![cfg(not(target_family = "wasm"))]

mod cargo;
mod clock;
mod control;
mod host;
mod interface;
mod joining;
mod lateness;
mod live;
mod member;
mod outside;
mod target;
mod up_error;

pub use lateness::Lateness;
pub use live::Live;
pub use up_error::UpError;
