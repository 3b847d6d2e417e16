//! One end of a link: its queues, and what its peer has told it to pause.

use std::collections::VecDeque;

use crate::config::Schedule;
use crate::counters::PortCounters;
use crate::frame::{PRIORITIES, Priority};
use crate::picos::Picos;
use crate::schedule::Deficits;

/// A frame that waits: its key, its bytes, and the port that it came by, counted within the switch.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub key: u32,
    pub bytes: u32,
    /// `None` at a host.
    pub ingress: Option<u16>,
}

/// A PFC frame: one priority, and how long it is paused. `ZERO` lets it go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrame {
    pub priority: Priority,
    pub time: Picos,
}

/// See the [module](self).
pub struct Port {
    pub queues: [VecDeque<Queued>; PRIORITIES],
    pub queued: [u64; PRIORITIES],
    /// PFC frames, which leave before everything else.
    pub pauses: VecDeque<PauseFrame>,
    pub is_sending: bool,
    /// Until when each priority must not be sent; in the past if it may.
    pub paused_until: [Picos; PRIORITIES],
    paused_since: [Picos; PRIORITIES],
    deficits: Deficits,
    pub counters: PortCounters,
}

impl Port {
    pub fn new() -> Port {
        Port {
            queues: Default::default(),
            queued: [0; PRIORITIES],
            pauses: VecDeque::new(),
            is_sending: false,
            paused_until: [Picos::ZERO; PRIORITIES],
            paused_since: [Picos::ZERO; PRIORITIES],
            deficits: Deficits::default(),
            counters: PortCounters::default(),
        }
    }

    pub fn push(&mut self, priority: Priority, queued: Queued) {
        self.queued[priority as usize] += u64::from(queued.bytes);
        self.queues[priority as usize].push_back(queued);
        self.counters.queue_peak = self.counters.queue_peak.max(self.queued.iter().sum());
    }

    /// Takes the frame to be sent next.
    pub fn pop(&mut self, now: Picos, schedule: &[Schedule; PRIORITIES]) -> Option<(Priority, Queued)> {
        let heads = std::array::from_fn(|p| {
            self.queues[p].front().filter(|_| now >= self.paused_until[p]).map(|head| head.bytes)
        });
        let priority = self.deficits.next(schedule, heads)?;
        let queued = self.queues[priority].pop_front()?;
        self.queued[priority] -= u64::from(queued.bytes);
        Some((priority as Priority, queued))
    }

    /// Bytes that wait, all priorities.
    pub fn waiting(&self) -> u64 {
        self.queued.iter().sum()
    }

    pub fn is_paused(&self, now: Picos, priority: Priority) -> bool {
        now < self.paused_until[priority as usize]
    }

    /// Obeys a pause frame. Returns whether the priority begins or ends to be paused by it.
    pub fn obey(&mut self, now: Picos, frame: PauseFrame) -> bool {
        let was = self.is_paused(now, frame.priority);
        let until = if frame.time == Picos::ZERO { now } else { now + frame.time };
        if was {
            self.note_paused(now, frame.priority);
        }
        self.paused_since[frame.priority as usize] = now;
        self.paused_until[frame.priority as usize] = until;
        let is = now < until;
        if is && !was {
            self.counters.pauses_received += 1;
        }
        is != was
    }

    /// A pause has run out.
    pub fn note_paused(&mut self, now: Picos, priority: Priority) {
        let p = priority as usize;
        self.counters.paused += now.min(self.paused_until[p]) - self.paused_since[p];
        self.paused_since[p] = now;
    }
}
