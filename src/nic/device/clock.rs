//! The monotonic clock, as nanoseconds since the process first asked for it.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use softrnic_wire::Time;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The clock of all devices of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// Set by tests; nanoseconds.
    #[cfg(test)]
    set: Option<&'static std::sync::atomic::AtomicU64>,
}

impl Clock {
    /// The clock. It starts at one second, so that "never" and "long ago" are both before now.
    pub fn start() -> Clock {
        Clock {
            origin: *ORIGIN.get_or_init(|| Instant::now() - Duration::from_secs(1)),
            #[cfg(test)]
            set: None,
        }
    }

    /// A clock that stands still until it is set.
    #[cfg(test)]
    pub fn set_by(time: &'static std::sync::atomic::AtomicU64) -> Clock {
        Clock { set: Some(time), ..Clock::start() }
    }

    /// The current time.
    pub fn now(&self) -> Time {
        #[cfg(test)]
        if let Some(time) = self.set {
            return Time::from_nanos(time.load(std::sync::atomic::Ordering::SeqCst));
        }
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The wall-clock time, since 1970, when the clock was at zero.
    pub fn epoch(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.origin.elapsed())
    }
}
