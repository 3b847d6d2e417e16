//! A whole NIC.
//!
//! A [`device`] is an engine ([`softrnic_engine`]) behind a lock ([`softrnic_sync`]). `progress` decides which thread
//! drives it, and when. [`verbs`] is the interface for Rust programs, and what the C libraries translate to. [`sysfs`]
//! describes devices in files, for programs that look for them there. Nothing here knows C types.

#[cfg(not(loom))]
pub mod device;
#[cfg_attr(loom, allow(dead_code, reason = "what the models need is there, and not who else uses it"))]
mod progress;
#[cfg(not(loom))]
pub mod sysfs;
#[cfg(not(loom))]
pub mod verbs;
