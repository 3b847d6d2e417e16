//! Scripts: conversations between one NIC and a peer that the script plays, packet by packet.
//!
//! A [`Script`] is text; docs/drill.md describes the language. [`Script::cases`] are the [`Line`]s to play, once for each
//! combination of its variables' values. [`play()`] plays them on a [`Target`]: whatever is able to post, to send packets and to
//! see those that come. What the NIC must do is judged here, so that every target judges alike. The
//! [suite](suite()) ships with the crate.
#![forbid(unsafe_code)]

mod message;
mod packet;
mod parse;
mod pattern;
mod play;
mod script;
mod statement;
mod suite;
mod target;
mod words;

pub use message::{addressee, datagram, is_message};
pub use packet::describe;
pub use pattern::pattern;
pub use play::{Failure, play};
pub use script::{Case, Error, Line, Needs, Script};
pub use statement::{Access, Event, Filling, MrSpec, QpSpec, Right, Server, Service, Setting, State};
pub use suite::suite;
pub use target::{
    Completion, Keys, Op, Outgoing, Place, Posted, QpNumbers, Queue, Received, Request, Seal, Served, Sge,
    Target, Trouble,
};
