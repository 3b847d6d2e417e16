//! A count with a descriptor that belongs to the application: readable while the count is not zero. The application
//! closes it, and may switch `O_NONBLOCK` on and off.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::EventfdFlags;

use super::eventfd::{EventFd, wait_for_token};

/// The side that counts. It must be dropped before the application closes the descriptor.
pub struct Tokens(Option<EventFd>);

impl Tokens {
    /// Zero, with a descriptor that blocks.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new() -> io::Result<Tokens> {
        EventFd::new(EventfdFlags::SEMAPHORE).map(|event| Tokens(Some(event)))
    }

    /// Adds 1.
    pub fn add_one(&self) {
        self.0.iter().for_each(EventFd::add_one);
    }

    /// Takes 1, if there is one; never waits.
    pub fn try_take(&self) -> bool {
        self.0.as_ref().is_some_and(EventFd::try_take)
    }

    /// The descriptor that the application polls.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_ref().map_or(-1, |event| event.as_fd().as_raw_fd())
    }
}

/// Leaves the descriptor open.
impl Drop for Tokens {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

/// Takes 1 through the descriptor, and waits for it unless the descriptor is non-blocking. A cancellation point: call
/// it with no lock held.
pub fn wait(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    wait_for_token(descriptor.as_raw_fd())
}

/// Another descriptor of the same count, with the same `O_NONBLOCK`; `None` if there is none free.
pub fn copy(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: `Tokens` has just made it, and the application does not have it yet.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::io::fcntl_dupfd_cloexec(descriptor, 0).ok()
}

/// Closes a descriptor whose [`Tokens`] have been dropped. Not a cancellation point.
pub fn close(descriptor: RawFd) {
    // SAFETY: takes no pointers. The application, which owns the descriptor, has given it up.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}
