//! Channels of the connection manager, which implement `/dev/infiniband/rdma_cm`.
//!
//! The preloaded interposer calls these three functions, by their version node, for programs that open the node, write
//! to it and close it. `softrnic_ucma` interprets what is written. This module knows which descriptor is which
//! channel, and which devices there are.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use softrnic_cma::{DeviceIdentity, Devices, Error, EventChannel, Manager};
use softrnic_nic::device::Process;
use softrnic_nic::verbs::{self, Context, LinkKind};
use softrnic_ucma::{Request, Wanted};

use crate::check;
use crate::device::devices;
use crate::errno::Errno;
use crate::ffi_boundary::{OrMinusOne, Outcome, call, guard};
use crate::registry::registry;

/// The devices that programs list, with the GUIDs reported to them.
struct Listed;

impl Devices for Listed {
    fn count(&self) -> usize {
        devices().len()
    }

    fn identity(&self, place: usize) -> DeviceIdentity {
        let guid = devices().get(place).map_or(0, |device| u64::from_be(device.guid()));
        DeviceIdentity { guid, index: place as c_int }
    }

    fn are_on_own_network(&self) -> bool {
        devices().first().is_some_and(|device| matches!(device.spec.link, LinkKind::Fabric { .. }))
    }

    fn open(&self, place: usize) -> Result<Context, verbs::Error> {
        match devices().get(place) {
            Some(device) => device.open(),
            None => Err(verbs::Error::System(std::io::ErrorKind::NotFound.into())),
        }
    }
}

/// The identifiers of this process.
fn manager() -> &'static Arc<Manager> {
    static MANAGER: OnceLock<Arc<Manager>> = OnceLock::new();
    if let Some(manager) = MANAGER.get() {
        return manager;
    }
    let made = Manager::new(Box::new(Listed));
    // No child finds it half created.
    let _opening = softrnic_nic::device::opening();
    MANAGER.get_or_init(|| made)
}

/// The channel of a descriptor. In a child whose fork ran no handlers, the lock may be held for ever.
fn channel_of(fd: c_int) -> Result<EventChannel, Errno> {
    if !Process::current().is_in_order() {
        return Err(Errno::IO);
    }
    registry().channels.get(&fd).cloned().ok_or(Errno::IO)
}

impl From<softrnic_ucma::Errno> for Errno {
    fn from(errno: softrnic_ucma::Errno) -> Errno {
        Errno(errno.0)
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        softrnic_ucma::Errno::from(error).into()
    }
}

/// Opens a channel, with the flags of `open`. Returns its descriptor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_cm_open(flags: c_int) -> c_int {
    guard::<OrMinusOne>(call!(softrnic_cm_open, flags), move || {
        crate::log::start();
        let channel = EventChannel::new(manager())?;
        let fd = channel.descriptor();
        // SAFETY: flags of a new descriptor, close-on-exec and blocking.
        unsafe {
            if flags & libc::O_CLOEXEC == 0 {
                libc::fcntl(fd, libc::F_SETFD, 0);
            }
            if flags & libc::O_NONBLOCK != 0 {
                libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
        }
        registry().channels.insert(fd, channel);
        Ok(OrMinusOne(fd))
    })
}

/// Closes a channel, and its descriptor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softrnic_cm_close(fd: c_int) -> c_int {
    guard::<()>(call!(softrnic_cm_close, fd), move || {
        let channel = registry().channels.remove(&fd);
        if check::is_on() {
            check::connections::closes(fd);
        }
        if let Some(channel) = channel {
            channel.shut();
        }
        // SAFETY: no pointers; the application gives up the descriptor with this call.
        if unsafe { libc::close(fd) } < 0 { Err(Errno::last()) } else { Ok(()) }
    })
}

/// The result of a write.
enum Written {
    /// It is not a command: the caller passes it on.
    No,
    /// It has been executed; this many bytes were accepted.
    Done(isize),
    /// It asks for an event, which the caller has to wait for.
    Wait(ManuallyDrop<EventChannel>, Wanted),
}

impl Outcome for Written {
    type C = Written;
    fn into_c(result: Result<Written, Errno>) -> Written {
        result.unwrap_or_else(|errno| {
            errno.set();
            Written::Done(-1)
        })
    }
}

/// Executes what is written to a channel. Returns 0 if it is not a command; otherwise stores the return value of `write`
/// in `result`. A cancellation point for a command that waits: nothing here may need dropping.
///
/// # Safety
/// `count` bytes at `buf` are as `write` demands them of the application, and so is memory that they name by address;
/// there is room for a number at `result`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn softrnic_cm_write(
    fd: c_int,
    buf: *const c_void,
    count: usize,
    result: *mut isize,
) -> c_int {
    let call = call!(softrnic_cm_write, fd, buf, count);
    // SAFETY: the buffer is as the caller promises.
    let mut written = guard(call, || unsafe { write(fd, buf, count) });
    if let Written::Wait(channel, wanted) = &written {
        written = loop {
            let begins = || {
                channel.before_wait();
                Ok(Written::No)
            };
            if let failed @ Written::Done(_) = guard(call, begins) {
                break failed;
            }
            if let Err(error) = channel.wait() {
                break Written::into_c(Err(error.into()));
            }
            match guard(call, || Ok(take(channel, *wanted, count))) {
                Written::No => {}
                done => break done,
            }
        };
    }
    match written {
        Written::Done(bytes) => {
            // SAFETY: there is room for a number, as the caller promises.
            unsafe { *result = bytes };
            1
        }
        _ => 0,
    }
}

/// # Safety
/// As for [`softrnic_cm_write`].
unsafe fn write(fd: c_int, buf: *const c_void, count: usize) -> Result<Written, Errno> {
    // SAFETY: the buffer is as the caller promises.
    let Some(request) = (unsafe { Request::read(buf.cast(), count) }) else { return Ok(Written::No) };
    let channel = channel_of(fd)?;
    match request? {
        Request::Event(wanted) => Ok(Written::Wait(ManuallyDrop::new(channel), wanted)),
        Request::Command(asked) => {
            if check::is_on() {
                check::connections::asks(fd, &asked);
            }
            asked.execute(&channel, |fd| channel_of(fd).ok())?;
            Ok(Written::Done(count as isize))
        }
    }
}

/// Takes an event after waiting; `No` if it is gone again.
fn take(channel: &EventChannel, wanted: Wanted, count: usize) -> Written {
    match channel.take() {
        None => Written::No,
        Some(event) => {
            if check::is_on() {
                check::connections::takes(&event);
            }
            Written::into_c(wanted.write(&event).map(|()| Written::Done(count as isize)).map_err(Errno::from))
        }
    }
}
