//! The objects of a NIC as lists, for those who look at it from outside.

use softrnic_memory::PdId;
use softrnic_wire::{Qpn, Srqn};

use super::Engine;
use super::objects::{QpIo, ReceiveQueue};

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqStatus {
    /// Its number, not reused while it exists.
    pub number: u32,
    /// Its entries.
    pub capacity: usize,
    /// QPs and SRQs that report here.
    pub users: usize,
    /// Completions that nobody has polled.
    pub waiting: usize,
    /// Whether the next one raises an event, if it reports to a channel.
    pub armed: Option<bool>,
}

/// A shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqStatus {
    /// Its number.
    pub srqn: Srqn,
    /// Its protection domain.
    pub pd: PdId,
    /// XRC: the number of its completion queue.
    pub xrc_cq: Option<u32>,
}

/// What a QP belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpOwners {
    /// Its number.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// The SRQ that it receives into.
    pub srqn: Option<Srqn>,
}

impl Engine {
    /// All completion queues.
    pub fn cqs(&self) -> impl Iterator<Item = CqStatus> + '_ {
        self.shared.cqs.iter().map(|(key, cq)| CqStatus {
            number: number_of(key),
            capacity: cq.ring.capacity(),
            users: cq.users,
            waiting: cq.ring.len(),
            armed: cq.notify.as_ref().map(|_| cq.armed.is_armed()),
        })
    }

    /// All shared receive queues.
    pub fn srqs(&self) -> impl Iterator<Item = SrqStatus> + '_ {
        self.srqs.values().map(|srq| SrqStatus {
            srqn: srq.srqn,
            pd: srq.pd,
            xrc_cq: srq.xrc.map(|(_, cq)| number_of(cq)),
        })
    }

    /// What each QP belongs to, in the order of [`Engine::qps`].
    pub fn qp_owners(&self) -> impl Iterator<Item = QpOwners> + '_ {
        self.qps.values().map(|slot| {
            let QpIo { qpn, pd, receives, .. } = &slot.io;
            let srqn = match receives {
                ReceiveQueue::Shared(key) => self.srqs.get(*key).map(|srq| srq.srqn),
                _ => None,
            };
            QpOwners { qpn: *qpn, pd: *pd, srqn }
        })
    }
}

/// The place of an object in its table.
fn number_of(key: impl slotmap::Key) -> u32 {
    key.data().as_ffi() as u32
}
