//! The state that threads share without the NIC lock. Everything else that decides which thread drives the NIC is in a
//! [`Policy`](super::policy::Policy), which the lock protects.
//!
//! # Why no work is left behind
//!
//! Everything that a sleeping thread could miss is a bit of one word, `flags`, and every access that matters is a
//! read-modify-write of it; those have a total order. While the progress thread sleeps, two bits say how: WATCHES, it
//! wakes when datagrams arrive, and TICKS, it wakes soon by itself. It clears both when it wakes, and then looks at the
//! NIC.
//!
//! - *A gathered post against a drain.* The poster rings the doorbell, then sets GATHERED; a drain clears GATHERED,
//!   then empties the doorbells. If the clearing comes second it acquires the doorbell. If it comes first the poster
//!   finds GATHERED clear, and ensures that another drain follows. A poster that finds its queue's doorbell rung, and not
//!   yet drained, leaves this to the one that rang it (`DoorbellSet::join`).
//! - *A gathered post against sleep.* That poster kicks the thread unless TICKS is set. If TICKS is set, the thread's
//!   waking comes later in the order, and its drain sees GATHERED.
//! - *Handing over against watching.* An application that is about to block sets HANDED_OVER, and kicks unless WATCHES
//!   is set. If WATCHES is set, the thread wakes for the next datagram; its waking takes HANDED_OVER along. A caller for
//!   whom peers ring instead has cleared WATCHES; a thread that sets it just then ticks.
//! - *A deadline against sleep* needs no word: the thread makes its plan, and callers find an earlier deadline, both
//!   under the NIC lock. A caller that comes later kicks.
//!
//! A kick is never lost (`sync/threads/kick.rs`). The other words are hints; missing one never makes a thread sleep for
//! long.

use softrnic_wire::Time;

use super::policy::Plan;
use softrnic_sync::atomics::atomic::{AtomicU32, AtomicU64, Ordering};

/// The words of one NIC.
pub struct SharedFlags {
    /// When an application last polled; in nanoseconds, like all times here.
    last_poll: AtomicU64,
    /// When a poll that finds completions is to service the link.
    next_service: AtomicU64,
    /// Since when polls have been in vain; 0 if the last one was not.
    vain_since: AtomicU64,
    flags: AtomicU32,
    /// How often the progress thread has woken, for statistics.
    wakeups: AtomicU64,
}

/// Posts have been gathered that a drain may not have seen.
const GATHERED: u32 = 1;
/// An application has left the link to the progress thread.
const HANDED_OVER: u32 = 2;
/// The progress thread sleeps, and wakes when datagrams arrive.
const WATCHES: u32 = 4;
/// The progress thread sleeps, and wakes soon by itself.
const TICKS: u32 = 8;
/// A message has arrived that may not have been answered by a post.
const UNANSWERED: u32 = 16;
/// The next wait for an event starts with spinning.
const SPINS: u32 = 32;
/// The progress thread must end.
const STOPPING: u32 = 64;
/// The next wait for an event serves the link.
const SERVES: u32 = 128;
/// Another thread wanted the processor when a caller last yielded it.
const WANTED: u32 = 256;

impl SharedFlags {
    /// Nothing has happened yet.
    pub fn new() -> SharedFlags {
        SharedFlags {
            last_poll: AtomicU64::new(0),
            next_service: AtomicU64::new(0),
            vain_since: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            wakeups: AtomicU64::new(0),
        }
    }

    /// A doorbell was rung for posts that are to be gathered. Returns whether to kick the progress thread.
    #[must_use]
    pub fn gather(&self) -> bool {
        // Setting one bit is a single instruction on x86. The load is at least as new.
        self.flags.fetch_or(GATHERED, Ordering::AcqRel) & GATHERED == 0
            && self.flags.load(Ordering::Relaxed) & TICKS == 0
    }

    /// The holder of the NIC is about to drain the doorbells.
    #[inline]
    pub fn before_drain(&self) {
        // A mark not seen yet stays for the progress thread, which its poster takes care of.
        if self.flags.load(Ordering::Relaxed) & GATHERED != 0 {
            self.flags.fetch_and(!GATHERED, Ordering::AcqRel);
        }
    }

    /// An application is about to block, with no other thread to drive the NIC. Returns whether to kick the progress
    /// thread: it does not watch the link, or gathered posts should not wait for its next tick.
    #[must_use]
    pub fn hand_over(&self) -> bool {
        let before = self.flags.fetch_or(HANDED_OVER, Ordering::AcqRel);
        before & WATCHES == 0 || before & GATHERED != 0
    }

    /// The progress thread goes to sleep with this plan. It prepares its [`Kick`](softrnic_sync::kick::Kick) next.
    pub fn sleep(&self, plan: Plan, now: Time) {
        let watches = if plan.watch_link && !plan.rings_caller { WATCHES } else { 0 };
        let ticks = if plan.ticks(now) { TICKS } else { 0 };
        self.flags.fetch_or(watches | ticks, Ordering::AcqRel);
    }

    /// Peers ring for a caller from now on, whatever the progress thread sleeps on: it does not wake for their datagrams.
    pub fn unwatch(&self) {
        if self.flags.load(Ordering::Relaxed) & WATCHES != 0 {
            self.flags.fetch_and(!WATCHES, Ordering::AcqRel);
        }
    }

    /// The progress thread is awake, and takes its turn next. Returns whether the link was handed over.
    #[must_use]
    pub fn wake(&self) -> bool {
        self.flags.fetch_and(!(WATCHES | TICKS | HANDED_OVER), Ordering::AcqRel) & HANDED_OVER != 0
    }

    /// Tells the progress thread to end; the caller kicks it.
    pub fn stop(&self) {
        self.flags.fetch_or(STOPPING, Ordering::AcqRel);
    }

    /// Whether the progress thread must end.
    pub fn is_stopping(&self) -> bool {
        self.flags.load(Ordering::Acquire) & STOPPING != 0
    }

    /// A message has arrived.
    #[inline]
    pub fn message_came(&self) {
        if self.flags.load(Ordering::Relaxed) & UNANSWERED == 0 {
            self.flags.fetch_or(UNANSWERED, Ordering::Relaxed);
        }
    }

    /// Whether a post is likely to be an answer: the first one after a message has arrived.
    #[inline]
    pub fn answers(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & UNANSWERED != 0
            && self.flags.fetch_and(!UNANSWERED, Ordering::Relaxed) & UNANSWERED != 0
    }

    /// Whether the next wait for an event starts with spinning.
    pub fn spins(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SPINS != 0
    }

    /// Sets whether the next wait for an event starts with spinning.
    pub fn set_spins(&self, spins: bool) {
        self.set(SPINS, spins);
    }

    /// Whether a caller that blocks until an event comes serves the link meanwhile, instead of the progress thread.
    pub fn serves(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SERVES != 0
    }

    /// Sets whether the next wait for an event serves the link.
    pub fn set_serves(&self, serves: bool) {
        self.set(SERVES, serves);
    }

    /// Whether another thread wanted the processor when a caller last yielded it.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & WANTED != 0
    }

    /// Sets whether another thread wanted the processor that a caller has yielded.
    pub fn set_wanted(&self, wanted: bool) {
        self.set(WANTED, wanted);
    }

    /// Sets or clears the bit of a hint.
    fn set(&self, hint: u32, to: bool) {
        match to {
            _ if (self.flags.load(Ordering::Relaxed) & hint != 0) == to => {}
            true => _ = self.flags.fetch_or(hint, Ordering::Relaxed),
            false => _ = self.flags.fetch_and(!hint, Ordering::Relaxed),
        }
    }

    /// When an application last polled.
    pub fn last_poll(&self) -> Time {
        Time::from_nanos(self.last_poll.load(Ordering::Relaxed))
    }

    /// An application polls.
    #[inline]
    pub fn polled(&self, now: Time) {
        self.last_poll.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When a poll that finds completions is to service the link.
    #[inline]
    pub fn next_service(&self) -> Time {
        Time::from_nanos(self.next_service.load(Ordering::Relaxed))
    }

    /// The link was serviced; polls that find completions leave it alone until then.
    #[inline]
    pub fn serviced(&self, until: Time) {
        self.next_service.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Since when polls have been in vain. Threads that poll at the same time may overwrite each other's value.
    #[inline]
    pub fn vain_since(&self) -> u64 {
        self.vain_since.load(Ordering::Relaxed)
    }

    /// Sets since when polls have been in vain.
    #[inline]
    pub fn set_vain_since(&self, since: u64) {
        self.vain_since.store(since, Ordering::Relaxed);
    }

    /// How often the progress thread has woken.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    /// The progress thread woke.
    pub fn count_wakeup(&self) {
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for SharedFlags {
    fn default() -> SharedFlags {
        SharedFlags::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
