//! The instants of scripts, as they are on a wire.

use std::time::{Duration, Instant};

/// In a script no time passes from line to line until one says so. Here it does, and a timer of the peer may have started at
/// any time between the beginning of the first of such lines and the end of the last.
#[derive(Clone, Copy, Debug)]
pub struct TimeRange {
    began: Instant,
    end: Instant,
}

impl TimeRange {
    pub fn now() -> TimeRange {
        let now = Instant::now();
        TimeRange { began: now, end: now }
    }

    /// What came after `since` and was found at `at`.
    pub fn between(since: Instant, at: Instant) -> TimeRange {
        TimeRange { began: since, end: at }
    }

    /// The last line took effect just now.
    pub fn goes_on(&mut self) {
        self.end = Instant::now();
    }

    /// The last line took effect at that time.
    pub fn goes_on_until(&mut self, at: Instant) {
        self.end = self.end.max(at);
    }

    /// The longest that it can have taken from this moment to that time.
    pub fn longest_until(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.began)
    }

    /// So long after the last line.
    pub fn after(&self, time: Duration) -> Instant {
        self.end + time
    }
}
