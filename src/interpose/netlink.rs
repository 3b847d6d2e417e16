//! NETLINK_RDMA: how `rdma` of iproute2, librdmacm and UCX ask the kernel about devices.
//!
//! Such a socket becomes one of NETLINK_USERSOCK, which every kernel has and every user may open: binding, naming,
//! waiting and receiving are the kernel's. Only what is sent on it is not: `libibverbs.so.1` answers that, from a socket
//! of its own. A program that does not load that library by itself gets it when it opens the socket. Most programs have no
//! such socket, and pay one load for each call.

use std::ffi::{c_int, c_uint, c_void};

use crate::descriptor_set::DescriptorSet;
use crate::engine::Engine;
use crate::next::{fail, next};
use crate::rewrite::is_on;

type Send = unsafe extern "C" fn(c_int, *const libc::iovec, usize) -> c_int;
type Monitor = unsafe extern "C" fn(c_int) -> c_int;

static SEND: Engine = Engine::new(c"softrnic_netlink_send");
static MONITOR: Engine = Engine::new(c"softrnic_netlink_monitor");

/// The descriptors of such sockets.
static SOCKETS: DescriptorSet = DescriptorSet::new();

/// Linux: `NETLINK_RDMA`.
const RDMA: c_int = 20;

/// `RDMA_NL_GROUP_NOTIFY`: devices come and go.
const EVENTS: c_int = 4;

/// Whether there is who answers.
fn is_served() -> bool {
    if is_on() && SEND.address().is_null() {
        [&MONITOR, &SEND].into_iter().for_each(Engine::load);
    }
    [&MONITOR, &SEND].into_iter().all(|function| !function.address().is_null())
}

#[inline]
pub fn is_ours(fd: c_int) -> bool {
    SOCKETS.contains(fd)
}

/// The socket is closed by the caller.
#[inline]
pub fn forget(fd: c_int) {
    SOCKETS.remove(fd);
}

pub fn forget_all(first: c_uint, last: c_uint) {
    SOCKETS.remove_all(first, last, |_| {});
}

/// Answers what is sent; `None` if the descriptor is another.
///
/// # Safety
/// There are `count` structures at `parts`, as `writev` requires.
#[inline]
pub unsafe fn send(fd: c_int, parts: *const libc::iovec, count: usize) -> Option<isize> {
    if !is_ours(fd) {
        return None;
    }
    // SAFETY: `softrnic_netlink_send` of this version has this type, and was found before there was such a socket. The
    // structures are as the caller promises.
    Some(unsafe { std::mem::transmute::<*mut c_void, Send>(SEND.address())(fd, parts, count) } as isize)
}

/// The same, for one piece.
///
/// # Safety
/// There are `count` bytes at `buf`, as `write` requires.
#[inline]
pub unsafe fn send_one(fd: c_int, buf: *const c_void, count: usize) -> Option<isize> {
    let part = libc::iovec { iov_base: buf.cast_mut(), iov_len: count };
    // SAFETY: one structure, about what the caller promises.
    unsafe { send(fd, &raw const part, 1) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    type Socket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    let Some(next) = next!(socket, Socket) else { return fail(libc::ENOSYS) };
    if domain != libc::AF_NETLINK || protocol != RDMA || !is_served() {
        // SAFETY: the next function of this name, with the application's arguments.
        return unsafe { next(domain, kind, protocol) };
    }
    // SAFETY: takes no pointers.
    let fd = unsafe { next(domain, kind, libc::NETLINK_USERSOCK) };
    if fd >= 0 && !SOCKETS.insert(fd) {
        // SAFETY: a new descriptor that nothing else knows.
        unsafe { libc::syscall(libc::SYS_close, fd) };
        return fail(libc::EMFILE);
    }
    fd
}

/// Binding a socket, with or without groups. Groups of such sockets take a privilege that those of NETLINK_RDMA do not.
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const libc::sockaddr, length: libc::socklen_t) -> c_int {
    type Bind = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;
    let Some(next) = next!(bind, Bind) else { return fail(libc::ENOSYS) };
    let is_whole = !address.is_null() && length as usize >= size_of::<libc::sockaddr_nl>();
    if !is_ours(fd) || !is_whole {
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        return unsafe { next(fd, address, length) };
    }
    // SAFETY: not null, and long enough; it may not be aligned.
    let asked = unsafe { address.cast::<libc::sockaddr_nl>().read_unaligned() };
    let mut without = asked;
    without.nl_groups = 0;
    // SAFETY: the next function of this name, with an address that lives through the call.
    let bound = unsafe { next(fd, (&raw const without).cast(), size_of_val(&without) as libc::socklen_t) };
    if bound == 0 && asked.nl_groups & 1 << (EVENTS - 1) != 0 { monitor(fd) } else { bound }
}

/// Joins a group, or sets something else.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    type SetSockOpt = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, libc::socklen_t) -> c_int;
    let Some(next) = next!(setsockopt, SetSockOpt) else { return fail(libc::ENOSYS) };
    let joins = is_ours(fd) && level == libc::SOL_NETLINK && name == libc::NETLINK_ADD_MEMBERSHIP;
    if !joins || value.is_null() || (length as usize) < size_of::<c_int>() {
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        return unsafe { next(fd, level, name, value, length) };
    }
    // SAFETY: not null, and long enough for a number, which may not be aligned.
    let group = unsafe { value.cast::<c_int>().read_unaligned() };
    if group == EVENTS { monitor(fd) } else { 0 }
}

/// Has the events sent to a socket.
fn monitor(fd: c_int) -> c_int {
    // SAFETY: `softrnic_netlink_monitor` of this version has this type, and was found before there was such a socket.
    unsafe { std::mem::transmute::<*mut c_void, Monitor>(MONITOR.address())(fd) }
}
