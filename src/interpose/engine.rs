//! Functions of `libibverbs.so.1` for this library alone.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::library::OURS;

/// The version of these functions.
const VERSION: &CStr = c"SOFTRNIC_1.0";

/// A function of the verbs library.
pub struct Engine {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Engine {
    pub const fn new(name: &'static CStr) -> Engine {
        Engine { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Null if it has not been [found](Engine::find).
    pub fn address(&self) -> *mut c_void {
        self.address.load(Ordering::Acquire)
    }

    /// Looks for it in the library that the program has loaded. By its name, since that may have been with `RTLD_LOCAL`.
    pub fn find(&self) {
        self.find_with(libc::RTLD_NOLOAD);
    }

    /// The same, and loads the library for a program that has no use for it by itself.
    pub fn load(&self) {
        self.find_with(0);
    }

    fn find_with(&self, flags: c_int) {
        // SAFETY: names are C strings. What is found stays: the library is linked so that it is never unloaded.
        let found = unsafe {
            let library = libc::dlopen(OURS.as_ptr(), libc::RTLD_NOW | flags);
            if library.is_null() {
                return;
            }
            libc::dlvsym(library, self.name.as_ptr(), VERSION.as_ptr())
        };
        self.address.store(found, Ordering::Release);
    }
}
