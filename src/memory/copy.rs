use std::ops::Range;
use std::ptr;

use softrnic_mapping::SharedBytes;
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

/// Appends bytes that others may write meanwhile.
pub fn append_shared(from: SharedBytes<'_>, to: &mut Vec<u8>) {
    let start = to.len();
    to.resize(start + from.len(), 0);
    // SAFETY: as many as `from` has, which can be read; those just made belong to nobody else.
    unsafe { racing::copy(from.base(), to[start..].as_mut_ptr(), from.len()) };
}

impl MemoryTable {
    /// Fills `dst` from the scatter/gather list, beginning at `offset`. Keys are checked for the bytes accessed. On an
    /// error `dst` may be partly filled.
    #[inline(always)]
    pub fn gather(&self, pd: PdId, sges: &[Sge], offset: u64, dst: &mut [u8]) -> Result<(), LocalFault> {
        let total = dst.len();
        for_each_piece(sges, offset, total, |lkey, addr, at| {
            let dst = &mut dst[at];
            let source = self.resolve_local(pd, lkey, addr, dst.len() as u64, false)?;
            // SAFETY: just resolved for exactly these bytes; `self` is borrowed, so nothing has changed.
            unsafe { source.read(dst) }.map_err(|Unmapped| LocalFault::Unmapped)
        })
    }

    /// Writes `src` to the scatter/gather list, beginning at `offset`. Keys are checked for the bytes accessed. On an
    /// error a part may have been written.
    pub fn scatter<'s>(
        &self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        src: impl Into<SharedBytes<'s>>,
    ) -> Result<(), LocalFault> {
        let src = src.into();
        for_each_piece(sges, offset, src.len(), |lkey, addr, at| {
            let src = src.part(at);
            let target = self.resolve_local(pd, lkey, addr, src.len() as u64, true)?;
            // SAFETY: just resolved for writing exactly these bytes; `self` is borrowed, so nothing has changed.
            unsafe { target.write(src) }.map_err(|Unmapped| LocalFault::Unmapped)
        })
    }

    /// Reads for a peer's READ. An empty `dst` succeeds without checking the key.
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
        // SAFETY: just resolved for exactly these bytes; `self` is borrowed, so nothing has changed.
        unsafe { source.read(dst) }.map_err(|Unmapped| RemoteFault::Unmapped)
    }

    /// Writes for a peer's WRITE. An empty `src` succeeds without checking the key.
    pub fn write_remote<'s>(
        &self,
        pd: PdId,
        qpn: Qpn,
        rkey: Rkey,
        va: u64,
        src: impl Into<SharedBytes<'s>>,
    ) -> Result<(), RemoteFault> {
        let src = src.into();
        if src.is_empty() {
            return Ok(());
        }
        let target = self.resolve_remote(pd, qpn, rkey, va, src.len() as u64, Access::REMOTE_WRITE)?;
        // SAFETY: just resolved for writing exactly these bytes; `self` is borrowed, so nothing has changed.
        unsafe { target.write(src) }.map_err(|Unmapped| RemoteFault::Unmapped)
    }
}

/// Calls `copy` with the key, the address and the position in the data for each piece of the `total` bytes after
/// `offset` in `sges`.
#[inline(always)]
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
    if done == total { Ok(()) } else { Err(LocalFault::ListTooShort) }
}

impl Target<'_> {
    /// Copies out.
    ///
    /// # Safety
    ///
    /// The target was resolved for `dst.len()` bytes, and no object has changed since.
    #[inline]
    unsafe fn read(self, dst: &mut [u8]) -> Result<(), Unmapped> {
        match self {
            Self::Plain(addr) => {
                let from = ptr::with_exposed_provenance(addr);
                // SAFETY: registered and in bounds: the caller of `AppRange::new` keeps application memory mapped, the
                // table keeps device memory. `dst` is memory of the NIC, which is never registered.
                unsafe { racing::copy_registered(from, dst.as_mut_ptr(), dst.len()) }
            }
            Self::Guarded(addr) => safe_copy::read(addr, dst),
            Self::Null => {
                dst.fill(0);
                Ok(())
            }
            Self::Pages { list, offset, guarded } => {
                // SAFETY: a piece of the resolved range, inside a listed page, which the caller of `AppRange::new`
                // keeps mapped.
                for_each_page(list, offset, guarded, dst.len(), |page, at| unsafe { page.read(&mut dst[at]) })
            }
        }
    }

    /// Copies in.
    ///
    /// # Safety
    ///
    /// The target was resolved for writing `src.len()` bytes, and no object has changed since.
    #[inline]
    unsafe fn write(self, src: SharedBytes<'_>) -> Result<(), Unmapped> {
        match self {
            Self::Plain(addr) => {
                // SAFETY: as in `read`; the promise covers writing, since no region without LOCAL_WRITE is resolved for
                // writing.
                unsafe {
                    racing::copy_registered(src.base(), ptr::with_exposed_provenance_mut(addr), src.len())
                }
            }
            // SAFETY: in a region that its owner registered for writing, as the caller checked.
            Self::Guarded(addr) => unsafe { safe_copy::write(addr, src) },
            Self::Null => Ok(()),
            Self::Pages { list, offset, guarded } => {
                // SAFETY: a piece of the range resolved for writing, inside a listed page, which the caller of
                // `AppRange::new` keeps mapped.
                for_each_page(list, offset, guarded, src.len(), |page, at| unsafe {
                    page.write(src.part(at))
                })
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
