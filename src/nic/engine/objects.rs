//! The objects of a NIC and how they refer to each other.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use slotmap::new_key_type;
use softrnic_memory::PdId;
use softrnic_transport::{Qp, QpEvent, QpType};
use softrnic_wire::{Qpn, Srqn, Time};

use super::completion::Cqe;
use super::data::{LocalData, RecvRequest, SendRequest};
use super::peers::PeerId;
use crate::runtime::notify::{ArmedNic, Notify};
use crate::runtime::queue::{CompletionRingNic, RecvRingNic, SendRingNic};

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
    /// The place of the QP in dense tables.
    pub fn index(self) -> usize {
        (slotmap::Key::data(&self).as_ffi() & 0xFFFF_FFFF) as usize
    }
}

/// Where a QP's receive work requests come from.
pub enum ReceiveQueue {
    /// Its own queue.
    Own(RecvRingNic<RecvRequest>),
    /// A shared one.
    Shared(SrqKey),
    /// None of its own: XRC targets are told by each packet, XRC initiators receive nothing.
    None,
}

/// A QP with everything it is connected to.
pub struct QpSlot {
    pub qp: Qp<LocalData>,
    pub io: QpIo,
}

/// What is counted for each QP by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCounts {
    /// Packets sent, those sent again included.
    pub packets_sent: u64,
    /// Packets that came for it and were not damaged.
    pub packets_received: u64,
    /// Bytes of the packets sent, from the BTH to the ICRC.
    pub bytes_sent: u64,
    /// Bytes of the packets received, likewise.
    pub bytes_received: u64,
    /// Request packets sent more than once.
    pub retransmitted: u64,
    /// RNR NAKs sent.
    pub rnr_sent: u64,
    /// RNR NAKs received.
    pub rnr_received: u64,
}

/// The surroundings of a QP.
pub struct QpIo {
    pub key: QpKey,
    pub qpn: Qpn,
    pub service: QpType,
    pub pd: PdId,
    /// Packets may be marked by congested switches instead of being dropped.
    pub ecn_capable: bool,
    /// Whether the last packet came over IPv4.
    pub ipv4: bool,
    pub send_cq: CqKey,
    pub recv_cq: CqKey,
    pub xrcd: Option<XrcdKey>,
    pub sends: SendRingNic<SendRequest>,
    /// The QP did not take all that was posted.
    pub starved: bool,
    /// There was no memory to keep a completion of this QP until the end of the step.
    pub lost_completion: bool,
    pub receives: ReceiveQueue,
    pub peer: Option<PeerId>,
    /// In the list of QPs that have something to do.
    pub active: bool,
    /// In its peer's list of those that wait for the window.
    pub waiting: bool,
    /// When it is woken next, if ever.
    pub timer: Time,
    /// For statistics.
    pub counts: QpCounts,
    /// State as the application's threads see it without the NIC lock.
    pub shared_state: Arc<std::sync::atomic::AtomicU8>,
}

/// A completion queue.
pub struct Cq {
    pub ring: CompletionRingNic<Cqe>,
    pub armed: ArmedNic,
    pub notify: Option<Arc<dyn Notify>>,
    /// QPs and SRQs that report here.
    pub users: usize,
    /// It has overflowed, and says so once.
    pub overrun: bool,
}

/// A shared receive queue.
pub struct Srq {
    pub ring: RecvRingNic<RecvRequest>,
    pub pd: PdId,
    pub srqn: Srqn,
    /// SRQ_LIMIT_REACHED when fewer than this remain; 0 when not armed.
    pub limit: usize,
    pub users: usize,
    /// XRC: the domain, and the CQ for what it receives.
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
    /// A completion queue has overflowed.
    CqError(CqKey),
    /// Few receive WQEs are left.
    SrqLimit(SrqKey),
    /// The device has failed and serves nothing any more.
    DeviceFatal,
    /// The port came up.
    PortActive,
    /// The port went down.
    PortError,
    /// The GID table has changed.
    GidChange,
}
