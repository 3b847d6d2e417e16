//! The private version nodes, for libraries that are linked with vendors' providers.
//!
//! Programs linked with libmlx5 or libefa cannot even start without these names. No provider ever gets a device here,
//! so none of them is called; a program that calls one all the same is told that it is not supported.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicU8;

use crate::abi::ibv_context;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Silent, call, guard};

/// A switch of rdma-core that providers only read. One byte, 0 or 1.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static verbs_allow_disassociate_destroy: AtomicU8 = AtomicU8::new(0);

/// Functions that answer EOPNOTSUPP. The C caller may pass any arguments: all are ignored.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            libc::EOPNOTSUPP
        }
    )*};
}

unsupported! {
    __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_dmah
    ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
    ibv_cmd_create_comp_cntr ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
    ibv_cmd_create_cq_ex2 ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
    ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
    ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast
    ibv_cmd_free_dm ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr
    ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd
    ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
    ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context
    ibv_cmd_query_device ibv_cmd_query_device_any ibv_cmd_query_device_ex ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_port_speed
    ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_comp_cntr ibv_cmd_read_counters
    ibv_cmd_read_err_comp_cntr ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
    ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _verbs_init_and_alloc_context() -> *mut c_void {
    guard::<*mut c_void>(call!(ibv__verbs_init_and_alloc_context), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_open_device() -> *mut c_void {
    guard::<*mut c_void>(call!(ibv_verbs_open_device), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_set_ops() {
    guard::<Silent>(call!(ibv_verbs_set_ops), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_uninit_context() {
    guard::<Silent>(call!(ibv_verbs_uninit_context), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_init_cq() {
    guard::<Silent>(call!(ibv_verbs_init_cq), move || Ok(Silent))
}

/// Variadic in C; providers' messages are discarded.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __verbs_log() {
    guard::<Silent>(call!(ibv___verbs_log), move || Ok(Silent))
}

// Providers register here when their library is loaded, each with the ABI it was built for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_25(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_25), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_33(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_33), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_34(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_34), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_57(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_57), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_59(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_59), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_64(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_64), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_65(_ops: *const c_void) {
    guard::<Silent>(call!(ibv_verbs_register_driver_65), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_cmd_export_dmabuf_fd(
    _context: *mut ibv_context,
    _offset: libc::off_t,
) -> c_int {
    guard::<OrMinusOne>(call!(ibv_cmd_export_dmabuf_fd), move || Err(Errno::OPNOTSUPP))
}

// Memory that a confidential guest shares with its devices. This device can access whatever the process can.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dmabuf_heap_cc_shared_init() -> *mut c_void {
    guard::<*mut c_void>(call!(ibv_dmabuf_heap_cc_shared_init), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dmabuf_heap_destroy(_heap: *mut c_void) {
    guard::<Silent>(call!(ibv_dmabuf_heap_destroy), move || Ok(Silent))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dmabuf_heap_alloc(
    _heap: *mut c_void,
    _size: usize,
    _fd: *mut c_int,
) -> *mut c_void {
    guard::<*mut c_void>(call!(ibv_dmabuf_heap_alloc), move || Err(Errno::OPNOTSUPP))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dmabuf_heap_free(_buf: *mut c_void, _size: usize, _fd: c_int) {
    guard::<Silent>(call!(ibv_dmabuf_heap_free), move || Ok(Silent))
}

/// Variadic in C.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_ibdev_sysfs_file(_buf: *mut c_char) -> c_int {
    guard::<OrMinusOne>(call!(ibv_read_ibdev_sysfs_file), move || Err(Errno::OPNOTSUPP))
}
