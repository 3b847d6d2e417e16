//! The functions that would be called without this library.

use std::ffi::{CStr, c_int, c_void};
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
    #[inline]
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string. (Two threads may both look it up, and find the same.)
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }
}

/// Has the loader look a function up when the library is loaded. `dlsym` takes a lock and more stack than a signal
/// handler may have, so it should not wait for the first call.
macro_rules! next {
    ($name:ident, $type:ty) => {{
        static NEXT: crate::next::Next =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => crate::next::Next::new(name),
                Err(_) => unreachable!(),
            };
        extern "C" fn find() {
            NEXT.address();
        }
        #[used]
        // SAFETY: the dynamic linker calls what is in this section, functions of this type, before the program starts.
        #[unsafe(link_section = ".init_array")]
        static FIND: extern "C" fn() = find;
        let next = NEXT.address();
        // SAFETY: found under the name whose type in the C library this is; each use of the macro names both.
        (!next.is_null()).then(|| unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(next) })
    }};
}
pub(crate) use next;

/// The result of a function that no later library defines, or of one that has failed.
pub trait Failed {
    /// -1 or null.
    const VALUE: Self;
}

impl Failed for i32 {
    const VALUE: i32 = -1;
}

impl Failed for i64 {
    const VALUE: i64 = -1;
}

impl Failed for isize {
    const VALUE: isize = -1;
}

impl Failed for () {
    const VALUE: () = ();
}

impl<T> Failed for *mut T {
    const VALUE: *mut T = std::ptr::null_mut();
}

/// Fails a call.
#[cold]
pub fn fail<T: Failed>(errno: c_int) -> T {
    // SAFETY: the location belongs to this thread and is always valid.
    unsafe { *libc::__errno_location() = errno };
    T::VALUE
}
