//! Connection identifiers: what Linux's rdma_cm is to applications, for Rust programs and for the C library.
//!
//! An [`Id`] is bound to an address, listens, or is resolved to a peer and connected. What happens to it is reported as
//! [`Event`]s on the [`EventChannel`] that it was created on. The [`Manager`] of the process owns them all, and the
//! ports that they use. The connection itself is handled by each device's connection manager (the crate `cm`), which
//! the engine runs behind QP 1. The QPs remain the application's: [`Id::qp_attributes`] returns the attributes to set.
//!
//! All state of a `Manager` is behind one lock, taken before the lock of any NIC. Nothing blocks while it is held: what
//! has to wait is done by the manager's thread.

mod address;
mod attributes;
mod channel;
mod connect;
mod devices;
mod error;
mod event;
mod fork;
mod host;
mod id;
mod incoming;
mod lifeline;
mod listen;
mod lookup;
mod manager;
mod multicast;
mod names;
mod params;
mod ports;
mod queue;
mod reach;
mod registry;
mod resolve;
mod serving;
mod shown;
mod state;
mod table;
mod watch;
mod worker;

pub use address::{Address, IbAddress};
pub use channel::EventChannel;
pub use devices::{DeviceIdentity, Devices};
pub use error::Error;
pub use event::{Event, EventData, EventKind, EventStatus};
pub use id::{Id, IdState};
pub use manager::Manager;
pub use params::{ConnParams, IdKind, IdOption, PathRecord, Query, UdParams};

pub use softrnic_cm::Ece;
pub use softrnic_wire::{PortSpace, RejReason};
