//! Arming against publishing.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use loom::thread;

use super::explore;
use crate::notify::arming;

/// A completion queue as the consumer of a ring sees it: published with a release, polled with an acquire.
#[derive(Default)]
struct Cq {
    published: AtomicU32,
}

impl Cq {
    fn push(&self) {
        self.published.store(1, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.published.load(Ordering::Acquire) == 0
    }
}

/// The application arms and looks again, the NIC publishes and asks.
fn no_lost_wakeup(
    make: impl Fn() -> (Box<dyn Fn() + Send>, Box<dyn Fn() -> bool + Send>) + Send + Sync + 'static,
) {
    explore(None, move || {
        let cq = Arc::new(Cq::default());
        let (arm, should_fire) = make();
        let nic = thread::spawn({
            let cq = cq.clone();
            move || {
                cq.push();
                should_fire()
            }
        });
        arm();
        let saw_nothing = cq.is_empty();
        let fired = nic.join().unwrap();
        assert!(!saw_nothing || fired, "a wake-up was lost");
    });
}

#[test]
fn loom_arming_loses_no_wakeup() {
    no_lost_wakeup(|| {
        let (app, nic) = arming();
        (Box::new(move || app.arm(false)), Box::new(move || nic.should_fire(false)))
    });
}

#[test]
fn loom_arming_for_solicited_loses_no_wakeup() {
    no_lost_wakeup(|| {
        let (app, nic) = arming();
        (Box::new(move || app.arm(true)), Box::new(move || nic.should_fire(true)))
    });
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn loom_finds_the_wakeup_lost_by_a_plain_load() {
    no_lost_wakeup(|| {
        let armed = Arc::new(AtomicU8::new(0));
        let arm = {
            let armed = armed.clone();
            move || {
                armed.swap(1, Ordering::AcqRel);
            }
        };
        let should_fire = move || armed.load(Ordering::Acquire) == 1 && armed.swap(0, Ordering::AcqRel) == 1;
        (Box::new(arm), Box::new(should_fire))
    });
}

/// Should there ever be two publishers, such as two lanes: exactly one fires.
#[test]
fn loom_one_arming_fires_once() {
    explore(None, || {
        let (app, nic) = arming();
        let nic = Arc::new(nic);
        app.arm(false);
        let other = thread::spawn({
            let nic = nic.clone();
            move || nic.should_fire(true)
        });
        let here = nic.should_fire(false);
        let there = other.join().unwrap();
        assert!(here != there, "one arming, and not one event");
    });
}
