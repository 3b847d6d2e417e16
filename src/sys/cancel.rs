//! Protects a thread from cancellation.

use std::ffi::c_int;
use std::marker::PhantomData;

// The values are glibc's and musl's; `libc` has neither them nor the function.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// While it lives, cancellation of this thread is deferred.
///
/// A cancelled thread is unwound by force, at any call that is a cancellation point of the C library. Rust's locks and
/// destructors on the way are not made for that.
pub struct Uncancelled {
    before: c_int,
    /// The state belongs to this thread.
    _thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Defers cancellation from now on.
    pub fn new() -> Uncancelled {
        let mut before = PTHREAD_CANCEL_ENABLE;
        // SAFETY: changes only this thread's state, and writes the previous one to a local variable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled { before, _thread: PhantomData }
    }
}

impl Default for Uncancelled {
    fn default() -> Uncancelled {
        Uncancelled::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: restores this thread's state, as `new` found it: the value cannot be sent to another thread. Enabling
        // is not a cancellation point by itself while the thread's type is deferred, as usual; with the other type,
        // POSIX allows no library calls at all.
        unsafe { pthread_setcancelstate(self.before, &mut 0) };
    }
}
