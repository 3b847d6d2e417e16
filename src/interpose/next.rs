//! The functions that would be called without this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of a symbol, looked up once.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if no later library defines it.
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string. (Two threads may both look it up, and find the same.)
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }
}

/// The result of a function that no later library defines.
pub trait Missing {
    /// -1 or null.
    const VALUE: Self;
}

impl Missing for i32 {
    const VALUE: i32 = -1;
}

impl Missing for isize {
    const VALUE: isize = -1;
}

impl Missing for () {
    const VALUE: () = ();
}

impl<T> Missing for *mut T {
    const VALUE: *mut T = std::ptr::null_mut();
}

/// Fails a call with ENOSYS.
pub fn missing<T: Missing>() -> T {
    // SAFETY: the location belongs to this thread and is always valid.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    T::VALUE
}
