//! Memory windows.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softrnic_nic::verbs::{Access, BindSpec, Lkey, LocalData, MwType, Pd, Rkey, SendRequest};
use softrnic_transport::{LocalOp, SendOp};

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::errno::Errno;
use crate::ffi_boundary::{borrow, call, guard, guard_data_path};
use crate::mr::MrObject;
use crate::object::{Kind, ObjectSlot, Seal, find_last, live, object, retire};
use crate::pd::PdObject;
use crate::qp::QpObject;
use crate::reserve;

/// A memory window as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct MwObject {
    ibv: Shown<ibv_mw>,
    seal: Seal,
    owner: *mut ibv_pd,
    pd: Arc<Pd>,
    /// The key it was created with; later ones differ in the low byte.
    rkey: Rkey,
}

object!(MwObject, Mw, ibv_mw, handle);

impl MwObject {
    /// The key that C sees. Posts on several threads may bind the window.
    fn shown_key(&self) -> &AtomicU32 {
        // SAFETY: a field of `self`, accessed in no other way here once the window is made.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.ibv.get()).rkey) }
    }
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw {
    guard::<*mut ibv_mw>(call!(ibv_alloc_mw, pd, mw_type), move || {
        let object = PdObject::of(pd)?;
        let kind = match mw_type {
            IBV_MW_TYPE_1 => MwType::Type1,
            IBV_MW_TYPE_2 => MwType::Type2,
            _ => return Err(Errno::invalid(format_args!("type {mw_type} is no type of a memory window"))),
        };
        let slot = ObjectSlot::new()?;
        let rkey = object.nic.alloc_mw(kind)?;
        object.users.join();
        let ibv = ibv_mw { context: object.context(), pd, rkey: rkey.0, handle: rkey.0 >> 8, type_: mw_type };
        let (ibv, seal) = (Shown::new(ibv), Seal::new(Kind::Mw));
        Ok(slot.publish(MwObject { ibv, seal, owner: pd, pd: object.nic.clone(), rkey }))
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    guard::<()>(call!(ibv_dealloc_mw, mw), move || {
        let object: &MwObject = find_last(mw)?;
        object.pd.dealloc_mw(object.rkey)?;
        PdObject::of(object.owner)?.users.leave();
        // SAFETY: just found; the application, which gives it up, no longer uses it.
        drop(unsafe { retire::<MwObject>(mw) });
        Ok(())
    })
}

/// Binds a type 1 window with a work request on the QP's send queue, under a new key each time.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    guard_data_path::<()>(move || {
        // SAFETY: null, or a QP of ours that the application keeps; the structs are valid for the call.
        let (qp, bind) = unsafe { (QpObject::live(qp)?, borrow(bind)?) };
        // SAFETY: null, or a window of ours that the application keeps for the call.
        let rkey = unsafe { live::<MwObject>(mw)? }.shown_key().load(Ordering::Relaxed).wrapping_add(1);
        // SAFETY: a window, and a region or null, of ours that the application keeps for the call.
        let spec = unsafe { bind_spec(mw, rkey, &bind.bind_info)? };
        let request = SendRequest {
            wr_id: bind.wr_id,
            op: SendOp::Local(LocalOp::BindWindow),
            data: binding(spec)?,
            length: 0,
            signaled: qp.signals(bind.send_flags),
            solicited: false,
            fence: bind.send_flags & IBV_SEND_FENCE != 0,
            srqn: None,
        };
        qp.nic.post_batch(|batch| batch.push(request))?;
        // SAFETY: a window of ours that the application keeps for the call.
        unsafe { show_key(mw, rkey) }
    })
}

/// Shows the key that a window has once a posted bind with `rkey` is executed: its own, with the low byte of `rkey`.
/// Programs written for irdma read it from there.
///
/// # Safety
/// As for [`live`].
pub(crate) unsafe fn show_key(mw: *mut ibv_mw, rkey: u32) -> Result<(), Errno> {
    // SAFETY: null or a window of ours that stays, as the caller promises.
    let window: &MwObject = unsafe { live(mw)? };
    let shown = (window.rkey.0 & !0xFF) | (rkey & 0xFF);
    window.shown_key().store(shown, Ordering::Relaxed);
    if check::is_on() {
        check::rekeyed(window);
    }
    Ok(())
}

/// What a request that binds needs.
///
/// # Errors
/// ENOMEM.
pub(crate) fn binding(spec: BindSpec) -> Result<LocalData, Errno> {
    reserve::check_blocks()?;
    Ok(LocalData::Bind(Box::new(spec)))
}

/// The NIC's bind request for `mw` under `rkey`.
///
/// # Safety
/// As for [`live`], of the window and of the region, which may be null.
pub(crate) unsafe fn bind_spec(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<BindSpec, Errno> {
    // SAFETY: null or a window of ours that stays, as the caller promises.
    let window: &MwObject = unsafe { live(mw)? };
    // SAFETY: a region of ours that stays, as the caller promises; an unbind names none.
    let mr = if info.mr.is_null() { 0 } else { unsafe { MrObject::lkey(info.mr)? } };
    if info.mr.is_null() && info.length != 0 {
        return Err(Errno::invalid(format_args!("bind_info.mr is null, and length is {}", info.length)));
    }
    Ok(BindSpec {
        mw: window.rkey,
        tag: rkey as u8,
        mr: Lkey(mr),
        addr: info.addr,
        length: info.length,
        // A window gives rights to peers; whether its owner may write is up to the region.
        access: Access::from_bits_retain(info.mw_access_flags) - Access::LOCAL_WRITE,
    })
}
