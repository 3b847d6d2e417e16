//! What the QPs of an engine share while they are driven.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use slotmap::SlotMap;
use softrnic_sync::notify::Notify;
use softrnic_transport::Counter;
use softrnic_wire::Srqn;

use super::adversary::Adversary;
use super::diagnoses::Diagnoses;
use super::host::Staged;
use super::objects::{Cq, CqKey, Event, QpKey, SrqKey, XrcdKey};
use super::processes::Processes;

/// Outputs held until all that came has been seen, counters, the directory of XRC receive queues, what was seen of processes,
/// failures, and who holds outputs for longer, if anybody does.
pub struct Shared {
    pub cqs: SlotMap<CqKey, Cq>,
    pub staged: StagedCompletions,
    /// Completions that became visible before the others, since there was no memory to stage them.
    pub shown: usize,
    /// Who is to be notified of completions.
    pub fired: Vec<Arc<dyn Notify>>,
    /// QPs whose completion queues had no room for a completion.
    pub overrun: Vec<QpKey>,
    pub events: Vec<Event>,
    pub counters: [u64; Counter::ALL.len()],
    pub xrc_srqs: FxHashMap<Srqn, (SrqKey, XrcdKey)>,
    pub processes: Processes,
    pub diagnoses: Diagnoses,
    pub adversary: Option<Box<Adversary>>,
    /// Whether somebody contends or watches: an adversary holds what comes, or who is told of failures sees memory too.
    pub is_attended: bool,
    /// Whether slots of completed requests are not free at once.
    pub holds_slots: bool,
    /// Whether bytes of a message may be placed before its first ones: with SRD, and where losses may be recovered selectively.
    pub comes_in_any_order: bool,
    /// Bytes of requests that have come before their turn.
    pub held: usize,
    /// Their buffers, when they were executed.
    pub spare_buffers: Vec<Vec<u8>>,
    /// QPs that have lost something, or could use many paths, and may ask what their peers' NICs can do; whether any may.
    pub losers: Vec<QpKey>,
    pub asks_peers: bool,
}

/// Completions that are not visible yet.
#[derive(Default)]
pub struct StagedCompletions {
    sends: Vec<Staged>,
    receives: Vec<Staged>,
}

impl StagedCompletions {
    /// Whether it was kept: there may be no memory.
    #[inline]
    pub fn push(&mut self, staged: &Staged) -> bool {
        let list = match staged.cqe.opcode.is_receive() {
            true => &mut self.receives,
            false => &mut self.sends,
        };
        let has_room = list.try_reserve(1).is_ok();
        if has_room {
            list.push(*staged);
        }
        has_room
    }

    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Those of receives.
    pub fn receives(&self) -> &[Staged] {
        &self.receives
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Staged> {
        self.sends.iter().chain(&self.receives)
    }

    /// Whether any is of a receive.
    pub fn has_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Completions of requests first, and consecutive ones for the same CQ together. An ACK that shares a segmented
    /// send with an answer arrives behind it, but belongs before it: programs that wait for either of two CQs, such as
    /// `ib_send_lat -e`, expect the order of devices that acknowledge before the application can answer.
    pub fn runs(&self) -> impl Iterator<Item = &[Staged]> {
        let same_cq = |a: &Staged, b: &Staged| a.cq == b.cq;
        self.sends.chunk_by(same_cq).chain(self.receives.chunk_by(same_cq))
    }

    /// Drops those of a QP.
    pub fn forget(&mut self, qp: QpKey) {
        self.sends.retain(|staged| staged.qp != qp);
        self.receives.retain(|staged| staged.qp != qp);
    }

    pub fn clear(&mut self) {
        self.sends.clear();
        self.receives.clear();
    }

    /// Takes all of them; those of each work queue in their order.
    pub fn take(&mut self) -> impl Iterator<Item = Staged> + use<> {
        std::mem::take(&mut self.sends).into_iter().chain(std::mem::take(&mut self.receives))
    }
}

impl Shared {
    pub fn new(adversary: Option<u64>, polling_frees_slots: bool) -> Shared {
        Shared {
            cqs: SlotMap::with_key(),
            staged: StagedCompletions::default(),
            shown: 0,
            fired: Vec::new(),
            overrun: Vec::new(),
            events: Vec::new(),
            counters: [0; Counter::ALL.len()],
            xrc_srqs: FxHashMap::default(),
            processes: Processes::default(),
            diagnoses: Diagnoses::default(),
            held: 0,
            spare_buffers: Vec::new(),
            losers: Vec::new(),
            asks_peers: false,
            holds_slots: adversary.is_some() || polling_frees_slots,
            comes_in_any_order: false,
            is_attended: adversary.is_some(),
            adversary: adversary.map(|seed| Box::new(Adversary::new(seed))),
        }
    }

    /// The XRC SRQ with this number, if it is in the QP's domain.
    pub fn xrc_srq(&self, srqn: Srqn, xrcd: Option<XrcdKey>) -> Option<SrqKey> {
        let &(key, domain) = self.xrc_srqs.get(&srqn)?;
        (Some(domain) == xrcd).then_some(key)
    }
}
