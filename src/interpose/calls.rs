//! The functions that take a path and look at what it names.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::next::{fail, next};
use crate::node;
use crate::rewrite::{Buffer, Stand, may_be_ours, open_flags, rewrite, show_in_sys};

/// Defines functions that call the next function of the same name with a rewritten `path`. A relative path starts at
/// `in`, a descriptor among the arguments, or at the working directory. The functions with `open` or `fopen` may refuse
/// to, or open a channel; those with `stat` may describe a channel, if the path is empty; `file_system` asks about that.
/// Those with `shown` find a path, which is then said as the kernel would.
///
/// `open` and `openat` are variadic in C. Their last argument arrives in the same register either way (System V and
/// AAPCS64). Without O_CREAT it is garbage, passed on and ignored.
///
/// Any of them may be called on a small stack. So the buffer is in a function of its own, which is only called for paths
/// that may be ours.
///
/// Some are cancellation points, and some call back. The unwinding then passes through here, so nothing here may need
/// dropping.
macro_rules! interpose {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*
    ) -> $result:ty
        $(, in $base:ident)? $(, open $flags:ident)? $(, fopen $mode:ident)? $(, stat $stat:ident into $show:path)?
        $(, about $which:ident)? $(, shown $where:ident)?;
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            type Function = unsafe extern "C-unwind" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result;
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn ours(
                base: c_int, next: Function $(, $before: $before_type)*, path: *const c_char $(, $after: $after_type)*
            ) -> $result {
                let mut buffer = Buffer::new();
                // SAFETY: not null, so a C string, as the C library's function requires of the application.
                let stand = unsafe { rewrite(base, path, &mut buffer) };
                $(if matches!(stand, Stand::ConnectionManager) {
                    return node::open($flags);
                }
                if let Some(errno) = stand.refuses_to_open($flags) {
                    return fail(errno);
                })?
                // SAFETY: a C string, as the C library's function requires of the application.
                $(if let Some(errno) = stand.refuses_to_open(unsafe { open_flags($mode) }) {
                    return fail(errno);
                })?
                // SAFETY: the next function of this name, with the application's arguments, which meet its contract; a
                // rewritten path is a C string too.
                let result = unsafe { next($($before,)* interpose!(@stand stand path $($which)?) $(, $after)*) };
                // SAFETY: null, or the C string that the call has made for the application.
                $(unsafe { interpose!(@show result $where) };)?
                result
            }
            let Some(next) = next!($name, Function) else { return fail(libc::ENOSYS) };
            let base = [$($base,)? libc::AT_FDCWD][0];
            // SAFETY: null or a C string, as the C library's function requires of the application.
            if unsafe { may_be_ours(path) } {
                // SAFETY: the next function of this name, with the application's arguments; the path is not null.
                return unsafe { ours(base, next $(, $before)*, path $(, $after)*) };
            }
            // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
            let result = unsafe { next($($before,)* path $(, $after)*) };
            // SAFETY: not null, so a C string, as the C library's function requires of the application.
            $(if result == 0 && !path.is_null() && unsafe { *path } == 0 {
                // SAFETY: with an empty path the call was about the descriptor, and has filled the structure.
                unsafe { $show(base, $stat) };
            })?
            result
        }
    )*};
    (@show $result:ident in_sys) => { show_in_sys($result) };
    (@stand $stand:ident $path:ident) => { $stand.path($path) };
    (@stand $stand:ident $path:ident file_system) => { $stand.file_system($path) };
}

// Names that begin with an underscore are those of functions that programs call through macros of the C library's
// headers, or did before glibc 2.33.
interpose! {
    fn open(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn open64(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn __open(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn __open64(@path, flags: c_int, mode: c_uint) -> c_int, open flags;
    fn __open_2(@path, flags: c_int) -> c_int, open flags;
    fn __open64_2(@path, flags: c_int) -> c_int, open flags;
    fn openat(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd, open flags;
    fn openat64(fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int, in fd, open flags;
    fn __openat_2(fd: c_int, @path, flags: c_int) -> c_int, in fd, open flags;
    fn __openat64_2(fd: c_int, @path, flags: c_int) -> c_int, in fd, open flags;
    fn open_tree(fd: c_int, @path, flags: c_uint) -> c_int, in fd;
    fn fopen(@path, mode: *const c_char) -> *mut libc::FILE, fopen mode;
    fn fopen64(@path, mode: *const c_char) -> *mut libc::FILE, fopen mode;
    fn _IO_fopen(@path, mode: *const c_char) -> *mut libc::FILE, fopen mode;
    fn freopen(@path, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, fopen mode;
    fn freopen64(@path, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE, fopen mode;

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
    fn __xstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, @path, buf: *mut c_void) -> c_int;
    fn __fxstatat(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;
    fn __fxstatat64(version: c_int, fd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, in fd, stat buf into node::show;
    fn statfs(@path, buf: *mut c_void) -> c_int, about file_system;
    fn statfs64(@path, buf: *mut c_void) -> c_int, about file_system;
    fn __statfs(@path, buf: *mut c_void) -> c_int, about file_system;
    fn statvfs(@path, buf: *mut c_void) -> c_int, about file_system;
    fn statvfs64(@path, buf: *mut c_void) -> c_int, about file_system;
    fn pathconf(@path, name: c_int) -> c_long, about file_system;

    fn access(@path, mode: c_int) -> c_int;
    fn faccessat(fd: c_int, @path, mode: c_int, flags: c_int) -> c_int, in fd;
    fn euidaccess(@path, mode: c_int) -> c_int;
    fn eaccess(@path, mode: c_int) -> c_int;

    fn readlink(@path, buf: *mut c_char, size: usize) -> isize;
    fn __readlink_chk(@path, buf: *mut c_char, size: usize, room: usize) -> isize;
    fn readlinkat(fd: c_int, @path, buf: *mut c_char, size: usize) -> isize, in fd;
    fn __readlinkat_chk(fd: c_int, @path, buf: *mut c_char, size: usize, room: usize) -> isize, in fd;
    fn realpath(@path, resolved: *mut c_char) -> *mut c_char, shown in_sys;
    fn __realpath_chk(@path, resolved: *mut c_char, room: usize) -> *mut c_char, shown in_sys;
    fn canonicalize_file_name(@path) -> *mut c_char, shown in_sys;

    fn getxattr(@path, name: *const c_char, value: *mut c_void, size: usize) -> isize;
    fn lgetxattr(@path, name: *const c_char, value: *mut c_void, size: usize) -> isize;
    fn listxattr(@path, names: *mut c_char, size: usize) -> isize;
    fn llistxattr(@path, names: *mut c_char, size: usize) -> isize;

    fn inotify_add_watch(watches: c_int, @path, mask: u32) -> c_int;
    fn fanotify_mark(marks: c_int, flags: c_uint, mask: u64, fd: c_int, @path) -> c_int, in fd;
    fn name_to_handle_at(fd: c_int, @path, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int, in fd;
    fn ftok(@path, project: c_int) -> c_int;
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, @path, flags: c_int, mode: c_uint) -> c_int;
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, @path) -> c_int;
}
