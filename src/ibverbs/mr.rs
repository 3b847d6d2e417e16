//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softrnic_mapping::Mapping;
use softrnic_nic::verbs::{Access, AppRange, MrSpec, RawMr, ReregSpec};

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{Silent, borrow, borrow_mut, call, guard};
use crate::object::{Kind, Object, ObjectSlot, Seal, Shows, find, find_last, live, object, retire};
use crate::pd::PdObject;
use crate::registry::{Export, registry};

/// A memory region as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct MrObject {
    ibv: Shown<ibv_mr>,
    seal: Seal,
    pd: AtomicPtr<ibv_pd>,
    /// Its identity for importers.
    exported: (u64, u32),
    region: Arc<Region>,
    imported: bool,
}

object!(MrObject, Mr, ibv_mr, handle);

/// A registration, which an importer may share.
pub(crate) struct Region {
    raw: Mutex<Option<RawMr>>,
    /// The file mapping that belongs to it, and that is unmapped after the registration has ended.
    _mapping: Option<Mapping>,
    addr: usize,
    length: usize,
}

impl Region {
    pub(crate) fn new(raw: RawMr, addr: usize, length: usize) -> Region {
        Region { raw: Mutex::new(Some(raw)), _mapping: None, addr, length }
    }

    fn raw(&self) -> MutexGuard<'_, Option<RawMr>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MrObject {
    /// Its local key, for work requests.
    ///
    /// # Safety
    /// As for [`live`].
    pub(crate) unsafe fn lkey(mr: *mut ibv_mr) -> Result<u32, Errno> {
        // SAFETY: null or a region of ours that stays, as the caller promises; the field changes in `ibv_rereg_mr`
        // alone, during which the application uses the region for nothing else.
        unsafe { Ok((*live::<MrObject>(mr)?.ibv.get()).lkey) }
    }

    /// Creates the C object of a new registration.
    pub(crate) fn publish(
        slot: ObjectSlot<MrObject>,
        pd: &PdObject,
        region: Region,
    ) -> Result<*mut ibv_mr, Errno> {
        let region = Arc::new(region);
        let file = &pd.ctx()?.file;
        let handle = registry().export(file, Export::Region(region.clone()));
        pd.users.join();
        MrObject::wrap(slot, pd, (file.id, handle), region, false)
    }

    fn wrap(
        slot: ObjectSlot<MrObject>,
        pd: &PdObject,
        exported: (u64, u32),
        region: Arc<Region>,
        imported: bool,
    ) -> Result<*mut ibv_mr, Errno> {
        let keys = region.raw().as_ref().ok_or_else(|| Errno::invalid("the region was deregistered"))?.keys();
        let ibv = ibv_mr {
            context: pd.context(),
            pd: pd.as_ibv(),
            addr: std::ptr::with_exposed_provenance_mut(region.addr),
            length: region.length,
            handle: exported.1,
            lkey: keys.lkey.0,
            rkey: keys.rkey.0,
        };
        let (ibv, seal) = (Shown::new(ibv), Seal::new(Kind::Mr));
        let pd = AtomicPtr::new(pd.as_ibv());
        Ok(slot.publish(MrObject { ibv, seal, pd, exported, region, imported }))
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_mr, pd, addr, length, access), move || {
        // SAFETY: memory of the application's, which stays mapped while it is registered, as `verbs.h` asks.
        unsafe { register(pd, addr, length, addr.addr() as u64, access as u32) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_mr_iova, pd, addr, length, iova, access), move || {
        // SAFETY: memory of the application's, which stays mapped while it is registered, as `verbs.h` asks.
        unsafe { register(pd, addr, length, iova, access as u32) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_mr_iova2, pd, addr, length, iova, access), move || {
        // SAFETY: memory of the application's, which stays mapped while it is registered, as `verbs.h` asks.
        unsafe { register(pd, addr, length, iova, access) }
    })
}

/// Registers the memory that `fd` maps, `length` bytes from `offset`. Descriptors that cannot be mapped are
/// refused.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access), move || {
        let pd = PdObject::of(pd)?;
        register_file(pd, offset, length, iova, fd, Access::from_bits_retain(access as u32))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_mr_ex, pd, attr), move || {
        const MEMORY: u64 = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
        const FILE: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
        // SAFETY: a struct of the application's, valid for the call and changed by nothing else, as `verbs.h` asks.
        let (object, attr) = (PdObject::of(pd)?, unsafe { borrow(attr)? });
        let (mask, access) = (attr.comp_mask, attr.access as u32);
        if mask & !(MEMORY | FILE | IBV_REG_MR_MASK_IOVA) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let iova = (mask & IBV_REG_MR_MASK_IOVA != 0).then_some(attr.iova);
        match (mask & MEMORY, mask & FILE) {
            (0, FILE) => {
                let iova = iova.ok_or_else(|| {
                    Errno::invalid("comp_mask lacks IBV_REG_MR_MASK_IOVA, which a dma-buf needs")
                })?;
                register_file(
                    object,
                    attr.fd_offset,
                    attr.length,
                    iova,
                    attr.fd,
                    Access::from_bits_retain(access),
                )
            }
            (memory, 0) if memory & IBV_REG_MR_MASK_ADDR != 0 => {
                let iova = iova.unwrap_or(attr.addr.addr() as u64);
                if memory & IBV_REG_MR_MASK_BUF != 0 {
                    find::<Buffer>(attr.buf)?.check(pd, attr.addr, attr.length)?;
                }
                // SAFETY: memory of the application's, which stays mapped while it is registered, as `verbs.h` asks.
                unsafe { register(pd, attr.addr, attr.length, iova, access) }
            }
            _ => Err(Errno::invalid(format_args!(
                "comp_mask {mask:#x} names neither memory nor a dma-buf, or both"
            ))),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    guard::<Rereg>(call!(ibv_rereg_mr, mr, flags, pd, addr, length, access), move || {
        // SAFETY: memory of the application's, which stays mapped while it is registered, as `verbs.h` asks.
        unsafe { reregister(mr, flags, pd, addr, length, access) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    guard::<()>(call!(ibv_dereg_mr, mr), move || {
        let object: &MrObject = find_last(mr)?;
        if !object.imported {
            let pd = PdObject::of(object.pd.load(Ordering::Relaxed))?;
            let mut raw = object.region.raw();
            if let Some(registered) = raw.take()
                && let Err((kept, _)) = registered.deregister()
            {
                // Windows are bound to it.
                *raw = Some(kept);
                return Err(Errno::BUSY);
            }
            drop(raw);
            let removed = registry().exports.remove(&object.exported);
            drop(removed);
            pd.users.leave();
        }
        // SAFETY: just found; the application, which gives it up, no longer uses it.
        drop(unsafe { retire::<MrObject>(mr) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_import_mr, pd, handle), move || {
        let pd = PdObject::of(pd)?;
        let exported = (pd.ctx()?.file.id, handle);
        let found = registry().exports.get(&exported).cloned();
        let Some(Export::Region(region)) = found else { return Err(Errno::NOENT) };
        MrObject::wrap(ObjectSlot::new()?, pd, exported, region, true)
    })
}

/// Only for imported regions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    guard::<Silent>(call!(ibv_unimport_mr, mr), move || {
        if find_last::<MrObject>(mr)?.imported {
            // SAFETY: just found; the application, which gives it up, no longer uses it.
            drop(unsafe { retire::<MrObject>(mr) });
        }
        Ok(Silent)
    })
}

/// Allocates a buffer in the memory that suits the device best: for this one, any page-aligned memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    guard::<*mut c_void>(call!(ibv_alloc_buf, pd, size, buf), move || {
        // SAFETY: null was told apart; else the application has room for one pointer there.
        let (_, buf) = (PdObject::of(pd)?, unsafe { borrow_mut(buf)? });
        let slot = ObjectSlot::new()?;
        let mapping = Mapping::anonymous(size)?;
        let addr = mapping.base().as_ptr().cast();
        *buf = slot.publish(Buffer { seal: Seal::new(Kind::Buffer), mapping, pd: pd.addr() });
        Ok(addr)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    guard::<Silent>(call!(ibv_free_buf, buf), move || {
        find_last::<Buffer>(buf)?;
        // SAFETY: just found; the application, which gives it up, no longer uses it.
        drop(unsafe { retire::<Buffer>(buf) });
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_reg_buf_mr, pd, buf, addr, length, access), move || {
        find::<Buffer>(buf)?.check(pd, addr, length)?;
        // SAFETY: memory inside the buffer, which the application keeps until it has deregistered it (`verbs.h`).
        unsafe { register(pd, addr, length, addr.addr() as u64, access as u32) }
    })
}

/// A buffer of `ibv_alloc_buf`.
#[repr(C)]
struct Buffer {
    seal: Seal,
    /// Unmapped when the application frees the buffer, whose regions it has deregistered then (`verbs.h`).
    mapping: Mapping,
    pd: usize,
}

// SAFETY: `ibv_buf` is opaque to C, so that any `repr(C)` type may stand for it.
unsafe impl Object for Buffer {
    const KIND: Kind = Kind::Buffer;
    type C = ibv_buf;

    fn seal(&self) -> &Seal {
        &self.seal
    }

    fn shows(&self) -> Shows {
        Shows { context: 0, handle: 0 }
    }
}

impl Buffer {
    /// Whether memory is in the buffer, and the buffer belongs to the domain.
    fn check(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize) -> Result<(), Errno> {
        let offset = addr
            .addr()
            .checked_sub(self.mapping.base().as_ptr().addr())
            .ok_or_else(|| Errno::invalid("addr is before the buffer of the DMA handle"))?;
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.mapping.len());
        if self.pd == pd.addr() && fits {
            Ok(())
        } else {
            Err(Errno::invalid(format_args!(
                "{length} B at {addr:p} are not inside the buffer of the DMA handle, or pd is another"
            )))
        }
    }
}

pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    guard::<*mut ibv_mr>(call!(ibv_alloc_null_mr, pd), move || {
        let pd = PdObject::of(pd)?;
        MrObject::publish(ObjectSlot::new()?, pd, Region::new(pd.nic.alloc_null_mr()?, 0, usize::MAX))
    })
}

/// # Safety
/// As for [`AppRange::new`], or for an implicit region [`AppRange::whole`].
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Errno> {
    let pd = PdObject::of(pd)?;
    let access = Access::from_bits_retain(access);
    let addr = addr.expose_provenance();
    let implicit = addr == 0 && length == usize::MAX && access.contains(Access::ON_DEMAND);
    // The kernel refuses addresses that differ within the page.
    if !access.contains(Access::ZERO_BASED) && (addr as u64 ^ iova) & (PAGE - 1) != 0 {
        return Err(Errno::invalid(format_args!("iova {iova:#x} and addr {addr:#x} differ within the page")));
    }
    // SAFETY: as the caller promises.
    let range = unsafe { if implicit { AppRange::whole() } else { AppRange::new(addr, length as u64) } };
    let slot = ObjectSlot::new()?;
    let raw = pd.nic.register_raw(MrSpec { range, iova, access })?;
    MrObject::publish(slot, pd, Region::new(raw, addr, length))
}

const PAGE: u64 = 4096;

fn register_file(
    pd: &PdObject,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: Access,
) -> Result<*mut ibv_mr, Errno> {
    // In the kernel's order (`UVERBS_METHOD_REG_DMABUF_MR`, `ib_check_mr_access`, `ib_umem_dmabuf_get`): programs pass
    // an invalid descriptor, and take EBADF as a sign that DMA-BUFs can be registered.
    if (offset ^ iova) & (PAGE - 1) != 0 {
        return Err(Errno::invalid("offset and iova differ within the page"));
    }
    access.for_region()?;
    check_file(fd, offset, length)?;
    if length == 0 || access.intersects(Access::ON_DEMAND) {
        return Err(Errno::invalid(format_args!(
            "length {length} is 0, or access {access:?} has ON_DEMAND, which a dma-buf cannot be"
        )));
    }
    let into_page = offset % PAGE;
    let mapped = length
        .checked_add(into_page as usize)
        .ok_or_else(|| Errno::invalid(format_args!("length {length} is too long")))?;
    let slot = ObjectSlot::new()?;
    let (protection, from) = (libc::PROT_READ | libc::PROT_WRITE, (offset - into_page) as libc::off_t);
    // SAFETY: `check_file` has found it open. Should the application close it meanwhile, another file is mapped, or none.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let mapping = Mapping::of_file(file, mapped, protection, 0, from)?;
    let addr = mapping.base().as_ptr().expose_provenance() + into_page as usize;
    // SAFETY: a mapping of our own, which `Region` keeps until the registration is gone.
    let range = unsafe { AppRange::new(addr, length as u64) };
    let raw = pd.nic.register_raw(MrSpec { range, iova, access })?;
    // Applications address such memory by its offset; the region has no address.
    let region = Region { raw: Mutex::new(Some(raw)), _mapping: Some(mapping), addr: 0, length };
    MrObject::publish(slot, pd, region)
}

/// EINVAL for a range beyond the end of a file that has one, where accessing the mapping would kill the process.
fn check_file(fd: c_int, offset: u64, length: usize) -> Result<(), Errno> {
    // SAFETY: all zeros is a valid `stat`, which lives through the call that fills it.
    let (status, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat), stat)
    };
    if status != 0 {
        return Err(Errno::last());
    }
    let end = offset
        .checked_add(length as u64)
        .ok_or_else(|| Errno::invalid(format_args!("offset {offset} and length {length} are too long")))?;
    let sized = stat.st_mode & libc::S_IFMT == libc::S_IFREG || stat.st_size > 0;
    if sized && end > stat.st_size as u64 {
        Err(Errno::invalid(format_args!(
            "offset and length reach to {end}, and the dma-buf ends at {}",
            stat.st_size
        )))
    } else {
        Ok(())
    }
}

/// `ibv_rereg_mr` has return codes of its own (`enum ibv_rereg_mr_err_code`), and sets `errno`. On an error the old
/// registration is unchanged: everything is checked before anything is changed.
pub(crate) enum Rereg {
    Done,
    /// Refused by what rdma-core's libibverbs checks. What its command to the kernel would refuse is an `Err`.
    WrongInput,
}

impl crate::ffi_boundary::Outcome for Rereg {
    type C = c_int;
    fn into_c(result: Result<Rereg, Errno>) -> c_int {
        match result {
            Ok(Rereg::Done) => 0,
            Ok(Rereg::WrongInput) => {
                Errno::invalid("the arguments of ibv_rereg_mr do not fit its flags").set();
                IBV_REREG_MR_ERR_INPUT
            }
            Err(errno) => {
                errno.set();
                IBV_REREG_MR_ERR_CMD
            }
        }
    }
}

/// # Safety
/// As for [`register`].
unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<Rereg, Errno> {
    const TRANSLATION: c_int = IBV_REREG_MR_CHANGE_TRANSLATION;
    const KNOWN: c_int = TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let object = match find::<MrObject>(mr) {
        Ok(object) => object,
        // Inherited by a child: the kernel would say so.
        Err(Errno::IO) => return Err(Errno::IO),
        Err(_) => return Ok(Rereg::WrongInput),
    };
    let translation = flags & TRANSLATION != 0;
    let unasked = access != 0 && flags & IBV_REREG_MR_CHANGE_ACCESS == 0;
    if flags & !KNOWN != 0 || unasked || (translation && (length == 0 || addr.is_null())) {
        return Ok(Rereg::WrongInput);
    }
    if flags == 0 {
        return Err(Errno::invalid("flags is 0: nothing to change"));
    }
    let mut change = ReregSpec::default();
    let mut new_pd = None;
    if translation {
        // SAFETY: as the caller promises.
        let range = unsafe { AppRange::new(addr.expose_provenance(), length as u64) };
        change.translation = Some((range, addr.addr() as u64));
    }
    if flags & IBV_REREG_MR_CHANGE_PD != 0 {
        let pd = PdObject::of(pd)?;
        // SAFETY: a field of an object that was just found, written only when it is made.
        Ctx::check_same(pd.context(), unsafe { (*object.ibv.get()).context })?;
        change.pd = Some(pd.nic.id());
        new_pd = Some(pd);
    }
    if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
        change.access = Some(Access::from_bits_retain(access as u32));
    }
    let mut raw = object.region.raw();
    let raw = raw.as_mut().ok_or_else(|| Errno::invalid("the region was deregistered"))?;
    raw.reregister(change, new_pd.map(|pd| pd.nic.clone()))?;
    let keys = raw.keys();
    let ibv = object.ibv.get();
    // SAFETY: fields of an object that was just found. The lock on `raw` keeps other verbs out; the application uses
    // the region for nothing else while it is registered anew (`verbs.h`).
    unsafe {
        (*ibv).lkey = keys.lkey.0;
        (*ibv).rkey = keys.rkey.0;
        if translation {
            (*ibv).addr = addr;
            (*ibv).length = length;
        }
        if let Some(pd) = new_pd {
            pd.users.join();
            PdObject::of(object.pd.swap(pd.as_ibv(), Ordering::Relaxed))?.users.leave();
            (*ibv).pd = pd.as_ibv();
        }
    }
    if check::is_on() {
        check::rekeyed(object);
    }
    Ok(Rereg::Done)
}
