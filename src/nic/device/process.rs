//! Identifies the current process without a system call and without a lock.
//!
//! The number is on a page that the kernel zeroes in every child, however the child was created (`MADV_WIPEONFORK`).
//! After a fork through the C library, [`fork`](super::fork) has put the child in order, and writes the next number. A
//! child created behind the C library's back reads 0, and so knows that it must not touch a lock.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use softrnic_mapping::Mapping;

/// A process, distinct from its ancestors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process(u32);

/// The last number in this line of processes. The current number is here too, until there is a page for it.
static LAST: AtomicU32 = AtomicU32::new(1);

static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const LAST).cast_mut());

impl Process {
    /// This process.
    #[inline]
    pub fn current() -> Process {
        // SAFETY: the address of `LAST`, or of a page that `watch` has mapped and that is never unmapped.
        Process(unsafe { &*NUMBER.load(Ordering::Acquire) }.load(Ordering::Relaxed))
    }

    /// Whether its locks can be trusted. They cannot in a child that was created without the fork handlers.
    #[inline]
    pub fn is_in_order(self) -> bool {
        self.0 != 0
    }

    /// Different from the number of each ancestor.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Detects children from now on. Without a page, only those whose fork runs the handlers.
pub(super) fn watch() {
    let length = size_of::<AtomicU32>();
    let Ok(page) = Mapping::anonymous(length) else { return };
    let page: *mut AtomicU32 = page.leak().as_ptr().cast();
    // SAFETY: the page just mapped, which nothing uses yet; a child finds it zeroed. Kernels before 4.14 refuse.
    unsafe { libc::madvise(page.cast(), length, libc::MADV_WIPEONFORK) };
    // SAFETY: the start of the page, which is never unmapped, and which is only used as an atomic.
    unsafe { &*page }.store(LAST.load(Ordering::Relaxed), Ordering::Relaxed);
    NUMBER.store(page, Ordering::Release);
}

/// The child of a fork has been put in order.
pub(super) fn begin_child() {
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: as in `current`.
    unsafe { &*NUMBER.load(Ordering::Acquire) }.store(number, Ordering::Relaxed);
}
