//! Holds things back until a time, or until enough others have passed.

use std::collections::BTreeMap;
use std::time::Duration;

use softrnic_wire::Time;

/// How long something waits at most for others to pass.
const MAX_HOLD: Duration = Duration::from_millis(1);

/// The held things of one direction.
pub(super) struct HoldQueue<T> {
    /// By release time, then by order of arrival.
    by_time: BTreeMap<(Time, u64), T>,
    by_count: Vec<Waiting<T>>,
    arrivals: u64,
    passed: u64,
}

struct Waiting<T> {
    /// Released when this many have passed,
    after: u64,
    /// or at this time.
    deadline: Time,
    item: T,
}

impl<T> HoldQueue<T> {
    pub(super) fn new() -> HoldQueue<T> {
        HoldQueue { by_time: BTreeMap::new(), by_count: Vec::new(), arrivals: 0, passed: 0 }
    }

    pub(super) fn hold_until(&mut self, time: Time, item: T) {
        self.by_time.insert((time, self.arrivals), item);
        self.arrivals += 1;
    }

    /// Holds `item` until `count` others have passed.
    pub(super) fn hold_for(&mut self, now: Time, count: u32, item: T) {
        self.by_count.push(Waiting { after: self.passed + u64::from(count), deadline: now + MAX_HOLD, item });
    }

    /// Counts one that passed without being held.
    pub(super) fn pass(&mut self) {
        self.passed += 1;
    }

    /// The next one that may go now.
    pub(super) fn release(&mut self, now: Time) -> Option<T> {
        if let Some(entry) = self.by_time.first_entry()
            && entry.key().0 <= now
        {
            return Some(entry.remove());
        }
        let ready = self.by_count.iter().position(|w| w.after <= self.passed || w.deadline <= now)?;
        Some(self.by_count.remove(ready).item)
    }

    /// When [`HoldQueue::release`] will return something because of the time alone.
    pub(super) fn next_time(&self) -> Option<Time> {
        let by_time = self.by_time.first_key_value().map(|((time, _), _)| *time);
        let by_count = self.by_count.iter().map(|waiting| waiting.deadline).min();
        by_time.into_iter().chain(by_count).min()
    }
}
