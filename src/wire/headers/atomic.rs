//! Atomic extended header (IBTA 9.3.4).

use crate::bytes::{Reader, Writer};
use crate::ids::Rkey;

/// Target and operands of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AtomicEth {
    /// Virtual address at the responder; legal when a multiple of eight.
    pub va: u64,
    /// Key of the region or window that holds it.
    pub rkey: Rkey,
    /// New value of a compare-and-swap, or the amount a fetch-and-add adds.
    pub swap_or_add: u64,
    /// Value a compare-and-swap expects. Fetch-and-add does not use it; peers may leave anything in it.
    pub compare: u64,
}

impl AtomicEth {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<AtomicEth> {
        Some(AtomicEth { va: r.u64()?, rkey: Rkey(r.u32()?), swap_or_add: r.u64()?, compare: r.u64()? })
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.u64(self.va);
        w.u32(self.rkey.0);
        w.u64(self.swap_or_add);
        w.u64(self.compare);
    }
}
