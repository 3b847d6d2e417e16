//! A lock that one call of the application takes and another one releases.

use std::cell::UnsafeCell;

/// A mutex without a guard.
pub(crate) struct RawMutex(UnsafeCell<libc::pthread_mutex_t>);

impl RawMutex {
    pub const fn new() -> RawMutex {
        RawMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Waits for the lock. It must not move from now on: it is inside an object, which does not move.
    pub fn lock(&self) {
        // SAFETY: initialised in `new`, and inside an object that does not move once the application has it.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// Releases the lock, which the caller holds.
    pub fn unlock(&self) {
        // SAFETY: as in `lock`. This thread holds it: the application ends what it has started on the same thread.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}
