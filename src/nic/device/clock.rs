//! The monotonic clock, as nanoseconds since the device was opened.

use std::time::Instant;

use softrnic_wire::Time;

/// A clock with an origin of its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts a second after zero, so that "never" and "long ago" are both before now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() - std::time::Duration::from_secs(1) }
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}
