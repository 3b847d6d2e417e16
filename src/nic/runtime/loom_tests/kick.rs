//! Kicking against going to sleep and waking.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::thread;

use super::{explore, join};
use crate::runtime::eventfd::EventFd;
use crate::runtime::kick::Kick;

/// Two threads make work visible and kick; the sleeper goes on until it has seen both. A lost kick is a
/// deadlock.
fn the_sleeper_sees_all<K: Send + Sync + 'static>(make: fn() -> K, kick: fn(&K), sleep: fn(&K)) {
    explore(Some(4), move || {
        let shared = Arc::new((make(), [AtomicBool::new(false), AtomicBool::new(false)]));
        let kickers = [0, 1].map(|kicker| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1[kicker].store(true, Ordering::Relaxed);
                kick(&shared.0);
            })
        });
        while !shared.1.iter().all(|work| work.load(Ordering::Relaxed)) {
            sleep(&shared.0);
        }
        join(kickers);
    });
}

#[test]
fn loom_no_kick_is_lost() {
    the_sleeper_sees_all(Kick::model, Kick::kick, |kick| {
        if kick.prepare_sleep() {
            kick.wait_readable();
            kick.clear();
        }
    });
}

/// The same with an eventfd that everybody writes to unless somebody has before.
struct Naive {
    kicked: AtomicBool,
    event: EventFd,
}

impl Naive {
    fn new() -> Naive {
        Naive { kicked: AtomicBool::new(false), event: EventFd::model() }
    }

    fn kick(&self) {
        if !self.kicked.swap(true, Ordering::AcqRel) {
            self.event.add_one();
        }
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_finds_the_kick_lost_by_emptying_the_eventfd_after_the_mark() {
    the_sleeper_sees_all(Naive::new, Naive::kick, |naive| {
        naive.event.wait_readable();
        naive.kicked.swap(false, Ordering::AcqRel);
        naive.event.empty();
    });
}

/// A mark that says whether the thread sleeps, set by a plain store.
struct Announced {
    asleep: AtomicU8,
    event: EventFd,
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_finds_the_kick_lost_by_announcing_sleep_without_looking_for_kicks() {
    let make = || Announced { asleep: AtomicU8::new(0), event: EventFd::model() };
    let kick = |shared: &Announced| {
        if shared.asleep.swap(0, Ordering::AcqRel) == 1 {
            shared.event.add_one();
        }
    };
    the_sleeper_sees_all(make, kick, |shared| {
        shared.asleep.store(1, Ordering::SeqCst);
        shared.event.wait_readable();
        shared.event.empty();
    });
}
