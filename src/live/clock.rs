//! Virtual time, as the clock on the wall has it.

use std::time::{Duration, Instant};

use softrnic_fabric::Picos;

/// Virtual time since the fabric came up.
pub struct Clock {
    origin: Instant,
    /// A second of virtual time takes so many.
    slow: u32,
}

impl Clock {
    pub fn start(slow: u32) -> Clock {
        Clock { origin: Instant::now(), slow }
    }

    pub fn now(&self) -> Picos {
        // First to picoseconds: slow motion is finer than nanoseconds of the clock.
        Picos(Picos::from(self.origin.elapsed()).0 / u64::from(self.slow))
    }

    /// How long it takes until a virtual time.
    pub fn until(&self, at: Picos) -> Duration {
        let wall = u128::from(at.0) * u128::from(self.slow) / 1000;
        Duration::from_nanos(u64::try_from(wall).unwrap_or(u64::MAX)).saturating_sub(self.origin.elapsed())
    }
}
