//! When each QP is to be woken. A QP has one entry here, which may be too early: timers mostly move later, and an entry
//! that fires too early is cheaper than moving it with every ACK.

use std::collections::BTreeSet;

use softrnic_wire::Time;

use super::objects::QpKey;

/// The wake-up times of all QPs.
#[derive(Default)]
pub struct WakeUps {
    by_time: BTreeSet<(Time, QpKey)>,
}

impl WakeUps {
    /// Moves the entry of a QP from `old`, if it has one, to `at`.
    pub fn set(&mut self, old: Time, at: Time, qp: QpKey) {
        self.remove(old, qp);
        self.by_time.insert((at, qp));
    }

    /// Removes the entry that a QP has at `old`, if it has one.
    pub fn remove(&mut self, old: Time, qp: QpKey) {
        if old != Time::NEVER {
            self.by_time.remove(&(old, qp));
        }
    }

    /// The earliest wake-up.
    pub fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// How many wake-ups are scheduled.
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// A QP whose wake-up is due.
    pub fn pop_due(&mut self, now: Time) -> Option<QpKey> {
        if self.next()? > now {
            return None;
        }
        self.by_time.pop_first().map(|(_, qp)| qp)
    }
}
