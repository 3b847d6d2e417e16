//! Shared memory between the processes of one user on one machine: [`ShmLink`] is a link with such a connection to every peer
//! that can have one, above another link for all others.
//!
//! A datagram takes the connection to its destination, an address and a slot of it, if there is one, with its ICRC and all, and
//! else the link below.
//! Connections are made when something is first sent to one: the process that has the slot is asked by its name
//! (`connections.rs`, `handshake.rs`), and until it has answered datagrams go below. Each side writes memory of its own that the
//! other can only read (`segment.rs`), in rings of records (`ring.rs`). A full ring is no loss: the sender waits, unless
//! the peer does not read at all. A connection that nobody uses is given back.
//!
//! An eventfd wakes a sleeping peer. A caller that polls reads the rings, which takes no system call, and asks the kernel
//! for everything else only every 50 µs.

// Loom tries the words of a segment alone.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod connection;
#[cfg(not(loom))]
mod connections;
#[cfg(not(loom))]
mod fallback_reason;
#[cfg(all(feature = "fuzz", not(loom)))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(not(loom))]
mod handshake;
mod header;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
pub mod pair;
#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod routes;
#[cfg(not(loom))]
mod segment;

#[cfg(not(loom))]
pub use link::{ShmLink, stream_to};
