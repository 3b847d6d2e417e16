//! All frames of a network interface: what arrives is read, whoever it is for, and anything can be sent.
//!
//! A [`Tap`] is a packet socket of Linux in promiscuous mode. It needs `CAP_NET_RAW`. Kernels leave work to NICs, checksums
//! and the segmentation of long streams; between two virtual interfaces nobody would do it. [`Tap::receive`] does it
//! (`offload.rs`), so that what comes out is what would be on a cable.
#![cfg(target_os = "linux")]

mod offload;
mod sys;
mod tap;

pub use tap::{Tap, TapCounters};
