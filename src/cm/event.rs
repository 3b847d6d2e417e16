//! Events of connections.

use alloc::vec::Vec;

use softrnic_wire::{Qkey, Qpn, RejReason, ServiceId};

use crate::directory::{CommId, ListenerId};
use crate::params::{CmTransport, Ece, Path, Route};

/// An event that the owner of a connection should know about. Private data is as long as its field, since nothing on
/// the wire says how much was meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer asks for a connection. Answer with [`Cm::accept`](crate::Cm::accept) or
    /// [`Cm::reject`](crate::Cm::reject).
    Request(Request),
    /// The peer agrees. Set the QP up, then call [`Cm::establish`](crate::Cm::establish).
    Reply(Reply),
    /// The passive side may send now.
    Established(CommId, Vec<u8>),
    /// The peer refuses, or ends a connection that is not usable.
    Rejected {
        /// The connection, which no longer exists.
        id: CommId,
        /// Why.
        reason: RejReason,
        /// Additional information.
        info: Vec<u8>,
        /// Private data of the peer's application.
        private: Vec<u8>,
    },
    /// No answer came.
    Unreachable(CommId),
    /// The peer disconnects, or has agreed to. Answer with [`Cm::disconnect`](crate::Cm::disconnect) in the first
    /// case.
    Disconnected {
        /// The connection.
        id: CommId,
        /// The peer never answered.
        timed_out: bool,
        /// Private data of the peer's application.
        private: Vec<u8>,
    },
    /// The QP number may be used again.
    TimewaitExit(CommId),
    /// A peer asks for the QP of a datagram service. Answer with [`Cm::sidr_reply`](crate::Cm::sidr_reply).
    SidrRequest {
        /// The SIDR request.
        id: CommId,
        /// The listener.
        listener: ListenerId,
        /// Source and destination, as seen from here.
        route: Route,
        /// Private data of the peer's application.
        private: Vec<u8>,
    },
    /// A datagram service answers.
    SidrReply(SidrAnswer),
}

/// A request for a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The new connection.
    pub id: CommId,
    /// The listener.
    pub listener: ListenerId,
    /// The service.
    pub service: ServiceId,
    /// The path, as seen from here.
    pub path: Path,
    /// Transport service.
    pub transport: CmTransport,
    /// The peer's QP.
    pub qpn: Qpn,
    /// READs and atomics that the peer wants to have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics of ours that the peer executes at once.
    pub initiator_depth: u8,
    /// Retries that our QP should make.
    pub retry_count: u8,
    /// Retries after RNR NAKs that our QP should make.
    pub rnr_retry: u8,
    /// ACK credits are honoured.
    pub flow_control: bool,
    /// The peer receives into an SRQ.
    pub srq: bool,
    /// 92 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}

/// Agreement to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The connection.
    pub id: CommId,
    /// The peer's QP.
    pub qpn: Qpn,
    /// READs and atomics that the peer wants to have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics of ours that the peer executes at once.
    pub initiator_depth: u8,
    /// Retries after RNR NAKs that our QP should make.
    pub rnr_retry: u8,
    /// ACK credits are honoured.
    pub flow_control: bool,
    /// The peer receives into an SRQ.
    pub srq: bool,
    /// 196 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}

/// The answer of a datagram service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrAnswer {
    /// The SIDR request, which is complete.
    pub id: CommId,
    /// 0 when `qpn` and `qkey` are valid.
    pub status: u8,
    /// The service's QP.
    pub qpn: Qpn,
    /// The key that admits datagrams to it.
    pub qkey: Qkey,
    /// 136 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}
