//! Objects as they are made and destroyed.

use softrnic_check::{Change, Facts, Object, ObjectKind};
use softrnic_nic::verbs::{AttrMask, QpType};
use softrnic_transport::QpAttr;

use super::{forget_cq, know_cq, with};
use crate::abi::*;
use crate::cq::CqObject;
use crate::object::{Kind, Object as Published};
use crate::qp::QpObject;

/// The program has made an object.
#[cold]
pub(crate) fn made<O: Published>(object: &O) {
    let address = (&raw const *object).addr();
    // SAFETY: an object of this kind, which has just been made and is not destroyed before its maker has it.
    let (facts, uses) = unsafe { describe(O::KIND, (&raw const *object).cast()) };
    let lines = softrnic_stacks::lines();
    with(|state| {
        let made = state.traces.here(lines);
        let maker = state.traces.stack(made).and_then(|stack| stack.calls.first());
        // librdmacm opens each device once, and keeps it.
        let is_kept = O::KIND == Kind::Context
            && maker.is_some_and(|call| softrnic_stacks::is_in(*call, "librdmacm.so"));
        let kind = if is_kept { ObjectKind::Other } else { kind(O::KIND) };
        state.checker.made(Object { address, kind, facts, uses, made });
    });
}

/// It has destroyed one.
#[cold]
pub(crate) fn destroyed(address: usize) {
    forget_cq(address);
    let lines = softrnic_stacks::lines();
    with(|state| {
        let trace = state.traces.here(lines);
        state.checker.destroyed(address, trace);
    });
}

/// A window or region has other keys or bytes now.
#[cold]
pub(crate) fn rekeyed<O: Published>(object: &O) {
    // SAFETY: an object of this kind, which the caller has found.
    let (facts, _) = unsafe { describe(O::KIND, (&raw const *object).cast()) };
    with(|state| state.checker.changed((&raw const *object).addr(), facts));
}

/// The program has changed a QP.
#[cold]
pub(crate) fn modified(qp: &QpObject, mask: AttrMask, attr: &QpAttr) {
    let set = |one: AttrMask| mask.contains(one);
    let change = Change {
        state: set(AttrMask::STATE).then_some(attr.state),
        dest: set(AttrMask::DEST_QPN).then(|| attr.dest_qpn.get()),
        rq_psn: set(AttrMask::RQ_PSN).then(|| attr.rq_psn.get()),
        sq_psn: set(AttrMask::SQ_PSN).then(|| attr.sq_psn.get()),
        mtu: set(AttrMask::PATH_MTU).then(|| attr.mtu.bytes()),
        peer: if set(AttrMask::AV) { qp.nic.address().map(|address| address.dgid) } else { None },
        qkey: set(AttrMask::QKEY).then_some(attr.qkey.0),
        timeout: set(AttrMask::TIMEOUT).then_some(attr.timeout),
    };
    let lines = softrnic_stacks::lines();
    with(|state| {
        let trace = state.traces.here(lines);
        state.checker.modified(qp.nic.qpn().get(), change, trace);
    });
}

/// What is known of an object, and which others it uses.
///
/// # Safety
/// `object` is one of this kind, and is not destroyed meanwhile.
unsafe fn describe(kind: Kind, object: *const std::ffi::c_void) -> (Facts, Vec<usize>) {
    // SAFETY: each object begins with what C sees of it (`Object`), and lives, as the caller promises. Keys may change
    // meanwhile in another thread only by a misuse of verbs, and are integers.
    unsafe {
        match kind {
            Kind::Mr => {
                let mr = &*object.cast::<ibv_mr>();
                let (addr, length, key) = (mr.addr.addr() as u64, mr.length as u64, mr.lkey);
                (Facts::Region { addr, length, key }, uses(&[mr.pd.addr()]))
            }
            Kind::Mw => {
                let mw = &*object.cast::<ibv_mw>();
                (Facts::Window { key: mw.rkey }, uses(&[mw.pd.addr()]))
            }
            Kind::Cq => {
                let cq = &*object.cast::<CqObject>();
                know_cq(object.addr(), &cq.nic);
                let shown = &*cq.ibv.get();
                (Facts::Cq { entries: shown.cqe as u32 }, uses(&[shown.channel.addr()]))
            }
            Kind::Qp => {
                let qp = &*object.cast::<QpObject>();
                let shown = &(*qp.ibv.get()).qp_base;
                let service = qp.nic.service();
                let facts = Facts::Qp {
                    qpn: shown.qp_num,
                    datagrams: matches!(service, QpType::Ud | QpType::Srd),
                    reliable: !matches!(service, QpType::Ud | QpType::Uc),
                    max_send: qp.nic.options().max_send_wr,
                    srq: (!shown.srq.is_null()).then(|| shown.srq.addr()),
                    send_cq: shown.send_cq.addr(),
                    recv_cq: shown.recv_cq.addr(),
                };
                let parts = [shown.pd.addr(), shown.send_cq.addr(), shown.recv_cq.addr(), shown.srq.addr()];
                (facts, uses(&parts))
            }
            Kind::Srq => (Facts::None, uses(&[(*object.cast::<ibv_srq>()).pd.addr()])),
            Kind::Ah => (Facts::None, uses(&[(*object.cast::<ibv_ah>()).pd.addr()])),
            _ => (Facts::None, Vec::new()),
        }
    }
}

fn uses(parts: &[usize]) -> Vec<usize> {
    parts.iter().copied().filter(|part| *part != 0).collect()
}

/// What the checker calls a kind of objects.
pub(crate) fn kind(kind: Kind) -> ObjectKind {
    match kind {
        Kind::Context => ObjectKind::Context,
        Kind::Pd => ObjectKind::Pd,
        Kind::Td => ObjectKind::Td,
        Kind::Mr => ObjectKind::Mr,
        Kind::Mw => ObjectKind::Mw,
        Kind::Cq => ObjectKind::Cq,
        Kind::Channel => ObjectKind::Channel,
        Kind::Srq => ObjectKind::Srq,
        Kind::Qp => ObjectKind::Qp,
        Kind::Ah => ObjectKind::Ah,
        Kind::Xrcd => ObjectKind::Xrcd,
        Kind::Dm => ObjectKind::Dm,
        Kind::Buffer => ObjectKind::Other,
    }
}
