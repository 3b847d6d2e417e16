//! One descriptor that is readable when anything of the link is ready.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll instance over the sockets of all queues and the host's notifications.
pub(super) struct Readiness {
    epoll: OwnedFd,
    transmits: RawFd,
    watches_writable: bool,
}

impl Readiness {
    /// Watches `descriptors` for reading. The first, which must outlive this, can be watched for writing.
    pub(super) fn new(descriptors: &[RawFd]) -> io::Result<Readiness> {
        // SAFETY: no pointers; the descriptor is new and owned by nobody else.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let transmits = *descriptors.first().ok_or(io::ErrorKind::InvalidInput)?;
        let readiness = Readiness { epoll, transmits, watches_writable: false };
        for descriptor in descriptors {
            readiness.control(libc::EPOLL_CTL_ADD, *descriptor, libc::EPOLLIN)?;
        }
        Ok(readiness)
    }

    /// Also makes the descriptor ready, or no longer, when frames can be sent again.
    pub(super) fn set_writable(&mut self, watch: bool) {
        if watch == self.watches_writable {
            return;
        }
        let events = if watch { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        // When it fails the next flush tries again.
        if self.control(libc::EPOLL_CTL_MOD, self.transmits, events).is_ok() {
            self.watches_writable = watch;
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn control(&self, operation: libc::c_int, descriptor: RawFd, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: descriptor as u64 };
        // SAFETY: the event is alive for the duration of the call.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}
