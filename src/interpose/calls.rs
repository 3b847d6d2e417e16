//! The functions that take a path, and those that take a descriptor of `/dev/infiniband/rdma_cm`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::next::{Next, missing};
use crate::node;
use crate::rewrite::{Buffer, Stand, rewrite};

/// The next function with this name, if there is one.
macro_rules! next {
    ($name:ident, $type:ty) => {{
        static NEXT: Next =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Next::new(name),
                Err(_) => unreachable!(),
            };
        let next = NEXT.address();
        // SAFETY: found under the name whose type in the C library this is; each use of the macro names both.
        (!next.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, $type>(next) })
    }};
}

/// Defines functions that call the next function of the same name with a rewritten `path`. A relative path starts at
/// `in`, a descriptor among the arguments, or at the working directory. The functions with `open` may open a channel
/// instead, and those with `stat` may describe one.
///
/// `open` and `openat` are variadic in C. Their last argument arrives in the same register either way (System V and
/// AAPCS64). Without O_CREAT it is garbage, passed on and ignored.
///
/// Some are cancellation points, and some call back. The unwinding then passes through here, so nothing here may need
/// dropping.
macro_rules! interpose {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*
    ) -> $result:ty $(, in $base:ident)? $(, open $flags:ident)? $(, stat $stat:ident into $show:path)?;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            type Function = unsafe extern "C-unwind" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result;
            let Some(next) = next!($name, Function) else { return missing() };
            let base = [$($base,)? libc::AT_FDCWD][0];
            let mut buffer = Buffer::new();
            // SAFETY: null or a C string, as the C library's function requires of the application.
            let stand = unsafe { rewrite(base, path, &mut buffer) };
            $(if matches!(stand, Stand::ConnectionManager) {
                return node::open($flags);
            })?
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract; a
            // rewritten path is a C string too.
            let result = unsafe { next($($before,)* stand.path(path) $(, $after)*) };
            // SAFETY: not null, so a C string, as the C library's function requires of the application.
            $(if result == 0 && !path.is_null() && unsafe { *path } == 0 {
                // SAFETY: with an empty path the call was about the descriptor, and has filled the structure.
                unsafe { $show(base, $stat) };
            })?
            result
        }
    )*};
}

interpose! {
    fn open(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn open64(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn __open_2(@path, flags: c_int) -> c_int, open flags;
    fn __open64_2(@path, flags: c_int) -> c_int, open flags;
    fn openat(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd, open flags;
    fn openat64(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd, open flags;
    fn __openat_2(fd: c_int, @path, flags: c_int) -> c_int, in fd, open flags;
    fn __openat64_2(fd: c_int, @path, flags: c_int) -> c_int, in fd, open flags;
    fn fopen(@path, mode: *const c_char) -> *mut libc::FILE;
    fn fopen64(@path, mode: *const c_char) -> *mut libc::FILE;
    fn opendir(@path) -> *mut libc::DIR;
    fn scandir(@path, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int;
    fn scandir64(@path, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int;
    fn scandirat(fd: c_int, @path, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, in fd;
    fn scandirat64(fd: c_int, @path, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, in fd;
    fn chdir(@path) -> c_int;
    fn glob(@path, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int;
    fn glob64(@path, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int;
    fn ftw(@path, each: *mut c_void, descriptors: c_int) -> c_int;
    fn ftw64(@path, each: *mut c_void, descriptors: c_int) -> c_int;
    fn nftw(@path, each: *mut c_void, descriptors: c_int, flags: c_int) -> c_int;
    fn nftw64(@path, each: *mut c_void, descriptors: c_int, flags: c_int) -> c_int;

    fn stat(@path, buf: *mut c_void) -> c_int;
    fn stat64(@path, buf: *mut c_void) -> c_int;
    fn lstat(@path, buf: *mut c_void) -> c_int;
    fn lstat64(@path, buf: *mut c_void) -> c_int;
    fn fstatat(fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;
    fn fstatat64(fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;
    fn statx(fd: c_int, @path, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, in fd, stat buf into node::show_extended;
    // Called by programs built against glibc before 2.33.
    fn __xstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;
    fn __fxstatat64(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;

    fn access(@path, mode: c_int) -> c_int;
    fn faccessat(fd: c_int, @path, mode: c_int, flags: c_int) -> c_int, in fd;
    fn euidaccess(@path, mode: c_int) -> c_int;
    fn eaccess(@path, mode: c_int) -> c_int;

    fn readlink(@path, buf: *mut c_char, size: usize) -> isize;
    fn __readlink_chk(@path, buf: *mut c_char, size: usize, room: usize) -> isize;
    fn readlinkat(fd: c_int, @path, buf: *mut c_char, size: usize) -> isize, in fd;
    fn realpath(@path, resolved: *mut c_char) -> *mut c_char;
    fn __realpath_chk(@path, resolved: *mut c_char, room: usize) -> *mut c_char;
}

/// Defines functions on a descriptor, and what each does if it is a channel.
macro_rules! interpose_descriptor {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            let before: Option<$result> = $body;
            if let Some(result) = before {
                return result;
            }
            let Some(next) = next!($name, Function) else { return missing() };
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
            let Some(next) = next!($name, Function) else { return missing() };
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
        unsafe { node::write(fd, buf, count) }
    }
    fn close(fd: c_int) -> c_int {
        node::close(fd).then_some(0)
    }
    fn dup2(old: c_int, new: c_int) -> c_int {
        if old != new { node::close(new); }
        None
    }
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        if old != new { node::close(new); }
        None
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // Except for those that are to be closed on exec.
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 { node::close_all(first, last); }
        None
    }
    fn closefrom(first: c_int) -> () {
        node::close_all(first.max(0) as c_uint, c_uint::MAX);
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
