//! Parameters that an application gives for a connection, and the resulting attributes of its QP.

use alloc::vec::Vec;
use core::net::IpAddr;

use softrnic_wire::{Gid, Mtu, Psn, Qkey, Qpn, ServiceId};

/// The two addresses that a connection's datagrams travel between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// Ours.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

/// The path of a connection's packets, as a REQ names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Source and destination.
    pub route: Route,
    /// 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit; above 1 the peer is beyond a router.
    pub hop_limit: u8,
    /// Largest payload.
    pub mtu: Mtu,
}

impl Path {
    /// The local GID.
    pub fn local_gid(&self) -> Gid {
        self.route.local.into()
    }

    /// The peer's GID.
    pub fn remote_gid(&self) -> Gid {
        self.route.remote.into()
    }
}

/// The transport service of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CmTransport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection: the active side has the initiator QP, the passive side the target QP.
    Xrc,
}

/// Enhanced connection establishment: vendor options, carried but not interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ece {
    /// 24 bits.
    pub vendor_id: u32,
    /// Options.
    pub options: u32,
}

/// What the active side asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectParams {
    /// The service.
    pub service: ServiceId,
    /// The path to it.
    pub path: Path,
    /// Transport service.
    pub transport: CmTransport,
    /// Our QP.
    pub qpn: Qpn,
    /// PSN of the first packet that the peer sends.
    pub starting_psn: Psn,
    /// READs and atomics of the peer that we execute at once.
    pub responder_resources: u8,
    /// READs and atomics that we want to have outstanding.
    pub initiator_depth: u8,
    /// Retries of either side's QP, 0..=7.
    pub retry_count: u8,
    /// Retries of the peer's QP after RNR NAKs, 0..=7.
    pub rnr_retry: u8,
    /// Exponent: how long packets live on the path, if other than the device's default.
    pub packet_life: Option<u8>,
    /// ACK credits are honoured.
    pub flow_control: bool,
    /// We receive into an SRQ.
    pub srq: bool,
    /// At most 92 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}

/// What the passive side agrees to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AcceptParams {
    /// Our QP.
    pub qpn: Qpn,
    /// PSN of the first packet that the peer sends.
    pub starting_psn: Psn,
    /// READs and atomics of the peer that we execute at once.
    pub responder_resources: u8,
    /// READs and atomics that we want to have outstanding.
    pub initiator_depth: u8,
    /// Retries of the peer's QP after RNR NAKs, 0..=7.
    pub rnr_retry: u8,
    /// ACK credits are honoured.
    pub flow_control: bool,
    /// We receive into an SRQ.
    pub srq: bool,
    /// At most 196 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}

/// What a listener accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The service.
    pub service: ServiceId,
    /// The transport that requests must be for; `None` for datagram services.
    pub transport: Option<CmTransport>,
    /// Requests that may wait for an answer; more are dropped, and their senders repeat them.
    pub backlog: usize,
}

/// The attributes that the connection gives its QP. Of each pair of numbers that the two sides exchange, this holds the
/// one meant for our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpParams {
    /// The path.
    pub path: Path,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// The first PSN that we receive.
    pub rq_psn: Psn,
    /// The first PSN that we send.
    pub sq_psn: Psn,
    /// Exponent of the local ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry_count: u8,
    /// Retries after RNR NAKs.
    pub rnr_retry: u8,
    /// READs and atomics that we may have outstanding (`max_rd_atomic`).
    pub initiator_depth: u8,
    /// READs and atomics that the peer may have outstanding (`max_dest_rd_atomic`).
    pub responder_resources: u8,
}

/// A request to a datagram service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrParams {
    /// The service.
    pub service: ServiceId,
    /// Source and destination.
    pub route: Route,
    /// At most 216 bytes.
    pub private: Vec<u8>,
}

/// The answer of a datagram service.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SidrReply {
    /// 0 when `qpn` and `qkey` are valid (IBTA 12.11.2.1).
    pub status: u8,
    /// The service's QP.
    pub qpn: Qpn,
    /// The key that admits datagrams to it.
    pub qkey: Qkey,
    /// At most 136 bytes.
    pub private: Vec<u8>,
    /// Vendor options.
    pub ece: Ece,
}
