//! Contexts: the tables that `verbs.h` calls through, and what the objects of a context share.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use softrnic_nic::device::Process;
use softrnic_nic::verbs::Context;

use crate::abi::*;
use crate::c_view::Shown;
use crate::check::data_path as checked;
use crate::device::Device;
use crate::errno::Errno;
use crate::object::{Kind, Object, ObjectSlot, Seal, Shows, find, retire};
use crate::registry::registry;
use crate::{advise_mr, check, cq, cq_ex, dm, mr, mw, pd, post, qp, qp_ex, query, srq, xrcd};

/// A context as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct Ctx {
    verbs: Shown<verbs_context>,
    seal: Seal,
    pub(crate) file: Arc<File>,
}

// SAFETY: `repr(C)` with `verbs`, what C sees, as its first field.
unsafe impl Object for Ctx {
    const KIND: Kind = Kind::Context;
    type C = verbs_context;
    /// A child gets its own device with them, see [`File::nic`].
    const INHERITED: bool = true;

    fn seal(&self) -> &Seal {
        &self.seal
    }

    fn shows(&self) -> Shows {
        Shows { context: self.verbs.get().addr(), handle: 0 }
    }
}

/// What a context and those imported from it share: the counterpart of the kernel's open file.
pub(crate) struct File {
    pub(crate) id: u64,
    pub(crate) device: &'static Device,
    nic: Context,
    /// The process to which `nic` belongs.
    process: Process,
    /// Stands in for the open file: it can be duplicated and imported.
    command: OwnedFd,
    identity: (libc::dev_t, libc::ino_t),
}

impl File {
    /// The NIC. A forked process has none at first; it gets one of its own, with another address, and keeps it until it
    /// ends.
    fn nic(&self) -> Result<&Context, Errno> {
        let process = Process::current();
        if process == self.process {
            return Ok(&self.nic);
        }
        if !process.is_in_order() {
            return Err(Errno::IO);
        }
        let known = registry().reopened.get(&(self.id, process)).copied();
        if let Some(nic) = known {
            return Ok(nic);
        }
        let nic: &'static Context = Box::leak(Box::new(self.device.open()?));
        registry().reopened.insert((self.id, process), nic);
        Ok(nic)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Objects not destroyed before the device was closed can no longer be imported. They are removed a few at a
        // time and dropped without the lock on the tables, so no list that needs memory is built.
        loop {
            let mut abandoned = [const { None }; 64];
            let mut tables = registry();
            let found = tables.exports.extract_if(|key, _| key.0 == self.id);
            let count = abandoned.iter_mut().zip(found).map(|(place, found)| *place = Some(found)).count();
            drop(tables);
            if count < abandoned.len() {
                return;
            }
        }
    }
}

/// Calls `visit` for the NIC of every open context.
pub(crate) fn for_each_open(mut visit: impl FnMut(&Context)) {
    let open: Vec<_> = registry().files.iter().filter_map(Weak::upgrade).collect();
    open.iter().for_each(|file| visit(&file.nic));
}

impl Ctx {
    pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context, Errno> {
        Ctx::with(device, device.open()?)
    }

    pub(crate) fn with(device: &'static Device, nic: Context) -> Result<*mut ibv_context, Errno> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let slot = ObjectSlot::new()?;
        // Any file that is like no other, and that every sandbox grants.
        // SAFETY: takes no pointers; the result is checked.
        let command = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if command < 0 {
            return Err(Errno::last());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let command = unsafe { OwnedFd::from_raw_fd(command) };
        let file = Arc::new(File {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            identity: identity(command.as_raw_fd())?,
            device,
            nic,
            process: Process::current(),
            command,
        });
        let mut tables = registry();
        tables.files.retain(|file| file.strong_count() > 0);
        tables.files.try_reserve(1)?;
        tables.files.push(Arc::downgrade(&file));
        drop(tables);
        Ok(Ctx::publish(slot, file))
    }

    pub(crate) fn import(cmd_fd: c_int) -> Result<*mut ibv_context, Errno> {
        let identity = identity(cmd_fd)?;
        let open: Vec<_> = registry().files.iter().filter_map(Weak::upgrade).collect();
        let file = open.into_iter().find(|file| file.identity == identity).ok_or_else(|| {
            Errno::invalid(format_args!("cmd_fd {cmd_fd} is not that of an open device of this process"))
        })?;
        Ok(Ctx::publish(ObjectSlot::new()?, file))
    }

    pub(crate) fn close(context: *mut ibv_context) -> Result<(), Errno> {
        Ctx::of(context)?;
        // SAFETY: just found; the application, which closes it, no longer uses it.
        drop(unsafe { retire::<Ctx>(container(context)) });
        Ok(())
    }

    /// The `Ctx` that contains an `ibv_context` of ours.
    pub(crate) fn of<'a>(context: *mut ibv_context) -> Result<&'a Ctx, Errno> {
        if context.is_null() {
            return Err(Errno::invalid("context is null"));
        }
        find(container(context))
    }

    /// EINVAL unless the objects of the two contexts may be used together: they belong to the same open file.
    pub(crate) fn check_same(one: *mut ibv_context, other: *mut ibv_context) -> Result<(), Errno> {
        if one == other || Ctx::of(one)?.file.id == Ctx::of(other)?.file.id {
            return Ok(());
        }
        tracing::debug!("an object belongs to another context");
        Err(Errno::INVAL)
    }

    /// The NIC, see [`File::nic`].
    pub(crate) fn nic(&self) -> Result<&Context, Errno> {
        let nic = self.file.nic()?;
        if Process::current() != self.file.process {
            // A forked process must be told of its own descriptor.
            // SAFETY: a field of `self`, which nothing else writes once the context is made, and nothing reads here.
            let shown = unsafe { AtomicI32::from_ptr(&raw mut (*self.verbs.get()).context.async_fd) };
            shown.store(nic.event_fd().as_raw_fd(), Ordering::Relaxed);
        }
        Ok(nic)
    }

    fn publish(slot: ObjectSlot<Ctx>, file: Arc<File>) -> *mut ibv_context {
        let vectors = std::thread::available_parallelism().map_or(1, |count| count.get()) as c_int;
        // libfabric takes EFA with one for EFA without completion events.
        let vectors = if file.nic.has_short_numbers() { vectors.max(2) } else { vectors };
        let context = ibv_context {
            device: file.device.as_ibv(),
            ops: operations(),
            cmd_fd: file.command.as_raw_fd(),
            async_fd: file.nic.event_fd().as_raw_fd(),
            num_comp_vectors: vectors,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
        };
        let verbs = Shown::new(extended(context));
        let verbs = slot.publish(Ctx { verbs, seal: Seal::new(Kind::Context), file });
        // SAFETY: a field of what was just published; nothing is read.
        unsafe { &raw mut (*verbs).context }
    }

    pub(crate) fn as_ibv(&self) -> *mut ibv_context {
        // SAFETY: a field of `self`; nothing is read.
        unsafe { &raw mut (*self.verbs.get()).context }
    }
}

/// The start of the `Ctx` that a context is in.
fn container(context: *mut ibv_context) -> *mut verbs_context {
    context.wrapping_byte_sub(std::mem::offset_of!(verbs_context, context)).cast()
}

/// Identifies the file of a descriptor: the same for duplicates, and different for any two others.
pub(crate) fn identity(fd: c_int) -> Result<(libc::dev_t, libc::ino_t), Errno> {
    // SAFETY: all zeros is a valid `stat`, and the kernel fills it.
    let (status, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat), stat)
    };
    if status == 0 { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::last()) }
}

const UNUSED: *const c_void = std::ptr::null();

/// The slots that inline functions call without checking.
fn operations() -> ibv_context_ops {
    let is_checked = check::is_on();
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
        poll_cq: Some(if is_checked { checked::poll_cq } else { cq::poll_cq }),
        req_notify_cq: Some(if is_checked { checked::req_notify_cq } else { cq::req_notify_cq }),
        _compat_cq_event: UNUSED,
        _compat_resize_cq: UNUSED,
        _compat_destroy_cq: UNUSED,
        _compat_create_srq: UNUSED,
        _compat_modify_srq: UNUSED,
        _compat_query_srq: UNUSED,
        _compat_destroy_srq: UNUSED,
        post_srq_recv: Some(if is_checked { checked::post_srq_recv } else { post::post_srq_recv }),
        _compat_create_qp: UNUSED,
        _compat_query_qp: UNUSED,
        _compat_modify_qp: UNUSED,
        _compat_destroy_qp: UNUSED,
        post_send: Some(if is_checked { checked::post_send } else { post::post_send }),
        post_recv: Some(if is_checked { checked::post_recv } else { post::post_recv }),
        _compat_create_ah: UNUSED,
        _compat_destroy_ah: UNUSED,
        _compat_attach_mcast: UNUSED,
        _compat_detach_mcast: UNUSED,
        _compat_async_event: UNUSED,
    }
}

/// The extended table. Null slots are not supported, and the inline functions report that.
fn extended(context: ibv_context) -> verbs_context {
    verbs_context {
        free_buf: Some(mr::ibv_free_buf),
        alloc_buf: Some(mr::ibv_alloc_buf),
        dm_export_dmabuf_fd: None,
        reg_mr_ex: Some(mr::ibv_reg_mr_ex),
        dealloc_dmah: None,
        alloc_dmah: None,
        query_port: Some(query::query_port),
        advise_mr: Some(advise_mr::advise_mr),
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
