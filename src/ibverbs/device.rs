//! The devices of this process: their list, their names, and opening them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use softrnic_nic::sysfs::Describer;
use softrnic_nic::verbs::{Context, DeviceSpec, Error, LinkKind};

use crate::abi::*;
use crate::context::Ctx;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Outcome, Plain, Silent, borrow, call, guard};
use crate::registry::registry;
use crate::sysfs;

/// A device as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    /// Vendors' `*_is_supported` functions look for their own tables behind the public struct. Zeros say that the
    /// device is not theirs.
    _driver: [u64; 64],
    pub(crate) spec: DeviceSpec,
    index: usize,
    /// Host order.
    guid: OnceLock<u64>,
}

// SAFETY: of its fields only the pointers of the public part are not `Sync`, and those are null for ever.
unsafe impl Sync for Device {}
// SAFETY: of its fields only the pointers of the public part are not `Send`, and those are null for ever.
unsafe impl Send for Device {}

impl Device {
    pub(crate) fn new(index: usize, spec: DeviceSpec) -> Device {
        let node = format!("uverbs{index}");
        let has_srd = spec.like.is_some_and(|model| model.srd.is_some());
        let root = sysfs::root().unwrap_or_else(|| "/sys".into());
        let class = root.join("class");
        let ibv = ibv_device {
            _ops: _ibv_device_ops { _dummy1: std::ptr::null_mut(), _dummy2: std::ptr::null_mut() },
            node_type: if has_srd { IBV_NODE_UNSPECIFIED } else { IBV_NODE_CA },
            transport_type: if has_srd { IBV_TRANSPORT_UNSPECIFIED } else { IBV_TRANSPORT_IB },
            name: text(&spec.name),
            dev_name: text(&node),
            dev_path: text(&class.join("infiniband_verbs").join(&node).to_string_lossy()),
            ibdev_path: text(&class.join("infiniband").join(&spec.name).to_string_lossy()),
        };
        Device { ibv, _driver: [0; 64], spec, index, guid: OnceLock::new() }
    }

    /// The device of an `ibv_device` pointer.
    ///
    /// # Safety
    /// The pointer is null or came from [`ibv_get_device_list`].
    pub(crate) unsafe fn of<'a>(device: *mut ibv_device) -> Result<&'a Device, Errno> {
        // SAFETY: such a pointer is that of a `Device`, whose first field it is and which is never freed.
        unsafe { borrow(device.cast()) }
    }

    pub(crate) fn as_ibv(&self) -> *mut ibv_device {
        (&raw const *self).cast_mut().cast()
    }

    /// Opens the NIC. If its loopback address was found, not given, the process keeps that address from then on:
    /// programs open and close a device several times, and pass on the address in between.
    pub(crate) fn open(&self) -> Result<Context, Error> {
        let context = Context::open(&self.spec).inspect_err(|error| {
            tracing::error!(%error, device = self.spec.name, "cannot open the device");
            complain(format_args!("cannot open {}: {error}", self.spec.name));
        })?;
        self.guid.get_or_init(|| context.device().guid());
        context.nic().observe_port(|| Some(Box::new(Describer::new(&self.spec)?)));
        // Its counters are read when the program ends.
        let is_reported = crate::report::is_on();
        if is_reported || matches!(&self.spec.link, LinkKind::Udp(udp) if udp.address.is_none()) {
            registry().kept.entry(self.index).or_insert_with(|| context.clone());
        }
        Ok(context)
    }

    /// In host order, if the device has been opened.
    pub(crate) fn known_guid(&self) -> Option<u64> {
        self.guid.get().copied()
    }

    /// In network order; 0 if the device cannot be opened.
    pub(crate) fn guid(&self) -> u64 {
        let guid = self.guid.get().copied();
        guid.or_else(|| self.open().ok().map(|context| context.device().guid())).unwrap_or(0).to_be()
    }
}

/// The devices that the environment asks for; fixed at the first call.
pub(crate) fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    if let Some(devices) = DEVICES.get() {
        return devices;
    }
    // No child finds the list half created.
    let _opening = softrnic_nic::device::opening();
    DEVICES.get_or_init(|| {
        crate::log::start();
        crate::check::start(crate::check::dropped_requests);
        crate::report::start();
        if crate::check::is_on() || crate::report::is_on() {
            softrnic_nic::device::watch_failures(Box::new(crate::check::Watcher));
        }
        let specs = DeviceSpec::from_env().unwrap_or_else(|error| {
            complain(format_args!("{error}"));
            Vec::new()
        });
        specs.into_iter().enumerate().map(|(index, spec)| Device::new(index, spec)).collect()
    })
}

/// Makes every open device fail: a thread panicked, and the state it left behind is unknown.
pub(crate) fn fail_all() {
    crate::context::for_each_open(|context| context.fail());
}

/// Reports a configuration error to the user: when the library is used alone, nothing else would.
fn complain(what: std::fmt::Arguments<'_>) {
    eprintln!("softrnic: {what}");
}

/// Text in a C array of fixed size, cut if it is too long.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// A string inside a device, which lives for ever.
pub(crate) struct Name(*const c_char);

impl Outcome for Name {
    type C = *const c_char;
    fn into_c(result: Result<Name, Errno>) -> *const c_char {
        result.map_or_else(
            |errno| {
                errno.set();
                std::ptr::null()
            },
            |Name(name)| name,
        )
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    guard::<*mut *mut ibv_device>(call!(ibv_get_device_list, num_devices), move || {
        sysfs::describe_all();
        let devices = devices();
        // SAFETY: takes no pointers; without memory, or if the product is too large, the result is null.
        let list: *mut *mut ibv_device =
            unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }.cast();
        if list.is_null() {
            return Err(Errno::NOMEM);
        }
        for (index, device) in devices.iter().enumerate() {
            // SAFETY: the list has one entry per device, and a null at its end.
            unsafe { *list.add(index) = device.as_ibv() };
        }
        if !num_devices.is_null() {
            // SAFETY: not null, so the application has room for a number there.
            unsafe { *num_devices = devices.len() as c_int };
        }
        Ok(list)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    guard::<Silent>(call!(ibv_free_device_list, list), move || {
        // SAFETY: the list came from calloc in `ibv_get_device_list`, or is null.
        unsafe { libc::free(list.cast()) };
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    guard::<Name>(call!(ibv_get_device_name, device), move || {
        // SAFETY: a device of a list of ours; devices live as long as the program.
        let device = unsafe { Device::of(device)? };
        Ok(Name(device.ibv.name.as_ptr()))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    guard::<Plain<u64>>(call!(ibv_get_device_guid, device), move || {
        // SAFETY: a device of a list of ours; devices live as long as the program.
        let device = unsafe { Device::of(device)? };
        Ok(Plain(device.guid()))
    })
}

/// The number of the device, as reported by NETLINK_RDMA (`netlink.rs`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    guard::<OrMinusOne>(call!(ibv_get_device_index, device), move || {
        // SAFETY: a device of a list of ours; devices live as long as the program.
        let device = unsafe { Device::of(device)? };
        Ok(OrMinusOne(device.index as c_int))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    guard::<*mut ibv_context>(call!(ibv_open_device, device), move || {
        // SAFETY: a device of a list of ours; devices live as long as the program.
        let device = unsafe { Device::of(device)? };
        sysfs::describe_all();
        Ctx::open(device)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    guard::<()>(call!(ibv_close_device, context), move || Ctx::close(context))
}

/// Opens the device that `cmd_fd`, a duplicate of another context's, belongs to. The two share handles.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    guard::<*mut ibv_context>(call!(ibv_import_device, cmd_fd), move || Ctx::import(cmd_fd))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    guard::<()>(call!(ibv_fork_init), move || {
        crate::check::prepared_to_fork();
        Ok(())
    })
}

/// Forking needs no preparation: the NIC accesses memory through this process's own address space. Pages shared
/// with the child are copied when either side writes, and what the NIC sees stays the parent's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> u32 {
    guard::<Plain<u32>>(call!(ibv_is_fork_initialized), move || {
        // Who has asked knows that no call of `ibv_fork_init` is needed.
        crate::check::prepared_to_fork();
        Ok(Plain(IBV_FORK_UNNEEDED))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    guard::<()>(call!(ibv_dontfork_range), move || Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    guard::<()>(call!(ibv_dofork_range), move || Ok(()))
}
