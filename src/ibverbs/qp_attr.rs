//! Changing and querying attributes of queue pairs.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use softrnic_nic::verbs::{
    Access, AttrMask, Mtu, Psn, Qkey, QpAccess, QpAttributes, QpState, QpType, Qpn, RnrTimer,
};
use softrnic_transport::QpAttr;

use crate::abi::*;
use crate::ah::{NO_ADDRESS, address_vector, ah_attr};
use crate::check;
use crate::errno::Errno;
use crate::ffi_boundary::{borrow, borrow_mut, call, guard};
use crate::qp::{QpObject, caps};
use crate::query::check_port;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: i32) -> c_int {
    guard::<()>(call!(ibv_modify_qp, qp, attr, mask), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (qp, attr) = (QpObject::of(qp)?, unsafe { borrow(attr)? });
        let mask = meant(qp.nic.service(), AttrMask::from_bits_retain(mask as u32));
        let attributes = attributes(attr, mask)?;
        qp.nic.modify(mask, &attributes)?;
        if mask.contains(AttrMask::ACCESS_FLAGS) {
            qp.access_flags.store(attr.qp_access_flags, Ordering::Relaxed);
        }
        if mask.contains(AttrMask::AV) {
            qp.service_level.store(attr.ah_attr.sl, Ordering::Relaxed);
            qp.static_rate.store(attr.ah_attr.static_rate, Ordering::Relaxed);
        }
        if mask.contains(AttrMask::STATE) {
            qp.show_state(attributes.transport.state);
        }
        if check::is_on() {
            check::modified(qp, mask, &attributes.transport);
        }
        Ok(())
    })
}

/// All attributes, whatever the mask says, as from the kernel. The state is shown in the QP's public field only if
/// it is asked for: UCX reads a QP that has failed, and relies on that field being unchanged.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: i32,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    guard::<()>(call!(ibv_query_qp, qp, attr, mask, init), move || {
        // SAFETY: structs of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (qp, attr, init) = unsafe { (QpObject::of(qp)?, borrow_mut(attr)?, borrow_mut(init)?) };
        let (found, state) = query(qp)?;
        *attr = found;
        if AttrMask::from_bits_retain(mask as u32).contains(AttrMask::STATE) {
            qp.show_state(state);
        }
        let identity = qp.identity();
        *init = ibv_qp_init_attr {
            qp_context: identity.qp_context,
            send_cq: identity.send_cq,
            recv_cq: identity.recv_cq,
            srq: identity.srq,
            cap: attr.cap,
            qp_type: identity.qp_type,
            sq_sig_all: qp.sq_sig_all.into(),
        };
        Ok(())
    })
}

/// The attributes that count. Each side of XRC has half of RC's; applications pass both sides all of them, and the
/// kernel removes those of the other side (`modify_qp_mask` of its uverbs).
fn meant(service: QpType, mask: AttrMask) -> AttrMask {
    let others = match service {
        QpType::XrcInitiator => AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER),
        QpType::XrcTarget => AttrMask::MAX_QP_RD_ATOMIC.union(AttrMask::RETRY_CNT).union(AttrMask::RNR_RETRY),
        _ => AttrMask::empty(),
    };
    mask.difference(others)
}

/// The attributes in `mask`; the others are ignored.
fn attributes(attr: &ibv_qp_attr, mask: AttrMask) -> Result<QpAttributes, Errno> {
    let mut to = QpAttr::default();
    if mask.contains(AttrMask::STATE) {
        to.state = state(attr.qp_state)?;
    }
    if mask.contains(AttrMask::CUR_STATE) {
        to.cur_state = state(attr.cur_qp_state)?;
    }
    if mask.contains(AttrMask::PKEY_INDEX) && attr.pkey_index != 0 {
        return Err(Errno::invalid("pkey_index is not 0, the index of the only P_Key"));
    }
    if mask.contains(AttrMask::PORT) {
        check_port(attr.port_num.into()).map_err(|_| Errno::invalid("port_num is not 1"))?;
    }
    if mask.contains(AttrMask::PATH_MTU) {
        let mtu = Mtu::ALL.iter().find(|mtu| **mtu as u32 == attr.path_mtu);
        to.mtu = *mtu.ok_or_else(|| Errno::invalid("path_mtu is not between 1 and 5"))?;
    }
    let address = match mask.contains(AttrMask::AV) {
        true => Some(address_vector(&attr.ah_attr)?),
        false => None,
    };
    to.sqd_notify = attr.en_sqd_async_notify != 0;
    to.access = access(attr.qp_access_flags);
    to.qkey = Qkey(attr.qkey);
    to.dest_qpn = Qpn::new(attr.dest_qp_num);
    to.rq_psn = Psn::new(attr.rq_psn);
    to.sq_psn = Psn::new(attr.sq_psn);
    to.max_rd_atomic = attr.max_rd_atomic;
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    // Five bits, as in rxe and hardware.
    to.min_rnr_timer = RnrTimer::new(attr.min_rnr_timer & 31);
    to.timeout = attr.timeout;
    to.retry_cnt = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    Ok(QpAttributes { transport: to, address })
}

fn state(number: u32) -> Result<QpState, Errno> {
    const STATES: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];
    STATES.get(number as usize).copied().ok_or_else(|| Errno::invalid("there is no such state"))
}

fn access(flags: u32) -> QpAccess {
    let flags = Access::from_bits_retain(flags);
    QpAccess {
        remote_write: flags.contains(Access::REMOTE_WRITE),
        remote_read: flags.contains(Access::REMOTE_READ),
        remote_atomic: flags.contains(Access::REMOTE_ATOMIC),
        flush_global: flags.contains(Access::FLUSH_GLOBAL),
        flush_persistent: flags.contains(Access::FLUSH_PERSISTENT),
    }
}

/// The NIC's flags, and those of `set` that mean nothing to it.
fn access_flags(access: QpAccess, set: Access) -> u32 {
    let mut flags = set;
    flags.set(Access::REMOTE_WRITE, access.remote_write);
    flags.set(Access::REMOTE_READ, access.remote_read);
    flags.set(Access::REMOTE_ATOMIC, access.remote_atomic);
    flags.set(Access::FLUSH_GLOBAL, access.flush_global);
    flags.set(Access::FLUSH_PERSISTENT, access.flush_persistent);
    flags.bits()
}

fn query(qp: &QpObject) -> Result<(ibv_qp_attr, QpState), Errno> {
    let found = qp.nic.query()?;
    let (attr, status) = (found.attr, found.status);
    let shown = ibv_qp_attr {
        qp_state: status.state as u32,
        cur_qp_state: status.state as u32,
        path_mtu: attr.mtu as u32,
        path_mig_state: IBV_MIG_MIGRATED,
        qkey: attr.qkey.0,
        rq_psn: status.expected_psn.get(),
        sq_psn: status.send_psn.get(),
        dest_qp_num: attr.dest_qpn.get(),
        qp_access_flags: access_flags(
            attr.access,
            Access::from_bits_retain(qp.access_flags.load(Ordering::Relaxed)),
        ),
        cap: caps(&qp.nic),
        ah_attr: qp.nic.address().map_or(NO_ADDRESS, |address| ibv_ah_attr {
            sl: qp.service_level.load(Ordering::Relaxed),
            static_rate: qp.static_rate.load(Ordering::Relaxed),
            ..ah_attr(&address)
        }),
        alt_ah_attr: NO_ADDRESS,
        pkey_index: 0,
        alt_pkey_index: 0,
        en_sqd_async_notify: attr.sqd_notify.into(),
        sq_draining: (status.state == QpState::Sqd && status.in_flight > 0).into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer.code(),
        port_num: crate::query::PORT as u8,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    };
    Ok((shown, status.state))
}
