//! Plays [scripts](softrnic_script) over a wire, and judges the peer by what it sends, when, and what it leaves unsent.
//!
//! A [`Lab`] is this side's address and a connection with the peer's agent, a small verbs program ([`AGENT`]) that makes
//! queue pairs and posts what a script says. [`Lab::judge`] plays a script, each case on a fresh connection, and gives
//! the [`Verdict`]; whatever passed is in a capture.
#![forbid(unsafe_code)]

mod agent;
mod known;
mod lab;
mod peer;
mod time_range;
mod timing;
mod verbs;
mod verdict;
mod wire;

pub use agent::{AGENT, AGENT_PORT, AgentError};
pub use known::{Entry, Known, KnownError, Place};
pub use lab::{Lab, LabError, Options};
pub use verdict::{CaseResult, Judgement, Verdict};
