//! The timers of a QP, as data.

use softrnic_wire::Time;

/// When each timer fires; never, if it does not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// The local ACK timeout (IBTA 9.7.6.1.3).
    pub ack: Time,
    /// Early resending, before the local ACK timeout.
    pub early: Time,
    /// The delay that an RNR NAK asked for.
    pub rnr: Time,
    /// When rate control admits the next packet.
    pub pace: Time,
    /// The next rate increase.
    pub rate: Time,
}

impl Timers {
    /// None of them runs.
    pub const STOPPED: Timers = Timers {
        ack: Time::NEVER,
        early: Time::NEVER,
        rnr: Time::NEVER,
        pace: Time::NEVER,
        rate: Time::NEVER,
    };

    /// The earliest of them.
    pub fn next(&self) -> Time {
        self.ack.min(self.early).min(self.rnr).min(self.pace).min(self.rate)
    }
}

/// Stops a timer that is due; `false` if it is not.
pub(crate) fn take_due(timer: &mut Time, now: Time) -> bool {
    let due = *timer <= now;
    if due {
        *timer = Time::NEVER;
    }
    due
}

/// When a local ACK timeout that starts now ends: 4.096 µs × 2^code; never for code 0.
pub(crate) fn ack_timeout(now: Time, code: u8) -> Time {
    match code {
        0 => Time::NEVER,
        _ => now.after_nanos(4096 << code.min(31)),
    }
}
