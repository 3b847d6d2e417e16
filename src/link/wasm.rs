//! Stands for what the system has and WebAssembly has not: no link there has a descriptor, or shares its addresses, and none
//! injects faults.

/// See `std::os::fd::RawFd`.
pub type RawFd = i32;

/// See `sharing.rs`.
pub trait Sharing {}

/// See `fault/mod.rs`.
pub trait Faults {}
