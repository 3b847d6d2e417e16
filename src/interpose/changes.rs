//! The functions that take a path and change what it names. Ours cannot be changed.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::next::{fail, next};
use crate::rewrite::{Buffer, Change, Stand, may_be_ours, rewrite};

/// The error of a change to `path`; `None` if it is none of ours.
///
/// # Safety
/// `path` is a C string.
#[cold]
#[inline(never)]
unsafe fn refusal(base: c_int, path: *const c_char, change: Change) -> Option<c_int> {
    let mut buffer = Buffer::new();
    // SAFETY: a C string, as the caller promises.
    unsafe { rewrite(base, path, &mut buffer) }.refuses(change)
}

/// Defines functions that refuse to change what is ours.
macro_rules! refuse {
    ($($change:ident {
        $(fn $name:ident(
            $($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*
        ) -> $result:ty $(, in $base:ident)?;)*
    })*) => {$($(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *mut c_char $(, $after: $after_type)*
        ) -> $result {
            type Function = unsafe extern "C" fn($($before_type,)* *mut c_char $(, $after_type)*) -> $result;
            let Some(next) = next!($name, Function) else { return fail(libc::ENOSYS) };
            // SAFETY: null or a C string, as the C library's function requires of the application.
            if unsafe { may_be_ours(path) } {
                let base = [$($base,)? libc::AT_FDCWD][0];
                // SAFETY: as before, and not null.
                if let Some(errno) = unsafe { refusal(base, path, Change::$change) } {
                    return fail(errno);
                }
            }
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
            unsafe { next($($before,)* path $(, $after)*) }
        }
    )*)*};
}

refuse! {
    New {
        fn mkdir(@path, mode: c_uint) -> c_int;
        fn mkdirat(fd: c_int, @path, mode: c_uint) -> c_int, in fd;
        fn mknod(@path, mode: c_uint, device: u64) -> c_int;
        fn mknodat(fd: c_int, @path, mode: c_uint, device: u64) -> c_int, in fd;
        fn __xmknod(version: c_int, @path, mode: c_uint, device: *mut u64) -> c_int;
        fn __xmknodat(version: c_int, fd: c_int, @path, mode: c_uint, device: *mut u64) -> c_int, in fd;
        fn mkfifo(@path, mode: c_uint) -> c_int;
        fn mkfifoat(fd: c_int, @path, mode: c_uint) -> c_int, in fd;
        fn symlink(target: *const c_char, @path) -> c_int;
        fn symlinkat(target: *const c_char, fd: c_int, @path) -> c_int, in fd;
        fn mkdtemp(@path) -> *mut c_char;
        fn mkstemp(@path) -> c_int;
        fn mkstemp64(@path) -> c_int;
        fn mkstemps(@path, suffix: c_int) -> c_int;
        fn mkstemps64(@path, suffix: c_int) -> c_int;
        fn mkostemp(@path, flags: c_int) -> c_int;
        fn mkostemp64(@path, flags: c_int) -> c_int;
        fn mkostemps(@path, suffix: c_int, flags: c_int) -> c_int;
        fn mkostemps64(@path, suffix: c_int, flags: c_int) -> c_int;
    }
    Entry {
        fn unlink(@path) -> c_int;
        fn unlinkat(fd: c_int, @path, flags: c_int) -> c_int, in fd;
        fn rmdir(@path) -> c_int;
        fn remove(@path) -> c_int;
    }
    Attribute {
        fn chmod(@path, mode: c_uint) -> c_int;
        fn lchmod(@path, mode: c_uint) -> c_int;
        fn fchmodat(fd: c_int, @path, mode: c_uint, flags: c_int) -> c_int, in fd;
        fn chown(@path, user: c_uint, group: c_uint) -> c_int;
        fn lchown(@path, user: c_uint, group: c_uint) -> c_int;
        fn fchownat(fd: c_int, @path, user: c_uint, group: c_uint, flags: c_int) -> c_int, in fd;
        fn utime(@path, times: *const c_void) -> c_int;
        fn utimes(@path, times: *const c_void) -> c_int;
        fn lutimes(@path, times: *const c_void) -> c_int;
        fn futimesat(fd: c_int, @path, times: *const c_void) -> c_int, in fd;
        fn utimensat(fd: c_int, @path, times: *const c_void, flags: c_int) -> c_int, in fd;
        fn setxattr(@path, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int;
        fn lsetxattr(@path, name: *const c_char, value: *const c_void, size: usize, flags: c_int) -> c_int;
        fn removexattr(@path, name: *const c_char) -> c_int;
        fn lremovexattr(@path, name: *const c_char) -> c_int;
    }
    Content {
        fn truncate(@path, size: i64) -> c_int;
        fn truncate64(@path, size: i64) -> c_int;
        fn creat(@path, mode: c_uint) -> c_int;
        fn creat64(@path, mode: c_uint) -> c_int;
    }
}

/// The error of giving a file another name; `None` if neither name is ours.
///
/// # Safety
/// Both paths are null or C strings.
#[cold]
#[inline(never)]
unsafe fn refusal_to_name(from: (c_int, *const c_char), to: (c_int, *const c_char)) -> Option<c_int> {
    let [from_is_ours, to_is_ours] = [from, to].map(|(base, path)| {
        // SAFETY: null or a C string, as the caller promises.
        unsafe { may_be_ours(path) && !matches!(rewrite(base, path, &mut Buffer::new()), Stand::Itself) }
    });
    let change = if from_is_ours && to_is_ours { Change::Entry } else { Change::OtherFileSystem };
    match (from_is_ours, to_is_ours) {
        // SAFETY: not null, so a C string.
        (true, _) => unsafe { refusal(from.0, from.1, change) },
        (false, true) => Some(libc::EXDEV),
        (false, false) => None,
    }
}

/// Defines functions of two paths.
macro_rules! refuse_to_name {
    ($(fn $name:ident($($from_base:ident,)? @from, $($to_base:ident,)? @to $(, $after:ident: $after_type:ty)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($from_base: c_int,)? from: *const c_char, $($to_base: c_int,)? to: *const c_char
            $(, $after: $after_type)*
        ) -> c_int {
            type Function = unsafe extern "C" fn(
                $(refuse_to_name!(@int $from_base),)? *const c_char, $(refuse_to_name!(@int $to_base),)? *const c_char
                $(, $after_type)*
            ) -> c_int;
            let Some(next) = next!($name, Function) else { return fail(libc::ENOSYS) };
            // SAFETY: null or C strings, as the C library's function requires of the application.
            if unsafe { may_be_ours(from) || may_be_ours(to) } {
                let (from_base, to_base) =
                    ([$($from_base,)? libc::AT_FDCWD][0], [$($to_base,)? libc::AT_FDCWD][0]);
                // SAFETY: as before.
                if let Some(errno) = unsafe { refusal_to_name((from_base, from), (to_base, to)) } {
                    return fail(errno);
                }
            }
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
            unsafe { next($($from_base,)? from, $($to_base,)? to $(, $after)*) }
        }
    )*};
    (@int $base:ident) => { c_int };
}

refuse_to_name! {
    fn rename(@from, @to);
    fn renameat(from_base, @from, to_base, @to);
    fn renameat2(from_base, @from, to_base, @to, flags: c_uint);
    fn link(@from, @to);
    fn linkat(from_base, @from, to_base, @to, flags: c_int);
}
