//! A model of a data-centre network: hosts, switches, links, queues.
//!
//! A [`Fabric`] knows no clock, socket or thread. Whoever plays it hands it frames ([`Fabric::send`]), asks when something
//! happens next ([`Fabric::next_event`]), and lets it happen ([`Fabric::step`]); an [`Observer`] is told what did. The same
//! seed and the same calls give the same result. The model knows the size, the addresses, the DSCP and the ECN bits of a
//! frame. What the frame carries is opaque: `P` can be a packet of a whole NIC, or nothing.
//!
//! # What is modelled
//!
//! - Links: rate, delay, bit errors, up or down. Times are exact, in picoseconds.
//! - Switches that store and forward: a memory shared by all ports, with a dynamic threshold for each ingress port and priority
//!   that may not lose frames, and for each egress queue that may; ECN marks between two queue lengths; priorities served
//!   strictly or by weight.
//! - Priority flow control (IEEE 802.1Q clause 36): pauses with a time, refreshed until they are taken back. Hosts obey them.
//! - Many paths: ECMP by a hash of the 5-tuple, or a choice per packet. Links that fail, and routes that follow later.
//!
//! Start reading with `fabric.rs`, which handles the events; `buffer.rs`, `port.rs` and `routing.rs` have the rules.

#![forbid(unsafe_code)]

mod balance;
mod buffer;
mod config;
mod counters;
mod deadlock;
mod fabric;
mod frame;
mod generate;
mod murmur;
mod observer;
mod picos;
mod port;
mod queue;
mod routing;
mod schedule;
mod slab;
mod topology;

pub mod ns3;

pub use balance::Balance;
pub use config::{Ecn, Headroom, HostConfig, Pfc, Schedule, SwitchConfig, Trim};
pub use counters::PortCounters;
pub use deadlock::Deadlock;
pub use fabric::{Fabric, LinkChange, NoRoom};
pub use frame::{Ect, FlowTuple, Frame, PRIORITIES, Priority, To};
pub use generate::Parts;
pub use observer::{DropReason, Meddling, Nothing, Observer};
pub use picos::Picos;
pub use topology::{Attachment, Host, LinkId, LinkSpec, NodeId, NodeKind, PortId, Topology, TopologyError};
