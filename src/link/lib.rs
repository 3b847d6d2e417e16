//! Links move RoCEv2 datagrams (BTH to ICRC, the payload of UDP port 4791) in batches.
//!
//! A [`Link`] is driven by one caller at a time, never blocks, and describes what it can do in its [`Capabilities`];
//! the layers above ask and never guess. Only the [`capture`] and [`fault`] layers, which wrap any link, read
//! headers above UDP. Links over sockets, shared memory and real interfaces are crates of their own (`udp`, `shm`, `xdp`);
//! here are what all have in common, and [`sim`]. Start reading with the [`Link`] trait.
//!
//! On WebAssembly there is only [`sim`].

#[cfg(not(target_family = "wasm"))]
pub mod addresses;
mod audit;
#[cfg(feature = "capture")]
pub mod capture;
mod delegate;
#[cfg(not(target_family = "wasm"))]
pub mod fault;
mod link;
#[cfg(not(target_family = "wasm"))]
mod open_error;
mod process_slot;
mod rng;
#[cfg(not(target_family = "wasm"))]
mod sharing;
pub mod sim;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(target_family = "wasm")]
mod wasm;

pub use audit::FrameAudit;
pub use link::{
    COPIED_HEADERS, Capabilities, Carrier, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Reach,
    Sleeper, TxError, TxSlot,
};
#[cfg(not(target_family = "wasm"))]
pub use open_error::OpenError;
pub use process_slot::ProcessSlot;
pub use rng::Rng;
#[cfg(not(target_family = "wasm"))]
pub use sharing::{Backlog, MAX_SERVICES, ServeError, Sharing};

#[cfg(not(target_family = "wasm"))]
pub use fault::Faults;
#[doc(hidden)]
pub use softrnic_wire::Time;
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
pub use std::os::fd::RawFd;
#[cfg(target_family = "wasm")]
pub use wasm::{Faults, RawFd, Sharing};
