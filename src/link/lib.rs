//! Links move RoCEv2 datagrams (BTH to ICRC, the payload of UDP port 4791) in batches.
//!
//! A [`Link`] is driven by one caller at a time, never blocks, and describes what it can do in its [`Capabilities`];
//! the layers above ask and never guess. Above UDP, only three parts read headers: the [`capture`] and [`fault`] layers,
//! which wrap any link, and the `udp` link, to find the process that a packet of a shared address is for. Start reading with the [`Link`] trait.
//!
//! On WebAssembly there is only [`sim`].

#[cfg(not(target_family = "wasm"))]
pub mod addresses;
mod audit;
#[cfg(target_family = "wasm")]
mod bare;
#[cfg(feature = "capture")]
pub mod capture;
#[cfg(not(target_family = "wasm"))]
pub mod fault;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(loom)]
#[path = "shm/header.rs"]
mod header;
mod link;
mod part;
mod rng;
#[cfg(not(target_family = "wasm"))]
mod sharing;
#[cfg(not(any(loom, target_family = "wasm")))]
pub mod shm;
pub mod sim;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(not(target_family = "wasm"))]
pub mod udp;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use audit::FrameAudit;
pub use link::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Reach, Sleeper, TxError, TxSlot,
};
pub use part::Part;
pub use rng::Rng;
#[cfg(not(target_family = "wasm"))]
pub use sharing::Sharing;

#[cfg(target_family = "wasm")]
use bare::{RawFd, Sharing};
#[cfg(not(target_family = "wasm"))]
use std::os::fd::RawFd;
