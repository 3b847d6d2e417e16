//! What lanes would have between them (decision 40): several locks of the kind of the NIC's, each with its own queue pairs.
//!
//! Three things cross from one lane to another: a packet that came for a queue pair of the other lane, the end of a memory
//! region that all lanes use, and completions of several lanes in one queue.

use std::ops::ControlFlow;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{explore, join};
use crate::kick::Kick;
use crate::lock::NicLock;

/// A lane: its lock, what others have put before it, and how much it has served.
struct Lane {
    lock: NicLock<usize>,
    inbox: Mutex<usize>,
    kick: Arc<Kick>,
}

impl Lane {
    fn new() -> Lane {
        let kick = Arc::new(Kick::model());
        Lane { lock: NicLock::new(0, kick.clone()), inbox: Mutex::new(0), kick }
    }

    fn serve(&self, served: &mut usize) {
        *served += std::mem::take(&mut *self.inbox.lock().unwrap());
    }

    /// A packet came to somebody who holds another lane, or the link: it is left here, and whoever holds this lane takes it.
    fn leave(&self) {
        *self.inbox.lock().unwrap() += 1;
        self.run();
    }

    /// The bell: becomes the holder, or tells it.
    fn run(&self) {
        if let Some(guard) = self.lock.ring().unwrap() {
            guard.release(|served| {
                self.serve(served);
                ControlFlow::Continue(())
            });
        }
    }
}

#[test]
fn loom_a_packet_for_another_lane_is_taken_by_whoever_holds_it() {
    explore(Some(3), || {
        let lane = Arc::new(Lane::new());
        let others = [(); 2].map(|()| {
            let lane = lane.clone();
            thread::spawn(move || lane.leave())
        });
        // The lane's own thread polls.
        if let Some(guard) = lane.lock.try_lock().unwrap() {
            guard.release(|served| {
                lane.serve(served);
                ControlFlow::Continue(())
            });
        }
        join(others);
        let served = *lane.lock.try_lock().unwrap().expect("free");
        assert_eq!(served, 2, "a packet was left behind");
        assert!(!lane.kick.is_readable(), "nothing was handed over");
    });
}

/// Whoever finds the lane held believes that its holder looks once more.
#[test]
#[should_panic(expected = "a packet was left behind")]
fn loom_finds_the_packet_lost_by_only_trying_the_lock() {
    explore(Some(3), || {
        let lane = Arc::new(Lane::new());
        let try_it = |lane: &Lane| {
            *lane.inbox.lock().unwrap() += 1;
            if let Some(guard) = lane.lock.try_lock().unwrap() {
                let mut guard = guard;
                lane.serve(&mut guard);
                drop(guard);
            }
        };
        let other = thread::spawn({
            let lane = lane.clone();
            move || try_it(&lane)
        });
        try_it(&lane);
        other.join().unwrap();
        let served = *lane.lock.try_lock().unwrap().expect("free");
        assert_eq!(served, 2, "a packet was left behind");
    });
}

/// A region that lanes copy to without a lock of its own, and whose memory goes once it is deregistered.
struct Memory {
    valid: AtomicBool,
    bytes: UnsafeCell<u32>,
    lanes: [NicLock<()>; 2],
}

impl Memory {
    fn new() -> Arc<Memory> {
        let lane = || NicLock::new((), Arc::new(Kick::model()));
        Arc::new(Memory { valid: AtomicBool::new(true), bytes: UnsafeCell::new(0), lanes: [lane(), lane()] })
    }

    /// A lane receives a WRITE: the key is looked up and the bytes are copied in one hold.
    fn receive(&self, lane: usize) {
        if let Some(guard) = self.lanes[lane].try_lock().unwrap() {
            if self.valid.load(Ordering::Relaxed) {
                self.bytes.with(|_| ());
            }
            guard.finish().map_err(drop).expect("nobody rang");
        }
    }

    /// The memory is the application's again.
    fn unmap(&self) {
        self.bytes.with_mut(|_| ());
    }
}

/// The key goes first. Whoever holds a lane then may have seen it, and nobody who takes one later.
#[test]
fn loom_deregistering_ends_when_each_lane_has_been_held_once() {
    explore(Some(3), || {
        let memory = Memory::new();
        let lanes = [0, 1].map(|lane| {
            let memory = memory.clone();
            thread::spawn(move || memory.receive(lane))
        });
        memory.valid.store(false, Ordering::Relaxed);
        for lane in &memory.lanes {
            lane.lock().unwrap().finish().map_err(drop).expect("nobody rang");
        }
        memory.unmap();
        join(lanes);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_the_copy_after_a_deregistration_that_waits_for_one_lane_alone() {
    explore(Some(3), || {
        let memory = Memory::new();
        let lane = thread::spawn({
            let memory = memory.clone();
            move || memory.receive(1)
        });
        memory.valid.store(false, Ordering::Relaxed);
        memory.lanes[0].lock().unwrap().finish().map_err(drop).expect("nobody rang");
        memory.unmap();
        lane.join().unwrap();
    });
}

/// A completion queue of several lanes: each has a ring of its own in it, and the order between lanes is that of a ticket
/// that is drawn before the entry is shown.
struct Completions {
    tickets: AtomicUsize,
    /// Tickets of each lane's ring, 0 if nothing is there yet.
    rings: [AtomicUsize; 2],
}

impl Completions {
    fn complete(&self, lane: usize) -> usize {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        self.rings[lane].store(ticket, Ordering::Release);
        ticket
    }

    /// What a poll finds, with the lowest ticket first.
    fn poll(&self) -> Vec<usize> {
        let mut found: Vec<_> = self.rings.iter().map(|ring| ring.load(Ordering::Acquire)).collect();
        found.retain(|&ticket| ticket > 0);
        found.sort_unstable();
        found
    }
}

/// Verbs promise the order of one queue pair, and that a completion is there once what it caused is seen: lane 1 completes
/// after it has seen the effect of lane 0's completion.
#[test]
fn loom_completions_of_two_lanes_that_depend_on_each_other_come_in_that_order() {
    explore(None, || {
        let queue = Arc::new(Completions {
            tickets: AtomicUsize::new(0),
            rings: [AtomicUsize::new(0), AtomicUsize::new(0)],
        });
        let effect = Arc::new(AtomicBool::new(false));
        let first = thread::spawn({
            let (queue, effect) = (queue.clone(), effect.clone());
            move || {
                queue.complete(0);
                effect.store(true, Ordering::Release);
            }
        });
        let second = thread::spawn({
            let (queue, effect) = (queue.clone(), effect.clone());
            move || {
                if effect.load(Ordering::Acquire) {
                    let ticket = queue.complete(1);
                    assert_eq!(ticket, 2);
                    assert_eq!(queue.poll(), [1, 2], "the first is there and before");
                }
            }
        });
        join([first, second]);
    });
}
