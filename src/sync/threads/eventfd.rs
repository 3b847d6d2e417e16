//! An eventfd, written and emptied without cancellation points.

#[cfg(not(loom))]
pub(crate) use real::{EventFd, wait_for_token};

#[cfg(loom)]
pub(crate) use model::EventFd;

#[cfg(not(loom))]
mod real {
    use std::ffi::{c_int, c_void};
    use std::io::{self, IoSliceMut};
    use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, RawFd};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::ReadWriteFlags;

    /// A kernel counter with a descriptor of its own: readable while it is not zero.
    #[derive(Debug)]
    pub(crate) struct EventFd(RawFd);

    impl EventFd {
        /// Creates one with count 0 and these flags, besides [`EventfdFlags::CLOEXEC`].
        pub(crate) fn new(flags: EventfdFlags) -> io::Result<EventFd> {
            Ok(EventFd(eventfd(0, flags | EventfdFlags::CLOEXEC)?.into_raw_fd()))
        }

        /// Adds 1. In practice it cannot fail or block: that takes a count of 2^64 - 2.
        pub(crate) fn add_one(&self) {
            let _ = rustix::io::write(self, &1u64.to_ne_bytes());
        }

        /// Sets the count of a plain, non-blocking counter to 0.
        pub(crate) fn empty(&self) {
            let _ = rustix::io::read(self, &mut [0u8; 8]);
        }

        /// Takes 1 from a semaphore; false if the count was 0. Never sleeps, whether or not the application has set
        /// `O_NONBLOCK`.
        pub(crate) fn try_take(&self) -> bool {
            const CURRENT_POSITION: u64 = u64::MAX;
            let mut count = [0u8; 8];
            let into = &mut [IoSliceMut::new(&mut count)];
            rustix::io::preadv2(self, into, CURRENT_POSITION, ReadWriteFlags::NOWAIT) == Ok(8)
        }
    }

    /// Takes 1 from the semaphore with this descriptor, and waits for it unless the descriptor is non-blocking.
    ///
    /// A cancellation point: call it with no lock held.
    pub(crate) fn wait_for_token(fd: RawFd) -> io::Result<()> {
        let mut token = 0u64;
        // SAFETY: the kernel writes at most the 8 bytes of `token`. If the thread is cancelled, unwinding passes
        // through this frame, which has nothing to drop.
        let read = unsafe { read(fd, (&raw mut token).cast(), size_of::<u64>()) };
        if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    unsafe extern "C-unwind" {
        /// `read`, declared as what it is in a thread that can be cancelled: a function that may unwind.
        fn read(fd: c_int, buffer: *mut c_void, len: usize) -> isize;
    }

    impl AsFd for EventFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // SAFETY: the descriptor is closed when `self` is dropped. (For `Tokens` it is left open for the
            // application.)
            unsafe { BorrowedFd::borrow_raw(self.0) }
        }
    }

    impl Drop for EventFd {
        fn drop(&mut self) {
            // SAFETY: takes no pointers; the descriptor is owned by this value, which is being dropped. (`close` is a
            // cancellation point.)
            unsafe { libc::syscall(libc::SYS_close, self.0) };
        }
    }
}

/// A plain counter. In models, a thread sleeps on it by waiting until all other threads are done.
#[cfg(loom)]
mod model {
    use crate::atomics::atomic::{AtomicU64, Ordering};

    pub(crate) struct EventFd(AtomicU64);

    #[cfg_attr(not(test), expect(dead_code, reason = "only the models make one"))]
    impl EventFd {
        pub(crate) fn model() -> EventFd {
            EventFd(AtomicU64::new(0))
        }

        pub(crate) fn add_one(&self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }

        pub(crate) fn empty(&self) {
            self.0.swap(0, Ordering::AcqRel);
        }

        pub(crate) fn is_readable(&self) -> bool {
            self.0.load(Ordering::Acquire) > 0
        }
    }
}
