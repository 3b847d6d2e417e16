//! A whole NIC.
//!
//! [`engine`] is everything in a NIC except concurrency: objects, queues, windows and timers, driven by
//! [`engine::Engine::step`] at whatever time the caller passes. [`softrnic_sync`] connects it with application threads:
//! the NIC lock with its doorbell, and the rings between threads and engine. `progress` decides which thread drives it, and
//! when. [`verbs`] is the interface for Rust programs, and what the C libraries translate to. [`cm`] connects queue
//! pairs: the identifiers of rdma_cm. [`sysfs`] describes devices in files, for programs that look for them there.
//! Nothing here knows C types.
//!
//! WebAssembly has neither threads nor system calls: there the crate is the engine, with the queues that it is given.

#[cfg(not(any(loom, target_family = "wasm")))]
pub mod cm;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod device;
pub mod engine;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod environment;
#[cfg(not(target_family = "wasm"))]
#[cfg_attr(loom, allow(dead_code, reason = "what the models need is there, and not who else uses it"))]
mod progress;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod stats;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod sysfs;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod verbs;
