//! Which thread drives the NIC, and when: only the decisions, without a clock, a thread or an atomic.
//!
//! Callers drive the NIC, and the progress thread fills in. While a caller polls, a thread that wakes for every
//! datagram only takes the caller's processor and its turn (1.3 to 1.8 times the latency). So the thread suspends
//! itself, as NAPI suspends interrupts under busy polling, when the link has woken it [in vain](MAX_VAIN_WAKEUPS) a few
//! times in a row, or not at all for a [`TICK`]. It is needed for peers' requests, since an application may poll for
//! something else while it waits for their effect in its memory, and for everything when no thread polls.
//!
//! While callers poll, the thread ticks: they run the timers, and it only makes up for what they leave behind when they
//! stop. When no thread polls, it sleeps until the next deadline, and is kicked for anything sooner.
//!
//! A caller that blocks until an event comes saves one of two wake-ups if peers wake it and not the thread. What it waits
//! for has to be frequent for that, since the thread has to tick meanwhile: the caller may never return, because it was
//! cancelled, so the thread takes the bells back when the caller has been silent for a [`TICK`].

use std::time::Duration;

use softrnic_sys::pace::from_the_wall as paced;

use softrnic_wire::Time;

use super::tuning::{
    EVENT_SPIN, FIRST_TICK, MAX_VAIN_WAKEUPS, PASSIVE, PASSIVE_SPIN, RECENT, REST, TICK, WANTED_AFTER,
};

/// What the progress thread does until its next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Whether it wakes when datagrams arrive; otherwise it is suspended, and the link is left to callers.
    pub watch_link: bool,
    /// It wakes at this time at the latest.
    pub wake_at: Time,
    /// Until this time it does not sleep, but takes one turn after the other.
    pub spin_until: Time,
    /// A caller that sleeps until an event comes is rung for instead of the thread.
    pub rings_caller: bool,
}

/// An event on a NIC.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The progress thread begins a turn.
    Woken {
        /// The link woke it, or it spins on the link.
        by_link: bool,
        /// An application is about to block, and hands the link over to the thread.
        handed_over: bool,
        /// When an application last polled.
        last_poll: Time,
    },
    /// The progress thread ends its turn.
    Served {
        /// It has received datagrams.
        received: bool,
        /// Whether some of them are requests of peers, not only answers to our own.
        requests: bool,
        /// When the NIC needs to be driven next.
        deadline: Time,
    },
    /// A caller has driven the NIC.
    Driven {
        /// To send what it has posted.
        posted: bool,
        /// When the NIC needs to be driven next.
        deadline: Time,
    },
    /// A caller sleeps from now on until peers ring for it.
    Sleeps,
    /// It does not any more.
    Rises,
}

/// The state that decisions depend on. The NIC lock protects it.
#[derive(Debug)]
pub struct Policy {
    plan: Plan,
    /// The link woke the thread for this turn.
    by_link: bool,
    last_poll: Time,
    last_post: Time,
    /// Since when a caller has slept, if one does.
    sleeps_since: Option<Time>,
    /// When the last sleep ended.
    last_sleep: Option<Time>,
    /// Since when the thread has watched a link that callers poll without being needed, and how often the link has
    /// woken it.
    needless_since: Option<Time>,
    in_vain: u32,
    /// For how long it was last suspended.
    suspension: Duration,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            plan: Plan::START,
            by_link: false,
            last_poll: Time::ZERO,
            last_post: Time::ZERO,
            sleeps_since: None,
            last_sleep: None,
            needless_since: None,
            in_vain: 0,
            suspension: Duration::ZERO,
        }
    }
}

impl Policy {
    /// Handles an event. A caller that gets a plan with an earlier `wake_at` than [before](Self::plan) kicks the
    /// thread.
    #[inline]
    pub fn on(&mut self, event: Event, now: Time) -> Plan {
        match event {
            Event::Driven { posted, deadline } => {
                if posted {
                    self.last_post = now;
                }
                // A ticking thread looks soon enough: a kick would cost the processor's other user more than the delay.
                if deadline < self.plan.wake_at && !self.plan.ticks(now) {
                    self.plan.wake_at = deadline;
                }
            }
            Event::Woken { by_link, handed_over, last_poll } => {
                self.begin_turn(now, by_link, handed_over, last_poll);
            }
            Event::Served { received, requests, deadline } => {
                self.end_turn(now, received, requests, deadline)
            }
            Event::Sleeps => {
                self.sleeps_since = Some(now);
                self.plan.rings_caller = true;
                if !self.plan.ticks(now) {
                    self.plan.wake_at = now + paced(TICK);
                }
            }
            Event::Rises => {
                self.sleeps_since = None;
                self.last_sleep = Some(now);
                self.plan.rings_caller = false;
            }
        }
        self.plan
    }

    /// The plan that the thread follows.
    #[inline]
    pub fn plan(&self) -> Plan {
        self.plan
    }

    fn begin_turn(&mut self, now: Time, by_link: bool, handed_over: bool, last_poll: Time) {
        self.by_link = by_link;
        self.last_poll = last_poll;
        if handed_over || !self.callers_poll(now) {
            self.watch();
        }
        // It is awake, and makes a new plan before it sleeps: no kick is needed.
        self.plan.wake_at = Time::ZERO;
    }

    fn end_turn(&mut self, now: Time, received: bool, requests: bool, deadline: Time) {
        let callers_poll = self.callers_poll(now);
        if received && self.by_link && now.since(self.last_poll.max(self.last_post)) > paced(PASSIVE) {
            self.plan.spin_until = now + paced(PASSIVE_SPIN);
        }
        if requests || !callers_poll {
            self.watch();
        } else if self.plan.watch_link {
            self.in_vain += u32::from(self.by_link);
            let since = *self.needless_since.get_or_insert(now);
            self.plan.watch_link = self.in_vain < MAX_VAIN_WAKEUPS && now.since(since) < paced(TICK);
        }
        self.plan.rings_caller = self.sleeps_since.is_some_and(|since| now.since(since) < paced(TICK));
        self.plan.wake_at = match self.plan.watch_link {
            _ if self.plan.rings_caller || self.serves_lately(now) => now + paced(TICK),
            true if !callers_poll => deadline,
            true => now + paced(TICK),
            false => {
                self.suspension = (self.suspension * 2).clamp(paced(FIRST_TICK), paced(TICK));
                now + self.suspension
            }
        };
    }

    /// The thread is needed, or likely to be.
    fn watch(&mut self) {
        self.plan.watch_link = true;
        self.needless_since = None;
        self.in_vain = 0;
        self.suspension = Duration::ZERO;
    }

    fn callers_poll(&self, now: Time) -> bool {
        now.since(self.last_poll) < paced(RECENT) || self.serves_lately(now)
    }

    /// Whether a caller that a peer has woken a moment ago is likely to sleep again soon. Until then it calls.
    fn serves_lately(&self, now: Time) -> bool {
        self.last_sleep.is_some_and(|last| now.since(last) < paced(TICK))
    }
}

impl Plan {
    /// A thread that has just started takes a turn at once.
    pub const START: Plan =
        Plan { watch_link: true, wake_at: Time::ZERO, spin_until: Time::ZERO, rings_caller: false };

    /// There is nothing left to drive: the device has failed.
    pub const FAILED: Plan =
        Plan { watch_link: false, wake_at: Time::NEVER, spin_until: Time::ZERO, rings_caller: false };

    /// Whether the thread wakes soon without being kicked.
    #[inline]
    pub fn ticks(self, now: Time) -> bool {
        self.wake_at <= now + paced(TICK)
    }

    /// A thread due for a turn finds a caller driving the NIC, which does what is due. It comes again when the caller
    /// is likely to be done, or at the next tick if it only checks whether callers go on.
    #[must_use]
    pub fn rest(self, now: Time, handed_over: bool) -> Plan {
        let rest = if self.watch_link || handed_over { paced(REST) } else { paced(TICK) };
        Plan { watch_link: false, wake_at: now + rest, spin_until: Time::ZERO, ..self }
    }

    /// The link lets nothing pass before `until`, and what it has says nothing.
    #[must_use]
    pub fn paused(self, until: Time) -> Plan {
        Plan { watch_link: false, wake_at: until, spin_until: Time::ZERO, ..self }
    }
}

/// Whether other threads want the processor, given how long it was away when a caller last yielded it.
pub fn is_wanted(away: Duration) -> bool {
    away >= paced(WANTED_AFTER)
}

/// Whether a caller that has polled should yield the processor, which the answer may need: its polls have been in vain
/// for `yield_after`. `since` is when they began to be; 0 if the last one was not.
#[inline]
pub fn yields(since: &mut u64, useful: bool, yield_after: Duration, now: Time) -> bool {
    if useful {
        *since = 0;
        return false;
    }
    if *since == 0 {
        *since = now.as_nanos();
        return false;
    }
    let yields = now.since(Time::from_nanos(*since)) >= yield_after;
    if yields {
        *since = 0;
    }
    yields
}

/// Adaptive spinning: whether the next wait for an event starts with spinning, given how long the last one took.
pub fn next_wait_spins(waited: Duration) -> bool {
    waited < paced(EVENT_SPIN)
}

/// Whether a caller serves the link in its next wait for an event, given how long the last one took.
pub fn next_wait_serves(waited: Duration) -> bool {
    waited < paced(TICK)
}

#[cfg(all(test, not(loom)))]
#[path = "scenarios.rs"]
mod scenarios;
