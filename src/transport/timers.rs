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
        [self.ack, self.early, self.rnr, self.pace, self.rate].into_iter().flatten().min()
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
