//! System calls on our own descriptors that bypass libraries preloaded before the C library.
//!
//! A preloaded library may take over every socket of a program, as librspreload rightly does; but ours carry its
//! packets. So `tools/link-ibverbs` lets each function here replace the one it is named after, only for the code of
//! `libibverbs.so.1`.
//!
//! `read` is not among them. A thread that waits for an event does so there and can be cancelled, and the descriptor it
//! reads was created by these functions, so no other library knows it.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

/// A possible argument of a system call.
trait Argument {
    fn word(self) -> c_long;
}

impl Argument for c_int {
    fn word(self) -> c_long {
        self.into()
    }
}

impl Argument for c_uint {
    fn word(self) -> c_long {
        self.into()
    }
}

impl Argument for c_ulong {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl Argument for usize {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl<T> Argument for *const T {
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

impl<T> Argument for *mut T {
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

macro_rules! own_calls {
    ($(fn $name:ident = $number:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the C function of this name has the same contract; its caller meets it, and the kernel checks it.
            unsafe { libc::syscall(libc::$number, $($arg.word()),*) as $result }
        }
    )*};
}

own_calls! {
    fn softrnic_own_socket = SYS_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn softrnic_own_bind = SYS_bind(fd: c_int, address: *const c_void, length: c_uint) -> c_int;
    fn softrnic_own_listen = SYS_listen(fd: c_int, backlog: c_int) -> c_int;
    fn softrnic_own_accept4 = SYS_accept4(fd: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int) -> c_int;
    fn softrnic_own_connect = SYS_connect(fd: c_int, address: *const c_void, length: c_uint) -> c_int;
    fn softrnic_own_shutdown = SYS_shutdown(fd: c_int, how: c_int) -> c_int;
    fn softrnic_own_getsockname = SYS_getsockname(fd: c_int, address: *mut c_void, length: *mut c_uint) -> c_int;
    fn softrnic_own_getpeername = SYS_getpeername(fd: c_int, address: *mut c_void, length: *mut c_uint) -> c_int;
    fn softrnic_own_setsockopt = SYS_setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: c_uint) -> c_int;
    fn softrnic_own_getsockopt = SYS_getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut c_uint) -> c_int;
    fn softrnic_own_sendmsg = SYS_sendmsg(fd: c_int, message: *const c_void, flags: c_int) -> isize;
    fn softrnic_own_recvmsg = SYS_recvmsg(fd: c_int, message: *mut c_void, flags: c_int) -> isize;
    fn softrnic_own_sendto = SYS_sendto(fd: c_int, buf: *const c_void, count: usize, flags: c_int, to: *const c_void, length: c_uint) -> isize;
    fn softrnic_own_recvfrom = SYS_recvfrom(fd: c_int, buf: *mut c_void, count: usize, flags: c_int, from: *mut c_void, length: *mut c_uint) -> isize;
    fn softrnic_own_write = SYS_write(fd: c_int, buf: *const c_void, count: usize) -> isize;
    fn softrnic_own_writev = SYS_writev(fd: c_int, parts: *const c_void, count: c_int) -> isize;
    fn softrnic_own_readv = SYS_readv(fd: c_int, parts: *const c_void, count: c_int) -> isize;
    fn softrnic_own_fcntl = SYS_fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn softrnic_own_close = SYS_close(fd: c_int) -> c_int;
    fn softrnic_own_epoll_create1 = SYS_epoll_create1(flags: c_int) -> c_int;
    fn softrnic_own_epoll_ctl = SYS_epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int;
}

/// `send` is `sendto` without an address.
#[unsafe(no_mangle)]
unsafe extern "C" fn softrnic_own_send(fd: c_int, buf: *const c_void, count: usize, flags: c_int) -> isize {
    // SAFETY: the C function of this name has the same contract, which its caller meets.
    unsafe { softrnic_own_sendto(fd, buf, count, flags, std::ptr::null(), 0) }
}

/// `recv` is `recvfrom` without an address.
#[unsafe(no_mangle)]
unsafe extern "C" fn softrnic_own_recv(fd: c_int, buf: *mut c_void, count: usize, flags: c_int) -> isize {
    // SAFETY: the C function of this name has the same contract, which its caller meets.
    unsafe { softrnic_own_recvfrom(fd, buf, count, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// `poll` in terms of `ppoll`, which every machine has.
#[unsafe(no_mangle)]
unsafe extern "C" fn softrnic_own_poll(fds: *mut libc::pollfd, count: c_ulong, timeout: c_int) -> c_int {
    let mut timeout = (timeout >= 0).then(|| libc::timespec {
        tv_sec: (timeout / 1000).into(),
        tv_nsec: c_long::from(timeout % 1000) * 1_000_000,
    });
    let limit = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_mask = std::ptr::null::<c_void>();
    // SAFETY: `poll` requires the same of its caller; the kernel writes the remaining time to the copy.
    unsafe { libc::syscall(libc::SYS_ppoll, fds, count, limit, no_mask, 0usize) as c_int }
}
