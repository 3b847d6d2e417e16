//! The connection manager (IBTA 12): two ends connect a pair of QPs with messages to QP 1, and disconnect them again.
//!
//! A [`Cm`] is driven from outside: datagrams go in through [`Cm::on_mad`], come out of [`Cm::poll_transmit`], and
//! [`Cm::poll_timeout`] says when [`Cm::on_timeout`] is due. [`Cm::poll_event`] reports what happens to a connection.
//! Time is an argument, and random numbers come from the caller. It knows no socket, thread, lock or clock, and changes
//! no QP: [`Cm::qp_params`] returns the attributes to set.
//!
//! Start reading in `cm.rs`. `active.rs` and `passive.rs` are the two sides of setting up a connection, `teardown.rs`
//! ends it, and `datagram.rs` serves datagram services (SIDR).
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
