//! When each QP wants to be woken. A QP has few entries here, some of them too early: timers mostly move
//! later, and an entry that fires too early is cheaper than one that is moved for every ACK.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use softrnic_wire::Time;

use super::objects::QpKey;

/// The wake-up times of all QPs.
#[derive(Default)]
pub struct TimerHeap {
    heap: BinaryHeap<Reverse<(Time, QpKey)>>,
}

impl TimerHeap {
    pub fn push(&mut self, at: Time, qp: QpKey) {
        self.heap.push(Reverse((at, qp)));
    }

    /// The earliest wake-up.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// How many wake-ups are planned.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// A QP whose time has come.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, QpKey)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}
