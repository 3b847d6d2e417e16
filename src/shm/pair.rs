//! Rings between two processes that have found each other by themselves, without a [`ShmLink`](crate::ShmLink): records with
//! a note of any meaning. `softrnic-fabric-link` has a pair between a NIC and the network that it is on.
//!
//! Each side makes [`Segment`] and [`Bells`], passes the descriptors to the other one, and [joins](Pair::join) them with
//! what it was given.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use softrnic_link::Sleeper;

use super::connection::PeerBells;
use super::handshake;
use super::header::Sleep;
use super::ring::{Corrupt, NoRoom, Rings};
use super::segment::{MAX_CAPACITY, Own, Peer};

pub use super::ring::MAX_DATAGRAM;

/// Bytes of a [`Note`].
pub const NOTE_LEN: usize = super::ring::NOTE_LEN;

/// What travels beside a datagram.
pub type Note = [u8; NOTE_LEN];

/// Why nothing can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The peer has to read first, and rings when it has.
    Full,
    /// The peer violates the protocol of the rings: the pair is of no use any more.
    Corrupt,
}

/// The peer violates the protocol of the rings: the pair is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl From<Corrupt> for Broken {
    fn from(_: Corrupt) -> Broken {
        Broken
    }
}

/// The memory that this process writes and the peer reads, and its descriptor.
pub struct Segment {
    own: Own,
    file: OwnedFd,
}

impl Segment {
    /// As large as rings are.
    ///
    /// # Errors
    /// The kernel has no such memory.
    pub fn new() -> io::Result<Segment> {
        let (own, file) = Own::create(MAX_CAPACITY)?;
        Ok(Segment { own, file })
    }

    /// What to pass to the peer.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The eventfds by which peers wake this process. One process has the same ones for all of its pairs.
#[derive(Debug)]
pub struct Bells(handshake::Bells);

impl Bells {
    /// Two new ones.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn new() -> io::Result<Bells> {
        Ok(Bells(handshake::Bells::new()?))
    }

    /// Those that a peer has passed.
    pub fn given(thread: OwnedFd, caller: OwnedFd) -> Bells {
        Bells(handshake::Bells { thread, caller })
    }

    /// What to pass to peers: the bell that a thread waits for beside others, and that on which a caller blocks.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.0.thread.as_fd(), self.0.caller.as_fd()]
    }

    /// Where a caller blocks.
    pub fn caller(&self) -> RawFd {
        self.0.caller.as_raw_fd()
    }

    /// Takes note of the thread's bell.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0.thread, &mut [0; 8]);
    }

    /// Rings the own bell, so that whoever sleeps takes what others have left behind.
    pub fn ring_own(&self, sleeper: Sleeper) {
        let bell = match sleeper {
            Sleeper::Nobody => return,
            Sleeper::Thread => &self.0.thread,
            Sleeper::Caller => &self.0.caller,
        };
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Both directions between this process and a peer.
pub struct Pair {
    rings: Rings,
    bells: PeerBells,
    sleep: Sleep,
}

impl Pair {
    /// # Errors
    /// What the peer gave is not what it should be.
    pub fn join(own: Segment, segment: &OwnedFd, bells: Bells) -> io::Result<Pair> {
        let rings = Rings::new(own.own, Peer::map(segment)?);
        Ok(Pair { rings, bells: PeerBells::new(bells.0)?, sleep: Sleep::NONE })
    }

    /// Finds room for one datagram of at most [`MAX_DATAGRAM`] bytes, which [`slot`](Pair::slot) then is.
    ///
    /// # Errors
    /// See [`Refused`].
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<(), Refused> {
        self.rings.reserve(len).map_err(|error| match error {
            NoRoom::Full => Refused::Full,
            NoRoom::Corrupt(_) => Refused::Corrupt,
        })
    }

    /// What was reserved last, with stale contents.
    #[inline]
    pub fn slot(&mut self, note: &Note) -> &mut [u8] {
        self.rings.slot_with(note)
    }

    /// The datagram that was reserved last.
    pub fn reserved(&self) -> &[u8] {
        self.rings.reserved()
    }

    /// Queues what was reserved.
    #[inline]
    pub fn commit(&mut self) {
        self.rings.commit();
    }

    /// Lets the peer see what is queued. One that sleeps does not.
    pub fn show(&mut self) {
        self.rings.show();
    }

    /// Lets the peer see what is queued, and wakes it.
    pub fn flush(&mut self) {
        if let Some(sleep) = self.rings.flush() {
            self.bells.ring(sleep);
        }
    }

    /// Takes the next datagram into `buffer`; returns its length and its note.
    ///
    /// # Errors
    /// See [`Broken`].
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8; MAX_DATAGRAM]) -> Result<Option<(usize, Note)>, Broken> {
        Ok(self.rings.take(buffer)?)
    }

    /// Whether so much was read that the peer should know, although there is more.
    pub fn has_read_much(&self) -> bool {
        self.rings.has_read_much()
    }

    /// Tells the peer what was read.
    pub fn publish_head(&mut self) {
        if let Some(sleep) = self.rings.publish_head() {
            self.bells.ring(sleep);
        }
    }

    /// Bytes that the peer has read, as far as we know.
    pub fn read_by_peer(&self) -> u64 {
        self.rings.read_by_peer()
    }

    /// Whether nothing has come, and the peer knows what was read.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.rings.is_quiet()
    }

    /// The peer rings for what it sends from now on. Returns whether something has come before.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn sleep(&mut self, sleeper: Sleeper) -> Result<bool, Broken> {
        self.publish_head();
        self.sleep = self.sleep.next(sleeper);
        Ok(self.rings.sleep(self.sleep)?)
    }

    /// This process is awake: the peer need not ring.
    pub fn wake(&mut self) {
        self.rings.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends, as two processes would have them.
    fn ends() -> [Pair; 2] {
        let copy = |file: BorrowedFd<'_>| file.try_clone_to_owned().expect("a descriptor");
        let [left, right] = [(); 2].map(|()| Segment::new().expect("shared memory"));
        let [left_bells, right_bells] = [(); 2].map(|()| Bells::new().expect("descriptors"));
        let given = |bells: &Bells| {
            let [thread, caller] = bells.files().map(copy);
            Bells::given(thread, caller)
        };
        let (left_file, right_file) = (copy(left.file()), copy(right.file()));
        [
            Pair::join(left, &right_file, given(&right_bells)).expect("a segment and bells"),
            Pair::join(right, &left_file, given(&left_bells)).expect("a segment and bells"),
        ]
    }

    #[test]
    fn a_datagram_arrives_with_its_note() {
        let [mut left, mut right] = ends();
        let mut buffer = [0; MAX_DATAGRAM];
        for len in [0, 20, 4096] {
            let note = std::array::from_fn(|i| (i + len) as u8);
            left.reserve(len).expect("room");
            left.slot(&note).fill(len as u8);
            left.commit();
            left.flush();
            assert_eq!(right.receive(&mut buffer), Ok(Some((len, note))));
            assert!(buffer[..len].iter().all(|byte| *byte == len as u8));
            right.publish_head();
        }
        assert_eq!(right.receive(&mut buffer), Ok(None));
    }

    #[test]
    fn a_descriptor_that_is_no_eventfd_is_refused() {
        let [left, right] = [(); 2].map(|()| Segment::new().expect("shared memory"));
        let copy = || right.file().try_clone_to_owned().expect("a descriptor");
        assert!(Pair::join(left, &copy(), Bells::given(copy(), copy())).is_err());
    }
}
