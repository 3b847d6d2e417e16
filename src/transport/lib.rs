//! The transport of one queue pair: requester, completer and responder of RC, XRC, UC and UD.
//!
//! A [`Qp`] is driven from outside: packets go in through [`Qp::on_packet`], packets come out of [`Qp::poll_transmit`],
//! and [`Qp::poll_timeout`] says when [`Qp::on_timeout`] is due. Time is an argument. For everything else (keys,
//! memory, receive queues, completions) it asks its [`Host`]. It knows no socket, thread, lock or clock, and draws no
//! random numbers.
//!
//! Start reading in `qp.rs`, which routes every event to one of the two halves: `requester.rs`, with the completer, or
//! `responder.rs`. The constants that steer when packets leave are in `tuning.rs`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attr;
mod completion;
mod config;
mod context;
mod counters;
mod dcqcn;
mod failure;
mod hints;
mod host;
mod mask;
mod path;
mod paths;
mod peer;
mod planted;
mod qp;
mod requester;
mod responder;
mod segment;
#[cfg(test)]
mod testing;
mod transitions;
mod tuning;
mod window;
mod window_bits;
mod wqe;

pub use softrnic_wire::SendTail;

pub use attr::{AttrError, QpAccess, QpAttr, QpState, QpType};
pub use completion::{Completion, QpEvent, Status, WcOpcode};
pub use config::Config;
pub use counters::Counter;
pub use dcqcn::RateParameters;
pub use failure::{Attempt, Concern, Failure, QpFacts, Reason, Unfit};
pub use hints::{Caller, Hints};
pub use host::{
    AtomicOp, Domain, Host, LocalFault, LocalOpFault, NoRecv, Payload, PeerProcess, RemoteAccess,
    RemoteFault, Transmit, TransmitError,
};
pub use mask::AttrMask;
pub use path::Path;
pub use peer::{FlushDialect, Peer};
#[cfg(feature = "planted")]
pub use planted::Fault;
pub use qp::{Progress, Qp, QpStatus, Received, Stop};
pub use transitions::{TRANSITIONS, Transition, check as check_transition};
pub use window::{Window, WindowConfig};
pub use wqe::{LocalOp, Receive, RecvWqe, RemoteBuffer, SendOp, SendWqe, SrdVerb};

/// The longest message, in bytes (IBTA 9.7.7).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The most READs and atomics that a QP may have outstanding in either direction.
pub const MAX_RD_ATOMIC: u8 = 128;
