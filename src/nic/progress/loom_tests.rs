//! The words, the policy and the kick in every interleaving: nothing that a thread waits for is left to a thread that
//! sleeps. Beside each protocol is a broken variant of it, in which loom must find the failure.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use loom::thread;
use softrnic_wire::Time;

use super::policy::{Event, Plan, Policy};
use super::shared_flags::SharedFlags;
use super::tuning::TICK;
use softrnic_sync::doorbells::DoorbellSet;
use softrnic_sync::kick::Kick;
use softrnic_sync::lock::NicLock;
use softrnic_sync::models::explore;

/// The current time, which stands still.
fn now() -> Time {
    Time::ZERO + 100 * TICK
}

/// What the NIC lock protects.
struct Core {
    policy: Policy,
    deadline: Time,
    /// Of what was posted to each queue.
    served: [usize; 2],
}

struct Nic {
    core: NicLock<Core>,
    doorbells: DoorbellSet,
    flags: SharedFlags,
    kick: Arc<Kick>,
    posted: [AtomicUsize; 2],
}

impl Nic {
    fn new() -> Arc<Nic> {
        let kick = Arc::new(Kick::model());
        let core = Core { policy: Policy::default(), deadline: Time::NEVER, served: [0; 2] };
        Arc::new(Nic {
            core: NicLock::new(core, kick.clone()),
            doorbells: DoorbellSet::new(2),
            flags: SharedFlags::new(),
            kick,
            posted: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    /// Posts something to be gathered.
    fn post(&self, queue: usize) {
        self.posted[queue].fetch_add(1, Ordering::Relaxed);
        if self.doorbells.join(queue) && self.flags.gather() {
            self.kick.kick();
        }
    }

    fn drain(&self, core: &mut Core) {
        self.flags.before_drain();
        self.doorbells.drain(|queue| {
            core.served[queue] = self.posted[queue].load(Ordering::Relaxed);
            assert!(core.served[queue] > 0, "a doorbell arrived before its work");
        });
    }

    /// A caller drives, and sets a deadline if given one.
    fn drive(&self, deadline: Option<Time>) {
        let Some(mut guard) = self.core.try_lock().unwrap() else { return };
        self.drain(&mut guard);
        guard.deadline = deadline.unwrap_or(guard.deadline);
        let event = Event::Driven { posted: true, deadline: guard.deadline };
        let wakes_at = guard.policy.plan().wake_at;
        if guard.policy.on(event, now()).wake_at < wakes_at {
            self.kick.kick();
        }
        drop(guard);
    }

    /// The progress thread's turn. `None` if a caller drives.
    fn turn(&self, handed_over: bool) -> Option<Plan> {
        let mut guard = self.core.try_lock().unwrap()?;
        guard.policy.on(Event::Woken { by_link: false, handed_over, last_poll: Time::ZERO }, now());
        self.drain(&mut guard);
        let deadline = guard.deadline;
        Some(guard.policy.on(Event::Served { received: false, requests: false, deadline }, now()))
    }

    /// The progress thread takes turns until it sleeps; returns the plan with which it does.
    fn sleeps(&self) -> Plan {
        let mut plan = Plan::START;
        let mut handed_over = false;
        loop {
            self.flags.sleep(plan, now());
            if plan.wake_at > now() && self.kick.prepare_sleep() {
                return plan;
            }
            self.kick.clear(self.kick.is_readable());
            handed_over |= self.flags.wake();
            match self.turn(handed_over) {
                Some(next) => {
                    plan = next;
                    handed_over = false;
                }
                None => plan = plan.rest(now(), handed_over),
            }
        }
    }

    /// Whether the thread that fell asleep with `plan` sleeps until something comes from outside.
    fn sleeps_on(&self, plan: Plan) -> bool {
        !self.kick.is_readable() && !plan.ticks(now())
    }

    /// Whether everything that was posted to the queue is served.
    fn is_served(&self, queue: usize) -> bool {
        let core = self.core.try_lock().unwrap().expect("the NIC was left held");
        core.served[queue] == self.posted[queue].load(Ordering::Relaxed)
    }
}

#[test]
fn loom_a_gathered_post_is_not_left_to_a_thread_that_sleeps() {
    explore(Some(4), || {
        let nic = Nic::new();
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(0)
        });
        let plan = nic.sleeps();
        poster.join().unwrap();
        assert!(nic.is_served(0) || !nic.sleeps_on(plan), "a gathered post was left");
    });
}

/// While a caller polls, it takes the mark of one post with the doorbell of the other, or not.
#[test]
fn loom_gathered_posts_are_not_left_between_a_caller_and_the_thread() {
    explore(Some(3), || {
        let nic = Nic::new();
        let poster = thread::spawn({
            let nic = nic.clone();
            move || nic.post(0)
        });
        let caller = thread::spawn({
            let nic = nic.clone();
            move || {
                nic.post(1);
                nic.drive(None);
            }
        });
        let plan = nic.sleeps();
        poster.join().unwrap();
        caller.join().unwrap();
        let served = nic.is_served(0) && nic.is_served(1);
        assert!(served || !nic.sleeps_on(plan), "a gathered post was left");
    });
}

/// The second leaves its post to whoever rang for the first.
#[test]
fn loom_gathered_posts_of_one_queue_are_not_left() {
    explore(Some(3), || {
        let nic = Nic::new();
        let posters = [0; 2].map(|queue| {
            let nic = nic.clone();
            thread::spawn(move || nic.post(queue))
        });
        let plan = nic.sleeps();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert!(nic.is_served(0) || !nic.sleeps_on(plan), "a gathered post was left");
    });
}

#[test]
fn loom_a_deadline_is_not_slept_over() {
    explore(Some(4), || {
        let nic = Nic::new();
        let deadline = now() + 10 * TICK;
        let caller = thread::spawn({
            let nic = nic.clone();
            move || {
                nic.drive(Some(deadline));
                // Whether it got the NIC.
                nic.core.try_lock().unwrap().is_some_and(|guard| guard.deadline == deadline)
            }
        });
        let plan = nic.sleeps();
        let brought = caller.join().unwrap();
        let kicked = nic.kick.is_readable();
        assert!(!brought || kicked || plan.wake_at <= deadline, "a deadline was slept over");
    });
}

#[test]
fn loom_a_link_that_is_handed_over_is_watched() {
    explore(Some(4), || {
        let nic = Nic::new();
        // The thread is suspended: callers have polled.
        let suspended = Plan {
            watch_link: false,
            wake_at: now() + 10 * TICK,
            spin_until: Time::ZERO,
            rings_caller: false,
        };
        let application = thread::spawn({
            let nic = nic.clone();
            move || {
                if nic.flags.hand_over() {
                    nic.kick.kick();
                }
            }
        });
        nic.flags.sleep(suspended, now());
        let slept = nic.kick.prepare_sleep();
        application.join().unwrap();
        let woken = !slept || nic.kick.is_readable();
        assert!(woken, "the link is nobody's");
        assert!(nic.flags.wake(), "the turn does not hear of it");
    });
}

/// What a thread that sleeps for long and a thread that gathers both read.
#[derive(Default)]
struct Naive {
    doorbell: AtomicBool,
    gathered: AtomicBool,
    asleep: AtomicBool,
    drained: AtomicU32,
}

impl Naive {
    fn drain(&self) {
        if self.doorbell.swap(false, Ordering::AcqRel) {
            self.drained.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A caller told about an earlier post drains while another post is gathered, about which no thread is told.
fn a_post_and_a_drain(gather: fn(&Naive) -> bool, drain: fn(&Naive)) {
    explore(None, move || {
        let naive = Arc::new(Naive::default());
        naive.gathered.store(true, Ordering::Relaxed);
        let poster = thread::spawn({
            let naive = naive.clone();
            move || {
                naive.doorbell.store(true, Ordering::Release);
                gather(&naive)
            }
        });
        drain(&naive);
        let answers = poster.join().unwrap();
        let marked = naive.gathered.load(Ordering::Acquire);
        assert!(answers || marked || naive.drained.load(Ordering::Relaxed) == 1, "a gathered post was left");
    });
}

fn naive_drain(naive: &Naive) {
    naive.gathered.store(false, Ordering::Release);
    naive.drain();
}

#[test]
#[should_panic(expected = "a gathered post was left")]
fn loom_finds_the_post_left_by_looking_for_the_mark_with_a_plain_load() {
    a_post_and_a_drain(
        |naive| !naive.gathered.load(Ordering::Acquire) && !naive.gathered.swap(true, Ordering::AcqRel),
        naive_drain,
    );
}

#[test]
#[should_panic(expected = "a gathered post was left")]
fn loom_finds_the_post_left_by_clearing_the_mark_after_the_drain() {
    a_post_and_a_drain(
        |naive| !naive.gathered.swap(true, Ordering::AcqRel),
        |naive| {
            naive.drain();
            naive.gathered.swap(false, Ordering::AcqRel);
        },
    );
}

/// The harness itself does not fail.
#[test]
fn loom_finds_nothing_wrong_with_plain_accesses_behind_fences() {
    a_post_and_a_drain(
        |naive| {
            fence(Ordering::SeqCst);
            !naive.gathered.load(Ordering::Relaxed) && !naive.gathered.swap(true, Ordering::AcqRel)
        },
        |naive| {
            naive.gathered.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            naive.drain();
        },
    );
}

/// One word says that the link was handed over, another that the thread does not watch it: each side reads the other's.
#[test]
#[should_panic(expected = "the link is nobody's")]
fn loom_finds_the_hand_over_lost_between_two_words() {
    explore(None, || {
        let handed_over = Arc::new(AtomicBool::new(false));
        let suspended = Arc::new(AtomicBool::new(false));
        let application = thread::spawn({
            let (handed_over, suspended) = (handed_over.clone(), suspended.clone());
            move || {
                handed_over.store(true, Ordering::Release);
                suspended.load(Ordering::Acquire)
            }
        });
        suspended.store(true, Ordering::Release);
        let heard = handed_over.load(Ordering::Acquire);
        let kicked = application.join().unwrap();
        assert!(heard || kicked, "the link is nobody's");
    });
}

/// The plan is made under the lock, and published to callers after it.
#[test]
#[should_panic(expected = "a deadline was slept over")]
fn loom_finds_the_deadline_slept_over_by_a_plan_that_is_shown_too_late() {
    explore(None, || {
        let deadline = Arc::new(AtomicU32::new(0));
        let naive = Arc::new(Naive::default());
        let caller = thread::spawn({
            let (deadline, naive) = (deadline.clone(), naive.clone());
            move || {
                deadline.store(1, Ordering::Release);
                naive.asleep.load(Ordering::Acquire)
            }
        });
        let seen = deadline.load(Ordering::Acquire) == 1;
        naive.asleep.store(true, Ordering::Release);
        let kicked = caller.join().unwrap();
        assert!(seen || kicked, "a deadline was slept over");
    });
}
