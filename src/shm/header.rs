//! The words at the start of a segment, which its owner writes and the peer reads: how far each has come, and whether
//! it sleeps.
//!
//! # Why no wake-up is lost
//!
//! The writer of a record (or the reader that makes room) stores its index, then loads the peer's `sleeps`. A side that
//! is about to sleep stores `sleeps`, then loads the peer's index once more. A sequentially consistent fence separates
//! the two steps on each side, so at least one side sees the other's store: either the bell rings, or the sleeper stays
//! awake. Each sleep has its own number, so that it is rung for once. Whoever takes note of the bell while the sleeper
//! sleeps on gives the sleep a new number. The number also says which of the owner's bells is to be rung.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use softrnic_link::Sleeper;

/// See the [module](self). Each word has a cache line, since its owner writes one while the peer reads another.
#[repr(C)]
pub(super) struct Header {
    shown: Line<Shown>,
    /// Bytes of the peer's records that the owner has read, of all time.
    head: Line<AtomicU64>,
    /// The owner's [`Sleep`]; 0 while it is awake.
    sleeps: Line<AtomicU32>,
    /// The owner cannot go on until the peer has read.
    waits: Line<AtomicU32>,
}

#[repr(C, align(64))]
struct Line<T>(T);

/// What the owner has shown.
#[repr(C)]
struct Shown {
    /// Bytes of records, of all time.
    tail: AtomicU64,
    /// Where the records last began at the front again. What is before was read.
    start: AtomicU64,
}

/// A sleep of a segment's owner, with a number that is not 0 and not that of its last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sleep(u32);

impl Sleep {
    /// Set if the owner's [`Sleeper`] is a caller.
    const CALLER: u32 = 1 << 31;

    /// What a broken peer may say.
    #[cfg(feature = "fuzz")]
    pub fn forged(word: u32) -> Sleep {
        Sleep(word)
    }

    /// Before the first.
    pub const NONE: Sleep = Sleep(0);

    /// The one after this.
    pub fn next(self, sleeper: Sleeper) -> Sleep {
        let number = match self.0 & !Sleep::CALLER {
            last if last < Sleep::CALLER - 1 => last + 1,
            _ => 1,
        };
        Sleep(number | if sleeper == Sleeper::Caller { Sleep::CALLER } else { 0 })
    }

    /// Whether a caller sleeps, and not the progress thread.
    pub fn is_callers(self) -> bool {
        self.0 & Sleep::CALLER != 0
    }
}

impl Header {
    /// How far the owner's records go.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.shown.0.tail.load(Ordering::Acquire)
    }

    /// Where the owner's records last began again, as of the [`tail`](Header::tail) seen before.
    #[inline]
    pub fn start(&self) -> u64 {
        self.shown.0.start.load(Ordering::Relaxed)
    }

    /// The owner's records begin again here. Shown with the next of them.
    pub fn begin_at(&self, start: u64) {
        self.shown.0.start.store(start, Ordering::Relaxed);
    }

    /// How far the owner has read.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Shows the owner's records up to here. It is to ask [`Header::to_be_woken`] of the peer in the end.
    #[inline]
    pub fn show(&self, tail: u64) {
        self.shown.0.tail.store(tail, Ordering::Release);
    }

    /// Publishes how far the owner has read, and returns the peer's sleep if it waited for that in it.
    pub fn publish_head(&self, head: u64, peer: &Header, rung: &mut Sleep) -> Option<Sleep> {
        self.head.0.store(head, Ordering::Release);
        fence(Ordering::SeqCst);
        if peer.waits.0.load(Ordering::Relaxed) == 0 { None } else { peer.to_be_woken(rung) }
    }

    /// Asked after [`Header::show`]: the sleep of the owner, if its bell was not rung for that; `rung` is the sleep for
    /// which it was the last time.
    #[inline]
    pub fn to_be_woken(&self, rung: &mut Sleep) -> Option<Sleep> {
        fence(Ordering::SeqCst);
        let sleep = Sleep(self.sleeps.0.load(Ordering::Relaxed));
        (sleep != Sleep::NONE && std::mem::replace(rung, sleep) != sleep).then_some(sleep)
    }

    /// The owner is about to sleep; it looks at the peer's indices after this.
    pub fn sleep(&self, sleep: Sleep) {
        self.sleeps.0.store(sleep.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn wake(&self) {
        self.sleeps.0.store(0, Ordering::Relaxed);
    }

    /// The owner waits for room, or does not any more; it looks at the peer's head after this.
    pub fn wait(&self, waits: bool) {
        self.waits.0.store(waits.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
#[path = "header/loom_tests.rs"]
mod loom_tests;
