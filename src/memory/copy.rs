use std::ops::Range;
use std::ptr;

use softrnic_wire::{Qpn, Rkey};

use crate::access::Access;
use crate::check::{LocalFault, RemoteFault};
use crate::key::Lkey;
use crate::page_list::PageList;
use crate::pd::PdId;
use crate::racing;
use crate::region::Target;
use crate::safe_copy::{self, Unmapped};
use crate::sge::Sge;
use crate::table::MemoryTable;

impl MemoryTable {
    /// Fills `dst` from the bytes that follow `offset` in the scatter/gather list. Keys are checked for the
    /// bytes touched. On an error `dst` may be filled in part.
    pub fn gather(&self, pd: PdId, sges: &[Sge], offset: u64, dst: &mut [u8]) -> Result<(), LocalFault> {
        let total = dst.len();
        for_each_piece(sges, offset, total, |lkey, addr, at| {
            let dst = &mut dst[at];
            let source = self.resolve_local(pd, lkey, addr, dst.len() as u64, false)?;
            // SAFETY: resolved just now for exactly these bytes; `self` is borrowed, so that nothing has changed.
            unsafe { source.read(dst) }.map_err(|Unmapped| LocalFault::Unmapped)
        })
    }

    /// Writes `src` to the bytes that follow `offset` in the scatter/gather list. Keys are checked for the
    /// bytes touched. On an error a part may be written.
    pub fn scatter(&self, pd: PdId, sges: &[Sge], offset: u64, src: &[u8]) -> Result<(), LocalFault> {
        for_each_piece(sges, offset, src.len(), |lkey, addr, at| {
            let src = &src[at];
            let target = self.resolve_local(pd, lkey, addr, src.len() as u64, true)?;
            // SAFETY: resolved for writing just now, for exactly these bytes; `self` is borrowed, so that nothing has changed.
            unsafe { target.write(src) }.map_err(|Unmapped| LocalFault::Unmapped)
        })
    }

    /// Reads for a peer's READ. An empty `dst` passes without a look at the key.
    pub fn read_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        dst: &mut [u8],
    ) -> Result<(), RemoteFault> {
        if dst.is_empty() {
            return Ok(());
        }
        let source = self.resolve_remote(pd, qpn, rkey, va, dst.len() as u64, Access::REMOTE_READ)?;
        // SAFETY: resolved just now for exactly these bytes; `self` is borrowed, so that nothing has changed.
        unsafe { source.read(dst) }.map_err(|Unmapped| RemoteFault::Unmapped)
    }

    /// Writes for a peer's WRITE. An empty `src` passes without a look at the key.
    pub fn write_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        src: &[u8],
    ) -> Result<(), RemoteFault> {
        if src.is_empty() {
            return Ok(());
        }
        let target = self.resolve_remote(pd, qpn, rkey, va, src.len() as u64, Access::REMOTE_WRITE)?;
        // SAFETY: resolved for writing just now, for exactly these bytes; `self` is borrowed, so that nothing has changed.
        unsafe { target.write(src) }.map_err(|Unmapped| RemoteFault::Unmapped)
    }
}

/// Calls `copy` with key, address and place for each piece of the `total` bytes after `offset` in `sges`.
#[inline]
fn for_each_piece(
    sges: &[Sge],
    offset: u64,
    total: usize,
    mut copy: impl FnMut(Lkey, u64, Range<usize>) -> Result<(), LocalFault>,
) -> Result<(), LocalFault> {
    let mut skip = offset;
    let mut done = 0;
    for sge in sges {
        if done == total {
            break;
        }
        let length = u64::from(sge.length);
        if skip >= length {
            skip -= length;
            continue;
        }
        // At most u32::MAX, so it fits.
        let piece = ((length - skip) as usize).min(total - done);
        let addr = sge.addr.checked_add(skip).ok_or(LocalFault::Bounds)?;
        copy(sge.lkey, addr, done..done + piece)?;
        done += piece;
        skip = 0;
    }
    if done == total { Ok(()) } else { Err(LocalFault::Overrun) }
}

impl Target<'_> {
    /// Copies out.
    ///
    /// # Safety
    ///
    /// The target was resolved for `dst.len()` bytes, and no object was changed since.
    #[inline]
    unsafe fn read(self, dst: &mut [u8]) -> Result<(), Unmapped> {
        match self {
            Self::Plain(addr) => {
                // SAFETY: registered and in bounds, so readable: who called `AppRange::new` keeps application memory
                // mapped, the table keeps device memory. `dst` is memory of the NIC, which nobody registers.
                unsafe { racing::copy(ptr::with_exposed_provenance(addr), dst.as_mut_ptr(), dst.len()) }
                Ok(())
            }
            Self::Guarded(addr) => safe_copy::read(addr, dst),
            Self::Null => {
                dst.fill(0);
                Ok(())
            }
            Self::Pages { list, offset, guarded } => {
                // SAFETY: a piece of the range that was resolved, inside a listed page: whoever listed it with
                // `AppRange::new` keeps it mapped.
                for_each_page(list, offset, guarded, dst.len(), |page, at| unsafe { page.read(&mut dst[at]) })
            }
        }
    }

    /// Copies in.
    ///
    /// # Safety
    ///
    /// The target was resolved for writing `src.len()` bytes, and no object was changed since.
    #[inline]
    unsafe fn write(self, src: &[u8]) -> Result<(), Unmapped> {
        match self {
            Self::Plain(addr) => {
                // SAFETY: as in `read`; the promise covers writing, since nothing is resolved for writing in a region
                // without LOCAL_WRITE.
                unsafe { racing::copy(src.as_ptr(), ptr::with_exposed_provenance_mut(addr), src.len()) }
                Ok(())
            }
            // SAFETY: in a region that its owner registered for writing, as the caller has found.
            Self::Guarded(addr) => unsafe { safe_copy::write(addr, src) },
            Self::Null => Ok(()),
            Self::Pages { list, offset, guarded } => {
                // SAFETY: a piece of the range that was resolved for writing, inside a listed page: whoever listed it with
                // `AppRange::new` keeps it mapped.
                for_each_page(list, offset, guarded, src.len(), |page, at| unsafe { page.write(&src[at]) })
            }
        }
    }
}

fn for_each_page(
    list: &PageList,
    offset: u64,
    guarded: bool,
    total: usize,
    mut copy: impl FnMut(Target<'_>, Range<usize>) -> Result<(), Unmapped>,
) -> Result<(), Unmapped> {
    let mut done = 0;
    while done < total {
        let (addr, left) = list.locate(offset + done as u64);
        let piece = usize::try_from(left).unwrap_or(usize::MAX).min(total - done);
        let page = if guarded { Target::Guarded(addr) } else { Target::Plain(addr) };
        copy(page, done..done + piece)?;
        done += piece;
    }
    Ok(())
}
