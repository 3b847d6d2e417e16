use std::sync::atomic::{Ordering, fence};

use softrnic_wire::{Qpn, Rkey};

use crate::access::Access;
use crate::check::RemoteFault;
use crate::pd::PdId;
use crate::populate::fault_in;
use crate::racing::Word;
use crate::region::Target;
use crate::safe_copy::Unmapped;
use crate::table::MemoryTable;

/// What a FLUSH covers (selectivity, IBTA A19).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushScope {
    /// The range that the request names; empty at any address inside.
    Range {
        /// First address.
        va: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The whole region or window, whatever address and length the request has.
    Region,
}

/// Size and alignment of the operand of an atomic, in bytes.
const WORD: u64 = 8;

/// Atomics are CPU instructions, so they are also atomic with respect to the application's own (IBV_ATOMIC_GLOB).
///
/// An on-demand word is first faulted in for writing; [`RemoteFault::Unmapped`] if that fails. No system call executes a
/// 64-bit atomic, so that only the handler of `lost_page.rs` helps where the application unmaps the page after that.
impl MemoryTable {
    /// CmpSwap: stores `swap` if the word at `va` equals `compare`; returns what was there. Values are in the
    /// machine's byte order.
    pub fn compare_swap(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        compare: u64,
        swap: u64,
    ) -> Result<u64, RemoteFault> {
        self.with_word(pd, qpn, rkey, va, Access::REMOTE_ATOMIC, |word| word.compare_swap(compare, swap))
    }

    /// FetchAdd: adds to the word at `va`, wrapping; returns what was there. Values are in the machine's byte
    /// order.
    pub fn fetch_add(&self, pd: PdId, qpn: Qpn, rkey: Rkey, va: u64, add: u64) -> Result<u64, RemoteFault> {
        self.with_word(pd, qpn, rkey, va, Access::REMOTE_ATOMIC, |word| word.fetch_add(add))
    }

    /// ATOMIC WRITE: stores 8 bytes atomically, after all earlier writes.
    pub fn atomic_write(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        bytes: [u8; 8],
    ) -> Result<(), RemoteFault> {
        self.with_word(pd, qpn, rkey, va, Access::REMOTE_WRITE, |word| word.store(u64::from_ne_bytes(bytes)))
    }

    /// FLUSH to the placements in `placement` (FLUSH_GLOBAL, FLUSH_PERSISTENT): everything written before is visible to
    /// all threads when it returns. No region grants FLUSH_PERSISTENT, so asking for that is an access fault.
    pub fn flush(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        scope: FlushScope,
        placement: Access,
    ) -> Result<(), RemoteFault> {
        match scope {
            FlushScope::Range { va, len } => self.check_remote(pd, qpn, rkey, va, len, placement)?,
            FlushScope::Region => self.allow_remote(pd, qpn, rkey, placement)?,
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn with_word<T>(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        needed: Access,
        operate: impl FnOnce(&Word) -> Result<T, Unmapped>,
    ) -> Result<T, RemoteFault> {
        // IBTA 9.4.5: the virtual address decides. Where iova and address differ modulo 8, the machine could not do it
        // either.
        if !va.is_multiple_of(WORD) {
            return Err(RemoteFault::Misaligned);
        }
        let (addr, guarded) = match self.resolve_remote(pd, qpn, rkey, va, WORD, needed)? {
            Target::Plain(addr) => (addr, false),
            Target::Guarded(addr) => (addr, true),
            Target::Pages { list, offset, guarded } => (list.locate(offset).0, guarded),
            // Null regions give peers no rights.
            Target::Null => return Err(RemoteFault::Access),
        };
        if !(addr as u64).is_multiple_of(WORD) {
            return Err(RemoteFault::Misaligned);
        }
        if guarded && fault_in(addr, WORD as usize, true).is_err() {
            return Err(RemoteFault::Unmapped);
        }
        // SAFETY: aligned, in bounds, and registered for writing, since remote rights to write need LOCAL_WRITE.
        let word = unsafe { Word::new(addr) };
        operate(&word).map_err(|Unmapped| RemoteFault::Unmapped)
    }
}
