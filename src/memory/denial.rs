//! What exactly was wrong with a key or a range: asked for once a check has failed, so the checks themselves stay as short
//! as they are.

use std::collections::VecDeque;

use softrnic_wire::{Qpn, Rkey, Time};

use crate::access::Access;
use crate::key::Lkey;
use crate::pd::PdId;
use crate::region::{Region, RegionState};
use crate::table::{Entry, MemoryTable};

/// Why a key does not give access to a range, with the values that say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// No object has had this key, as far as is remembered.
    UnknownKey,
    /// An object has this key if its bytes are read in the other order.
    SwappedKey,
    /// The object with this key was destroyed.
    Destroyed(Tombstone),
    /// A window or fast-register region has that index, and now another tag.
    OldTag {
        /// Its present key.
        key: u32,
    },
    /// The key of a window, where that of a region is needed.
    WindowKey,
    /// Another protection domain than the queue pair's, or than that of the queue.
    WrongPd,
    /// Rights are missing.
    Access {
        /// Those.
        missing: Access,
    },
    /// Before the first byte.
    BeforeStart {
        /// By how many bytes.
        by: u64,
        /// Which range the key gives access to.
        valid: ValidRange,
    },
    /// Past the last byte.
    PastEnd {
        /// By how many bytes.
        by: u64,
        /// Which range the key gives access to.
        valid: ValidRange,
    },
    /// The address would be inside if its bytes were read in the other order.
    SwappedAddress {
        /// Which range the key gives access to.
        valid: ValidRange,
    },
    /// The low half of an address inside.
    CutAddress {
        /// Which range the key gives access to.
        valid: ValidRange,
    },
    /// A window that is not bound.
    NotBound,
    /// A fast-register region that is not valid.
    NotValid,
    /// A window that is bound to another queue pair.
    BoundElsewhere {
        /// That one.
        qpn: Qpn,
    },
    /// The address of an atomic is not a multiple of 8.
    Misaligned,
    /// The memory is not mapped, or not writable.
    Unmapped,
}

/// The bytes that a key gives access to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidRange {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// What a destroyed key was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The key.
    pub key: u32,
    /// Whether it was a window's; else a region's.
    pub window: bool,
    /// What it gave access to; nothing for a window that was not bound.
    pub valid: ValidRange,
    /// When it was destroyed, if the table was told the time.
    pub at: Option<Time>,
}

/// The keys that were destroyed last.
#[derive(Default)]
pub(crate) struct Graveyard {
    stones: VecDeque<Tombstone>,
    /// What the table was told last.
    pub(crate) now: Option<Time>,
}

/// How many destroyed keys are remembered; 40 KiB.
const MOST: usize = 1024;

impl Graveyard {
    pub(crate) fn bury(&mut self, key: u32, window: bool, valid: ValidRange) {
        if self.stones.len() == MOST {
            self.stones.pop_front();
        }
        // Without memory there is nothing to remember.
        if self.stones.try_reserve(1).is_ok() {
            self.stones.push_back(Tombstone { key, window, valid, at: self.now });
        }
    }

    fn find(&self, key: u32) -> Option<Tombstone> {
        self.stones.iter().rev().find(|stone| stone.key == key).copied()
    }
}

impl MemoryTable {
    /// Tells the time, which the keys that are destroyed from now on keep.
    pub fn note_time(&mut self, now: Time) {
        self.graveyard.now = Some(now);
    }

    /// Why an lkey of domain `pd` was refused for a range; `None` if it would be allowed.
    #[cold]
    pub fn explain_local(&self, pd: PdId, lkey: Lkey, addr: u64, length: u64, write: bool) -> Option<Denial> {
        let region = match self.keys.get(lkey.0) {
            Some(Entry::Region(region)) if region.key == lkey.0 => region,
            Some(Entry::Window(window)) if window.key == lkey.0 => return Some(Denial::WindowKey),
            other => return Some(self.explain_absent(lkey.0, other)),
        };
        let needed = if write { Access::LOCAL_WRITE } else { Access::empty() };
        judge_region(region, pd, needed).or_else(|| region.valid().judge(addr, length))
    }

    /// Why an rkey was refused to queue pair `qpn` of domain `pd` for a range; `None` if it would be allowed.
    #[cold]
    pub fn explain_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        length: u64,
        needed: Access,
    ) -> Option<Denial> {
        match self.keys.get(rkey.0) {
            Some(Entry::Region(region)) if region.key == rkey.0 => {
                judge_region(region, pd, needed).or_else(|| region.valid().judge(va, length))
            }
            Some(Entry::Window(window)) if window.key == rkey.0 => {
                let Some(binding) = &window.binding else { return Some(Denial::NotBound) };
                if window.pd != pd {
                    return Some(Denial::WrongPd);
                }
                if let Some(owner) = binding.qpn.filter(|owner| *owner != qpn) {
                    return Some(Denial::BoundElsewhere { qpn: owner });
                }
                judge_access(binding.access, needed).or_else(|| binding.valid().judge(va, length))
            }
            other => Some(self.explain_absent(rkey.0, other)),
        }
    }

    /// Why no object has this key; one with its index may exist.
    fn explain_absent(&self, key: u32, same_index: Option<&Entry>) -> Denial {
        if let Some(stone) = self.graveyard.find(key) {
            return Denial::Destroyed(stone);
        }
        match same_index {
            Some(Entry::Window(window)) => return Denial::OldTag { key: window.key },
            Some(Entry::Region(region)) => return Denial::OldTag { key: region.key },
            None => {}
        }
        let swapped = key.swap_bytes();
        let has_swapped = match self.keys.get(swapped) {
            Some(Entry::Region(region)) => region.key == swapped,
            Some(Entry::Window(window)) => window.key == swapped,
            None => false,
        };
        if has_swapped { Denial::SwappedKey } else { Denial::UnknownKey }
    }
}

fn judge_region(region: &Region, pd: PdId, needed: Access) -> Option<Denial> {
    if region.state != RegionState::Valid {
        return Some(Denial::NotValid);
    }
    if region.pd != pd {
        return Some(Denial::WrongPd);
    }
    judge_access(region.access, needed)
}

fn judge_access(has: Access, needed: Access) -> Option<Denial> {
    let missing = needed - has;
    (!missing.is_empty()).then_some(Denial::Access { missing })
}

impl ValidRange {
    fn contains(&self, va: u64, length: u64) -> bool {
        crate::region::within(self.start, self.length, va, length)
    }

    fn judge(self, va: u64, length: u64) -> Option<Denial> {
        if self.contains(va, length) {
            return None;
        }
        if self.contains(va.swap_bytes(), length) {
            return Some(Denial::SwappedAddress { valid: self });
        }
        let upper_half = self.start >> 32 << 32;
        if va >> 32 == 0 && upper_half != 0 && self.contains(upper_half | va, length) {
            return Some(Denial::CutAddress { valid: self });
        }
        if va < self.start {
            return Some(Denial::BeforeStart { by: self.start - va, valid: self });
        }
        let end = u128::from(self.start) + u128::from(self.length);
        let by = (u128::from(va) + u128::from(length)).saturating_sub(end);
        Some(Denial::PastEnd { by: by.try_into().unwrap_or(u64::MAX), valid: self })
    }
}
