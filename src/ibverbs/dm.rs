//! Device memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use softrnic_nic::verbs::{Access, Context, DmId};

use crate::abi::*;
use crate::c_view::Shown;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{Silent, borrow, call, guard};
use crate::mr::{MrObject, Region};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, object, retire};
use crate::pd::PdObject;
use crate::registry::{Export, registry};

/// A device memory as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct DmObject {
    ibv: Shown<ibv_dm>,
    seal: Seal,
    memory: Arc<Memory>,
    /// Its identity for importers.
    exported: (u64, u32),
    imported: bool,
}

object!(DmObject, Dm, ibv_dm, handle);

/// A device memory of the NIC, which an importer may share.
pub(crate) struct Memory {
    context: Context,
    id: DmId,
    length: u64,
}

impl DmObject {
    fn of<'a>(dm: *mut ibv_dm) -> Result<&'a DmObject, Errno> {
        find(dm)
    }

    fn publish(
        slot: ObjectSlot<DmObject>,
        context: *mut ibv_context,
        exported: (u64, u32),
        memory: Arc<Memory>,
        imported: bool,
    ) -> *mut ibv_dm {
        let ibv = ibv_dm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 1,
            handle: exported.1,
        };
        let (ibv, seal) = (Shown::new(ibv), Seal::new(Kind::Dm));
        slot.publish(DmObject { ibv, seal, memory, exported, imported })
    }
}

/// Device memory is copied in words of four bytes, as hardware requires, and only within its bounds.
fn check_words(dm: &DmObject, offset: u64, length: usize) -> Result<(), Errno> {
    let words = offset.is_multiple_of(4) && length.is_multiple_of(4);
    let fits = offset.checked_add(length as u64).is_some_and(|end| end <= dm.memory.length);
    if words && fits {
        Ok(())
    } else {
        Err(Errno::invalid(format_args!(
            "{length} B at offset {offset}: not multiples of 4, or past the end of {} B",
            dm.memory.length
        )))
    }
}

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    guard::<*mut ibv_dm>(call!(ibv_alloc_dm, context, attr), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (ctx, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if attr.comp_mask != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let (slot, nic) = (ObjectSlot::new()?, ctx.nic()?);
        let id = nic.alloc_dm(attr.length as u64, attr.log_align_req)?;
        let memory = Arc::new(Memory { context: nic.clone(), id, length: attr.length as u64 });
        let handle = registry().export(&ctx.file, Export::Memory(memory.clone()));
        Ok(DmObject::publish(slot, context, (ctx.file.id, handle), memory, false))
    })
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    guard::<()>(call!(ibv_free_dm, dm), move || {
        let object: &DmObject = find_last(dm)?;
        object.memory.context.free_dm(object.memory.id)?;
        let removed = registry().exports.remove(&object.exported);
        drop(removed);
        // SAFETY: just found; the application, which gives it up, no longer uses it.
        drop(unsafe { retire::<DmObject>(dm) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_dm_mr, pd, dm, offset, length, access), move || {
        let (pd, dm) = (PdObject::of(pd)?, DmObject::of(dm)?);
        // SAFETY: a field of an object that was just found, written only when it is made.
        Ctx::check_same(pd.context(), unsafe { (*dm.ibv.get()).context })?;
        let access = Access::from_bits_retain(access);
        let slot = ObjectSlot::new()?;
        let raw = pd.nic.register_dm(dm.memory.id, offset, length as u64, access)?;
        MrObject::publish(slot, pd, Region::new(raw, 0, length))
    })
}

pub(crate) unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    guard::<()>(call!(ibv_memcpy_to_dm, dm, offset, from, length), move || {
        let dm = DmObject::of(dm)?;
        check_words(dm, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(Errno::invalid("host_addr is null"));
        }
        // SAFETY: the application has `length` bytes there. They may be registered, and change meanwhile.
        Ok(unsafe { dm.memory.context.fill_dm(dm.memory.id, offset, from.cast(), length) }?)
    })
}

pub(crate) unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    guard::<()>(call!(ibv_memcpy_from_dm, to, dm, offset, length), move || {
        let dm = DmObject::of(dm)?;
        check_words(dm, offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(Errno::invalid("host_addr is null"));
        }
        // SAFETY: the application has room for `length` bytes there. They may be registered, and change meanwhile.
        Ok(unsafe { dm.memory.context.show_dm(dm.memory.id, offset, to.cast(), length) }?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    guard::<*mut ibv_dm>(call!(ibv_import_dm, context, handle), move || {
        let exported = (Ctx::of(context)?.file.id, handle);
        let found = registry().exports.get(&exported).cloned();
        let Some(Export::Memory(memory)) = found else { return Err(Errno::NOENT) };
        Ok(DmObject::publish(ObjectSlot::new()?, context, exported, memory, true))
    })
}

/// Only for imported memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    guard::<Silent>(call!(ibv_unimport_dm, dm), move || {
        if find_last::<DmObject>(dm)?.imported {
            // SAFETY: just found; the application, which gives it up, no longer uses it.
            drop(unsafe { retire::<DmObject>(dm) });
        }
        Ok(Silent)
    })
}
