//! Which thread drives the NIC, and when.
//!
//! A hand-off to another thread costs more than the work itself, so callers drive the NIC. But a peer may read or write
//! memory of a process that calls nothing, so each device has a progress thread, which fills in.
//!
//! - [`policy`] decides: a pure state machine under the NIC lock, tested in virtual time.
//! - [`gather`] decides whether a post leaves at once.
//! - [`shared_flags`] is the state that threads share without that lock, with the argument that no wake-up is lost,
//!   checked by loom.
//! - [`tuning`] has every constant.
//!
//! `device/thread.rs` carries out the plans. Nothing here knows a device.

pub mod gather;
pub mod policy;
pub mod shared_flags;
pub mod tuning;

#[cfg(all(test, loom))]
mod loom_tests;
