//! Events of identifiers.

use softrnic_cm::Ece;

use super::error::Error;
use super::id::Id;
use super::params::{ConnParams, UdParams};

/// Kinds of events, with the numbers of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum EventKind {
    AddressResolved = 0,
    AddressError = 1,
    RouteResolved = 2,
    RouteError = 3,
    /// A peer asks for a connection: accept or reject the event's identifier.
    ConnectRequest = 4,
    /// The peer accepts: set the QP up, then [establish](Id::establish).
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    MulticastError = 13,
    AddressChange = 14,
    TimewaitExit = 15,
    /// The application's own event.
    User = 18,
    /// The C library's own event.
    Internal = 19,
}

/// Status of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventStatus {
    /// Success.
    Done,
    /// The error (a negative `errno`).
    Failed(Error),
    /// The reason of a REJ, or the status of a SIDR_REP.
    Refused(u16),
    /// The status of an application's own event.
    Own(i32),
}

/// Data that comes with an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventData {
    /// Nothing.
    None,
    /// For connections.
    Conn(ConnParams),
    /// For datagram services and groups.
    Ud(UdParams),
    /// For the application's own events.
    Own(u64),
}

/// An event.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Its status.
    pub status: EventStatus,
    /// The context of the identifier; for a connect request the listener's, for multicast events the group's.
    pub context: u64,
    /// The number of the identifier; for multicast events the group's.
    pub number: u32,
    /// The identifier; for a connect request the new one, for multicast events the one that joined.
    pub id: Id,
    /// The listener of a connect request.
    pub listener: Option<Id>,
    /// Its data.
    pub data: EventData,
    /// Vendor options.
    pub ece: Ece,
}
