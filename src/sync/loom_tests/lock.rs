//! The NIC lock with everything around it: doorbells, waiting control operations, the kick.

use std::ops::ControlFlow;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::{self, JoinHandle};

use super::{explore, join, sleep};
use crate::doorbells::DoorbellSet;
use crate::kick::Kick;
use crate::lock::{NicGuard, NicLock};

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

    /// The progress thread: goes on until it has served both queues.
    fn progress(&self, mut others: Vec<JoinHandle<()>>) {
        let mut done = false;
        loop {
            self.lock.lock().unwrap().release(|seen| {
                self.drain(seen);
                done = *seen == [true; 2];
                ControlFlow::Continue(())
            });
            if done {
                return join(others);
            }
            if self.kick.prepare_sleep() {
                sleep(&mut others, || self.kick.is_readable());
                self.kick.clear(self.kick.is_readable());
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
fn loom_posters_after_a_hand_over_take_what_was_left_as_well() {
    explore(None, || {
        let nic = Nic::new();
        nic.append(0);
        nic.lock.ring().unwrap().unwrap().hand_over();
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(1)
        });
        nic.post(0);
        poster.join().unwrap();
        assert_eq!(nic.seen(), [true; 2], "a doorbell was lost");
    });
}

#[test]
fn loom_what_is_handed_over_reaches_the_progress_thread() {
    explore(Some(3), || {
        let nic = Nic::new();
        let posters = Vec::from([0, 1].map(|queue| {
            let nic = nic.clone();
            thread::spawn(move || {
                nic.append(queue);
                if let Some(guard) = nic.lock.ring().unwrap() {
                    guard.release(|_| ControlFlow::Break(()));
                }
            })
        }));
        nic.progress(posters);
    });
}

/// The poster serves its work itself, or finds the control operation at it; that knows nothing of posting.
#[test]
fn loom_what_comes_during_a_control_operation_reaches_the_progress_thread() {
    explore(None, || {
        let nic = Nic::new();
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(0)
        });
        drop(nic.lock.lock().unwrap());
        poster.join().unwrap();
        let kicked = !nic.kick.prepare_sleep();
        let mut guard = nic.lock.try_lock().unwrap().expect("the NIC was left held");
        assert_eq!(guard.take_pending(), kicked);
        assert_eq!(guard[0], !kicked, "a doorbell was lost");
        nic.drain(&mut guard);
        assert!(guard[0], "a doorbell was lost");
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
        nic.serve(nic.lock.lock().unwrap());
        join(posters);
        assert_eq!(nic.seen(), [true; 2], "a doorbell was lost");
    });
}

/// (A real panic would leave loom's own locks poisoned.)
#[test]
fn loom_waiters_hear_of_a_holder_that_panicked() {
    explore(None, || {
        let lock = Arc::new(NicLock::new((), Arc::new(Kick::model())));
        let waiter = thread::spawn({
            let lock = lock.clone();
            move || lock.lock().map(NicGuard::hand_over)
        });
        lock.lock().unwrap().poison();
        let _before_or_after = waiter.join().unwrap();
        assert!(lock.lock().is_err() && lock.try_lock().is_err() && lock.ring().is_err());
    });
}
