//! When each QP is to be woken. A QP has one entry here, which may be too early: timers mostly move later, and an entry
//! that fires too early is cheaper than moving it with every ACK.

use std::collections::BTreeSet;

use softrnic_wire::Time;

use super::objects::QpKey;

/// The wake-up times of all QPs.
pub struct WakeUps {
    by_time: BTreeSet<(Time, QpKey)>,
    /// The earliest, which each step asks for; never, if there is none.
    next: Time,
}

impl Default for WakeUps {
    fn default() -> WakeUps {
        WakeUps { by_time: BTreeSet::new(), next: Time::NEVER }
    }
}

impl WakeUps {
    /// Moves the entry of a QP from `old`, if it has one, to `at`.
    pub fn set(&mut self, old: Time, at: Time, qp: QpKey) {
        self.remove(old, qp);
        self.by_time.insert((at, qp));
        self.next = self.next.min(at);
    }

    /// Removes the entry that a QP has at `old`, if it has one.
    pub fn remove(&mut self, old: Time, qp: QpKey) {
        if old != Time::NEVER {
            self.by_time.remove(&(old, qp));
            self.find_next();
        }
    }

    /// The earliest wake-up; never, if there is none.
    #[inline]
    pub fn next(&self) -> Time {
        self.next
    }

    fn find_next(&mut self) {
        self.next = self.by_time.first().map_or(Time::NEVER, |(at, _)| *at);
    }

    /// How many wake-ups are scheduled.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// A QP whose wake-up is due.
    pub fn pop_due(&mut self, now: Time) -> Option<QpKey> {
        if self.next > now {
            return None;
        }
        let due = self.by_time.pop_first().map(|(_, qp)| qp);
        self.find_next();
        due
    }
}
