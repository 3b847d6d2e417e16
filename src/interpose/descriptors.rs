//! The functions that take a descriptor of `/dev/infiniband/rdma_cm`, or of a socket of NETLINK_RDMA.

use std::ffi::{c_int, c_uint, c_void};

use crate::next::{fail, next};
use crate::{netlink, node};

/// Defines functions on a descriptor, and what each does if it is one of ours.
macro_rules! interpose_descriptor {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            let before: Option<$result> = $body;
            if let Some(result) = before {
                return result;
            }
            let Some(next) = next!($name, Function) else { return fail(libc::ENOSYS) };
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract. It is
            // a cancellation point: nothing here needs dropping.
            unsafe { next($($arg),*) }
        }
    )*};
}

/// Defines the functions that describe a descriptor.
macro_rules! interpose_fstat {
    ($(fn $name:ident($($version:ident: $type:ty,)? @fd);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($version: $type,)? fd: c_int, stat: *mut c_void) -> c_int {
            type Function = unsafe extern "C" fn($($type,)? c_int, *mut c_void) -> c_int;
            let Some(next) = next!($name, Function) else { return fail(libc::ENOSYS) };
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
            let result = unsafe { next($($version,)? fd, stat) };
            if result == 0 {
                // SAFETY: the call succeeded, and has filled the structure.
                unsafe { node::show(fd, stat) };
            }
            result
        }
    )*};
}

interpose_descriptor! {
    fn write(fd: c_int, buf: *const c_void, count: usize) -> isize {
        // SAFETY: the arguments are the application's, which meets the contract of `write`.
        unsafe { node::write(fd, buf, count).or_else(|| netlink::send_one(fd, buf, count)) }
    }
    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> isize {
        // SAFETY: the arguments are the application's, which meets the contract of `writev`.
        unsafe { netlink::send(fd, parts, usize::try_from(count).unwrap_or(usize::MAX)) }
    }
    fn send(fd: c_int, buf: *const c_void, count: usize, flags: c_int) -> isize {
        // SAFETY: the arguments are the application's, which meets the contract of `send`.
        unsafe { netlink::send_one(fd, buf, count) }
    }
    fn sendto(
        fd: c_int, buf: *const c_void, count: usize, flags: c_int, to: *const c_void, length: libc::socklen_t
    ) -> isize {
        // SAFETY: the arguments are the application's, which meets the contract of `sendto`.
        unsafe { netlink::send_one(fd, buf, count) }
    }
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
        if netlink::is_ours(fd) && !message.is_null() {
            // SAFETY: not null, so a structure with its pieces, as the application promises `sendmsg`.
            unsafe { netlink::send(fd, (*message).msg_iov, (*message).msg_iovlen) }
        } else {
            None
        }
    }
    fn close(fd: c_int) -> c_int {
        netlink::forget(fd);
        node::close(fd).then_some(0)
    }
    fn dup2(old: c_int, new: c_int) -> c_int {
        if old != new { node::close(new); netlink::forget(new); }
        None
    }
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if old != new { node::close(new); netlink::forget(new); }
        None
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // Except for those that are to be closed on exec.
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            node::close_all(first, last);
            netlink::forget_all(first, last);
        }
        None
    }
    fn closefrom(first: c_int) -> () {
        node::close_all(first.max(0) as c_uint, c_uint::MAX);
        netlink::forget_all(first.max(0) as c_uint, c_uint::MAX);
        None
    }
}

interpose_fstat! {
    fn fstat(@fd);
    fn fstat64(@fd);
    // Called by programs built against glibc before 2.33.
    fn __fxstat(version: c_int, @fd);
    fn __fxstat64(version: c_int, @fd);
}
