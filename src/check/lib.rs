//! What a verbs program does wrong, and where in the program it does so: the memory behind `softrnic check`.
//!
//! A [`Checker`] is told what the program makes, destroys, posts and polls, each time with the [`Trace`] of the call, and what
//! the NIC refuses. It keeps what is alive and what was destroyed last, and yields a [`Finding`] where something is wrong. It
//! reads no clock, takes no lock and looks at no memory: `ibverbs` does. Start reading in `checker.rs`; `kind.rs` lists what is
//! found, and `text.rs` writes it down.
#![forbid(unsafe_code)]

mod checker;
mod connection;
mod exit;
mod failures;
mod finding;
mod history;
mod json;
mod kind;
mod object;
mod order;
mod placing;
mod request;
mod suppressions;
#[cfg(test)]
mod tests;
mod text;
mod uses;
mod waiting;

pub use checker::Checker;
pub use connection::Change;
pub use finding::{Finding, Part, Summary};
pub use kind::Kind;
pub use object::{Facts, Object, ObjectKind};
pub use placing::Word;
pub use request::{Completion, Piece, Queue, Remote, Request, Stage};
pub use suppressions::{Suppressions, SuppressionsError};
pub use text::{Frame, Symbols};

/// A call of the program, with the calls that led there: a number that whoever records them understands. 0 is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Trace(pub u32);
