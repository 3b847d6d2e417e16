//! Memory windows.

use std::sync::Arc;

use softrnic_nic::verbs::{Access, BindSpec, Lkey, LocalData, MwType, Pd, Rkey, SendRequest};
use softrnic_transport::{LocalOp, SendOp};

use crate::abi::*;
use crate::errno::Errno;
use crate::guard::{borrow, data_path, slot};
use crate::mr::MrObject;
use crate::pd::PdObject;
use crate::qp::QpObject;
use crate::shown::Shown;

/// A memory window as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct MwObject {
    ibv: Shown<ibv_mw>,
    owner: *mut ibv_pd,
    pd: Arc<Pd>,
    /// The key that it was made with; later ones differ in the low byte.
    rkey: Rkey,
}

impl MwObject {
    /// # Safety
    /// The pointer is null or a window of ours.
    unsafe fn of<'a>(mw: *mut ibv_mw) -> Result<&'a MwObject, Errno> {
        // SAFETY: the caller's window, the first field of which it is.
        unsafe { borrow(mw.cast()) }
    }
}

slot! {
    fn alloc_mw(pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw {
        // SAFETY: the caller's PD.
        let object = unsafe { PdObject::of(pd)? };
        let kind = match mw_type {
            IBV_MW_TYPE_1 => MwType::Type1,
            IBV_MW_TYPE_2 => MwType::Type2,
            _ => return Err(Errno::INVAL),
        };
        let rkey = object.nic.alloc_mw(kind)?;
        object.users.join();
        let ibv = ibv_mw { context: object.context(), pd, rkey: rkey.0, handle: rkey.0 >> 8, type_: mw_type };
        let ibv = Shown::new(ibv);
        Ok(Box::into_raw(Box::new(MwObject { ibv, owner: pd, pd: object.nic.clone(), rkey })).cast())
    }

    fn dealloc_mw(mw: *mut ibv_mw) -> () {
        // SAFETY: the caller's window.
        let object = unsafe { MwObject::of(mw)? };
        object.pd.dealloc_mw(object.rkey)?;
        // SAFETY: the PD of a window outlives it.
        unsafe { PdObject::of(object.owner)? }.users.leave();
        // SAFETY: made from a box, and used no more.
        drop(unsafe { Box::from_raw(mw.cast::<MwObject>()) });
        Ok(())
    }

}

data_path! {
    /// Binds a type 1 window: a work request on the QP's send queue, under a key that is new each time.
    fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> () {
        // SAFETY: the caller's QP and structs.
        let (qp, bind) = unsafe { (QpObject::of(qp)?, borrow(bind)?) };
        // SAFETY: the caller's window; the field is C's as well as ours.
        let shown = unsafe { MwObject::of(mw)? }.ibv.get();
        // SAFETY: as above.
        let old = unsafe { (*shown).rkey };
        let rkey = (old & !0xFF) | (old.wrapping_add(1) & 0xFF);
        // SAFETY: the caller's window and region.
        let spec = unsafe { bind_spec(mw, rkey, &bind.bind_info)? };
        let request = SendRequest {
            wr_id: bind.wr_id,
            op: SendOp::Local(LocalOp::BindWindow(LocalData::Bind(Box::new(spec)))),
            data: LocalData::empty(),
            length: 0,
            signaled: qp.signals(bind.send_flags),
            solicited: false,
            fence: bind.send_flags & IBV_SEND_FENCE != 0,
            srqn: None,
        };
        qp.nic.sends().push(request)?;
        // SAFETY: as above.
        unsafe { (*shown).rkey = rkey };
        Ok(())
    }
}

/// What a bind of `mw` under `rkey` asks of the NIC.
///
/// # Safety
/// The window and the region are the caller's.
pub(crate) unsafe fn bind_spec(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<BindSpec, Errno> {
    // SAFETY: the caller's window.
    let window = unsafe { MwObject::of(mw)? };
    // SAFETY: the caller's region, if he names one: an unbind needs none.
    let mr = if info.mr.is_null() { 0 } else { unsafe { MrObject::of(info.mr)? }.lkey() };
    if info.mr.is_null() && info.length != 0 {
        return Err(Errno::INVAL);
    }
    Ok(BindSpec {
        mw: window.rkey,
        tag: rkey as u8,
        mr: Lkey(mr),
        addr: info.addr,
        length: info.length,
        // A window gives rights to peers; that its owner may write is the region's to say.
        access: Access::from_bits_retain(info.mw_access_flags) - Access::LOCAL_WRITE,
    })
}
