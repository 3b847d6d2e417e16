//! Queue pairs: creating, opening and destroying them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use softrnic_nic::verbs::{ContextId, DeviceCaps, Gid, Qp, QpOptions, QpState, QpType, Qpn, short_number};
use softrnic_sync::channel::AckCounter;

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::context::Ctx;
use crate::cq::CqObject;
use crate::errno::Errno;
use crate::event::{add_target, remove_target};
use crate::ffi_boundary::{borrow, borrow_mut, call, guard};
use crate::object::{self, Kind, ObjectSlot, Seal, find, live, object};
use crate::pd::{PdObject, Users};
use crate::qp_ex::{self, Builder};
use crate::srq::SrqObject;
use crate::xrcd::XrcdObject;

/// A queue pair as C sees it, and what it stands for. All are made as extended ones.
#[repr(C)]
pub(crate) struct QpObject {
    pub(crate) ibv: Shown<ibv_qp_ex>,
    seal: Seal,
    of: ContextId,
    pub(crate) nic: Arc<Qp>,
    pub(crate) acks: Arc<AckCounter>,
    parts: Parts,
    pub(crate) sq_sig_all: bool,
    /// Numbers of queue pairs have 16 bits, as on EFA.
    pub(crate) short_numbers: bool,
    /// The flags as last set, including those that mean nothing to the NIC.
    pub(crate) access_flags: AtomicU32,
    /// Of the address vector as last set, what means nothing to the NIC.
    pub(crate) service_level: AtomicU8,
    pub(crate) static_rate: AtomicU8,
    /// Present if `ibv_wr_*` may be used: the batch under construction.
    pub(crate) builder: Option<Builder>,
    /// What `efadv.h` adds.
    pub(crate) efa: softrnic_efa::efadv_qp,
}

/// The objects that a QP refers to; null if absent.
#[derive(Clone, Copy)]
struct Parts {
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    xrcd: *mut ibv_xrcd,
}

object!(QpObject, Qp, ibv_qp, handle);

impl QpObject {
    pub(crate) fn of<'a>(qp: *mut ibv_qp) -> Result<&'a QpObject, Errno> {
        find(qp)
    }

    /// On the data path.
    ///
    /// # Safety
    /// As for [`object::live`].
    #[inline]
    pub(crate) unsafe fn live<'a>(qp: *mut ibv_qp) -> Result<&'a QpObject, Errno> {
        // SAFETY: null or a QP of ours that stays, as the caller promises.
        unsafe { live(qp) }
    }

    /// Whether a work request with these flags generates a completion.
    #[inline]
    pub(crate) fn signals(&self, send_flags: u32) -> bool {
        self.sq_sig_all || send_flags & IBV_SEND_SIGNALED != 0
    }

    /// Shows C the QP's state.
    pub(crate) fn show_state(&self, state: QpState) {
        // SAFETY: a field of `self`, which nothing else writes once the QP is made, and nothing reads here.
        let shown = unsafe { AtomicU32::from_ptr(&raw mut (*self.ibv.get()).qp_base.state) };
        shown.store(state as u32, Ordering::Relaxed);
    }

    /// The application's identification of the QP.
    pub(crate) fn identity(&self) -> Identity {
        let base = self.ibv.get().cast::<ibv_qp>();
        // SAFETY: fields of `self`, with which its public part begins, that are written when it is made and never
        // again.
        unsafe {
            Identity {
                qp_context: (*base).qp_context,
                qp_type: (*base).qp_type,
                send_cq: (*base).send_cq,
                recv_cq: (*base).recv_cq,
                srq: (*base).srq,
            }
        }
    }
}

/// What `ibv_query_qp` reports about how a QP was created.
pub(crate) struct Identity {
    pub qp_context: *mut c_void,
    pub qp_type: u32,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
}

impl Parts {
    /// All that an XRC target has: it receives into the SRQs of its domain.
    fn of_target(xrcd: *mut ibv_xrcd) -> Parts {
        Parts {
            pd: std::ptr::null_mut(),
            send_cq: std::ptr::null_mut(),
            recv_cq: std::ptr::null_mut(),
            srq: std::ptr::null_mut(),
            xrcd,
        }
    }

    /// Marks them as in use.
    fn join(self) -> Result<(), Errno> {
        self.each(Users::join)
    }

    /// Marks them as no longer in use.
    fn leave(self) -> Result<(), Errno> {
        self.each(Users::leave)
    }

    fn each(self, visit: impl Fn(&Users)) -> Result<(), Errno> {
        if !self.pd.is_null() {
            visit(&PdObject::of(self.pd)?.users);
        }
        for cq in [self.send_cq, self.recv_cq] {
            if !cq.is_null() {
                visit(&CqObject::of(cq)?.users);
            }
        }
        if !self.srq.is_null() {
            visit(&SrqObject::of(self.srq)?.users);
        }
        if !self.xrcd.is_null() {
            visit(&XrcdObject::of(self.xrcd)?.users);
        }
        Ok(())
    }
}

/// A request to create a QP.
pub(crate) struct Request {
    pub pd: *mut ibv_pd,
    pub xrcd: *mut ibv_xrcd,
    /// The requested `ibv_wr_*` functions (`IBV_QP_EX_WITH_*`).
    pub send_ops: Option<u64>,
    /// A QP of SRD, whatever its type is called.
    pub srd: bool,
}

/// The transport service of a type of QP.
pub(crate) fn service(qp_type: u32) -> Result<QpType, Errno> {
    match qp_type {
        IBV_QPT_RC => Ok(QpType::Rc),
        IBV_QPT_UC => Ok(QpType::Uc),
        IBV_QPT_UD => Ok(QpType::Ud),
        IBV_QPT_XRC_SEND => Ok(QpType::XrcInitiator),
        IBV_QPT_XRC_RECV => Ok(QpType::XrcTarget),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::invalid(format_args!("qp_type {qp_type} does not exist"))),
    }
}

/// Creates a QP, and writes what it can do to `init.cap`.
pub(crate) fn create(
    context: *mut ibv_context,
    init: &mut ibv_qp_init_attr,
    request: &Request,
) -> Result<*mut ibv_qp, Errno> {
    Ctx::of(context)?;
    let service = if request.srd { QpType::Srd } else { service(init.qp_type)? };
    let slot = ObjectSlot::new()?;
    let (nic, parts) = match service {
        QpType::XrcTarget => create_target(context, init, request)?,
        _ => create_other(context, service, init, request)?,
    };
    parts.join()?;
    let sq_sig_all = init.sq_sig_all != 0;
    // C is shown what it passed, whether or not the QP uses it.
    let given = Parts {
        pd: request.pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        xrcd: request.xrcd,
    };
    let shown = Shape { context, qp_context: init.qp_context, qp_type: init.qp_type, given, parts };
    Ok(publish(slot, nic, shown, sq_sig_all, request.send_ops))
}

fn create_target(
    context: *mut ibv_context,
    init: &mut ibv_qp_init_attr,
    request: &Request,
) -> Result<(Arc<Qp>, Parts), Errno> {
    let xrcd = XrcdObject::of(request.xrcd)?;
    Ctx::check_same(context, xrcd.context())?;
    let domain = &xrcd.domain;
    let options = QpOptions {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline: 0,
        srq: None,
        xrcd: Some(domain.key),
        send_ops: None,
    };
    let nic = domain.pd.create_qp(QpType::XrcTarget, &domain.cq, &domain.cq, options)?;
    domain.add_target(&nic)?;
    init.cap =
        ibv_qp_cap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
    Ok((nic, Parts::of_target(request.xrcd)))
}

fn create_other(
    context: *mut ibv_context,
    service: QpType,
    init: &mut ibv_qp_init_attr,
    request: &Request,
) -> Result<(Arc<Qp>, Parts), Errno> {
    let initiator = service == QpType::XrcInitiator;
    let recv_cq = if initiator && init.recv_cq.is_null() { init.send_cq } else { init.recv_cq };
    let (pd, send_cq, recv_cq) =
        (PdObject::of(request.pd)?, CqObject::of(init.send_cq)?, CqObject::of(recv_cq)?);
    for of in [pd.context(), send_cq.context(), recv_cq.context()] {
        Ctx::check_same(context, of)?;
    }
    let srq = match init.srq.is_null() {
        true => None,
        false if initiator => return Err(Errno::invalid("srq: an XRC initiator receives nothing")),
        false => Some(SrqObject::of(init.srq)?),
    };
    if let Some(srq) = srq {
        Ctx::check_same(context, srq.context())?;
    }
    let receives = srq.is_none() && !initiator;
    let cap = init.cap;
    let options = QpOptions {
        max_send_wr: cap.max_send_wr as usize,
        max_recv_wr: if receives { cap.max_recv_wr as usize } else { 0 },
        max_send_sge: cap.max_send_sge as usize,
        max_recv_sge: if receives { cap.max_recv_sge as usize } else { 0 },
        // A device that is imitated says itself how much there is room for.
        max_inline: match pd.nic.context().model() {
            Some(_) => cap.max_inline_data as usize,
            None => inline(&cap),
        },
        srq: srq.map(|srq| srq.nic.clone()),
        xrcd: None,
        send_ops: request.send_ops.map(qp_ex::kinds),
    };
    let nic = pd.nic.create_qp(service, &send_cq.nic, &recv_cq.nic, options)?;
    init.cap = caps(&nic);
    let parts = Parts {
        pd: request.pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        xrcd: std::ptr::null_mut(),
    };
    Ok((nic, parts))
}

/// Room for inline data: what was requested, or what replaces the scatter/gather list. rxe grants that to every QP, and
/// some programs rely on it.
fn inline(cap: &ibv_qp_cap) -> usize {
    let list = cap.max_send_sge as usize * size_of::<ibv_sge>();
    list.min(DeviceCaps::default().max_inline).max(cap.max_inline_data as usize)
}

/// The actual capabilities of a QP.
pub(crate) fn caps(qp: &Qp) -> ibv_qp_cap {
    let options = qp.options();
    ibv_qp_cap {
        max_send_wr: options.max_send_wr as u32,
        max_recv_wr: options.max_recv_wr as u32,
        max_send_sge: options.max_send_sge as u32,
        max_recv_sge: options.max_recv_sge as u32,
        max_inline_data: options.max_inline as u32,
    }
}

/// The public facts about a QP.
struct Shape {
    context: *mut ibv_context,
    qp_context: *mut c_void,
    qp_type: u32,
    given: Parts,
    /// All of these outlive it.
    parts: Parts,
}

fn publish(
    slot: ObjectSlot<QpObject>,
    nic: Arc<Qp>,
    shape: Shape,
    sq_sig_all: bool,
    send_ops: Option<u64>,
) -> *mut ibv_qp {
    let given = shape.given;
    let short_numbers = nic.pd().context().has_short_numbers();
    let base = ibv_qp {
        context: shape.context,
        qp_context: shape.qp_context,
        pd: given.pd,
        send_cq: given.send_cq,
        recv_cq: given.recv_cq,
        srq: given.srq,
        handle: nic.qpn().get(),
        qp_num: if short_numbers { short_number(nic.qpn()) } else { nic.qpn().get() },
        state: nic.state() as u32,
        qp_type: shape.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let acks = Arc::new(AckCounter::new());
    let (of, source) = (nic.pd().context().id(), nic.source());
    let qp = slot.publish(QpObject {
        ibv: Shown::new(qp_ex::table(base, send_ops)),
        seal: Seal::new(Kind::Qp),
        of,
        nic,
        acks: acks.clone(),
        parts: shape.parts,
        sq_sig_all,
        short_numbers,
        access_flags: AtomicU32::new(0),
        service_level: AtomicU8::new(0),
        static_rate: AtomicU8::new(0),
        builder: send_ops.map(|_| Builder::new()),
        efa: crate::efadv::qp_table(),
    });
    add_target(of, source, qp.cast(), &acks);
    qp
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    guard::<*mut ibv_qp>(call!(ibv_create_qp, pd, init), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (object, init) = (PdObject::of(pd)?, unsafe { borrow_mut(init)? });
        let request = Request { pd, xrcd: std::ptr::null_mut(), send_ops: None, srd: false };
        create(object.context(), init, &request)
    })
}

/// Waits until all events of the QP have been acknowledged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    guard::<()>(call!(ibv_destroy_qp, qp), move || {
        let object: &QpObject = object::find_last(qp)?;
        if object.nic.is_attached() {
            return Err(Errno::BUSY);
        }
        let parts = object.parts;
        remove_target(object.of, object.nic.source());
        if check::is_on() {
            check::unacknowledged("ibv_destroy_qp", qp.addr(), &object.acks);
        }
        object.acks.wait();
        // SAFETY: just found, and no event names it; the application, which destroys it, no longer uses it.
        drop(unsafe { object::retire::<QpObject>(qp) });
        parts.leave()
    })
}

/// A second handle of an XRC target QP of the same domain.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    guard::<*mut ibv_qp>(call!(ibv_open_qp, context, attr), move || {
        const NEEDED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (_, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if attr.comp_mask & !(NEEDED | IBV_QP_OPEN_ATTR_CONTEXT) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if attr.comp_mask & NEEDED != NEEDED || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(Errno::invalid(format_args!(
                "comp_mask {:#x}, qp_type {}: XRCD, number and IBV_QPT_XRC_RECV are needed",
                attr.comp_mask, attr.qp_type
            )));
        }
        let xrcd = XrcdObject::of(attr.xrcd)?;
        Ctx::check_same(context, xrcd.context())?;
        let (slot, domain) = (ObjectSlot::new()?, &xrcd.domain);
        let nic = domain.target(Qpn::new(attr.qp_num)).ok_or_else(|| {
            Errno::invalid(format_args!("qp_num {:#x}: no such QP in the XRC domain", attr.qp_num))
        })?;
        let parts = Parts::of_target(attr.xrcd);
        parts.join()?;
        let named = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
        let qp_context = if named { attr.qp_context } else { std::ptr::null_mut() };
        let shape = Shape { context, qp_context, qp_type: IBV_QPT_XRC_RECV, given: parts, parts };
        Ok(publish(slot, nic, shape, false, None))
    })
}

/// Attaches a UD QP to a multicast group, or detaches it.
///
/// # Safety
/// `gid` is null or can be read during the call.
pub(crate) unsafe fn multicast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
    attach: bool,
) -> Result<(), Errno> {
    // SAFETY: null or readable, as the caller promises; every bit pattern is a GID.
    let (qp, gid) = (QpObject::of(qp)?, unsafe { Gid(borrow(gid)?.raw) });
    let done = match attach {
        // Attaching again changes nothing (kernel: ib_uverbs_attach_mcast).
        true => qp.nic.attach_multicast(gid),
        false => qp.nic.detach_multicast(gid),
    };
    Ok(done.inspect_err(|_| tracing::debug!("the group is {gid}"))?)
}
