//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use softrnic_nic::verbs::{ContextId, Srq, SrqOptions};
use softrnic_sync::channel::AckCounter;

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::context::Ctx;
use crate::cq::CqObject;
use crate::errno::Errno;
use crate::event::{add_target, remove_target};
use crate::ffi_boundary::{borrow, borrow_mut, call, guard};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, object, retire};
use crate::pd::{PdObject, Users};
use crate::xrcd::XrcdObject;

/// A shared receive queue as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct SrqObject {
    pub(crate) ibv: Shown<ibv_srq>,
    seal: Seal,
    of: ContextId,
    pub(crate) nic: Arc<Srq>,
    pub(crate) acks: Arc<AckCounter>,
    pub(crate) users: Users,
    pub(crate) max_sge: usize,
    pd: *mut ibv_pd,
    /// For an XRC SRQ.
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
}

object!(SrqObject, Srq, ibv_srq, handle);

impl SrqObject {
    pub(crate) fn of<'a>(srq: *mut ibv_srq) -> Result<&'a SrqObject, Errno> {
        find(srq)
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: a field of a live object, which is written only when it is made (`verbs.h`).
        unsafe { (*self.ibv.get()).context }
    }
}

/// Creates an SRQ, and writes its actual size to `attr`.
fn create(
    pd: *mut ibv_pd,
    srq_context: *mut std::ffi::c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
) -> Result<*mut ibv_srq, Errno> {
    let object = PdObject::of(pd)?;
    let ctx = object.ctx()?;
    let (max_wr, max_sge) = ctx.nic()?.srq_size(attr.max_wr as usize, attr.max_sge as usize)?;
    if attr.max_sge as usize > ctx.nic()?.caps().max_srq_sge {
        return Err(Errno::invalid(format_args!(
            "max_sge {} is above max_srq_sge {}",
            attr.max_sge,
            ctx.nic()?.caps().max_srq_sge
        )));
    }
    let parts = match xrc {
        Some((xrcd, cq)) => Some((XrcdObject::of(xrcd)?, CqObject::of(cq)?)),
        None => None,
    };
    if let Some((xrcd, cq)) = parts {
        Ctx::check_same(object.context(), xrcd.context())?;
        Ctx::check_same(object.context(), cq.context())?;
    }
    let options = SrqOptions { max_wr, xrc: parts.map(|(xrcd, cq)| (xrcd.domain.key, cq.nic.clone())) };
    let slot = ObjectSlot::new()?;
    let nic = object.nic.create_srq(options)?;
    attr.max_wr = nic.max_wr() as u32;
    attr.max_sge = max_sge as u32;
    object.users.join();
    if let Some((xrcd, cq)) = parts {
        xrcd.users.join();
        cq.users.join();
    }
    let acks = Arc::new(AckCounter::new());
    let (of, source) = (object.nic.context().id(), nic.source());
    let ibv = ibv_srq {
        context: ctx.as_ibv(),
        srq_context,
        pd,
        handle: nic.srqn().get(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let srq = slot.publish(SrqObject {
        ibv: Shown::new(ibv),
        seal: Seal::new(Kind::Srq),
        of,
        nic,
        acks: acks.clone(),
        users: Users::default(),
        max_sge: attr.max_sge as usize,
        pd,
        xrc,
    });
    add_target(of, source, srq.cast(), &acks);
    Ok(srq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    guard::<*mut ibv_srq>(call!(ibv_create_srq, pd, init), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let init = unsafe { borrow_mut(init)? };
        create(pd, init.srq_context, &mut init.attr, None)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: i32,
) -> c_int {
    guard::<()>(call!(ibv_modify_srq, srq, attr, mask), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (srq, attr) = (SrqObject::of(srq)?, unsafe { borrow(attr)? });
        let mask = mask as u32;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::invalid(format_args!("srq_attr_mask {mask:#x} has unknown bits")));
        }
        let (max_wr, limit) = (attr.max_wr as usize, attr.srq_limit as usize);
        match (mask & IBV_SRQ_MAX_WR != 0, mask & IBV_SRQ_LIMIT != 0) {
            (true, true) => srq.nic.resize_with_limit(max_wr, limit)?,
            (true, false) => srq.nic.resize(max_wr)?,
            (false, true) => srq.nic.set_limit(limit)?,
            (false, false) => {}
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    guard::<()>(call!(ibv_query_srq, srq, attr), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (srq, attr) = (SrqObject::of(srq)?, unsafe { borrow_mut(attr)? });
        *attr = ibv_srq_attr {
            max_wr: srq.nic.max_wr() as u32,
            max_sge: srq.max_sge as u32,
            srq_limit: srq.nic.limit()? as u32,
        };
        Ok(())
    })
}

/// Waits until all events of the SRQ have been acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    guard::<()>(call!(ibv_destroy_srq, srq), move || {
        let object: &SrqObject = find_last(srq)?;
        object.users.none()?;
        let pd = PdObject::of(object.pd)?;
        remove_target(object.of, object.nic.source());
        if check::is_on() {
            check::unacknowledged("ibv_destroy_srq", srq.addr(), &object.acks);
        }
        object.acks.wait();
        pd.users.leave();
        if let Some((xrcd, cq)) = object.xrc {
            XrcdObject::of(xrcd)?.users.leave();
            CqObject::of(cq)?.users.leave();
        }
        // SAFETY: just found, and no event names it; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<SrqObject>(srq) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    guard::<*mut ibv_srq>(call!(ibv_create_srq_ex, context, init), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (_, init) = (Ctx::of(context)?, unsafe { borrow_mut(init)? });
        const KNOWN: u32 =
            IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        const XRC: u32 = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        let mask = init.comp_mask;
        let kind = if mask & IBV_SRQ_INIT_ATTR_TYPE != 0 { init.srq_type } else { IBV_SRQT_BASIC };
        if mask & !KNOWN != 0 || kind == IBV_SRQT_TM {
            return Err(Errno::OPNOTSUPP);
        }
        let xrc = match kind {
            IBV_SRQT_BASIC if mask & XRC == 0 => None,
            IBV_SRQT_XRC if mask & XRC == XRC => Some((init.xrcd, init.cq)),
            _ => {
                return Err(Errno::invalid(format_args!(
                    "srq_type {kind} with comp_mask {mask:#x}: XRC needs the XRCD and the CQ, others may have neither"
                )));
            }
        };
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(Errno::invalid(format_args!("comp_mask {mask:#x} lacks IBV_SRQ_INIT_ATTR_PD")));
        }
        Ctx::check_same(context, PdObject::of(init.pd)?.context())?;
        create(init.pd, init.srq_context, &mut init.attr, xrc)
    })
}

/// XRC SRQs have numbers, which peers name.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    guard::<()>(call!(ibv_get_srq_num, srq, number), move || {
        // SAFETY: a number of the application's, valid for the call.
        let (srq, number) = (SrqObject::of(srq)?, unsafe { borrow_mut(number)? });
        if srq.xrc.is_none() {
            return Err(Errno::invalid("the SRQ is no XRC SRQ, and has no number"));
        }
        *number = srq.nic.srqn().get();
        Ok(())
    })
}
