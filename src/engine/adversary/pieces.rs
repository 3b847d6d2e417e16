//! Payload that has come and is not in memory yet, in pieces that reach it in any order.

use std::ops::Range;

use softrnic_link::Rng;
use softrnic_memory::{Lkey, MemoryTable, PdId, Sge};
use softrnic_transport::{Domain, LocalFault, RemoteFault};
use softrnic_wire::{Qpn, Rkey};

use super::super::data::SgeList;
use super::super::host::{HostView, pd};
use super::shuffle;

/// The smallest piece: what one line of the cache holds, beginning at a multiple of it.
const LINE: u64 = 64;

/// A key, and as whom it is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Local(PdId, Lkey),
    Remote(PdId, Qpn, Rkey),
}

/// Some bytes for one place.
struct Piece {
    key: Key,
    at: u64,
    /// Which of the bytes.
    bytes: Range<usize>,
}

/// See the [module](self).
#[derive(Default)]
pub struct Pieces {
    list: Vec<Piece>,
    bytes: Vec<u8>,
    /// The key of them all, and what they cover with all that is between them.
    covered: Option<(Key, Range<u64>)>,
    /// Some have come since the last were placed.
    is_fresh: bool,
}

impl Pieces {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes that are held.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn add(&mut self, rng: &mut Rng, memory: &MemoryTable, key: Key, at: u64, bytes: &[u8]) {
        let range = at..at.saturating_add(bytes.len() as u64);
        // What comes later for the same bytes must stay. Other keys may be for the same bytes.
        let covered = match &self.covered {
            Some((other, covered)) if *other == key && (covered.end <= at || range.end <= covered.start) => {
                covered.start.min(at)..covered.end.max(range.end)
            }
            Some(_) => {
                self.place(rng, memory);
                range
            }
            None => range,
        };
        self.covered = Some((key, covered));
        self.is_fresh = true;
        let grain = LINE << (2 * rng.below(4));
        let mut done = 0;
        while done < bytes.len() {
            let at = at.wrapping_add(done as u64);
            let len = (grain - at % grain).min((bytes.len() - done) as u64) as usize;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&bytes[done..done + len]);
            self.list.push(Piece { key, at, bytes: start..start + len });
            done += len;
        }
    }

    /// Puts all of them into memory.
    pub fn place(&mut self, rng: &mut Rng, memory: &MemoryTable) {
        shuffle(&mut rng.fork(), &mut self.list);
        self.place_behind(0, memory);
    }

    /// Puts some of the new ones into memory: none, those at the end before all others, any, or all but one.
    pub fn place_some(&mut self, rng: &mut Rng, memory: &MemoryTable) {
        if !std::mem::take(&mut self.is_fresh) || self.list.is_empty() {
            return;
        }
        let rng = &mut rng.fork();
        let count = self.list.len();
        let left = match rng.below(4) {
            0 => count,
            1 => count - 1,
            2 => {
                shuffle(rng, &mut self.list);
                rng.below(count as u64 + 1) as usize
            }
            _ => {
                let hole = rng.below(count as u64) as usize;
                self.list.swap(0, hole);
                1
            }
        };
        self.place_behind(left, memory);
    }

    /// Puts all but the first into memory. A key that is gone was taken away while its bytes were on their way.
    #[cold]
    #[inline(never)]
    fn place_behind(&mut self, first: usize, memory: &MemoryTable) {
        for Piece { key, at, bytes } in self.list.drain(first..).rev() {
            let bytes = &self.bytes[bytes];
            let _ = match key {
                Key::Local(pd, lkey) => {
                    let sge = Sge { addr: at, length: bytes.len() as u32, lkey };
                    memory.scatter(pd, &[sge], 0, bytes).ok()
                }
                Key::Remote(pd, qpn, rkey) => memory.write_remote(pd, qpn, rkey, at, bytes).ok(),
            };
        }
        if self.list.is_empty() {
            self.bytes.clear();
            self.covered = None;
        }
    }
}

impl HostView<'_, '_> {
    /// Puts all payload of this QP into memory that is held.
    #[inline(always)]
    pub fn place_held(&mut self) {
        if self.shared.adversary.is_some() {
            self.place_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn place_all(&mut self) {
        if let Some(adversary) = &mut self.shared.adversary
            && let Some(held) = adversary.qps.get_mut(&self.io.key)
        {
            held.pieces.place(&mut held.rng, self.memory);
        }
    }

    fn hold(&mut self, key: Key, at: u64, bytes: &[u8]) {
        if let Some(adversary) = &mut self.shared.adversary {
            let held = adversary.held(self.io.key);
            held.pieces.add(&mut held.rng, self.memory, key, at, bytes);
        }
    }

    /// Like `write_remote` of the host, at a time of its own.
    #[cold]
    #[inline(never)]
    pub fn write_held(
        &mut self,
        domain: Domain,
        rkey: Rkey,
        va: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteFault> {
        let (pd, qpn, length) = (pd(domain), self.io.qpn, bytes.len() as u64);
        let access = softrnic_memory::Access::REMOTE_WRITE;
        let allowed = self.memory.check_remote(pd, qpn, rkey, va, length, access);
        if allowed.is_err() || self.memory.may_be_unmapped(rkey.0) {
            self.place_held();
            return self.write_now(domain, rkey, va, bytes);
        }
        self.hold(Key::Remote(pd, qpn, rkey), va, bytes);
        Ok(())
    }

    /// Like `scatter` of the host, at a time of its own.
    #[cold]
    #[inline(never)]
    pub fn scatter_held(
        &mut self,
        domain: Domain,
        sges: &SgeList,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LocalFault> {
        let parts = parts(sges, offset, bytes.len());
        let found: usize = parts.iter().map(|part| part.length as usize).sum();
        let is_usable = |part: &Sge| {
            self.memory.check_local(pd(domain), part, true).is_ok()
                && !self.memory.may_be_unmapped(part.lkey.0)
        };
        if found < bytes.len() || !parts.iter().all(is_usable) {
            self.place_held();
            return self.scatter_now(domain, sges, offset, bytes);
        }
        let mut rest = bytes;
        for part in parts {
            let (here, more) = rest.split_at(part.length as usize);
            self.hold(Key::Local(pd(domain), part.lkey), part.addr, here);
            rest = more;
        }
        Ok(())
    }
}

/// Where `length` bytes from `offset` on are, as far as the list goes.
fn parts(sges: &SgeList, offset: u64, length: usize) -> Vec<Sge> {
    let (mut skip, mut left) = (offset, length as u64);
    let mut parts = Vec::new();
    for sge in sges {
        let here = u64::from(sge.length).saturating_sub(skip).min(left);
        if here > 0 {
            parts.push(Sge { addr: sge.addr.wrapping_add(skip), length: here as u32, lkey: sge.lkey });
        }
        skip = skip.saturating_sub(sge.length.into());
        left -= here;
    }
    parts
}
