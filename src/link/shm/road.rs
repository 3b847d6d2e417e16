//! One road: two rings to and from a peer, the bell to wake it by, and the stream whose end is its end.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlink};

use super::ring::{Corrupt, Rings};
use super::segment::{Own, Peer};

/// A road that datagrams travel on.
pub(super) struct Road {
    pub peer: IpAddr,
    pub rings: Rings,
    bell: Bell,
    pub stream: OwnedFd,
    /// What the peer sent on the link below before it had this road has been received.
    pub begun: bool,
    /// The stream has ended; what is in the ring is still read.
    pub ended: bool,
    /// The peer has written what cannot be: the road is to be closed.
    pub corrupt: Option<Corrupt>,
    /// Something was queued since the last flush.
    pub queued: bool,
}

impl Road {
    /// # Errors
    /// What the peer shares is not what it should be.
    pub fn new(
        peer: IpAddr,
        stream: OwnedFd,
        own: Own,
        segment: &OwnedFd,
        bell: OwnedFd,
    ) -> io::Result<Road> {
        let rings = Rings::new(own, Peer::map(segment)?);
        Ok(Road {
            peer,
            rings,
            bell: Bell::of_peer(bell)?,
            stream,
            begun: false,
            ended: false,
            corrupt: None,
            queued: false,
        })
    }

    /// Shows the peer what is queued.
    pub fn flush(&mut self) {
        self.queued = false;
        if self.rings.flush() {
            self.bell.ring();
        }
    }

    /// Tells the peer what was read.
    pub fn tell(&mut self) {
        if self.rings.tell() {
            self.bell.ring();
        }
    }
}

/// An eventfd of the peer's.
struct Bell(OwnedFd);

impl Bell {
    /// Takes nothing that could block the caller of [`Bell::ring`].
    fn of_peer(descriptor: OwnedFd) -> io::Result<Bell> {
        let number = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
        let kind = readlink(format!("/proc/self/fd/{number}"), Vec::new())?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        fcntl_setfl(&descriptor, fcntl_getfl(&descriptor)? | OFlags::NONBLOCK)?;
        Ok(Bell(descriptor))
    }

    fn ring(&self) {
        // Full only after 2^64 - 2 rings that were not heard.
        let _heard = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
