//! XRC domains.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use softrnic_nic::verbs::{Context, Cq, Pd, Qp, Qpn, XrcdKey};

use crate::abi::*;
use crate::c_view::Shown;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{borrow, call, guard};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, object, retire};
use crate::pd::Users;
use crate::registry::registry;

/// An XRC domain as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct XrcdObject {
    ibv: Shown<ibv_xrcd>,
    seal: Seal,
    pub(crate) domain: Arc<Domain>,
    pub(crate) users: Users,
}

/// An XRC domain of the NIC, which several `ibv_xrcd` may share through a file.
pub(crate) struct Domain {
    context: Context,
    pub(crate) key: XrcdKey,
    file: Option<(libc::dev_t, libc::ino_t)>,
    /// Target QPs are created without a PD and without CQs: what they need comes with the SRQ that each packet names.
    /// The NIC requires some all the same.
    pub(crate) pd: Arc<Pd>,
    pub(crate) cq: Arc<Cq>,
    /// Target QPs by number, for `ibv_open_qp`.
    targets: Mutex<HashMap<Qpn, Weak<Qp>>>,
}

object!(XrcdObject, Xrcd, ibv_xrcd);

impl XrcdObject {
    pub(crate) fn of<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a XrcdObject, Errno> {
        find(xrcd)
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: a field of a live object, which is written only when it is made (`verbs.h`).
        unsafe { (*self.ibv.get()).context }
    }
}

impl Domain {
    fn new(context: &Context, file: Option<(libc::dev_t, libc::ino_t)>) -> Result<Arc<Domain>, Errno> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(1, None)?);
        let key = context.alloc_xrcd()?;
        Ok(Arc::new(Domain { context: context.clone(), key, file, pd, cq, targets: Mutex::default() }))
    }

    /// A target QP was created.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn add_target(&self, qp: &Arc<Qp>) -> Result<(), Errno> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.retain(|_, qp| qp.strong_count() > 0);
        targets.try_reserve(1)?;
        targets.insert(qp.qpn(), Arc::downgrade(qp));
        Ok(())
    }

    /// The target QP with this number.
    pub(crate) fn target(&self, qpn: Qpn) -> Option<Arc<Qp>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&qpn)?.upgrade()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // QPs and SRQs of the domain keep it alive.
        let _ = self.context.dealloc_xrcd(self.key);
    }
}

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    guard::<*mut ibv_xrcd>(call!(ibv_open_xrcd, context, attr), move || {
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (ctx, attr) = (Ctx::of(context)?, unsafe { borrow(attr)? });
        if ctx.nic()?.model().is_some_and(|model| !model.features.xrc) {
            return Err(Errno::OPNOTSUPP);
        }
        const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !NEEDED != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if attr.comp_mask != NEEDED {
            return Err(Errno::invalid(format_args!(
                "comp_mask {:#x}: both the descriptor and the flags are needed",
                attr.comp_mask
            )));
        }
        let slot = ObjectSlot::new()?;
        let domain = find_or_make(ctx, attr.fd, attr.oflags)?;
        let (ibv, seal) = (Shown::new(ibv_xrcd { context }), Seal::new(Kind::Xrcd));
        Ok(slot.publish(XrcdObject { ibv, seal, domain, users: Users::default() }))
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    guard::<()>(call!(ibv_close_xrcd, xrcd), move || {
        find_last::<XrcdObject>(xrcd)?.users.none()?;
        // SAFETY: just found, without users; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<XrcdObject>(xrcd) });
        Ok(())
    })
}

/// Without a file, a new domain; with one, the file's domain within this process. `oflags` work as in `open`.
fn find_or_make(ctx: &Ctx, fd: c_int, oflags: c_int) -> Result<Arc<Domain>, Errno> {
    let create = oflags & libc::O_CREAT != 0;
    if fd < 0 {
        return if create {
            Domain::new(ctx.nic()?, None)
        } else {
            Err(Errno::invalid("fd -1 makes a domain, which needs O_CREAT in oflags"))
        };
    }
    let file = crate::context::identity(fd)?;
    let nic = ctx.nic()?;
    let same_nic = |domain: &Domain| std::ptr::eq(domain.context.device(), nic.device());
    // A domain released in the meantime is dropped once the tables are unlocked.
    let mut known = None;
    let mut passed = Vec::new();
    {
        let tables = registry();
        passed.try_reserve(tables.domains.len())?;
        for domain in tables.domains.iter().filter_map(Weak::upgrade) {
            match domain.file == Some(file) && same_nic(&domain) {
                true => known = Some(domain),
                false => passed.push(domain),
            }
        }
    }
    match known {
        Some(_) if oflags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL => {
            Err(Errno(libc::EEXIST))
        }
        Some(domain) => Ok(domain),
        None if !create => Err(Errno::NOENT),
        None => {
            let domain = Domain::new(nic, Some(file))?;
            let mut tables = registry();
            tables.domains.retain(|domain| domain.strong_count() > 0);
            tables.domains.try_reserve(1)?;
            tables.domains.push(Arc::downgrade(&domain));
            Ok(domain)
        }
    }
}
