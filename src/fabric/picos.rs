//! Time in picoseconds: a byte at 400 Gb/s takes 20 of them, and no whole nanosecond.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point or a span of virtual time, in picoseconds; 64 bits last for 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// The origin.
    pub const ZERO: Picos = Picos(0);
    /// Later than any event.
    pub const NEVER: Picos = Picos(u64::MAX);

    /// A number of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(1000))
    }

    /// A number of microseconds.
    pub const fn from_micros(micros: u64) -> Picos {
        Picos::from_nanos(micros.saturating_mul(1000))
    }

    /// Whole nanoseconds, rounded up: an event is never seen before it happens.
    pub const fn as_nanos_ceil(self) -> u64 {
        self.0.div_ceil(1000)
    }

    /// Seconds, for output.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// How long `bytes` take at `rate` bits per second, rounded up.
    ///
    /// # Panics
    /// If `rate` is 0.
    pub const fn of_bytes(bytes: u64, rate: u64) -> Picos {
        Picos((bytes as u128 * 8 * 1_000_000_000_000).div_ceil(rate as u128) as u64)
    }

    /// The bytes that pass at `rate` bits per second in this time, rounded up.
    pub const fn bytes_at(self, rate: u64) -> u64 {
        (self.0 as u128 * rate as u128).div_ceil(8 * 1_000_000_000_000) as u64
    }
}

impl From<Duration> for Picos {
    fn from(duration: Duration) -> Picos {
        Picos(u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX))
    }
}

impl Add for Picos {
    type Output = Picos;

    fn add(self, other: Picos) -> Picos {
        Picos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Picos) {
        *self = *self + other;
    }
}

impl Sub for Picos {
    type Output = Picos;

    /// The time between two points; zero if the second is later.
    fn sub(self, other: Picos) -> Picos {
        Picos(self.0.saturating_sub(other.0))
    }
}
