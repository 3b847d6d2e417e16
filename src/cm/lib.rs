//! The connection manager (IBTA 12): two ends agree by messages to QP 1 on a pair of QPs, and part again.
//!
//! A [`Cm`] is driven from outside: datagrams go in through [`Cm::on_mad`], come out of [`Cm::poll_transmit`], and
//! [`Cm::poll_timeout`] says when [`Cm::on_timeout`] is due. What happens to a connection is told by
//! [`Cm::poll_event`]. Time is an argument, and random numbers come from the caller. It names no socket, thread, lock
//! or clock, and changes no QP: [`Cm::qp_params`] says what a QP is to be set to.
//!
//! Start reading in `cm.rs`; the two ways into a connection are `active.rs` and `passive.rs`, the way out is
//! `teardown.rs`, and datagram services are `datagram.rs`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod active;
mod cm;
mod config;
mod connection;
mod datagram;
mod directory;
mod error;
mod event;
mod params;
mod passive;
mod repeat;
mod teardown;

pub use cm::{Cm, Counters, Outgoing, Usage};
pub use config::Config;
pub use connection::{State, Status};
pub use directory::{CommId, ListenerId};
pub use error::CmError;
pub use event::{Event, Reply, Request, SidrAnswer};
pub use params::{
    AcceptParams, CmTransport, ConnectParams, Ece, Listen, Path, QpParams, Route, SidrParams, SidrReply,
};
