//! A connection, from the first message to the end of its timewait.

use alloc::boxed::Box;
use core::time::Duration;

use softrnic_wire::{CmIds, MAD_LEN, Psn, Qpn, ServiceId, Time};

use crate::directory::{CommId, ListenerId};
use crate::params::{CmTransport, Path, Route};
use crate::repeat::Repeat;

/// Where a connection is (IBTA 12.9.6). MRAs make no states of their own: they only change how long is waited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Active: asked, and not answered.
    ReqSent,
    /// Active: answered; the QP is being set up.
    RepRcvd,
    /// Passive: asked; the application thinks.
    ReqRcvd,
    /// Passive: agreed, and not confirmed.
    RepSent,
    /// In use.
    Established,
    /// We disconnect.
    DreqSent,
    /// The peer disconnects, and waits for us to agree.
    DreqRcvd,
    /// Over; packets of it may still be on the way.
    Timewait,
    /// A datagram service was asked.
    SidrReqSent,
    /// We were asked for a datagram service.
    SidrReqRcvd,
}

impl State {
    /// Whether a QP is still set up for it, or used (kernel: `cm_init_qp_init_attr`).
    pub fn is_usable(self) -> bool {
        use State::{Established, RepRcvd, RepSent, ReqRcvd, ReqSent};
        matches!(self, ReqSent | RepRcvd | ReqRcvd | RepSent | Established)
    }
}

/// What is to be seen of a connection, or of a question to a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its number, and the peer's for it: 0 while that is not known.
    pub id: CommId,
    /// See [`Status::id`].
    pub remote_id: u32,
    /// Where it is.
    pub state: State,
    /// `None` for datagram services.
    pub transport: Option<CmTransport>,
    /// The service that was asked for.
    pub service: ServiceId,
    /// From where to where its messages travel.
    pub route: Route,
    /// Our QP and the peer's, as far as they were named.
    pub qpns: [Qpn; 2],
}

/// What one side has said of itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Side {
    pub qpn: Qpn,
    /// PSN of the first packet that it receives.
    pub starting_psn: Psn,
    /// READs and atomics that it serves at once.
    pub responder_resources: u8,
    /// READs and atomics that it wants to have outstanding.
    pub initiator_depth: u8,
    /// What it wants the other to do after RNR NAKs.
    pub rnr_retry: u8,
}

pub(crate) struct Connection {
    pub id: CommId,
    pub state: State,
    /// Who was asked, until that is answered.
    pub listener: Option<ListenerId>,
    /// `None` for datagram services.
    pub transport: Option<CmTransport>,
    pub route: Route,
    pub service: ServiceId,
    /// `None` for datagram services.
    pub path: Option<Path>,
    /// Of the messages that set the connection up.
    pub transaction: u64,
    /// The peer's communication id; of a datagram service's question its request id.
    pub remote_id: u32,
    pub remote_guid: u64,
    pub local: Side,
    pub remote: Side,
    pub retry_count: u8,
    /// Exponent: how long packets live on the path.
    pub packet_life: u8,
    /// Exponent of the QP's timeout, and so of the timewait.
    pub timeout: u8,
    /// Exponent: how long the peer takes at most to answer a message.
    pub peer_response: u8,
    /// What waits for an answer.
    pub repeat: Option<Repeat>,
    /// The last answer, for a peer that did not get it: an RTU or a DREP.
    pub answer: Option<Box<[u8; MAD_LEN]>>,
    /// Its owner does not want to hear of it any more.
    pub orphaned: bool,
    /// When its timer is set to, [`Time::NEVER`] if it is not.
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

    pub fn ids(&self) -> CmIds {
        self.ids_for(self.remote_id)
    }

    /// As towards a peer whose number is not taken over yet.
    pub fn ids_for(&self, remote: u32) -> CmIds {
        CmIds { local: self.id.get(), remote }
    }

    /// How long packets may still be on the way (IBTA 12.9.8.4).
    pub fn timewait(&self) -> Duration {
        crate::config::exponent(self.timeout)
    }
}
