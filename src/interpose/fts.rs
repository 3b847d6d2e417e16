//! `fts_open`, which takes a list of paths.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::next::{fail, next};
use crate::rewrite::{Buffer, may_be_ours, rewrite};

type Open = unsafe extern "C-unwind" fn(*const *const c_char, c_int, *mut c_void) -> *mut c_void;

/// The paths of a list that ends with null.
///
/// # Safety
/// `paths` is null, or such a list of C strings.
unsafe fn each(paths: *const *const c_char) -> impl Iterator<Item = *const c_char> {
    (0..).map_while(move |index| {
        // SAFETY: not null, and within the list, which ends with the first null.
        (!paths.is_null()).then(|| unsafe { *paths.add(index) }).filter(|path| !path.is_null())
    })
}

/// The function copies the paths, so ours are needed for the call alone. It allocates as well, so this may.
///
/// # Safety
/// As `fts_open` requires.
#[cold]
#[inline(never)]
unsafe fn open(next: Open, paths: *const *const c_char, options: c_int, compare: *mut c_void) -> *mut c_void {
    // SAFETY: the application's list, as the caller promises.
    let ours = unsafe { each(paths) }.map(|path| {
        let mut buffer = Buffer::new();
        // SAFETY: a C string of the list; so is what replaces it.
        unsafe { CStr::from_ptr(rewrite(libc::AT_FDCWD, path, &mut buffer).path(path)) }.to_owned()
    });
    let ours: Vec<CString> = ours.collect();
    let list: Vec<*const c_char> = ours.iter().map(|path| path.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the next function of this name, with the application's arguments, and a list of C strings that ends with
    // null.
    unsafe { next(list.as_ptr(), options, compare) }
}

macro_rules! interpose_fts {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            paths: *const *const c_char, options: c_int, compare: *mut c_void
        ) -> *mut c_void {
            let Some(next) = next!($name, Open) else { return fail(libc::ENOSYS) };
            // SAFETY: the application's list and its C strings, as the function requires.
            if unsafe { each(paths).any(|path| may_be_ours(path)) } {
                // SAFETY: the next function of this name, with the application's arguments.
                return unsafe { open(next, paths, options, compare) };
            }
            // SAFETY: the same.
            unsafe { next(paths, options, compare) }
        }
    )*};
}

interpose_fts! { fts_open fts64_open }
