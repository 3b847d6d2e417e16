//! Watching descriptors by number: they belong to links below, and may be closed by now.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Changes what an epoll instance watches (`epoll_ctl(2)`).
///
/// # Errors
/// The kernel's: a descriptor that is closed is one.
pub fn epoll_ctl(epoll: impl AsFd, operation: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: data };
    // SAFETY: the event lives through the call, which reads it.
    match unsafe { libc::epoll_ctl(epoll.as_fd().as_raw_fd(), operation, fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
