//! A connection, from the first message to the end of its timewait.

use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;

use softrnic_wire::{CmIds, MAD_LEN, Psn, Qpn, ServiceId, Time};

use crate::directory::{CommId, ListenerId, Peer};
use crate::params::{CmTransport, Path, Route};
use crate::repeat::Repeat;

/// The state of a connection (IBTA 12.9.6). MRAs have no states of their own: they only change how long is waited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Active: REQ sent, no answer yet.
    ReqSent,
    /// Active: REP received; the QP is being set up.
    RepRcvd,
    /// Passive: REQ received; the application decides.
    ReqRcvd,
    /// Passive: REP sent, not yet confirmed.
    RepSent,
    /// Established.
    Established,
    /// DREQ sent.
    DreqSent,
    /// DREQ received; the peer waits for us to agree.
    DreqRcvd,
    /// Ended; packets of it may still be in the network.
    Timewait,
    /// SIDR_REQ sent.
    SidrReqSent,
    /// SIDR_REQ received.
    SidrReqRcvd,
}

impl State {
    /// Whether a QP is being set up for it, or is in use (kernel: `cm_init_qp_init_attr`).
    pub fn is_usable(self) -> bool {
        use State::{Established, RepRcvd, RepSent, ReqRcvd, ReqSent};
        matches!(self, ReqSent | RepRcvd | ReqRcvd | RepSent | Established)
    }
}

/// A snapshot of a connection, or of a SIDR request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Our communication id; the peer's is [`remote_id`](Status::remote_id).
    pub id: CommId,
    /// The peer's communication id; 0 until it is known.
    pub remote_id: u32,
    /// Its state.
    pub state: State,
    /// `None` for datagram services.
    pub transport: Option<CmTransport>,
    /// The service that was asked for.
    pub service: ServiceId,
    /// Source and destination of its messages.
    pub route: Route,
    /// Our QP and the peer's, as far as they are known.
    pub qpns: [Qpn; 2],
}

/// What one side has said about itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Side {
    pub qpn: Qpn,
    /// PSN of the first packet that it receives.
    pub starting_psn: Psn,
    /// READs and atomics that it executes at once.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have outstanding.
    pub initiator_depth: u8,
    /// What it wants the other side to do after RNR NAKs.
    pub rnr_retry: u8,
}

pub(crate) struct Connection {
    pub id: CommId,
    pub state: State,
    /// The listener that was asked, until it has answered.
    pub listener: Option<ListenerId>,
    /// `None` for datagram services.
    pub transport: Option<CmTransport>,
    pub route: Route,
    pub service: ServiceId,
    /// `None` for datagram services.
    pub path: Option<Path>,
    /// Transaction id of the messages that set the connection up.
    pub transaction: u64,
    /// The peer's communication id; for SIDR, its request id.
    pub remote_id: u32,
    pub remote_guid: u64,
    /// The address that the peer's messages come from: that of its REQ, or the one that was asked. From others they are
    /// not taken.
    pub source: IpAddr,
    pub local: Side,
    pub remote: Side,
    pub retry_count: u8,
    /// Exponent: how long packets live on the path.
    pub packet_life: u8,
    /// Exponent of the QP's timeout, and so of the timewait.
    pub timeout: u8,
    /// Exponent: the longest time that the peer takes to answer a message.
    pub peer_response: u8,
    /// The message that waits for an answer.
    pub repeat: Option<Repeat>,
    /// The last answer, for a peer that did not receive it: an RTU or a DREP.
    pub answer: Option<Box<[u8; MAD_LEN]>>,
    /// Its owner no longer wants its events.
    pub orphaned: bool,
    /// The time its timer is set to; [`Time::NEVER`] if it is not set.
    pub timer: Time,
}

impl Connection {
    pub fn status(&self) -> Status {
        Status {
            id: self.id,
            remote_id: self.remote_id,
            state: self.state,
            transport: self.transport,
            service: self.service,
            route: self.route,
            qpns: [self.local.qpn, self.remote.qpn],
        }
    }

    pub fn peer(&self) -> Peer {
        Peer { source: self.source, guid: self.remote_guid }
    }

    pub fn ids(&self) -> CmIds {
        self.ids_for(self.remote_id)
    }

    /// The ids for a message to a peer whose id is not stored yet.
    pub fn ids_for(&self, remote: u32) -> CmIds {
        CmIds { local: self.id.get(), remote }
    }

    /// How long packets may still be in the network (IBTA 12.9.8.4).
    pub fn timewait(&self) -> Duration {
        crate::config::exponent(self.timeout)
    }
}
