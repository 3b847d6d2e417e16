//! Waiting for an event eagerly.
//!
//! To be woken costs more than a short message takes. So a caller who is about to block looks on for a moment, and
//! serves the NIC itself; the event that comes meanwhile costs no wake-up, neither its own nor the progress thread's.
//! Where nothing comes the moment is lost, so it is tried less and less often then.
//!
//! A CQ is armed before anybody waits for it, and arming hands the link to the progress thread. While eager waits pay,
//! that is put off until the wait has been in vain. Who never waits here (the descriptor can be polled as well) is
//! helped by the progress thread, which takes the link by itself [a moment](super::LONGEST_LOOK) after the last call;
//! from then on arming hands over at once again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::Nic;

/// How long a caller looks on: longer than a peer that sleeps takes to answer, so that two that have fallen asleep find
/// back to looking on, one after the other.
const LOOK_ON: Duration = Duration::from_micros(100);

/// The most waits that are not eager after one that was in vain.
const MOST_SKIPPED: u32 = 64;

/// Whether eager waits pay on this NIC.
#[derive(Debug, Default)]
pub(super) struct Eagerness {
    /// The last eager wait found an event.
    pays: AtomicBool,
    /// Waits that will not be eager, and how many were to be skipped the last time.
    skip: AtomicU32,
    skipped: AtomicU32,
    /// The link would be the progress thread's, had handing it over not been put off.
    owed: AtomicBool,
}

impl Eagerness {
    /// Whether to be eager now.
    fn tries(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip.saturating_sub(1), Ordering::Relaxed);
        skip == 0
    }

    fn learn(&self, found: bool) {
        let skip = if found { 0 } else { (self.skipped.load(Ordering::Relaxed) * 2).clamp(1, MOST_SKIPPED) };
        self.skipped.store(skip, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
        self.pays.store(found, Ordering::Relaxed);
    }

    /// The application armed a CQ and has not come to wait: it waits elsewhere.
    pub(super) fn missed(&self) {
        if self.owed.swap(false, Ordering::SeqCst) {
            self.learn(false);
        }
    }
}

impl Nic {
    /// A CQ was armed: the application is likely to block, and then the progress thread must serve the link.
    pub fn on_arm(&self) {
        match self.eagerness.pays.load(Ordering::Relaxed) {
            true => self.eagerness.owed.store(true, Ordering::SeqCst),
            false => self.hand_over(),
        }
    }

    /// Whether the last eager wait has paid.
    #[cfg(test)]
    pub(super) fn waits_eagerly(&self) -> bool {
        self.eagerness.pays.load(Ordering::Relaxed)
    }

    /// The application waits for an event: looks on for a moment, if that has paid lately, until `found` says that one
    /// is there. Whatever comes of it, the caller may block afterwards.
    pub fn look_on(&self, found: impl Fn() -> bool) {
        if found() {
            return;
        }
        if self.eagerness.tries() {
            let end = self.now() + LOOK_ON;
            loop {
                self.on_poll(false);
                if found() {
                    self.eagerness.owed.store(false, Ordering::SeqCst);
                    return self.eagerness.learn(true);
                }
                if self.now() >= end {
                    break;
                }
            }
            self.eagerness.learn(false);
        }
        if self.eagerness.owed.swap(false, Ordering::SeqCst) {
            self.hand_over();
        }
    }
}
