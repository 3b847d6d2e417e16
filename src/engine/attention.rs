//! Where an adversary or a checker attends to what the engine does to memory.
//!
//! The rest of the engine looks at one flag, `Shared::is_attended`, where it looked for an adversary alone before: nobody who
//! does not ask for this pays for it.

use softrnic_memory::Sge;
use softrnic_transport::{AtomicOp, Domain, LocalFault, RemoteFault};
use softrnic_wire::{Qpn, Rkey, Time};

use super::Engine;
use super::completion::Cqe;
use super::data::SgeList;
use super::host::HostView;

/// What the engine does to memory.
#[derive(Clone, Copy, Debug)]
pub enum Act<'a> {
    /// Bytes of a message are about to be placed for a request of a QP, whose list this is: the first, or some of them where they
    /// come in any order.
    Place {
        /// The QP.
        qpn: Qpn,
        /// Where the request wants them.
        list: &'a [Sge],
    },
    /// A peer's bytes are about to be written.
    Write {
        /// The key.
        rkey: Rkey,
        /// First address.
        va: u64,
        /// Bytes.
        length: u64,
    },
    /// A peer's atomic was executed.
    Atomic(Atomic),
    /// A completion is about to become visible, and its bytes are in memory.
    Complete(&'a Cqe),
}

/// An atomic of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atomic {
    /// The QP that executed it.
    pub qpn: Qpn,
    /// The key.
    pub rkey: Rkey,
    /// The address.
    pub va: u64,
    /// The word before.
    pub before: u64,
    /// The word after.
    pub after: u64,
    /// The step of the engine. Its peers have no answer to anything of it before it ends.
    pub step: Time,
}

impl HostView<'_, '_> {
    pub(super) fn tell(&self, act: &Act<'_>) {
        if let Some(watch) = self.shared.diagnoses.watch().filter(|watch| watch.sees_memory()) {
            watch.saw(act);
        }
    }

    /// Like `scatter` of the host, with whoever attends.
    #[cold]
    #[inline(never)]
    pub(super) fn scatter_attended(
        &mut self,
        domain: Domain,
        list: &SgeList,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault> {
        if offset == 0 || self.shared.comes_in_any_order {
            self.tell(&Act::Place { qpn: self.io.qpn, list });
        }
        match self.shared.adversary {
            Some(_) => self.scatter_held(domain, list, offset, bytes),
            None => self.scatter_now(domain, list, offset, bytes),
        }
    }

    /// Like `write_remote` of the host, with whoever attends.
    #[cold]
    #[inline(never)]
    pub(super) fn write_attended(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteFault> {
        self.tell(&Act::Write { rkey, va, length: bytes.len() as u64 });
        match self.shared.adversary {
            Some(_) => self.write_held(domain, rkey, va, bytes),
            None => self.write_now(domain, rkey, va, bytes),
        }
    }

    /// An atomic was executed.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_atomic(&self, rkey: Rkey, va: u64, op: AtomicOp, before: u64) {
        let after = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == before => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
        };
        self.tell(&Act::Atomic(Atomic { qpn: self.io.qpn, rkey, va, before, after, step: self.now }));
    }
}

impl Engine {
    /// Completions are about to become visible.
    #[cold]
    #[inline(never)]
    pub(super) fn attend(&mut self, now: Time) {
        if self.shared.adversary.is_some() {
            self.contend(now);
        }
        if let Some(watch) = self.shared.diagnoses.watch().filter(|watch| watch.sees_memory()) {
            self.shared.staged.all().for_each(|staged| watch.saw(&Act::Complete(&staged.cqe)));
        }
    }
}
