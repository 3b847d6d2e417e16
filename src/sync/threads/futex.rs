//! An atomic word that threads can wait on.

use std::ops::Deref;

#[cfg(not(loom))]
use rustix::thread::futex::{self, Flags};

use crate::atomics::atomic::AtomicU32;

/// A 32-bit atomic, on a cache line of its own, on which threads can sleep while it has a given value.
#[repr(align(64))]
pub(super) struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    bucket: crate::atomics::Mutex<()>,
    #[cfg(loom)]
    sleepers: crate::atomics::Condvar,
}

impl Deref for Futex {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(not(loom))]
impl Futex {
    pub(super) fn new(value: u32) -> Futex {
        Futex { word: AtomicU32::new(value) }
    }

    /// Sleeps until woken, unless the word differs from `expected`. May return early; check again.
    pub(super) fn wait(&self, expected: u32) {
        // Errors (EAGAIN, EINTR) mean "check again".
        let _ = futex::wait(&self.word, Flags::PRIVATE, expected, None);
    }

    /// Wakes one sleeper, if there is one.
    pub(super) fn wake_one(&self) {
        let _ = futex::wake(&self.word, Flags::PRIVATE, 1);
    }

    /// Wakes all sleepers.
    pub(super) fn wake_all(&self) {
        let _ = futex::wake(&self.word, Flags::PRIVATE, i32::MAX as u32);
    }
}

/// The kernel's promise, as a model: comparing and falling asleep are one step, which no wake-up can miss.
#[cfg(loom)]
impl Futex {
    pub(super) fn new(value: u32) -> Futex {
        Futex {
            word: AtomicU32::new(value),
            bucket: crate::atomics::Mutex::new(()),
            sleepers: crate::atomics::Condvar::new(),
        }
    }

    pub(super) fn wait(&self, expected: u32) {
        let bucket = self.bucket.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.word.load(std::sync::atomic::Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(bucket));
        }
    }

    pub(super) fn wake_one(&self) {
        let _bucket = self.bucket.lock();
        self.sleepers.notify_one();
    }

    pub(super) fn wake_all(&self) {
        let _bucket = self.bucket.lock();
        self.sleepers.notify_all();
    }
}
