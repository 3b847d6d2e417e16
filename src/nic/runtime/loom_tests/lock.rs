//! The NIC lock with everything around it: doorbells, waiting control operations, the kick.

use std::ops::ControlFlow;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{explore, join};
use crate::runtime::doorbells::DoorbellSet;
use crate::runtime::kick::Kick;
use crate::runtime::lock::{NicGuard, NicLock};

/// A NIC whose work is to have seen what was posted to each queue.
struct Nic {
    lock: NicLock<[bool; 2]>,
    kick: Arc<Kick>,
    doorbells: DoorbellSet,
    posted: [AtomicBool; 2],
}

impl Nic {
    fn new() -> Arc<Nic> {
        let kick = Arc::new(Kick::model());
        Arc::new(Nic {
            lock: NicLock::new([false; 2], kick.clone()),
            kick,
            doorbells: DoorbellSet::new(2),
            posted: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    /// Appends to a queue and rings its doorbell, without the NIC.
    fn append(&self, queue: usize) {
        self.posted[queue].store(true, Ordering::Relaxed);
        self.doorbells.ring(queue);
    }

    fn drain(&self, seen: &mut [bool; 2]) {
        self.doorbells.drain(|queue| {
            assert!(self.posted[queue].load(Ordering::Relaxed), "a doorbell arrived before its work");
            seen[queue] = true;
        });
    }

    fn serve(&self, guard: NicGuard<'_, [bool; 2]>) {
        guard.release(|seen| {
            self.drain(seen);
            ControlFlow::Continue(())
        });
    }

    fn post(&self, queue: usize) {
        self.append(queue);
        if let Some(guard) = self.lock.ring().unwrap() {
            self.serve(guard);
        }
    }

    fn poll(&self) {
        if let Some(guard) = self.lock.try_lock().unwrap() {
            self.serve(guard);
        }
    }

    /// The progress thread: goes on until it has found both queues served.
    fn progress(&self) {
        loop {
            let mut guard = self.lock.lock().unwrap();
            if guard.take_pending() {
                self.drain(&mut guard);
            }
            let done = *guard == [true; 2];
            self.serve(guard);
            if done {
                return;
            }
            if self.kick.prepare_sleep() {
                self.kick.wait_readable();
                self.kick.clear();
            }
        }
    }

    fn seen(&self) -> [bool; 2] {
        *self.lock.try_lock().unwrap().expect("the NIC was left held")
    }
}

#[test]
fn loom_two_posters_and_a_poller_leave_nothing_behind() {
    explore(Some(3), || {
        let nic = Nic::new();
        let posters = [0, 1].map(|queue| {
            let nic = nic.clone();
            thread::spawn(move || nic.post(queue))
        });
        nic.poll();
        join(posters);
        assert_eq!(nic.seen(), [true; 2], "a doorbell was lost");
    });
}

#[test]
fn loom_poster_and_poller_in_every_interleaving() {
    explore(None, || {
        let nic = Nic::new();
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(0)
        });
        nic.poll();
        poster.join().unwrap();
        assert_eq!(nic.seen(), [true, false], "a doorbell was lost");
    });
}

#[test]
fn loom_what_is_handed_over_reaches_the_progress_thread() {
    explore(Some(3), || {
        let nic = Nic::new();
        let posters = [0, 1].map(|queue| {
            let nic = nic.clone();
            thread::spawn(move || {
                nic.append(queue);
                if let Some(guard) = nic.lock.ring().unwrap() {
                    guard.release(|_| ControlFlow::Break(()));
                }
            })
        });
        nic.progress();
        join(posters);
    });
}

#[test]
fn loom_what_comes_during_a_control_operation_reaches_the_progress_thread() {
    explore(Some(3), || {
        let nic = Nic::new();
        let control = thread::spawn({
            let nic = nic.clone();
            move || {
                let mut guard = nic.lock.lock().unwrap();
                guard[1] = true;
                drop(guard);
                nic.kick.kick();
            }
        });
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(0)
        });
        let served_by_the_poster = nic.clone();
        nic.progress();
        control.join().unwrap();
        poster.join().unwrap();
        assert_eq!(served_by_the_poster.seen(), [true; 2]);
    });
}

#[test]
fn loom_control_operations_wait_for_each_other_and_are_woken() {
    explore(Some(3), || {
        let lock = Arc::new(NicLock::new(0, Arc::new(Kick::model())));
        let others = [(); 2].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || *lock.lock().unwrap() += 1)
        });
        *lock.lock().unwrap() += 1;
        join(others);
        assert_eq!(*lock.lock().unwrap(), 3);
    });
}

#[test]
fn loom_a_waiting_control_operation_is_woken_past_posters() {
    explore(Some(3), || {
        let nic = Nic::new();
        let posters = [0, 1].map(|queue| {
            let nic = nic.clone();
            thread::spawn(move || nic.post(queue))
        });
        let mut guard = nic.lock.lock().unwrap();
        if guard.take_pending() {
            nic.drain(&mut guard);
        }
        nic.serve(guard);
        join(posters);
        assert_eq!(nic.seen(), [true; 2], "a doorbell was lost");
    });
}

#[test]
fn loom_waiters_hear_of_a_panic() {
    explore(None, || {
        let lock = Arc::new(NicLock::new((), Arc::new(Kick::model())));
        let waiter = thread::spawn({
            let lock = lock.clone();
            move || lock.lock().map(drop)
        });
        if let Ok(guard) = lock.lock() {
            let holder = std::panic::AssertUnwindSafe(move || {
                let _guard = guard;
                std::panic::resume_unwind(Box::new("a holder"));
            });
            std::panic::catch_unwind(holder).unwrap_err();
        }
        let _ = waiter.join().unwrap();
        assert!(lock.lock().is_err() && lock.try_lock().is_err() && lock.ring().is_err());
    });
}
