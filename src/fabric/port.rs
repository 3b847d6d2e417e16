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

/// A frame that is on its way by a link.
#[derive(Clone, Copy, Debug)]
pub struct OnLink {
    pub at: Picos,
    pub key: u32,
    pub epoch: u32,
}

/// A frame that others are to overtake.
#[derive(Clone, Copy, Debug)]
pub struct Overtaken {
    pub key: u32,
    pub epoch: u32,
    /// How many frames still go first.
    pub left: u32,
    /// When it follows, whatever has come.
    pub until: Picos,
}

/// A PFC frame: one priority, and for how many quanta it is paused. 0 lets it go on, `None` pauses it until that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrame {
    pub priority: Priority,
    pub quanta: Option<u16>,
}

/// See the [module](self).
#[derive(Clone)]
pub struct Port {
    pub queues: [VecDeque<Queued>; PRIORITIES],
    pub queued: [u64; PRIORITIES],
    /// PFC frames, which leave before everything else.
    pub pauses: VecDeque<PauseFrame>,
    /// When each pause that was sent is to be sent again; `NEVER` if there is none.
    pub refresh_at: [Picos; PRIORITIES],
    /// When what it sends will have left.
    pub free_at: Picos,
    /// It will be looked at when it is free.
    pub wakes: bool,
    /// Priorities of which a frame waits, one bit each, and the bytes of all.
    waiting: u8,
    total: u64,
    /// Until when each priority must not be sent; in the past if it may.
    pub paused_until: [Picos; PRIORITIES],
    paused_since: [Picos; PRIORITIES],
    /// What it has sent and has not arrived, in order.
    pub on_link: VecDeque<OnLink>,
    /// What others are to overtake on the link.
    pub overtaken: Vec<Overtaken>,
    deficits: Deficits,
    pub counters: PortCounters,
}

impl Port {
    pub fn new() -> Port {
        Port {
            queues: Default::default(),
            queued: [0; PRIORITIES],
            pauses: VecDeque::new(),
            refresh_at: [Picos::NEVER; PRIORITIES],
            free_at: Picos::ZERO,
            wakes: false,
            waiting: 0,
            total: 0,
            paused_until: [Picos::ZERO; PRIORITIES],
            paused_since: [Picos::ZERO; PRIORITIES],
            on_link: VecDeque::new(),
            overtaken: Vec::new(),
            deficits: Deficits::default(),
            counters: PortCounters::default(),
        }
    }

    pub fn push(&mut self, priority: Priority, queued: Queued) {
        self.queued[priority as usize] += u64::from(queued.bytes);
        self.queues[priority as usize].push_back(queued);
        self.waiting |= 1 << priority;
        self.total += u64::from(queued.bytes);
        self.counters.queue_peak = self.counters.queue_peak.max(self.total);
    }

    /// Takes the frame to be sent next.
    pub fn pop(&mut self, now: Picos, schedule: &[Schedule; PRIORITIES]) -> Option<(Priority, Queued)> {
        let priority = if self.waiting.is_power_of_two() {
            let only = self.waiting.trailing_zeros() as usize;
            if now < self.paused_until[only] {
                return None;
            }
            self.deficits.serve_alone();
            only
        } else {
            let heads = std::array::from_fn(|p| {
                self.queues[p].front().filter(|_| now >= self.paused_until[p]).map(|head| head.bytes)
            });
            self.deficits.next(schedule, heads)?
        };
        let queued = self.queues[priority].pop_front()?;
        self.queued[priority] -= u64::from(queued.bytes);
        self.total -= u64::from(queued.bytes);
        if self.queues[priority].is_empty() {
            self.waiting &= !(1 << priority);
        }
        Some((priority as Priority, queued))
    }

    /// Takes all frames of a priority.
    pub fn clear(&mut self, priority: Priority) -> VecDeque<Queued> {
        self.total -= std::mem::take(&mut self.queued[priority as usize]);
        self.waiting &= !(1 << priority);
        std::mem::take(&mut self.queues[priority as usize])
    }

    /// Whether it has nothing to send.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.pauses.is_empty()
    }

    /// Bytes that wait, all priorities.
    pub fn waiting(&self) -> u64 {
        self.total
    }

    pub fn is_paused(&self, now: Picos, priority: Priority) -> bool {
        now < self.paused_until[priority as usize]
    }

    /// Does not send a priority for some time; `ZERO` ends that. Returns whether the priority begins or ends to be paused by it.
    pub fn pause(&mut self, now: Picos, priority: Priority, time: Picos) -> bool {
        let was = self.is_paused(now, priority);
        let until = now + time;
        if was {
            self.note_paused(now, priority);
        }
        self.paused_since[priority as usize] = now;
        self.paused_until[priority as usize] = until;
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
