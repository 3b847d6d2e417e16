//! One descriptor that is readable once a datagram has arrived.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The socket itself, or an epoll instance over several.
///
/// An epoll instance has a callback for every frame, in either direction and whether or not a thread waits, which takes
/// a quarter of the time of sending a small frame. So a single socket is used without epoll, and nothing waits for room
/// to send: sending is tried again after a while.
pub(super) enum Readiness {
    One(RawFd),
    Several(OwnedFd),
}

impl Readiness {
    /// Watches `sockets`, which must outlive this.
    pub(super) fn new(sockets: &[RawFd]) -> io::Result<Readiness> {
        if let [socket] = sockets {
            return Ok(Readiness::One(*socket));
        }
        // SAFETY: takes no pointers; the descriptor is new and has no other owner.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        for socket in sockets {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: *socket as u64 };
            // SAFETY: the event lives through the call, which reads it.
            let added =
                unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, *socket, &raw mut event) };
            if added < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Readiness::Several(epoll))
    }

    pub(super) fn descriptor(&self) -> RawFd {
        match self {
            Readiness::One(socket) => *socket,
            Readiness::Several(epoll) => epoll.as_raw_fd(),
        }
    }
}
