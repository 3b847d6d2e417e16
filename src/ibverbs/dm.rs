//! Device memory.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use softrnic_nic::verbs::{Access, Context, DmId};

use crate::abi::*;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::guard::{Silent, borrow, export, slot};
use crate::mr::{MrObject, Region};
use crate::pd::PdObject;
use crate::registry::{Export, registry};

/// A device memory as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct DmObject {
    ibv: ibv_dm,
    memory: Arc<Memory>,
}

/// A device memory of the NIC, which an importer may share.
pub(crate) struct Memory {
    context: Context,
    id: DmId,
}

impl DmObject {
    /// # Safety
    /// The pointer is null or a device memory of ours.
    unsafe fn of<'a>(dm: *mut ibv_dm) -> Result<&'a DmObject, Errno> {
        // SAFETY: the caller's memory, the first field of which it is.
        unsafe { borrow(dm.cast()) }
    }

    fn publish(context: *mut ibv_context, handle: u32, memory: Arc<Memory>) -> *mut ibv_dm {
        let ibv = ibv_dm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 1,
            handle,
        };
        Box::into_raw(Box::new(DmObject { ibv, memory })).cast()
    }
}

/// Device memory is copied in words of four bytes, as the hardware that has it demands.
fn check_words(offset: u64, length: usize) -> Result<(), Errno> {
    if offset.is_multiple_of(4) && length.is_multiple_of(4) { Ok(()) } else { Err(Errno::INVAL) }
}

slot! {
    fn alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
        // SAFETY: the caller's context and struct.
        let (ctx, attr) = unsafe { (Ctx::of(context)?, borrow(attr)?) };
        if attr.comp_mask != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let nic = ctx.nic()?;
        let id = nic.alloc_dm(attr.length as u64, attr.log_align_req)?;
        let memory = Arc::new(Memory { context: nic.clone(), id });
        let handle = registry().export(&ctx.file, Export::Memory(memory.clone()));
        Ok(DmObject::publish(context, handle, memory))
    }

    fn free_dm(dm: *mut ibv_dm) -> () {
        // SAFETY: the caller's memory.
        let object = unsafe { DmObject::of(dm)? };
        object.memory.context.free_dm(object.memory.id)?;
        // SAFETY: a memory's context outlives it.
        let file = unsafe { Ctx::of(object.ibv.context)? }.file.id;
        let removed = registry().exports.remove(&(file, object.ibv.handle));
        drop(removed);
        // SAFETY: made from a box, and used no more.
        drop(unsafe { Box::from_raw(dm.cast::<DmObject>()) });
        Ok(())
    }

    fn reg_dm_mr(
        pd: *mut ibv_pd,
        dm: *mut ibv_dm,
        offset: u64,
        length: usize,
        access: c_uint,
    ) -> *mut ibv_mr {
        // SAFETY: the caller's PD and memory.
        let (pd, dm) = unsafe { (PdObject::of(pd)?, DmObject::of(dm)?) };
        let access = Access::from_bits_retain(access);
        let raw = pd.nic.register_dm(dm.memory.id, offset, length as u64, access)?;
        MrObject::publish(pd, Region::new(raw, 0, length))
    }

    fn memcpy_to_dm(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> () {
        // SAFETY: the caller's memory.
        let dm = unsafe { DmObject::of(dm)? };
        check_words(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: `length` bytes of the caller's, which nobody changes during the call.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        Ok(dm.memory.context.write_dm(dm.memory.id, offset, bytes)?)
    }

    fn memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> () {
        // SAFETY: the caller's memory.
        let dm = unsafe { DmObject::of(dm)? };
        check_words(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: room for `length` bytes of the caller's, which nobody else uses during the call.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
        Ok(dm.memory.context.read_dm(dm.memory.id, offset, bytes)?)
    }
}

export! {
    fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
        // SAFETY: the caller's context.
        let ctx = unsafe { Ctx::of(context)? };
        let found = registry().exports.get(&(ctx.file.id, handle)).cloned();
        let Some(Export::Memory(memory)) = found else { return Err(Errno::NOENT) };
        Ok(DmObject::publish(context, handle, memory))
    }

    fn ibv_unimport_dm(dm: *mut ibv_dm) -> Silent {
        if !dm.is_null() {
            // SAFETY: the caller's imported memory, made from a box, and used no more.
            drop(unsafe { Box::from_raw(dm.cast::<DmObject>()) });
        }
        Ok(Silent)
    }
}
