//! Protection domains, parent domains and thread domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softrnic_nic::verbs::Pd;

use crate::abi::*;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::guard::{Silent, borrow, export, slot};
use crate::registry::{Export, registry};

/// How many objects use another one, which cannot be destroyed meanwhile.
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
    ibv: ibv_pd,
    pub(crate) nic: Arc<Pd>,
    pub(crate) users: Users,
    kind: Kind,
}

enum Kind {
    Own,
    /// A second name for a PD that another context has.
    Imported,
    /// A parent domain, whose members are kept busy by it.
    Parent {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
    },
}

impl PdObject {
    /// # Safety
    /// The pointer is null or a PD of ours.
    pub(crate) unsafe fn of<'a>(pd: *mut ibv_pd) -> Result<&'a PdObject, Errno> {
        // SAFETY: the caller's PD, the first field of which it is.
        unsafe { borrow(pd.cast()) }
    }

    /// The context of a PD of ours.
    pub(crate) fn ctx(&self) -> Result<&Ctx, Errno> {
        // SAFETY: a PD's context outlives it.
        unsafe { Ctx::of(self.ibv.context) }
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        self.ibv.context
    }

    pub(crate) fn as_ibv(&self) -> *mut ibv_pd {
        (&raw const self.ibv).cast_mut()
    }

    fn publish(context: *mut ibv_context, handle: u32, nic: Arc<Pd>, kind: Kind) -> *mut ibv_pd {
        let ibv = ibv_pd { context, handle };
        Box::into_raw(Box::new(PdObject { ibv, nic, users: Users::default(), kind })).cast()
    }
}

/// A thread domain: a promise of the application that we make no use of.
#[repr(C)]
struct TdObject {
    ibv: ibv_td,
    users: Users,
}

impl TdObject {
    /// # Safety
    /// The pointer is null or a thread domain of ours.
    unsafe fn of<'a>(td: *mut ibv_td) -> Result<&'a TdObject, Errno> {
        // SAFETY: the caller's thread domain, the first field of which it is.
        unsafe { borrow(td.cast()) }
    }
}

export! {
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
        // SAFETY: the caller's context.
        let ctx = unsafe { Ctx::of(context)? };
        let nic = ctx.nic()?.alloc_pd()?;
        let handle = registry().export(&ctx.file, Export::Pd(nic.clone()));
        Ok(PdObject::publish(context, handle, nic, Kind::Own))
    }

    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> () {
        // SAFETY: the caller's PD.
        let object = unsafe { PdObject::of(pd)? };
        object.users.none()?;
        match object.kind {
            Kind::Own => {
                let removed = registry().exports.remove(&(object.ctx()?.file.id, object.ibv.handle));
                drop(removed);
            }
            Kind::Imported => {}
            Kind::Parent { pd, td } => {
                // SAFETY: a parent domain's members are alive: it counts as their user.
                unsafe { PdObject::of(pd)? }.users.leave();
                if !td.is_null() {
                    // SAFETY: as above.
                    unsafe { TdObject::of(td)? }.users.leave();
                }
            }
        }
        // SAFETY: made from a box, and used no more.
        drop(unsafe { Box::from_raw(pd.cast::<PdObject>()) });
        Ok(())
    }

    fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
        // SAFETY: the caller's context.
        let ctx = unsafe { Ctx::of(context)? };
        let found = registry().exports.get(&(ctx.file.id, handle)).cloned();
        let Some(Export::Pd(nic)) = found else { return Err(Errno::NOENT) };
        Ok(PdObject::publish(context, handle, nic, Kind::Imported))
    }

    fn ibv_unimport_pd(pd: *mut ibv_pd) -> Silent {
        if !pd.is_null() {
            // SAFETY: the caller's imported PD, made from a box, and used no more.
            drop(unsafe { Box::from_raw(pd.cast::<PdObject>()) });
        }
        Ok(Silent)
    }
}

slot! {
    fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
        // SAFETY: the caller's context and struct.
        let (_, attr) = unsafe { (Ctx::of(context)?, borrow(attr)?) };
        if attr.comp_mask != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Box::into_raw(Box::new(TdObject { ibv: ibv_td { context }, users: Users::default() })).cast())
    }

    fn dealloc_td(td: *mut ibv_td) -> () {
        // SAFETY: the caller's thread domain.
        unsafe { TdObject::of(td)? }.users.none()?;
        // SAFETY: made from a box, and used no more.
        drop(unsafe { Box::from_raw(td.cast::<TdObject>()) });
        Ok(())
    }

    /// Its allocators are not called: our queues are not in memory that an allocator of the application's could
    /// make any better.
    fn alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr,
    ) -> *mut ibv_pd {
        const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        // SAFETY: the caller's context and struct.
        let (_, attr) = unsafe { (Ctx::of(context)?, borrow(attr)?) };
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the caller's PD, which may not be null.
        let pd = unsafe { PdObject::of(attr.pd)? };
        if let Kind::Parent { .. } = pd.kind {
            return Err(Errno::INVAL);
        }
        pd.users.join();
        if !attr.td.is_null() {
            // SAFETY: the caller's thread domain.
            unsafe { TdObject::of(attr.td)? }.users.join();
        }
        let kind = Kind::Parent { pd: attr.pd, td: attr.td };
        Ok(PdObject::publish(context, pd.ibv.handle, pd.nic.clone(), kind))
    }
}
