//! Ways to build the lock and its doorbell that look right, and that loom shows to lose work.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;

use super::{explore, join, sleep};

/// A queue's length, a flag, and how much the holders have served.
struct Nic {
    held: AtomicBool,
    posted: AtomicU32,
    served: AtomicU32,
}

impl Nic {
    fn try_lock(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }

    fn serve(&self) {
        self.served.store(self.posted.load(Ordering::Acquire), Ordering::Relaxed);
    }

    fn unserved(&self) -> bool {
        self.posted.load(Ordering::Acquire) != self.served.load(Ordering::Relaxed)
    }
}

/// Two threads post with `ring`; afterwards all must have been served.
fn two_posters(ring: fn(&Nic)) {
    explore(None, move || {
        let nic = Arc::new(Nic {
            held: AtomicBool::new(false),
            posted: AtomicU32::new(0),
            served: AtomicU32::new(0),
        });
        let other = thread::spawn({
            let nic = nic.clone();
            move || {
                nic.posted.fetch_add(1, Ordering::Release);
                ring(&nic);
            }
        });
        nic.posted.fetch_add(1, Ordering::Release);
        ring(&nic);
        other.join().unwrap();
        assert!(!nic.unserved(), "a doorbell was lost");
    });
}

#[test]
#[should_panic(expected = "a doorbell was lost")]
fn loom_finds_the_doorbell_lost_by_draining_before_letting_go() {
    two_posters(|nic| {
        if nic.try_lock() {
            nic.serve();
            nic.unlock();
        }
    });
}

#[test]
#[should_panic(expected = "a doorbell was lost")]
fn loom_finds_the_doorbell_lost_by_checking_again_without_a_fence() {
    two_posters(|nic| {
        while nic.unserved() && nic.try_lock() {
            nic.serve();
            nic.unlock();
        }
    });
}

/// The harness does not fail whatever it is given: with a fence between the two accesses on both sides, checking
/// again is right.
#[test]
fn loom_finds_nothing_wrong_with_checking_again_behind_a_fence() {
    two_posters(|nic| {
        fence(Ordering::SeqCst);
        while nic.unserved() && nic.try_lock() {
            nic.serve();
            nic.unlock();
            fence(Ordering::SeqCst);
        }
    });
}

/// Releasing, then looking into another word for waiters: the releaser reads "none" while the waiter reads "held", and
/// the waiter is never woken.
#[test]
#[should_panic(expected = "asleep for ever")]
fn loom_finds_the_waiter_forgotten_by_counting_in_another_word() {
    explore(None, || {
        let held = Arc::new(AtomicBool::new(true));
        let waiters = Arc::new(AtomicU32::new(0));
        let woken = Arc::new(AtomicBool::new(false));
        let holder = thread::spawn({
            let (held, waiters, woken) = (held.clone(), waiters.clone(), woken.clone());
            move || {
                held.store(false, Ordering::Release);
                if waiters.load(Ordering::Acquire) > 0 {
                    woken.store(true, Ordering::Release);
                }
            }
        });
        waiters.fetch_add(1, Ordering::AcqRel);
        let mut others = vec![holder];
        if held.load(Ordering::Acquire) {
            sleep(&mut others, || woken.load(Ordering::Acquire));
        }
        join(others);
    });
}
