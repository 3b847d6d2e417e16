//! `/dev/infiniband/rdma_cm`: the device through which librdmacm asks the kernel for connections.
//!
//! `libibverbs.so.1` implements it: it opens a channel, executes what is written to it, and closes it. This module only
//! knows which descriptors are channels. Most programs have none, and pay one load for each call.

use std::ffi::{c_int, c_uint, c_void};

use crate::descriptor_set::DescriptorSet;
use crate::engine::Engine;
use crate::next::fail;

type Open = unsafe extern "C" fn(c_int) -> c_int;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize, *mut isize) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;

static OPEN: Engine = Engine::new(c"softrnic_cm_open");
static WRITE: Engine = Engine::new(c"softrnic_cm_write");
static CLOSE: Engine = Engine::new(c"softrnic_cm_close");

/// The descriptors that are channels.
static CHANNELS: DescriptorSet = DescriptorSet::new();

/// Whether a descriptor is a channel.
#[inline]
pub fn is_channel(fd: c_int) -> bool {
    CHANNELS.contains(fd)
}

/// Whether the verbs library is ours.
pub fn is_served() -> bool {
    if OPEN.address().is_null() {
        [&OPEN, &WRITE, &CLOSE].into_iter().for_each(Engine::find);
    }
    [&OPEN, &WRITE, &CLOSE].into_iter().all(|function| !function.address().is_null())
}

/// Opens a channel. There is no such device if the verbs library is not ours.
pub fn open(flags: c_int) -> c_int {
    if !is_served() {
        return fail(libc::ENOENT);
    }
    // SAFETY: `softrnic_cm_open` of this version has this type.
    let fd = unsafe { std::mem::transmute::<*mut c_void, Open>(OPEN.address())(flags) };
    if fd < 0 {
        return fd;
    }
    if !CHANNELS.insert(fd) {
        close_channel(fd);
        return fail(libc::EMFILE);
    }
    fd
}

/// Executes what is written to a channel; `None` if it is not a command: the number may belong to another file by now.
///
/// # Safety
/// `buf` and `count` are as `write` requires, and so is memory that a command names by address.
#[inline]
pub unsafe fn write(fd: c_int, buf: *const c_void, count: usize) -> Option<isize> {
    if !is_channel(fd) {
        return None;
    }
    let mut result = 0;
    // SAFETY: `softrnic_cm_write` of this version has this type, and was found before there was a channel. The buffer
    // is as the caller promises, and there is room for a number. If the thread is cancelled there, nothing here needs
    // dropping.
    let known = unsafe {
        let write = std::mem::transmute::<*mut c_void, Write>(WRITE.address());
        write(fd, buf, count, &raw mut result)
    };
    (known != 0).then_some(result)
}

/// Closes a channel and its descriptor; false if the call is for the next library.
#[inline]
pub fn close(fd: c_int) -> bool {
    CHANNELS.remove(fd) && close_channel(fd)
}

/// Closes all channels in a range.
pub fn close_all(first: c_uint, last: c_uint) {
    CHANNELS.remove_all(first, last, |fd| {
        close_channel(fd);
    });
}

fn close_channel(fd: c_int) -> bool {
    // SAFETY: `softrnic_cm_close` of this version has this type, and was found before there was a channel.
    unsafe { std::mem::transmute::<*mut c_void, Close>(CLOSE.address())(fd) == 0 }
}

/// The type of the node: a character device that every user may open.
const MODE: u32 = libc::S_IFCHR | 0o666;

/// Makes the result of `fstat` on a channel describe the node.
///
/// # Safety
/// `stat` is null, or points to a `stat` that a call has filled and that nothing else uses.
pub unsafe fn show(fd: c_int, stat: *mut c_void) {
    if is_channel(fd) && !stat.is_null() {
        let stat: *mut libc::stat = stat.cast();
        let (major, minor) = number();
        // SAFETY: not null, so a filled structure, as the caller promises; `stat` and `stat64` are the same on 64-bit
        // machines.
        unsafe {
            (*stat).st_mode = MODE;
            (*stat).st_rdev = libc::makedev(major, minor);
        }
    }
}

/// Like [`show`], for `statx`.
///
/// # Safety
/// As for [`show`], of a `statx`.
pub unsafe fn show_extended(fd: c_int, stat: *mut c_void) {
    if is_channel(fd) && !stat.is_null() {
        let stat: *mut libc::statx = stat.cast();
        let (major, minor) = number();
        // SAFETY: not null, so a filled structure, as the caller promises.
        unsafe {
            (*stat).stx_mode = MODE as u16;
            (*stat).stx_rdev_major = major;
            (*stat).stx_rdev_minor = minor;
        }
    }
}

/// Major and minor number of the node. If the kernel has one, librdmacm learned its numbers over netlink, and compares
/// them.
fn number() -> (u32, u32) {
    let mut text = [0u8; 32];
    // SAFETY: a C string, and a buffer of the length given. The system call bypasses the functions that this library
    // replaces.
    let length = unsafe {
        let path = c"/sys/class/misc/rdma_cm/dev".as_ptr();
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return (10, 58);
        }
        let length = libc::syscall(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, fd);
        usize::try_from(length).unwrap_or(0)
    };
    parse(&text[..length]).unwrap_or((10, 58))
}

/// `MAJOR:MINOR`, with a newline.
fn parse(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(text).ok()?.trim_end().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
