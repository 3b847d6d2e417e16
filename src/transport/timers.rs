//! The timers of a QP, as data.

use std::time::Duration;

use softrnic_wire::Time;

/// When each timer fires, if it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    /// The local ACK timeout of the attributes (IBTA 9.7.6.1.3).
    pub ack: Option<Time>,
    /// Resending before that.
    pub early: Option<Time>,
    /// The wait that an RNR NAK asked for.
    pub rnr: Option<Time>,
    /// The rate control lets the next packet go.
    pub pace: Option<Time>,
    /// The rate control recovers.
    pub rate: Option<Time>,
}

impl Timers {
    /// The earliest of them.
    pub fn next(&self) -> Option<Time> {
        // Not by way of `flatten`, which optimises to a comparison of times that are not there: harmless, but Valgrind
        // complains of each.
        let at = |timer: Option<Time>| timer.unwrap_or(Time::NEVER);
        let next = at(self.ack).min(at(self.early)).min(at(self.rnr)).min(at(self.pace)).min(at(self.rate));
        (next != Time::NEVER).then_some(next)
    }
}

/// Takes a timer that is due.
pub(crate) fn take_due(timer: &mut Option<Time>, now: Time) -> bool {
    let due = timer.is_some_and(|at| at <= now);
    if due {
        *timer = None;
    }
    due
}

/// Local ACK timeout: 4.096 µs × 2^code; 0 means none.
pub(crate) fn ack_timeout(code: u8) -> Option<Duration> {
    (code != 0).then(|| Duration::from_nanos(4096u64 << code.min(31)))
}
