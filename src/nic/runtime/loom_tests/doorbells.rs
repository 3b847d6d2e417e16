//! Ringing against draining.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use super::{explore, join};
use crate::runtime::doorbells::DoorbellSet;

/// Two posters ring `indices` and say so; the holder drains what it has been told of, and then the rest.
fn nothing_is_lost<S: Send + Sync + 'static>(
    indices: [usize; 2],
    make: fn() -> S,
    ring: fn(&S, usize),
    drain: fn(&S, &mut dyn FnMut(usize)),
) {
    explore(None, move || {
        let set = Arc::new(make());
        let told = Arc::new(AtomicU64::new(0));
        let posted = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let posters = [0, 1].map(|poster| {
            let (set, told, posted) = (set.clone(), told.clone(), posted.clone());
            thread::spawn(move || {
                posted[poster].store(true, Ordering::Relaxed);
                ring(&set, indices[poster]);
                told.fetch_or(1 << poster, Ordering::Release);
            })
        });
        let mut seen = [false; 2];
        let mut drain_once = |told: u64| {
            drain(&set, &mut |index| {
                for poster in [0, 1] {
                    if indices[poster] == index {
                        seen[poster] |= posted[poster].load(Ordering::Relaxed);
                    }
                }
            });
            for poster in [0, 1] {
                assert!(told >> poster & 1 == 0 || seen[poster], "a doorbell was lost");
            }
        };
        drain_once(told.load(Ordering::Acquire));
        join(posters);
        drain_once(0b11);
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

/// A word below a root of one bit, rung by somebody who saves steps.
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

#[test]
#[should_panic(expected = "a doorbell was lost")]
fn loom_finds_the_doorbell_lost_by_looking_at_the_root_before_setting_it() {
    let ring = |set: &Naive, index: usize| {
        set.leaf.fetch_or(1 << index, Ordering::AcqRel);
        if set.root.load(Ordering::Acquire) == 0 {
            set.root.fetch_or(1, Ordering::AcqRel);
        }
    };
    nothing_is_lost([3, 60], Naive::default, ring, Naive::drain);
}
