//! A name at which other processes connect: that of an address, or of the lifelines of a process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use softrnic_link::Backlog;
use softrnic_sys::{Credentials, unix};

/// Those that are let in at a time. Any user can connect, without end.
pub const ROUND: usize = 16;

/// The listener, and those that were accepted and are not let in yet.
pub struct Listener {
    socket: OwnedFd,
    accepted: Mutex<Accepted>,
}

#[derive(Default)]
struct Accepted {
    streams: Vec<OwnedFd>,
    /// Whether others may wait.
    more: bool,
}

impl Listener {
    pub fn new(socket: OwnedFd) -> Listener {
        Listener { socket, accepted: Mutex::default() }
    }

    /// Those of this user that were accepted since the last call, and whether others may wait.
    pub fn take(&self) -> (Vec<OwnedFd>, bool) {
        let mut accepted = self.accepted();
        (std::mem::take(&mut accepted.streams), std::mem::take(&mut accepted.more))
    }

    fn accepted(&self) -> MutexGuard<'_, Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog for Listener {
    fn accept_some(&self) {
        // One thread at a time accepts, and `take` runs in the same one.
        let mut accepted = self.accepted();
        accepted.more = false;
        for _ in 0..ROUND {
            let Ok(stream) = unix::accept(&self.socket) else { return };
            if Credentials::of_peer(&stream).is_ok_and(Credentials::are_ours) {
                accepted.streams.push(stream);
            }
        }
        accepted.more = true;
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
