//! Ringing against draining.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use super::explore;
use crate::doorbells::DoorbellSet;

/// Another poster rings `indices[0]` and says so; the holder rings `indices[1]` and drains. It must find its own,
/// and the other one when it has been told, and then also the other's work.
fn nothing_is_lost<S: Send + Sync + 'static>(
    indices: [usize; 2],
    make: fn() -> S,
    ring: fn(&S, usize),
    drain: fn(&S, &mut dyn FnMut(usize)),
) {
    explore(None, move || {
        let set = Arc::new(make());
        let posted = Arc::new(AtomicBool::new(false));
        let told = Arc::new(AtomicBool::new(false));
        let poster = thread::spawn({
            let (set, posted, told) = (set.clone(), posted.clone(), told.clone());
            move || {
                posted.store(true, Ordering::Relaxed);
                ring(&set, indices[0]);
                told.store(true, Ordering::Release);
            }
        });
        let mut served = false;
        let mut drain_finds_own = || {
            let mut own = false;
            drain(&set, &mut |index| {
                served |= index == indices[0] && posted.load(Ordering::Relaxed);
                own |= index == indices[1];
            });
            (served, own)
        };
        ring(&set, indices[1]);
        let must_be_served = told.load(Ordering::Acquire);
        let (served, own) = drain_finds_own();
        assert!(own && (served || !must_be_served), "a doorbell was lost");
        poster.join().unwrap();
        assert!(drain_finds_own().0, "a doorbell was lost");
    });
}

fn two_levels() -> DoorbellSet {
    DoorbellSet::with_root(128, 1)
}

fn drain(set: &DoorbellSet, visit: &mut dyn FnMut(usize)) {
    set.drain(visit);
}

#[test]
fn loom_two_doorbells_in_one_word() {
    nothing_is_lost([3, 60], two_levels, DoorbellSet::ring, drain);
}

#[test]
fn loom_two_doorbells_in_two_words() {
    nothing_is_lost([3, 64], two_levels, DoorbellSet::ring, drain);
}

#[test]
fn loom_one_doorbell_rung_twice() {
    nothing_is_lost([5, 5], two_levels, DoorbellSet::ring, drain);
}

/// A word below a root of one bit, rung by a thread that skips steps.
#[derive(Default)]
struct Naive {
    leaf: AtomicU64,
    root: AtomicU64,
}

impl Naive {
    fn drain(&self, visit: &mut dyn FnMut(usize)) {
        if self.root.swap(0, Ordering::AcqRel) != 0 {
            let bits = self.leaf.swap(0, Ordering::AcqRel);
            (0..64).filter(|index| bits >> index & 1 != 0).for_each(visit);
        }
    }
}

#[test]
#[should_panic(expected = "a doorbell was lost")]
fn loom_finds_the_doorbell_lost_by_stopping_at_a_word_that_is_not_empty() {
    let ring = |set: &Naive, index: usize| {
        if set.leaf.fetch_or(1 << index, Ordering::AcqRel) == 0 {
            set.root.fetch_or(1, Ordering::AcqRel);
        }
    };
    nothing_is_lost([3, 60], Naive::default, ring, Naive::drain);
}

/// The root as it was before the last drain: nothing makes the poster see that drain.
#[test]
#[should_panic(expected = "a doorbell was lost")]
fn loom_finds_the_doorbell_lost_by_trusting_a_stale_root() {
    let ring = |set: &Naive, index: usize| {
        set.leaf.fetch_or(1 << index, Ordering::Release);
        if set.root.load(Ordering::Acquire) == 0 {
            set.root.fetch_or(1, Ordering::AcqRel);
        }
    };
    nothing_is_lost([3, 60], Naive::default, ring, Naive::drain);
}
