//! Scalable reliable datagrams (SRD): every message is delivered once or fails, in no order, between any two queue pairs.
//!
//! What makes that reliable is not the queue pair. An [`Endpoint`] has one connection for each pair of hosts, whatever the
//! number of queue pairs: packet numbers, what was acknowledged, round-trip time and window are the connection's
//! (`connection.rs`, with `receiving.rs` for the other direction). A queue pair has messages under way, and nothing else
//! here. Each packet says by itself where its bytes belong, so it is placed when it comes, whatever came before it.
//!
//! The endpoint is driven from outside: [`Endpoint::post`], [`Endpoint::on_packet`], [`Endpoint::poll_transmit`], and
//! [`Endpoint::poll_timeout`] says when [`Endpoint::on_timeout`] is due. Time is an argument. For everything else (memory,
//! receives, completions, random numbers) it asks its [`Host`].
//!
//! `docs/wire-extensions.md` has the packets.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod code;
mod connection;
mod counters;
mod endpoint;
mod flight;
mod host;
mod message;
mod receiving;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tuning;

pub use code::Code;
pub use counters::Counter;
pub use endpoint::{Config, Endpoint, Peer, Progress};
pub use host::{Arrival, Host, Payload, Post, Refused};
