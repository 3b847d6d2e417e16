//! Protection domains, parent domains and thread domains.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softrnic_nic::verbs::Pd;

use crate::abi::*;
use crate::c_view::Shown;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{Silent, borrow, call, guard};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, object, retire};
use crate::registry::{Export, registry};

/// Number of objects that use another one, which cannot be destroyed in the meantime.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub fn join(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// # Errors
    /// EBUSY while there are any.
    pub fn none(&self) -> Result<(), Errno> {
        if self.0.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(Errno::BUSY) }
    }
}

/// A protection domain as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct PdObject {
    ibv: Shown<ibv_pd>,
    seal: Seal,
    pub(crate) nic: Arc<Pd>,
    pub(crate) users: Users,
    /// Its identity for importers: the open file, and its handle there.
    pub(crate) exported: (u64, u32),
    context: *mut ibv_context,
    origin: Origin,
}

object!(PdObject, Pd, ibv_pd, handle);

enum Origin {
    Own,
    /// A second name for a PD of another context.
    Imported,
    /// A parent domain, which keeps its members in use.
    Parent {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
    },
}

impl PdObject {
    pub(crate) fn of<'a>(pd: *mut ibv_pd) -> Result<&'a PdObject, Errno> {
        find(pd)
    }

    /// The context of a PD of ours.
    pub(crate) fn ctx(&self) -> Result<&Ctx, Errno> {
        Ctx::of(self.context)
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context
    }

    pub(crate) fn as_ibv(&self) -> *mut ibv_pd {
        self.ibv.get()
    }

    fn publish(
        slot: ObjectSlot<PdObject>,
        context: *mut ibv_context,
        exported: (u64, u32),
        nic: Arc<Pd>,
        origin: Origin,
    ) -> *mut ibv_pd {
        let ibv = Shown::new(ibv_pd { context, handle: exported.1 });
        let (seal, users) = (Seal::new(Kind::Pd), Users::default());
        slot.publish(PdObject { ibv, seal, nic, users, exported, context, origin })
    }
}

/// A thread domain: a promise of the application that we do not use.
#[repr(C)]
struct TdObject {
    ibv: Shown<ibv_td>,
    seal: Seal,
    users: Users,
}

object!(TdObject, Td, ibv_td);

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    guard::<*mut ibv_pd>(call!(ibv_alloc_pd, context), move || {
        let ctx = Ctx::of(context)?;
        let slot = ObjectSlot::new()?;
        let nic = ctx.nic()?.alloc_pd()?;
        let handle = registry().export(&ctx.file, Export::Pd(nic.clone()));
        Ok(PdObject::publish(slot, context, (ctx.file.id, handle), nic, Origin::Own))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    guard::<()>(call!(ibv_dealloc_pd, pd), move || {
        let object: &PdObject = find_last(pd)?;
        object.users.none()?;
        match object.origin {
            Origin::Own => {
                let removed = registry().exports.remove(&object.exported);
                drop(removed);
            }
            Origin::Imported => {}
            Origin::Parent { pd, td } => {
                PdObject::of(pd)?.users.leave();
                if !td.is_null() {
                    find::<TdObject>(td)?.users.leave();
                }
            }
        }
        // SAFETY: just found, without users; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<PdObject>(pd) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    guard::<*mut ibv_pd>(call!(ibv_import_pd, context, handle), move || {
        let ctx = Ctx::of(context)?;
        let found = registry().exports.get(&(ctx.file.id, handle)).cloned();
        let Some(Export::Pd(nic)) = found else { return Err(Errno::NOENT) };
        let slot = ObjectSlot::new()?;
        Ok(PdObject::publish(slot, context, (ctx.file.id, handle), nic, Origin::Imported))
    })
}

/// Only for imported domains without users.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    guard::<Silent>(call!(ibv_unimport_pd, pd), move || {
        let object: &PdObject = find_last(pd)?;
        object.users.none()?;
        if let Origin::Imported = object.origin {
            // SAFETY: just found, without users; the application, which destroys it, no longer uses it.
            drop(unsafe { retire::<PdObject>(pd) });
        }
        Ok(Silent)
    })
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    guard::<*mut ibv_td>(call!(ibv_alloc_td, context, attr), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (_, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if attr.comp_mask != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let ibv = Shown::new(ibv_td { context });
        Ok(ObjectSlot::new()?.publish(TdObject { ibv, seal: Seal::new(Kind::Td), users: Users::default() }))
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    guard::<()>(call!(ibv_dealloc_td, td), move || {
        find_last::<TdObject>(td)?.users.none()?;
        // SAFETY: just found, without users; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<TdObject>(td) });
        Ok(())
    })
}

/// Its allocators are not called: our queues are not in memory that an application's allocator could improve.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    guard::<*mut ibv_pd>(call!(ibv_alloc_parent_domain, context, attr), move || {
        const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (_, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let pd = PdObject::of(attr.pd)?;
        Ctx::check_same(context, pd.context)?;
        if let Origin::Parent { .. } = pd.origin {
            return Err(Errno::invalid("pd: a parent domain cannot have another as its parent"));
        }
        let slot = ObjectSlot::new()?;
        if !attr.td.is_null() {
            let td: &TdObject = find(attr.td)?;
            // SAFETY: a field of an object that was just found, written only when it is made.
            Ctx::check_same(context, unsafe { (*td.ibv.get()).context })?;
            td.users.join();
        }
        pd.users.join();
        let origin = Origin::Parent { pd: attr.pd, td: attr.td };
        Ok(PdObject::publish(slot, context, pd.exported, pd.nic.clone(), origin))
    })
}
