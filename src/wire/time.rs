//! Monotonic time as a plain number, so that every layer above can be driven in virtual time.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point on a monotonic clock, in nanoseconds since an origin that the caller chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than any time that a clock reaches.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// How many nanoseconds after `earlier` this is; zero if it is not after it.
    pub const fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `nanos` nanoseconds after this one.
    pub const fn after_nanos(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, delay: Duration) -> Time {
        Time(self.0.saturating_add(delay.as_nanos().min(u64::MAX as u128) as u64))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub<Time> for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}
