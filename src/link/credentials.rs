//! Who is at the other side of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Of the process that connected, or that listened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its number; 0 if it is in another PID namespace, as in another container of a pod.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

impl Credentials {
    /// Those of the peer of a Unix socket (`SO_PEERCRED`, unix(7)).
    ///
    /// Not by `rustix`, whose type for a process has no number 0.
    ///
    /// # Errors
    /// It is no such socket, or not connected.
    pub fn of_peer(socket: impl AsFd) -> io::Result<Credentials> {
        let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let (of, into) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
        // SAFETY: the kernel writes at most `length` bytes to `found`; both live through the call.
        match unsafe { libc::getsockopt(of, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length) } {
            0 => Ok(Credentials { pid: found.pid, uid: found.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether it is a process of this process's user.
    pub fn are_ours(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}
