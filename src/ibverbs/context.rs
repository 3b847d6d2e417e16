//! Contexts: the tables that `verbs.h` calls through, and what the objects of a context have in common.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softrnic_nic::verbs::Context;

use crate::abi::*;
use crate::device::Device;
use crate::errno::Errno;
use crate::event::EventTargets;
use crate::{advice, cq, cq_ex, dm, mr, mw, pd, post, qp, qp_ex, query, srq, xrcd};

/// A context as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct Ctx {
    verbs: verbs_context,
    pub(crate) shared: Arc<Shared>,
}

/// What a context and those imported from it share: in the kernel, the open file.
pub(crate) struct Shared {
    pub(crate) nic: Context,
    pub(crate) device: &'static Device,
    /// Stands for the open file: what can be duplicated and imported.
    command: OwnedFd,
    identity: (libc::dev_t, libc::ino_t),
    pub(crate) events: EventTargets,
    pub(crate) pds: Handles<softrnic_nic::verbs::Pd>,
    pub(crate) mrs: Handles<mr::Region>,
    pub(crate) dms: Handles<dm::Memory>,
}

/// Objects that can be found by number.
pub(crate) struct Handles<T> {
    next: AtomicU32,
    objects: Mutex<HashMap<u32, Arc<T>>>,
}

impl<T> Handles<T> {
    fn new() -> Handles<T> {
        Handles { next: AtomicU32::new(1), objects: Mutex::new(HashMap::new()) }
    }

    /// Stores an object under a number that no other has.
    pub fn add(&self, object: Arc<T>) -> u32 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.set(handle, object);
        handle
    }

    /// Stores an object under a number of its own.
    pub fn set(&self, handle: u32, object: Arc<T>) {
        self.lock().insert(handle, object);
    }

    pub fn get(&self, handle: u32) -> Option<Arc<T>> {
        self.lock().get(&handle).cloned()
    }

    pub fn remove(&self, handle: u32) {
        self.lock().remove(&handle);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<T>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every open file of this process, to be found by those who import.
static OPEN: Mutex<Vec<std::sync::Weak<Shared>>> = Mutex::new(Vec::new());

fn open_files() -> MutexGuard<'static, Vec<std::sync::Weak<Shared>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `visit` for the NIC of every open context.
pub(crate) fn for_each_open(mut visit: impl FnMut(&Context)) {
    let open: Vec<_> = open_files().iter().filter_map(std::sync::Weak::upgrade).collect();
    open.iter().for_each(|shared| visit(&shared.nic));
}

impl Ctx {
    pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context, Errno> {
        let nic = device.open()?;
        // SAFETY: a name and a flag; the result is checked.
        let command = unsafe { libc::memfd_create(c"softrnic".as_ptr(), libc::MFD_CLOEXEC) };
        if command < 0 {
            return Err(Errno::last());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let command = unsafe { OwnedFd::from_raw_fd(command) };
        let shared = Arc::new(Shared {
            identity: identity(command.as_raw_fd())?,
            nic,
            device,
            command,
            events: EventTargets::default(),
            pds: Handles::new(),
            mrs: Handles::new(),
            dms: Handles::new(),
        });
        let mut open = open_files();
        open.retain(|shared| shared.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        drop(open);
        Ok(Ctx::publish(shared))
    }

    pub(crate) fn import(cmd_fd: c_int) -> Result<*mut ibv_context, Errno> {
        let identity = identity(cmd_fd)?;
        let open: Vec<_> = open_files().iter().filter_map(std::sync::Weak::upgrade).collect();
        let shared = open.into_iter().find(|shared| shared.identity == identity).ok_or(Errno::INVAL)?;
        Ok(Ctx::publish(shared))
    }

    /// # Safety
    /// The context is the caller's, and is used no more.
    pub(crate) unsafe fn close(context: *mut ibv_context) -> Result<(), Errno> {
        if context.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: contexts are only made by `publish`, from a box.
        drop(unsafe { Box::from_raw(container(context)) });
        Ok(())
    }

    /// What an `ibv_context` pointer of ours is part of.
    ///
    /// # Safety
    /// The pointer is null or that of an open context.
    #[inline]
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Result<&'a Ctx, Errno> {
        if context.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: not null, so part of a `Ctx`. C code changes nothing that is behind this reference: it only
        // reads the tables.
        Ok(unsafe { &*container(context) })
    }

    fn publish(shared: Arc<Shared>) -> *mut ibv_context {
        let vectors = std::thread::available_parallelism().map_or(1, |count| count.get()) as c_int;
        let context = ibv_context {
            device: shared.device.as_ibv(),
            ops: operations(),
            cmd_fd: shared.command.as_raw_fd(),
            async_fd: shared.nic.event_fd().as_fd().as_raw_fd(),
            num_comp_vectors: vectors,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
        };
        let ctx = Box::into_raw(Box::new(Ctx { verbs: extended(context), shared }));
        // SAFETY: the box was just made.
        unsafe { &raw mut (*ctx).verbs.context }
    }

    pub(crate) fn as_ibv(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }
}

/// The start of the `Ctx` that a context is in.
fn container(context: *mut ibv_context) -> *mut Ctx {
    context
        .wrapping_byte_sub(std::mem::offset_of!(Ctx, verbs) + std::mem::offset_of!(verbs_context, context))
        .cast()
}

/// Which file a descriptor is for: the same for duplicates, and different for any two others.
pub(crate) fn identity(fd: c_int) -> Result<(libc::dev_t, libc::ino_t), Errno> {
    // SAFETY: all zeros is a valid `stat`, and the kernel fills it.
    let (status, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat), stat)
    };
    if status == 0 { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::last()) }
}

const UNUSED: *const c_void = std::ptr::null();

/// The slots that inline functions call without asking whether they are there.
fn operations() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: UNUSED,
        _compat_query_port: Some(query::ibv_query_port),
        _compat_alloc_pd: UNUSED,
        _compat_dealloc_pd: UNUSED,
        _compat_reg_mr: UNUSED,
        _compat_rereg_mr: UNUSED,
        _compat_dereg_mr: UNUSED,
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        _compat_create_cq: UNUSED,
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        _compat_cq_event: UNUSED,
        _compat_resize_cq: UNUSED,
        _compat_destroy_cq: UNUSED,
        _compat_create_srq: UNUSED,
        _compat_modify_srq: UNUSED,
        _compat_query_srq: UNUSED,
        _compat_destroy_srq: UNUSED,
        post_srq_recv: Some(post::post_srq_recv),
        _compat_create_qp: UNUSED,
        _compat_query_qp: UNUSED,
        _compat_modify_qp: UNUSED,
        _compat_destroy_qp: UNUSED,
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        _compat_create_ah: UNUSED,
        _compat_destroy_ah: UNUSED,
        _compat_attach_mcast: UNUSED,
        _compat_detach_mcast: UNUSED,
        _compat_async_event: UNUSED,
    }
}

/// The extended table. What is null is not supported, and the inline functions say so.
fn extended(context: ibv_context) -> verbs_context {
    verbs_context {
        free_buf: Some(mr::ibv_free_buf),
        alloc_buf: Some(mr::ibv_alloc_buf),
        dm_export_dmabuf_fd: None,
        reg_mr_ex: Some(mr::ibv_reg_mr_ex),
        dealloc_dmah: None,
        alloc_dmah: None,
        query_port: Some(query::query_port),
        advise_mr: Some(advice::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: UNUSED,
        attach_counters_point_flow: UNUSED,
        create_counters: UNUSED,
        destroy_counters: UNUSED,
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_flow_action_esp: UNUSED,
        destroy_flow_action: UNUSED,
        create_flow_action_esp: UNUSED,
        modify_qp_rate_limit: UNUSED,
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: UNUSED,
        destroy_rwq_ind_table: UNUSED,
        create_rwq_ind_table: UNUSED,
        destroy_wq: UNUSED,
        modify_wq: UNUSED,
        create_wq: UNUSED,
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: std::ptr::null_mut(),
        query_device_ex: Some(query::query_device_ex),
        ibv_destroy_flow: UNUSED,
        ABI_placeholder2: UNUSED,
        ibv_create_flow: UNUSED,
        ABI_placeholder1: UNUSED,
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp_ex::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrcd::open_xrcd),
        close_xrcd: Some(xrcd::close_xrcd),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}
