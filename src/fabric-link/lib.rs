//! The link between a NIC and a running fabric: a process that plays a network between all NICs that join it.
//!
//! A NIC joins as a process of one of the fabric's hosts ([`FabricLink::join`]). Both ends find each other by an abstract
//! name (`rendezvous.rs`), check that they are of one user, and exchange memory and bells for a pair of rings
//! ([`softrnic_shm::pair`]). Packets go by the rings, with what the fabric must know of their headers beside them, and so
//! does what the fabric tells the NIC of its port: priorities that are paused, and the state of the cable (`record.rs`). The
//! stream stays open. Its end is the end of the fabric: the network is dead, and what a NIC sends from then on is lost.
//!
//! [`FabricLink`] is the NIC's end. The fabric's end uses [`rendezvous`] and [`record`].

#![forbid(unsafe_code)]
#![cfg(not(any(target_family = "wasm", loom)))]

pub mod control;
mod join;
mod link;
mod network;
pub mod record;
pub mod rendezvous;
mod services;

pub use join::{JoinError, Place};
pub use link::FabricLink;
pub use network::{Network, NetworkName};
