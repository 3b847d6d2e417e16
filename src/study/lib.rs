//! Whole NICs on a modelled network, in virtual time.
//!
//! A [`Study`] puts the NIC engine that programs run on at each host of a [fabric](softrnic_fabric), gives it flows, and lets time
//! pass from event to event. Nothing of a NIC is modelled: packets have headers and ICRCs, losses are repaired by the real
//! requester and responder, and marks slow a queue pair down by the real DCQCN. The same seed gives the same run.
//!
//! Start reading with `study.rs`; `port.rs` is the link between a NIC and the fabric.

#![forbid(unsafe_code)]

pub mod charts;
mod description;
mod flow;
mod host;
mod nic;
mod packet;
pub mod page;
mod pauses;
mod port;
mod result;
mod spares;
mod study;
mod watch;

pub use description::{Becomes, Change, Description, MOST_SLOW, Mistake, Sampling, change, link};
pub use flow::{Flow, FlowState};
pub use nic::NicConfig;
pub use packet::Packet;
pub use pauses::{Branch, pause_tree};
pub use result::{FlowResult, PortResult, Report, Sample, Summary};
pub use spares::Spares;
pub use study::{Error, Study};
pub use watch::{Carried, Watch};
