//! When an unanswered message is sent again, and when that ends.

use alloc::boxed::Box;
use core::time::Duration;

use softrnic_wire::{MAD_LEN, Time};

/// The first early repeat comes after this, each further one after twice the time.
const FIRST_EARLY: Duration = Duration::from_millis(50);

/// A message that waits for its answer.
///
/// The standard interval is seconds, which is long for a datagram that was only lost. So it is repeated early as
/// well, ever more seldom, until the standard interval would be reached. Peers tolerate that: what they know already
/// they answer with an MRA, or not at all. An MRA says that the peer is alive and its application thinks; no early
/// repeat follows it.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    bytes: Box<[u8; MAD_LEN]>,
    interval: Duration,
    /// Standard repeats that are left.
    left: u8,
    next_standard: Time,
    /// The next early repeat, and the gap that led to it.
    early: Option<(Time, Duration)>,
    /// The peer has asked for patience until then.
    patience: Time,
}

/// What to do when the time of a [`Repeat`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Not yet.
    Nothing,
    /// Send it again.
    Again,
    /// Nobody answers.
    GiveUp,
}

impl Repeat {
    pub fn new(now: Time, bytes: Box<[u8; MAD_LEN]>, interval: Duration, retries: u8) -> Repeat {
        let early = (FIRST_EARLY < interval).then(|| (now + FIRST_EARLY, FIRST_EARLY));
        let patience = Time::ZERO;
        Repeat { bytes, interval, left: retries, next_standard: now + interval, early, patience }
    }

    pub fn bytes(&self) -> &[u8; MAD_LEN] {
        &self.bytes
    }

    /// When to look again.
    pub fn next(&self) -> Time {
        self.early.map_or(self.next_standard, |(at, _)| at.min(self.next_standard))
    }

    /// The peer has the message, and may take this long to answer.
    pub fn postpone(&mut self, now: Time, patience: Duration) {
        self.early = None;
        self.patience = self.patience.max(now + patience);
    }

    /// No standard repeat follows.
    pub fn end_after_this_interval(&mut self) {
        self.left = 0;
        self.patience = Time::ZERO;
    }

    pub fn on_time(&mut self, now: Time) -> Due {
        if now >= self.next_standard {
            if self.left == 0 {
                if now >= self.patience {
                    return Due::GiveUp;
                }
                self.next_standard = self.patience;
                return Due::Nothing;
            }
            self.left -= 1;
            self.next_standard = now + self.interval;
            self.early = None;
            return Due::Again;
        }
        match self.early {
            Some((at, gap)) if now >= at => {
                let next = now + gap * 2;
                self.early = (next < self.next_standard).then_some((next, gap * 2));
                Due::Again
            }
            _ => Due::Nothing,
        }
    }
}
