//! Keeping a thread from being cancelled.

use std::ffi::c_int;
use std::marker::PhantomData;

// The values are glibc's and musl's; `libc` has neither them nor the function.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// While it lives, a cancellation of this thread waits.
///
/// A cancelled thread unwinds by force, at any call that the C library makes a cancellation point. What it meets on
/// the way, locks and destructors of Rust, was not made for that.
pub struct Uncancelled {
    before: c_int,
    /// It is the state of this thread.
    _thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Holds cancellations back from now on.
    pub fn new() -> Uncancelled {
        let mut before = PTHREAD_CANCEL_ENABLE;
        // SAFETY: changes the state of this thread alone, and writes the one before to a variable of ours.
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
        // SAFETY: this thread's state again, which `new` found: the value cannot be sent to another. Enabling is no
        // cancellation point by itself, as long as the thread's type is the usual deferred one; with the other POSIX
        // allows no library calls at all.
        unsafe { pthread_setcancelstate(self.before, &mut 0) };
    }
}
