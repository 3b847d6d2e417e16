//! How fast counters increase between two looks.

use crate::{Look, QpSnapshot, Snapshot};

/// A device at two moments.
#[derive(Clone, Copy)]
pub struct Between<'a> {
    before: Option<&'a Snapshot>,
    /// Seconds; more than 0.
    seconds: f64,
}

impl<'a> Between<'a> {
    /// What `before` contains about the device in `now`.
    pub fn new(before: Option<&'a Look>, now: &Snapshot) -> Between<'a> {
        let same = |s: &&Snapshot| (s.pid, &s.device) == (now.pid, &now.device) && s.time_ns < now.time_ns;
        let before = before.and_then(|look| look.snapshots.iter().find(same));
        let seconds = before.map_or(1.0, |before| (now.time_ns - before.time_ns) as f64 / 1e9);
        Between { before, seconds }
    }

    /// Per second; `None` without an earlier look.
    pub fn of_counter(&self, name: &str, now: u64) -> Option<f64> {
        self.per_second(*self.before?.counters.get(name)?, now)
    }

    /// Per second, for a counter of a QP.
    pub fn of_qp(&self, now: &QpSnapshot, count: fn(&QpSnapshot) -> u64) -> Option<f64> {
        let before = self.before?.qps.iter().find(|qp| qp.qpn == now.qpn)?;
        self.per_second(count(before), count(now))
    }

    /// A count that has decreased belongs to another QP with the same number.
    fn per_second(&self, before: u64, now: u64) -> Option<f64> {
        Some(now.checked_sub(before)? as f64 / self.seconds)
    }
}
