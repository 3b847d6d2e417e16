//! One connection: two rings to and from a peer, the bell to wake it by, and the stream whose end is its end.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::readlink;

use softrnic_wire::Time;

use super::handshake::{Bells, Endpoint, Shared};
use super::header::Sleep;
use super::ring::{Corrupt, Rings};
use super::segment::{Own, Peer};

/// A peer that has not read anything for this long gets a last chance, and then is not waited for any more.
pub(super) const STALLED: Duration = Duration::from_millis(500);
/// The last chance: both may have been stopped, and we may be the first to go on.
const LAST_CHANCE: Duration = Duration::from_millis(100);

/// A connection that datagrams travel on.
pub(super) struct Connection {
    pub peer: Endpoint,
    pub rings: Rings,
    bells: PeerBells,
    pub stream: OwnedFd,
    /// Datagrams sent and received.
    pub sent: u64,
    pub received: u64,
    /// The peer looks at ICRCs.
    pub peer_asks_for_icrcs: bool,
    /// What the peer sent on the link below before it had this connection has been received.
    pub begun_to_receive: bool,
    /// And what we sent there has left.
    pub begun_to_send: bool,
    /// The stream has ended; what is in the ring is still read.
    pub ended: bool,
    /// The peer has violated the ring protocol: the connection must be closed.
    pub corrupt: Option<Corrupt>,
    /// Something was queued since the last flush.
    pub queued: bool,
    /// The peer has no room.
    full: Option<Full>,
    /// How much had moved at the last [look](Connection::was_idle).
    moved: u64,
}

/// A peer that has no room until it reads.
#[derive(Clone, Copy)]
struct Full {
    /// How much it has read.
    read: u64,
    /// How long it is waited for.
    until: Time,
    last_chance: bool,
}

impl Connection {
    /// # Errors
    /// What the peer shares is not what it should be.
    pub fn new(peer: Endpoint, stream: OwnedFd, own: Own, shared: Shared) -> io::Result<Connection> {
        let rings = Rings::new(own, Peer::map(&shared.segment)?);
        Ok(Connection {
            peer,
            rings,
            bells: PeerBells::new(shared.bells)?,
            stream,
            sent: 0,
            received: 0,
            peer_asks_for_icrcs: shared.asks_for_icrcs,
            begun_to_receive: false,
            begun_to_send: false,
            ended: false,
            corrupt: None,
            queued: false,
            full: None,
            moved: 0,
        })
    }

    /// Shows the peer what is queued.
    pub fn flush(&mut self) {
        self.queued = false;
        if let Some(sleep) = self.rings.flush() {
            self.bells.ring(sleep);
        }
    }

    /// There is no room: until when it is waited for, and whether that begins now.
    pub fn waits_until(&mut self, now: Time) -> (Time, bool) {
        let read = self.rings.read_by_peer();
        let (full, begins) = match self.full {
            Some(full) if full.read == read && (now < full.until || full.last_chance) => (full, false),
            Some(full) if full.read == read => {
                (Full { read, until: now + LAST_CHANCE, last_chance: true }, false)
            }
            _ => (Full { read, until: now + STALLED, last_chance: false }, true),
        };
        self.full = Some(full);
        (full.until, begins)
    }

    /// Whether nothing has moved since this was last asked, and nothing waits to be read.
    pub fn was_idle(&mut self) -> bool {
        let moved = self.rings.moved();
        std::mem::replace(&mut self.moved, moved) == moved && self.rings.is_empty()
    }

    /// Whether there is nothing to receive, to show or to tell.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.queued && !self.ended && self.corrupt.is_none() && self.rings.is_quiet()
    }

    /// Tells the peer what was read.
    pub fn publish_head(&mut self) {
        if let Some(sleep) = self.rings.publish_head() {
            self.bells.ring(sleep);
        }
    }
}

/// The bells of a peer.
pub(super) struct PeerBells {
    thread: Bell,
    caller: Bell,
}

impl PeerBells {
    /// # Errors
    /// One is no eventfd.
    pub fn new(bells: Bells) -> io::Result<PeerBells> {
        Ok(PeerBells { thread: Bell::of_peer(bells.thread)?, caller: Bell::of_peer(bells.caller)? })
    }

    pub fn ring(&self, sleep: Sleep) {
        if sleep.is_callers() { self.caller.ring() } else { self.thread.ring() }
    }
}

/// An eventfd of the peer's.
struct Bell(OwnedFd);

impl Bell {
    /// Refuses what is no eventfd. A full one that blocks would stop us, and only a process of the same user, which can do
    /// that in any case, could fill it.
    fn of_peer(descriptor: OwnedFd) -> io::Result<Bell> {
        let number = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
        let kind = readlink(format!("/proc/self/fd/{number}"), Vec::new())?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(Bell(descriptor))
    }

    fn ring(&self) {
        // One that is full wakes the peer already.
        let _heard = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
