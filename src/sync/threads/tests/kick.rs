use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::kick::Kick;

fn is_readable(kick: &Kick, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: kick.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which poll reads and writes.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

#[test]
fn a_kick_keeps_the_thread_from_sleeping() {
    let kick = Kick::new().unwrap();
    kick.kick();
    kick.kick();
    assert!(!is_readable(&kick, 0), "nobody sleeps, so nobody is written to");
    assert!(!kick.prepare_sleep());
    assert!(kick.prepare_sleep(), "one round for both kicks");
}

#[test]
fn a_kick_wakes_a_sleeper_once() {
    let kick = Kick::new().unwrap();
    assert!(kick.prepare_sleep());
    assert!(!is_readable(&kick, 0));
    kick.kick();
    kick.kick();
    assert!(is_readable(&kick, 0));
    kick.clear(true);
    assert!(!is_readable(&kick, 0));
    assert!(kick.prepare_sleep(), "the kicks were seen when it woke");
}

#[test]
fn a_sleeper_that_wakes_by_itself_sleeps_again() {
    let kick = Kick::new().unwrap();
    assert!(kick.prepare_sleep());
    kick.clear(false);
    assert!(kick.prepare_sleep());
    kick.kick();
    assert!(is_readable(&kick, 0));
}

#[test]
fn a_kick_after_the_sleeper_has_looked_is_not_left_in_the_descriptor() {
    let kick = Kick::new().unwrap();
    assert!(kick.prepare_sleep());
    let seen = is_readable(&kick, 0);
    kick.kick();
    kick.clear(seen);
    assert!(!is_readable(&kick, 0), "a descriptor that stays readable would keep the thread awake");
    assert!(kick.prepare_sleep());
}

#[test]
fn no_kick_is_lost_between_threads() {
    const KICKS: u64 = 20_000;
    let kick = Kick::new().unwrap();
    let work = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..KICKS {
                    work.fetch_add(1, Ordering::Relaxed);
                    kick.kick();
                }
            });
        }
        while work.load(Ordering::Relaxed) < 2 * KICKS {
            if kick.prepare_sleep() {
                assert!(is_readable(&kick, 10_000), "asleep for ever");
                kick.clear(true);
            }
        }
    });
}
