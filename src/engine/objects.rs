//! The objects of a NIC and how they refer to each other.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use slotmap::new_key_type;
use softrnic_memory::PdId;
use softrnic_transport::{Qp, QpEvent, QpType};
use softrnic_wire::{Qpn, Srqn, Time};

use super::completion::Cqe;
use super::data::{LocalData, RecvRequest, SendRequest};
use super::diagnoses::Trouble;
use super::gsi::PeerNic;
use super::peers::PeerId;
use softrnic_sync::notify::{ArmedNic, Notify};
use softrnic_sync::queue::{CompletionRingNic, RecvRingNic, SendRingNic};

new_key_type! {
    /// A queue pair.
    pub struct QpKey;
    /// A completion queue.
    pub struct CqKey;
    /// A shared receive queue.
    pub struct SrqKey;
    /// An XRC domain.
    pub struct XrcdKey;
}

impl QpKey {
    /// The index of the QP in dense tables.
    pub fn index(self) -> usize {
        (slotmap::Key::data(&self).as_ffi() & 0xFFFF_FFFF) as usize
    }
}

/// The source of a QP's receive work requests.
pub enum ReceiveQueue {
    /// Its own queue.
    Own(RecvRingNic<RecvRequest>),
    /// A shared one.
    Shared(SrqKey),
    /// None of its own: for XRC targets each packet names the queue; XRC initiators receive nothing.
    None,
}

/// A QP with everything it is connected to.
pub struct QpSlot {
    pub qp: Qp<LocalData>,
    pub io: QpIo,
}

/// Counters of a single QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCounts {
    /// Packets sent, including retransmissions.
    pub packets_sent: u64,
    /// Undamaged packets received for it.
    pub packets_received: u64,
    /// Bytes of the packets sent, from BTH to ICRC.
    pub bytes_sent: u64,
    /// Bytes of the packets received, from BTH to ICRC.
    pub bytes_received: u64,
    /// Request packets sent more than once.
    pub retransmitted: u64,
    /// RNR NAKs sent.
    pub rnr_sent: u64,
    /// RNR NAKs received.
    pub rnr_received: u64,
}

/// The environment of a QP.
pub struct QpIo {
    pub key: QpKey,
    pub qpn: Qpn,
    pub service: QpType,
    pub pd: PdId,
    /// Whether congested switches may mark its packets instead of dropping them.
    pub ecn_capable: bool,
    /// Whether the last packet was sent in memory, where none is lost.
    pub in_memory: bool,
    /// Whether the last packet arrived over IPv4.
    pub ipv4: bool,
    pub send_cq: CqKey,
    pub recv_cq: CqKey,
    pub xrcd: Option<XrcdKey>,
    pub sends: SendRingNic<SendRequest>,
    /// The QP did not accept all that was posted.
    pub starved: bool,
    pub receives: ReceiveQueue,
    pub peer: Option<PeerId>,
    /// Whether it is in the list of QPs that may have work.
    pub active: bool,
    /// Whether it is in its peer's list of QPs that wait for the window.
    pub waiting: bool,
    /// When it is woken next, if at all.
    pub timer: Time,
    /// What it has asked its peer's NIC, and what that has said, if either has asked.
    pub peer_nic: Option<Box<PeerNic>>,
    /// What has gone wrong, if anything has.
    pub trouble: Option<Box<Trouble>>,
    /// For statistics.
    pub counts: QpCounts,
    /// State as application threads see it without the NIC lock.
    pub shared_state: Arc<std::sync::atomic::AtomicU8>,
}

/// A completion queue.
pub struct Cq {
    pub ring: CompletionRingNic<Cqe>,
    pub armed: ArmedNic,
    pub notify: Option<Arc<dyn Notify>>,
    /// Number of QPs and SRQs that report here.
    pub users: usize,
    /// It has overrun, which is reported once.
    pub overrun: bool,
}

/// A shared receive queue.
pub struct Srq {
    pub ring: RecvRingNic<RecvRequest>,
    pub pd: PdId,
    pub srqn: Srqn,
    /// SRQ_LIMIT_REACHED is raised when fewer than this remain; 0 if not armed.
    pub limit: usize,
    pub users: usize,
    /// XRC: the domain, and the CQ for its receives.
    pub xrc: Option<(XrcdKey, CqKey)>,
}

/// An XRC domain.
#[derive(Default)]
pub struct Xrcd {
    pub users: usize,
}

/// A multicast group and the QPs attached to it.
#[derive(Default)]
pub struct Group {
    pub qps: FxHashSet<QpKey>,
}

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// About a QP.
    Qp(QpKey, QpEvent),
    /// A completion queue has overrun.
    CqError(CqKey),
    /// Few receive WQEs are left.
    SrqLimit(SrqKey),
    /// The device has failed and serves no further calls.
    DeviceFatal,
    /// The port came up.
    PortActive,
    /// The port went down.
    PortError,
    /// The GID table has changed.
    GidChange,
    /// The speed of the port has changed.
    SpeedChange,
}
