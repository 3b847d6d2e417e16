//! Kicking against going to sleep and waking.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::{self, JoinHandle};

use super::{explore, join, sleep};
use crate::eventfd::EventFd;
use crate::kick::Kick;

/// One thread makes work visible and kicks, another does so twice; the sleeper goes on until it has seen all.
fn the_sleeper_sees_all<K: Send + Sync + 'static>(
    make: fn() -> K,
    kick: fn(&K),
    wait: fn(&K, &mut Vec<JoinHandle<()>>),
) {
    explore(Some(4), move || {
        let shared = Arc::new((make(), [(); 3].map(|()| AtomicBool::new(false))));
        let mut kickers = Vec::from([0..1, 1..3].map(|works| {
            let shared = shared.clone();
            thread::spawn(move || {
                for work in works {
                    shared.1[work].store(true, Ordering::Relaxed);
                    kick(&shared.0);
                }
            })
        }));
        while !shared.1.iter().all(|work| work.load(Ordering::Relaxed)) {
            wait(&shared.0, &mut kickers);
        }
        join(kickers);
    });
}

#[test]
fn loom_no_kick_is_lost() {
    the_sleeper_sees_all(Kick::model, Kick::kick, |kick, others| {
        if kick.prepare_sleep() {
            sleep(others, || kick.is_readable());
            kick.clear(kick.is_readable());
        }
    });
}

/// Every kicker writes to the eventfd, unless one has since it was last emptied.
struct Naive {
    kicked: AtomicBool,
    event: EventFd,
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn loom_finds_the_kick_lost_by_emptying_the_eventfd_after_clearing_the_mark() {
    let make = || Naive { kicked: AtomicBool::new(false), event: EventFd::model() };
    let kick = |naive: &Naive| {
        if !naive.kicked.swap(true, Ordering::AcqRel) {
            naive.event.add_one();
        }
    };
    the_sleeper_sees_all(make, kick, |naive, others| {
        sleep(others, || naive.event.is_readable());
        naive.kicked.swap(false, Ordering::AcqRel);
        naive.event.empty();
    });
}

/// Only a sleeper is written to, but going to sleep does not look for kicks.
struct Announced {
    asleep: AtomicBool,
    event: EventFd,
}

#[test]
#[should_panic(expected = "asleep for ever")]
fn loom_finds_the_kick_lost_by_going_to_sleep_without_looking_for_kicks() {
    let make = || Announced { asleep: AtomicBool::new(false), event: EventFd::model() };
    let kick = |shared: &Announced| {
        if shared.asleep.swap(false, Ordering::AcqRel) {
            shared.event.add_one();
        }
    };
    the_sleeper_sees_all(make, kick, |shared, others| {
        shared.asleep.swap(true, Ordering::AcqRel);
        sleep(others, || shared.event.is_readable());
        shared.asleep.swap(false, Ordering::AcqRel);
        shared.event.empty();
    });
}
