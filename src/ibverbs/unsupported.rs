//! Functions that this device does not support. The answers are those of rdma-core's own providers without the feature.

use std::ffi::{c_int, c_void};

use crate::abi::*;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Plain, call, guard};

/// Hints about where on the PCIe bus data should go.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_dmah(
    _context: *mut ibv_context,
    _attr: *mut ibv_dmah_init_attr,
) -> *mut ibv_dmah {
    guard::<*mut ibv_dmah>(call!(ibv_alloc_dmah), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_dmah(_dmah: *mut ibv_dmah) -> c_int {
    guard::<()>(call!(ibv_dealloc_dmah), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut ibv_dm) -> c_int {
    guard::<OrMinusOne>(call!(ibv_dm_export_dmabuf_fd), move || Err(Errno::OPNOTSUPP))
}

/// Enhanced connection establishment: options that two NICs of one vendor agree on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    guard::<()>(call!(ibv_query_ece), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    guard::<()>(call!(ibv_set_ece), move || Err(Errno::OPNOTSUPP))
}

/// The bytes of a message may arrive in any order.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _opcode: u32,
    _flags: u32,
) -> c_int {
    guard::<Plain<c_int>>(call!(ibv_query_qp_data_in_order), move || Ok(Plain(0)))
}

/// None of our buffers is a DMA-BUF.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    guard::<OrMinusOne>(call!(ibv_export_buf_dmabuf_fd), move || Err(Errno::NODATA))
}

/// Counters that the device increments instead of writing completions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    _context: *mut ibv_context,
    _caps: *mut c_void,
    _size: usize,
) -> c_int {
    guard::<()>(call!(_ibv_query_comp_cntr_caps), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_cntr(
    _context: *mut ibv_context,
    _attr: *mut c_void,
) -> *mut c_void {
    guard::<*mut c_void>(call!(ibv_create_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_cntr(_counter: *mut c_void) -> c_int {
    guard::<()>(call!(ibv_destroy_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_comp_cntr(_counter: *mut c_void, _value: u64) -> c_int {
    guard::<()>(call!(ibv_set_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_err_comp_cntr(_counter: *mut c_void, _value: u64) -> c_int {
    guard::<()>(call!(ibv_set_err_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_inc_comp_cntr(_counter: *mut c_void, _amount: u64) -> c_int {
    guard::<()>(call!(ibv_inc_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_inc_err_comp_cntr(_counter: *mut c_void, _amount: u64) -> c_int {
    guard::<()>(call!(ibv_inc_err_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_comp_cntr(_counter: *mut c_void, _value: *mut u64) -> c_int {
    guard::<()>(call!(ibv_read_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_err_comp_cntr(_counter: *mut c_void, _value: *mut u64) -> c_int {
    guard::<()>(call!(ibv_read_err_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    _qp: *mut ibv_qp,
    _counter: *mut c_void,
    _attr: *mut c_void,
) -> c_int {
    guard::<()>(call!(ibv_qp_attach_comp_cntr), move || Err(Errno::OPNOTSUPP))
}
