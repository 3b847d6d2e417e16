//! When an unanswered message is sent again, and when to give up.

use alloc::boxed::Box;
use core::time::Duration;

use softrnic_wire::{MAD_LEN, Time};

/// The delay before the first early repeat; each further one comes after twice the time.
const FIRST_EARLY: Duration = Duration::from_millis(50);

/// A message that waits for its answer.
///
/// The standard interval is several seconds, which is long if a datagram was just lost. So there are early repeats too,
/// at growing intervals, until the standard interval is reached. Peers tolerate that: they answer a message that they
/// know already with an MRA, or not at all. An MRA says that the peer is alive and its application is deciding; no
/// early repeat follows it.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    bytes: Box<[u8; MAD_LEN]>,
    interval: Duration,
    /// Standard repeats left.
    left: u8,
    next_standard: Time,
    /// The next early repeat, and the gap that led to it.
    early: Option<(Time, Duration)>,
    /// The peer has asked for time until then (MRA).
    postponed_until: Time,
}

/// What to do when a [`Repeat`] is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Not yet.
    Nothing,
    /// Send it again.
    Again,
    /// The peer does not answer.
    GiveUp,
}

impl Repeat {
    pub fn new(now: Time, bytes: Box<[u8; MAD_LEN]>, interval: Duration, retries: u8) -> Repeat {
        let early = (FIRST_EARLY < interval).then(|| (now + FIRST_EARLY, FIRST_EARLY));
        let postponed_until = Time::ZERO;
        Repeat { bytes, interval, left: retries, next_standard: now + interval, early, postponed_until }
    }

    pub fn bytes(&self) -> &[u8; MAD_LEN] {
        &self.bytes
    }

    /// When to call [`Repeat::on_time`] next.
    pub fn next(&self) -> Time {
        self.early.map_or(self.next_standard, |(at, _)| at.min(self.next_standard))
    }

    /// The peer has the message, and may take this long to answer.
    pub fn postpone(&mut self, now: Time, extension: Duration) {
        self.early = None;
        self.postponed_until = self.postponed_until.max(now + extension);
    }

    /// Sends no further standard repeat.
    pub fn end_after_this_interval(&mut self) {
        self.left = 0;
        self.postponed_until = Time::ZERO;
    }

    pub fn on_time(&mut self, now: Time) -> Due {
        if now >= self.next_standard {
            if self.left == 0 {
                if now >= self.postponed_until {
                    return Due::GiveUp;
                }
                self.next_standard = self.postponed_until;
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
