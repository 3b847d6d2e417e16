//! Responder resources: what is kept to answer duplicate READs and atomics (IBTA 9.7.5.1.3, C9-110).

use alloc::collections::VecDeque;

use softrnic_wire::{Msn, Psn, Reth};

use crate::host::Domain;

/// A READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub first: Psn,
    pub packets: u32,
    pub msn: Msn,
    pub kind: SavedKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SavedKind {
    /// Executed again from memory, in the domain that the request was checked in.
    Read(Domain, Reth),
    /// The former value is replayed.
    Atomic(u64),
    /// FLUSH and ATOMIC WRITE: the empty response is replayed.
    Empty,
}

/// A quarter of the PSN space. A repeated request lies less than half of it behind. One that is forgotten at a quarter
/// was acknowledged long ago, given what has been accepted since.
const OLDEST: i32 = 1 << 22;

/// The newest READs and atomics, oldest first.
pub(crate) struct Resources {
    saved: VecDeque<Saved>,
}

impl Resources {
    pub fn new() -> Resources {
        Resources { saved: VecDeque::new() }
    }

    pub fn len(&self) -> usize {
        self.saved.len()
    }

    /// Saves one more, and forgets the oldest beyond `depth`. rxe rounds the depth it may use up to a power of two, so
    /// that many are kept.
    pub fn save(&mut self, saved: Saved, depth: u8) {
        while self.saved.len() >= (depth.max(1) as usize).next_power_of_two() {
            self.saved.pop_front();
        }
        self.saved.push_back(saved);
    }

    /// Forgets what lies so far behind `expected` that its PSN would soon appear to be ahead.
    pub fn forget_before(&mut self, expected: Psn) {
        while self.saved.front().is_some_and(|s| expected.distance_from(s.first + s.packets) > OLDEST) {
            self.saved.pop_front();
        }
    }

    /// The saved atomic, FLUSH or ATOMIC WRITE at `psn`.
    pub fn find(&self, psn: Psn) -> Option<Saved> {
        self.saved.iter().rev().find(|s| s.first == psn && !matches!(s.kind, SavedKind::Read(..))).copied()
    }

    /// The saved READ that a repeated READ request at `psn` is a part of, cut to what it asks for.
    pub fn find_read(&self, psn: Psn, again: &Reth, mtu: u32) -> Option<Saved> {
        self.saved.iter().rev().find_map(|s| {
            let SavedKind::Read(domain, reth) = s.kind else { return None };
            let place = u64::try_from(psn.distance_from(s.first)).ok()?;
            let offset = place * mtu as u64;
            let inside = offset + again.dma_len as u64 <= reth.dma_len as u64;
            let same = reth.dma_len == 0
                || (again.rkey == reth.rkey && again.va == reth.va.wrapping_add(offset) && again.dma_len > 0);
            (inside && same).then_some(Saved {
                first: psn,
                packets: again.dma_len.div_ceil(mtu).max(1),
                msn: s.msn,
                kind: SavedKind::Read(domain, *again),
            })
        })
    }

    /// The first PSN after `psn` that belongs to a saved request.
    pub fn first_after(&self, psn: Psn) -> Option<Psn> {
        self.saved.iter().map(|s| s.first).find(|first| first.is_after(psn))
    }
}

#[cfg(test)]
mod tests;
