//! RDMA extended header (IBTA 9.3.3).

use crate::bytes::{Reader, Writer};
use crate::ids::Rkey;

/// Which remote memory a READ, WRITE, ATOMIC WRITE or FLUSH concerns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Key of the region or window that holds it.
    pub rkey: Rkey,
    /// Bytes in the whole message; legal up to 2^31.
    pub dma_len: u32,
}

impl Reth {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Reth> {
        Some(Reth { va: r.u64()?, rkey: Rkey(r.u32()?), dma_len: r.u32()? })
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.u64(self.va);
        w.u32(self.rkey.0);
        w.u32(self.dma_len);
    }
}
