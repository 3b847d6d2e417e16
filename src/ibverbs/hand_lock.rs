//! A lock that one call of the application takes and another gives back.

use std::cell::UnsafeCell;

/// A mutex without a guard.
pub(crate) struct HandLock(UnsafeCell<libc::pthread_mutex_t>);

impl HandLock {
    pub const fn new() -> HandLock {
        HandLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Waits for the lock. It must not move from now on: it is inside an object, which does not.
    pub fn lock(&self) {
        // SAFETY: an initialised mutex that stays where it is.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// Gives the lock back, which the caller has taken.
    pub fn unlock(&self) {
        // SAFETY: an initialised mutex that stays where it is.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}
