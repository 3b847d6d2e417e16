use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::kick::Kick;
use crate::lock::{NicLock, Poisoned};

fn lock_with_kick<T>(value: T) -> (NicLock<T>, Arc<Kick>) {
    let kick = Arc::new(Kick::new().unwrap());
    (NicLock::new(value, kick.clone()), kick)
}

#[test]
fn ringing_a_held_nic_makes_the_holder_go_round() {
    let (lock, _kick) = lock_with_kick(0);
    let mut guard = lock.ring().unwrap().expect("nobody holds it");
    assert!(guard.take_pending(), "who rings has work");
    assert!(lock.ring().unwrap().is_none());
    let mut guard = guard.finish().expect_err("somebody rang");
    assert!(guard.take_pending());
    guard.finish().map_err(drop).expect("nobody rang");
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_holder_that_has_not_looked_for_work_cannot_finish() {
    let (lock, _kick) = lock_with_kick(0);
    let guard = lock.ring().unwrap().unwrap();
    let mut guard = guard.finish().expect_err("its own work is not done");
    guard.take_pending();
    assert!(guard.finish().is_ok());
}

#[test]
fn a_poller_leaves_no_mark_on_a_held_nic() {
    let (lock, _kick) = lock_with_kick(0);
    let mut guard = lock.try_lock().unwrap().unwrap();
    assert!(!guard.take_pending());
    assert!(lock.try_lock().unwrap().is_none());
    assert!(guard.finish().is_ok());
}

#[test]
fn release_serves_once_per_round_until_nothing_is_pending() {
    let (lock, kick) = lock_with_kick(0);
    lock.ring().unwrap().unwrap().release(|rounds| {
        *rounds += 1;
        if *rounds < 3 {
            assert!(lock.ring().unwrap().is_none());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(*lock.lock().unwrap(), 3);
    assert!(kick.prepare_sleep(), "nobody needed to be kicked");
}

#[test]
fn a_hold_that_was_long_enough_leaves_pending_and_kicks() {
    let (lock, kick) = lock_with_kick(());
    lock.ring().unwrap().unwrap().release(|()| ControlFlow::Break(()));
    assert!(!kick.prepare_sleep(), "kicked");
    let mut next = lock.try_lock().unwrap().unwrap();
    assert!(next.take_pending());
}

#[test]
fn dropping_a_guard_passes_on_what_came_meanwhile() {
    let (lock, kick) = lock_with_kick(());
    drop(lock.lock().unwrap());
    assert!(kick.prepare_sleep(), "nothing came");
    kick.clear(true);
    let guard = lock.lock().unwrap();
    assert!(lock.ring().unwrap().is_none());
    drop(guard);
    assert!(!kick.prepare_sleep(), "kicked");
    assert!(lock.lock().unwrap().take_pending());
}

#[test]
fn a_panic_poisons_and_is_told_to_waiters_and_the_progress_thread() {
    let (lock, kick) = lock_with_kick(());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        let holder = AssertUnwindSafe(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(catch_unwind(holder).is_err());
        assert_eq!(waiter.join().unwrap(), Err(Poisoned));
    });
    assert!(!kick.prepare_sleep(), "kicked");
    assert_eq!(lock.lock().map(drop), Err(Poisoned));
    assert_eq!(lock.try_lock().map(drop), Err(Poisoned));
    assert_eq!(lock.ring().map(drop), Err(Poisoned));
    assert_eq!(lock.ring().map(drop), Err(Poisoned), "still");
}

#[test]
fn a_guard_taken_while_unwinding_does_not_poison() {
    struct OnDrop<'a>(&'a NicLock<u32>);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let (lock, _kick) = lock_with_kick(0);
    let unwinds = AssertUnwindSafe(|| {
        let _on_drop = OnDrop(&lock);
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(catch_unwind(unwinds).is_err());
    assert_eq!(*lock.lock().unwrap(), 1);
}

#[test]
fn a_detached_nic_stays_held_and_owes_its_work() {
    let (lock, _kick) = lock_with_kick(7);
    let held = lock.ring().unwrap().unwrap().detach();
    assert!(lock.try_lock().unwrap().is_none());
    let mut guard = lock.attach(held);
    assert!(guard.take_pending());
    assert_eq!(*guard, 7);
    assert!(guard.finish().is_ok());
}

#[test]
#[should_panic(expected = "another lock's")]
fn a_detached_nic_is_not_attached_to_another_lock() {
    let (lock, _kick) = lock_with_kick(());
    let (other, _other_kick) = lock_with_kick(());
    let held = lock.lock().unwrap().detach();
    drop(other.attach(held));
}

/// Posters, a poller that never rests, control operations that wait, holds that are cut short: all that was
/// posted has been served in the end, and every control operation was let in.
#[test]
fn posters_pollers_and_control_operations_share_the_nic() {
    const POSTS: u64 = 20_000;
    const CONTROLS: u64 = 2_000;
    #[derive(Default)]
    struct Nic {
        served: u64,
        controls: u64,
    }
    let (lock, kick) = lock_with_kick(Nic::default());
    let posted = AtomicU64::new(0);
    let serve = |nic: &mut Nic| {
        nic.served = posted.load(Ordering::Relaxed);
        if nic.served.is_multiple_of(7) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    thread::scope(|scope| {
        let workers = [0, 1].map(|_| {
            scope.spawn(|| {
                for _ in 0..POSTS {
                    posted.fetch_add(1, Ordering::Relaxed);
                    if let Some(guard) = lock.ring().unwrap() {
                        guard.release(serve);
                    }
                }
            })
        });
        let control = scope.spawn(|| {
            for _ in 0..CONTROLS {
                lock.lock().unwrap().controls += 1;
            }
        });
        while !(workers.iter().all(|worker| worker.is_finished()) && control.is_finished()) {
            if let Some(guard) = lock.try_lock().unwrap() {
                guard.release(serve);
            }
        }
    });
    let mut guard = lock.lock().unwrap();
    let left = guard.take_pending();
    assert!(!left || !kick.prepare_sleep(), "left pending without a kick");
    if left {
        let _ = serve(&mut guard);
    }
    assert_eq!((guard.served, guard.controls), (2 * POSTS, CONTROLS));
}
