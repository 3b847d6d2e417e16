//! Links move RoCEv2 datagrams (BTH to ICRC, the payload of UDP port 4791) in batches.
//!
//! A [`Link`] is driven by one caller at a time, never blocks, and describes what it can do in its [`Capabilities`];
//! the layers above ask and never guess. Nothing here parses above UDP, except the [`capture`] and [`fault`] layers,
//! which wrap any link and read the transport headers. Start reading with the [`Link`] trait.

#[cfg(test)]
extern crate self as softrnic_link;

pub mod addresses;
mod audit;
mod cancel;
#[cfg(feature = "capture")]
pub mod capture;
mod credentials;
pub mod fault;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(loom)]
#[path = "shm/header.rs"]
mod header;
pub mod host;
mod link;
mod part;
mod rng;
mod sharing;
#[cfg(not(loom))]
pub mod shm;
pub mod sim;
#[cfg(test)]
#[allow(dead_code, reason = "what `tests/contract.rs` uses alone")]
mod testing;
pub mod udp;
mod watch;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use audit::FrameAudit;
pub use cancel::Uncancelled;
pub use credentials::Credentials;
pub use link::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Reach, TxError, TxSlot};
pub use part::Part;
pub use rng::Rng;
pub use sharing::Sharing;
