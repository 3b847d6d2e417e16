//! The functions that take a path.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::next::{Next, missing};
use crate::rewrite::{Buffer, rewrite};

/// Defines functions that call the next one of the same name with another `path`. A relative one starts at `in`, a
/// descriptor among the arguments, or at the working directory.
///
/// `open` and `openat` are variadic in C. Their last argument arrives in the same register either way (System V
/// and AAPCS64); without O_CREAT it is garbage that is passed on and ignored.
macro_rules! interpose {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*
    ) -> $result:ty $(, in $base:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            type Function = unsafe extern "C" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result;
            static NEXT: Next = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Next::new(name),
                Err(_) => unreachable!(),
            };
            let next = NEXT.address();
            if next.is_null() {
                return missing();
            }
            // SAFETY: the symbol has the type that the C library declares for it.
            let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            let base = [$($base,)? libc::AT_FDCWD][0];
            let mut buffer = Buffer::new();
            // SAFETY: the arguments are the caller's, and `path` is a C string as before.
            unsafe { next($($before,)* rewrite(base, path, &mut buffer) $(, $after)*) }
        }
    )*};
}

interpose! {
    fn open(@path, flags: c_int, mode: c_uint) -> c_int;
    fn open64(@path, flags: c_int, mode: c_uint) -> c_int;
    fn __open_2(@path, flags: c_int) -> c_int;
    fn __open64_2(@path, flags: c_int) -> c_int;
    fn openat(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd;
    fn openat64(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd;
    fn __openat_2(fd: c_int, @path, flags: c_int) -> c_int, in fd;
    fn __openat64_2(fd: c_int, @path, flags: c_int) -> c_int, in fd;
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
    fn fstatat(fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd;
    fn fstatat64(fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd;
    fn statx(fd: c_int, @path, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, in fd;
    // What programs built against glibc before 2.33 call.
    fn __xstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd;
    fn __fxstatat64(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd;

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
