//! EFA's own verbs (`efadv.h`), to which the functions of `libefa.so.1` jump. What they check and in which order is
//! `providers/efa/verbs.c` of rdma-core.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use softrnic_efa::*;
use softrnic_nic::verbs::{Cqe, Gid, Model, QpType, SrdSource, short_number};

use crate::abi::*;
use crate::ah::AhObject;
use crate::context::Ctx;
use crate::cq::CqObject;
use crate::cq_ex::create_cq_ex;
use crate::errno::Errno;
use crate::ffi_boundary::{OrNegated, Plain, borrow, borrow_mut, call, guard, guard_data_path};
use crate::object::find;
use crate::pd::PdObject;
use crate::qp::{QpObject, Request, create};
use crate::qp_ex::operations;
use crate::query::{LONGEST_STRUCT, write_prefix};

/// The sender of a message has no address handle here.
const NO_HANDLE: u16 = 0xFFFF;

/// The figures of an EFA. Other devices are refused.
fn figures(context: *mut ibv_context) -> Result<(&'static Model, softrnic_nic::verbs::SrdFigures), Errno> {
    let model = Ctx::of(context)?.nic()?.model().ok_or(Errno::OPNOTSUPP)?;
    Ok((model, model.srd.ok_or(Errno::OPNOTSUPP)?))
}

/// Reads a struct that may be shorter than ours, or longer if all beyond it is zero.
///
/// # Safety
/// `from` is null or has `inlen` bytes. All bit patterns are a `T`.
unsafe fn read<T: Copy + Default>(from: *const T, inlen: u32, shortest: usize) -> Result<T, Errno> {
    let inlen = inlen as usize;
    if from.is_null() || inlen < shortest || inlen > LONGEST_STRUCT {
        return Err(Errno::invalid(format_args!("the struct is null, or its length {inlen} is none")));
    }
    let mut read = T::default();
    let ours = inlen.min(size_of::<T>());
    // SAFETY: not null, so that there are `inlen` bytes, as the caller promises.
    let beyond = unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut read).cast(), ours);
        std::slice::from_raw_parts(from.cast::<u8>().add(ours), inlen - ours)
    };
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Errno::invalid("a field that this version does not know is set"));
    }
    Ok(read)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_query_device(
    context: *mut ibv_context,
    attr: *mut efadv_device_attr,
    inlen: u32,
) -> c_int {
    guard::<()>(call!(efadv_query_device, context, attr, inlen), move || {
        let (_, srd) = figures(context)?;
        if (inlen as usize) < SHORTEST_DEVICE_ATTR {
            return Err(Errno::invalid(format_args!("inlen {inlen} is too short")));
        }
        let found = efadv_device_attr {
            max_sq_wr: srd.max_sq_wr,
            max_rq_wr: srd.max_rq_wr,
            max_sq_sge: srd.max_sq_sge as u16,
            max_rq_sge: srd.max_rq_sge as u16,
            inline_buf_size: srd.max_inline as u16,
            inline_buf_size_ex: srd.max_inline as u16,
            device_caps: device_caps(inlen as usize),
            max_rdma_size: srd.max_rdma,
            ..Default::default()
        };
        // SAFETY: a struct of the application's, of the length that it says.
        unsafe { write_prefix(&found, attr, inlen as usize) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_query_ah(
    ah: *mut ibv_ah,
    attr: *mut efadv_ah_attr,
    inlen: u32,
) -> c_int {
    guard::<()>(call!(efadv_query_ah, ah, attr, inlen), move || {
        let object: &AhObject = find(ah)?;
        let ahn = object.nic.ahn().ok_or(Errno::OPNOTSUPP)?;
        if (inlen as usize) < SHORTEST_AH_ATTR {
            return Err(Errno::invalid(format_args!("inlen {inlen} is too short")));
        }
        // SAFETY: a struct of the application's, of the length that it says.
        unsafe { write_prefix(&efadv_ah_attr { ahn, ..Default::default() }, attr, inlen as usize) }
    })
}

/// There are no interconnects to tell apart.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_query_mr(
    mr: *mut ibv_mr,
    attr: *mut efadv_mr_attr,
    inlen: u32,
) -> c_int {
    guard::<()>(call!(efadv_query_mr, mr, attr, inlen), move || {
        if (inlen as usize) < size_of::<efadv_mr_attr>() {
            return Err(Errno::invalid(format_args!("inlen {inlen} is too short")));
        }
        // SAFETY: a region that the application keeps for the call; its context is written when it is made.
        figures(unsafe { borrow(mr)? }.context)?;
        // SAFETY: a struct of the application's, of the length that it says.
        unsafe { write_prefix(&efadv_mr_attr::default(), attr, inlen as usize) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_create_cq(
    context: *mut ibv_context,
    attr_ex: *mut ibv_cq_init_attr_ex,
    efa_attr: *mut efadv_cq_init_attr,
    inlen: u32,
) -> *mut ibv_cq_ex {
    guard::<*mut ibv_cq_ex>(call!(efadv_create_cq, context, attr_ex, efa_attr, inlen), move || {
        figures(context)?;
        // SAFETY: a struct of the application's, of the length that it says; its fields are integers.
        let asked = unsafe { read(efa_attr, inlen, SHORTEST_CQ_INIT_ATTR)? };
        if asked.comp_mask != 0 {
            return Err(Errno::invalid("comp_mask is not 0"));
        }
        let known = EFADV_WC_EX_WITH_SGID | EFADV_WC_EX_WITH_IS_UNSOLICITED;
        // The memory of another device is none of ours.
        if asked.wc_flags & !known != 0 || asked.flags != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the caller promises what `ibv_create_cq_ex` asks for.
        let cq = unsafe { create_cq_ex(context, attr_ex) };
        if cq.is_null() { Err(Errno::current()) } else { Ok(cq) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_cq_from_ibv_cq_ex(cq: *mut ibv_cq_ex) -> *mut efadv_cq {
    if cq.is_null() {
        return std::ptr::null_mut();
    }
    cq.wrapping_byte_add(offset_of!(CqObject, efa)).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_qp_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut efadv_qp {
    if qp.is_null() {
        return std::ptr::null_mut();
    }
    qp.wrapping_byte_add(offset_of!(QpObject, efa)).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_create_qp_ex(
    context: *mut ibv_context,
    attr_ex: *mut ibv_qp_init_attr_ex,
    efa_attr: *mut efadv_qp_init_attr,
    inlen: u32,
) -> *mut ibv_qp {
    guard::<*mut ibv_qp>(call!(efadv_create_qp_ex, context, attr_ex, efa_attr, inlen), move || {
        figures(context)?;
        // SAFETY: structs of the application's, valid for the call, and of the length that it says; the fields of one are
        // integers.
        let (init, asked) = unsafe { (borrow_mut(attr_ex)?, read(efa_attr, inlen, SHORTEST_QP_INIT_ATTR)?) };
        if init.qp_type != IBV_QPT_DRIVER || asked.comp_mask != 0 || asked.reserved != 0 {
            return Err(Errno::invalid("qp_type is not IBV_QPT_DRIVER, or comp_mask or reserved is not 0"));
        }
        let flags = EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV;
        if asked.driver_qp_type != EFADV_QP_DRIVER_TYPE_SRD
            || asked.flags & !flags != 0
            || asked.wr_flags & !EFADV_WR_EX_WITH_PROCESSING_HINTS != 0
            || init.comp_mask & !(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0
        {
            return Err(Errno::OPNOTSUPP);
        }
        if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
            return Err(Errno::invalid("comp_mask lacks IBV_QP_INIT_ATTR_PD"));
        }
        let has_ops = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        let send_ops = has_ops.then_some(init.send_ops_flags);
        if send_ops.unwrap_or(0) & !operations(QpType::Srd) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let request = Request { pd: init.pd, xrcd: std::ptr::null_mut(), send_ops, srd: true };
        // SAFETY: the extended struct begins with the fields of the plain one, and `init` is not used while that is
        // borrowed.
        let qp = create(context, unsafe { &mut *(&raw mut *init).cast::<ibv_qp_init_attr>() }, &request)?;
        if asked.flags & EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV != 0 {
            QpObject::of(qp)?.nic.take_unsolicited()?;
        }
        Ok(qp)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_create_driver_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    driver_qp_type: u32,
) -> *mut ibv_qp {
    guard::<*mut ibv_qp>(call!(efadv_create_driver_qp, pd, attr, driver_qp_type), move || {
        let context = PdObject::of(pd)?.context();
        figures(context)?;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else.
        let init = unsafe { borrow_mut(attr)? };
        if init.qp_type != IBV_QPT_DRIVER {
            return Err(Errno::invalid("qp_type is not IBV_QPT_DRIVER"));
        }
        if driver_qp_type != EFADV_QP_DRIVER_TYPE_SRD {
            return Err(Errno::OPNOTSUPP);
        }
        create(context, init, &Request { pd, xrcd: std::ptr::null_mut(), send_ops: None, srd: true })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_get_max_sq_depth(
    context: *mut ibv_context,
    attr: *mut efadv_sq_depth_attr,
    inlen: u32,
) -> c_int {
    let depth = guard::<OrNegated<isize>>(call!(efadv_get_max_sq_depth, context, attr, inlen), move || {
        let (_, srd) = figures(context)?;
        // SAFETY: a struct of the application's, of the length that it says; its fields are integers.
        let asked = unsafe { read(attr, inlen, size_of::<efadv_sq_depth_attr>())? };
        let fits = asked.max_send_sge <= srd.max_sq_sge
            && asked.max_rdma_sge <= 1
            && asked.max_inline_data <= srd.max_inline;
        if asked.comp_mask != 0 || !fits {
            return Err(Errno::invalid("comp_mask is not 0, or the device has no such send queue"));
        }
        if asked.flags != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(OrNegated(srd.max_sq_wr as isize))
    });
    depth as c_int
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_get_max_rq_depth(
    context: *mut ibv_context,
    attr: *mut efadv_rq_depth_attr,
    inlen: u32,
) -> c_int {
    let depth = guard::<OrNegated<isize>>(call!(efadv_get_max_rq_depth, context, attr, inlen), move || {
        let (_, srd) = figures(context)?;
        // SAFETY: a struct of the application's, of the length that it says; its fields are integers.
        let asked = unsafe { read(attr, inlen, size_of::<efadv_rq_depth_attr>())? };
        if asked.comp_mask != 0 || asked.max_recv_sge > srd.max_rq_sge {
            return Err(Errno::invalid("comp_mask is not 0, or the device has no such receive queue"));
        }
        Ok(OrNegated((srd.max_rq_wr / asked.max_recv_sge.max(1)) as isize))
    });
    depth as c_int
}

/// The queues are not in memory that a program could write itself.
macro_rules! without_queues {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            libc::EOPNOTSUPP
        }
    )*};
}
without_queues! { softrnic_efadv_query_qp_wqs softrnic_efadv_query_cq }

/// Counters of completions are the program's own to count.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_efadv_create_comp_cntr() -> *mut c_void {
    guard::<*mut c_void>(call!(efadv_create_comp_cntr), move || Err(Errno::OPNOTSUPP))
}

/// What extends a CQ.
pub(crate) fn cq_table() -> efadv_cq {
    efadv_cq { comp_mask: 0, wc_read_sgid: Some(wc_read_sgid), wc_is_unsolicited: Some(wc_is_unsolicited) }
}

/// What extends a QP.
pub(crate) fn qp_table() -> efadv_qp {
    efadv_qp { comp_mask: 0, wr_set_processing_hints: Some(wr_set_processing_hints) }
}

/// The CQ whose extension this is.
///
/// # Safety
/// The pointer came from [`softrnic_efadv_cq_from_ibv_cq_ex`], and the CQ lives.
unsafe fn extended<'a>(cq: *mut efadv_cq) -> Result<&'a CqObject, Errno> {
    // SAFETY: it is that far into a CQ of ours, as the caller promises.
    unsafe { CqObject::live(cq.wrapping_byte_sub(offset_of!(CqObject, efa)).cast()) }
}

/// The address of a sender without a handle; -ENOENT if there is a handle, and for datagrams.
unsafe extern "C" fn wc_read_sgid(cq: *mut efadv_cq, sgid: *mut [u8; 16]) -> c_int {
    let result = guard_data_path::<OrNegated<isize>>(move || {
        // SAFETY: the application keeps the CQ for the call, and has room for a GID.
        let (cq, sgid) = unsafe { (extended(cq)?, borrow_mut(sgid)?) };
        let cqe = cq.poll.current();
        if !cqe.opcode.is_receive() || cqe.grh {
            return Err(Errno::NOENT);
        }
        let context = Ctx::of(cq.context())?;
        let Gid(raw) = context.nic()?.stranger(SrdSource::of(&cqe))?.ok_or(Errno::NOENT)?;
        *sgid = raw;
        Ok(OrNegated(0))
    });
    result as c_int
}

unsafe extern "C" fn wc_is_unsolicited(cq: *mut efadv_cq) -> bool {
    guard_data_path::<Plain<bool>>(move || {
        // SAFETY: the application keeps the CQ for the call.
        let cqe = unsafe { extended(cq)? }.poll.current();
        Ok(Plain(cqe.opcode.is_receive() && !cqe.grh && SrdSource::of(&cqe).unsolicited))
    })
}

/// A hint of what is urgent, of which there is nothing to make.
unsafe extern "C" fn wr_set_processing_hints(_qp: *mut efadv_qp, _hints: u32) {}

/// The number of the handle of a message's sender.
pub(crate) fn slid(cqe: &Cqe) -> u16 {
    // Of datagrams the time stamp is one.
    let came = cqe.opcode.is_receive() && !cqe.grh;
    came.then(|| SrdSource::of(cqe).handle).flatten().unwrap_or(NO_HANDLE)
}

/// Makes a completion what EFA's would be.
pub(crate) fn shorten(wc: &mut ibv_wc, cqe: &Cqe) {
    wc.qp_num = short_number(cqe.qpn);
    wc.src_qp = short_number(cqe.src_qpn);
    wc.slid = slid(cqe);
}
