//! Advice about memory.

use std::ffi::c_int;

use softrnic_nic::verbs::{Lkey, Sge};

use crate::abi::*;
use crate::errno::Errno;
use crate::ffi_boundary::{call, guard};
use crate::pd::PdObject;
use crate::post::element_list;

/// The most elements that fit into an attribute of the kernel's interface, whose length has 16 bits.
const MOST: usize = u16::MAX as usize / size_of::<ibv_sge>();

/// Faults in on-demand memory. This has happened when it returns, even if that was not requested; then errors are
/// not reported, as verbs specify for advice that is merely queued.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sges: *mut ibv_sge,
    count: u32,
) -> c_int {
    guard::<()>(call!(ibv_advise_mr, pd, advice, flags, sges, count), move || {
        let pd = PdObject::of(pd)?;
        let (write, must_fault) = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH => (false, true),
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => (true, true),
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => (false, false),
            _ => return Err(Errno::OPNOTSUPP),
        };
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 {
            return Err(Errno::invalid(format_args!(
                "flags {flags:#x} or num_sge {count}: no such flags, or no ranges"
            )));
        }
        // SAFETY: the application has `count` elements there, valid for the call; at most `MOST` are read.
        let sges = unsafe { element_list(sges, count as usize, MOST)? };
        // Pages that are present need nothing.
        if !must_fault {
            return Ok(());
        }
        let mut elements: Vec<Sge> = Vec::new();
        elements.try_reserve_exact(sges.len())?;
        elements.extend(sges.iter().map(|element| sge(element.get())));
        match pd.nic.prefetch(&elements, write) {
            Err(_) if flags & IBV_ADVISE_MR_FLAG_FLUSH == 0 => Ok(()),
            result => Ok(result?),
        }
    })
}

/// A scatter/gather element of C.
#[inline]
pub(crate) fn sge(sge: ibv_sge) -> Sge {
    Sge { addr: sge.addr, length: sge.length, lkey: Lkey(sge.lkey) }
}
