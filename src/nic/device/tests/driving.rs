//! The rules of which thread drives the NIC, and when: in virtual time, with the progress threads' turns taken here.
//!
//! Over 600 lines: all rules are tried in the same two devices, whose turns only this file takes.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use softrnic_transport::{AttrMask, QpAttr, QpState, Status, WcOpcode};
use softrnic_wire::Time;

use super::super::thread::Turns;
use super::wire::{PAUSE, wire};
use super::{End, Pair, pair_of};
use crate::device::{Clock, Nic};
use crate::progress::tuning::{
    BATCH, EVENT_SPIN, PASSIVE_SPIN, RECENT, SERVICE_INTERVAL, SERVICE_INTERVAL_IN_MEMORY, TICK,
};
use crate::verbs::{Block, QpAttributes, Running, WorkRequest};

const MICROSECOND: Duration = Duration::from_micros(1);

/// Two connected devices, their progress threads, and the time.
struct World {
    pair: Pair,
    near_thread: Sleeper,
    far_thread: Sleeper,
    time: &'static AtomicU64,
}

impl World {
    fn new() -> World {
        let time: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(1_000_000_000)));
        let pair = pair_of(wire(1), |link, address, name| {
            Running::in_virtual_time(Box::new(link), address, name, Clock::set_by(time)).expect("starts")
        });
        let near_thread = Sleeper::of(&pair.near, pair.back.descriptor());
        let far_thread = Sleeper::of(&pair.far, pair.there.descriptor());
        let mut world = World { pair, near_thread, far_thread, time };
        world.pass(Duration::from_millis(10));
        world
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.time.load(Ordering::SeqCst))
    }

    /// Lets the progress threads do what they do until `delay` has passed.
    fn pass(&mut self, delay: Duration) {
        let end = self.now() + delay;
        loop {
            let now = self.now();
            // Both, whatever the first did.
            if self.near_thread.runs(now) | self.far_thread.runs(now) {
                continue;
            }
            let next = self.near_thread.wakes_at(now).min(self.far_thread.wakes_at(now)).min(end).max(now);
            self.time.store(next.as_nanos(), Ordering::SeqCst);
            if now >= end {
                return;
            }
        }
    }

    /// A round of an application that polls for the end of what it posts, and takes `MICROSECOND`s for it.
    fn post_and_poll(&mut self) {
        let Pair { near, far, .. } = &self.pair;
        near.qp.post(near.write_to(far, 0)).expect("posts");
        self.poll_until_done();
    }

    fn poll_until_done(&mut self) {
        for _ in 0..1000 {
            if self.pair.near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success)) == 1 {
                return;
            }
            self.pass(MICROSECOND);
        }
        panic!("nothing completes");
    }

    /// The near application polls for so long that its progress thread leaves it the link.
    fn suspend(&mut self) {
        let end = self.now() + 4 * TICK;
        while self.now() < end {
            self.post_and_poll();
            self.pass(MICROSECOND);
        }
        assert!(!self.near_thread.turns.plan.watch_link, "the link is the caller's");
    }

    /// How many packets the near end has sent, each counted once.
    fn requests_sent(&self) -> usize {
        let mut psns: Vec<_> = self.pair.there.packets().iter().map(|(_, psn)| psn.get()).collect();
        psns.sort_unstable();
        psns.dedup();
        psns.len()
    }

    fn nic(&self) -> &Nic {
        self.pair.near.context.nic()
    }
}

/// A progress thread that sleeps between its turns.
struct Sleeper {
    turns: Turns,
    nic: Arc<Nic>,
    link: RawFd,
    asleep: bool,
    taken: usize,
}

impl Sleeper {
    fn of(end: &End, link: RawFd) -> Sleeper {
        let nic = end.context.device().nic.clone();
        Sleeper { turns: Turns::at(nic.clone()), nic, link, asleep: false, taken: 0 }
    }

    /// Has a turn if it is awake, or if something wakes it.
    fn runs(&mut self, now: Time) -> bool {
        if now < self.turns.plan.spin_until {
            // One turn a microsecond: see `wakes_at`.
            let spins = !is_readable(self.link);
            self.take(true);
            return !spins;
        }
        if !self.asleep {
            self.nic.flags().sleep(self.turns.plan, now);
            self.asleep = self.nic.kick().prepare_sleep();
            if !self.asleep {
                self.take(false);
                return true;
            }
        }
        let kicked = is_readable(self.nic.kick().as_fd().as_raw_fd());
        let by_link = self.turns.plan.watch_link && is_readable(self.link);
        if !kicked && !by_link && self.turns.plan.wake_at > now {
            return false;
        }
        self.nic.kick().clear(kicked);
        self.asleep = false;
        self.take(by_link);
        true
    }

    fn take(&mut self, by_link: bool) {
        self.turns.take(by_link);
        self.taken += 1;
    }

    fn wakes_at(&self, now: Time) -> Time {
        if now < self.turns.plan.spin_until { now + MICROSECOND } else { self.turns.plan.wake_at }
    }
}

fn is_readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor of ours, no waiting.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn posts_on_a_busy_qp_leave_together_with_the_next_poll() {
    let world = World::new();
    let Pair { near, far, there, .. } = &world.pair;
    // Without answers the first stays in flight.
    there.cut();
    near.qp.post(near.write_to(far, 0)).expect("posts");
    for id in 1..5 {
        near.qp.post(near.write_to(far, id)).expect("posts");
    }
    assert_eq!((there.sent(), there.flushes()), (1, 1));
    near.cq.poll_with(1, |_| {});
    assert_eq!((there.sent(), there.flushes()), (5, 2), "one send for all of them");
}

#[test]
fn an_answer_leaves_at_once_although_its_qp_is_busy() {
    let mut world = World::new();
    let Pair { near, far, there, .. } = &world.pair;
    there.cut();
    near.qp.post(near.write_to(far, 0)).expect("posts");
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"question")).expect("posts");
    let mut found = None;
    near.cq.poll_with(1, |cqe| found = Some(cqe.opcode));
    assert_eq!(found, Some(WcOpcode::Recv));
    near.qp.post(near.write_to(far, 2)).expect("posts");
    assert_eq!(there.sent(), 3, "two WRITEs and an ACK");
    world.pass(TICK);
}

#[test]
fn a_full_batch_leaves_without_a_poll() {
    let world = World::new();
    let Pair { near, far, there, .. } = &world.pair;
    there.cut();
    for id in 0..BATCH as u64 {
        near.qp.post(near.write_to(far, id)).expect("posts");
    }
    assert_eq!(there.sent(), 1);
    near.qp.post(near.write_to(far, 0)).expect("posts");
    assert_eq!(there.sent(), BATCH + 1);
}

#[test]
fn gathered_posts_leave_at_once_when_nobody_has_polled() {
    let mut world = World::new();
    let Pair { near, far, there, .. } = &world.pair;
    there.cut();
    near.qp.post(near.write_to(far, 0)).expect("posts");
    near.qp.post(near.write_to(far, 1)).expect("posts");
    assert_eq!(there.sent(), 1);
    world.pass(Duration::ZERO);
    assert_eq!(world.pair.there.sent(), 2, "the progress thread was kicked");
}

#[test]
fn gathered_posts_leave_within_a_tick_after_the_last_poll() {
    let mut world = World::new();
    world.suspend();
    let Pair { near, far, .. } = &world.pair;
    near.qp.post(near.write_to(far, 0)).expect("posts");
    let requests = world.requests_sent();
    near.qp.post(near.write_to(far, 1)).expect("posts");
    assert_eq!(world.requests_sent(), requests, "it is gathered");
    world.pass(TICK);
    assert_eq!(world.requests_sent(), requests + 1);
}

#[test]
fn gathered_posts_leave_when_the_application_is_about_to_block() {
    let mut world = World::new();
    world.post_and_poll();
    let Pair { near, far, there, .. } = &world.pair;
    there.cut();
    near.qp.post(near.write_to(far, 0)).expect("posts");
    near.qp.post(near.write_to(far, 1)).expect("posts");
    let sent = there.sent();
    near.cq.arm(false);
    world.pass(Duration::ZERO);
    assert_eq!(world.pair.there.sent(), sent + 1);
}

#[test]
fn a_poll_that_finds_nothing_services_the_link() {
    let world = World::new();
    let Pair { near, back, .. } = &world.pair;
    let before = back.receives();
    assert_eq!(near.cq.poll_with(1, |_| {}), 0);
    assert_eq!(back.receives(), before + 1);
}

/// Such polls are most of what an application that waits does.
#[test]
fn a_poll_of_a_quiet_link_still_does_what_is_due() {
    let mut world = World::new();
    world.pair.back.says_quiet();
    world.post_and_poll();
    world.pass(MICROSECOND);
    let Pair { near, far, back, there } = &world.pair;
    let poll = || near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success));
    let before = back.receives();
    assert_eq!((poll(), back.receives()), (0, before), "there is nothing to do");
    // SendBatch, since the QP is busy.
    there.cut();
    near.qp.post(near.write_to(far, 0)).expect("posts");
    near.qp.post(near.write_to(far, 1)).expect("posts");
    let sent = there.sent();
    poll();
    assert_eq!(there.sent(), sent + 1, "what was gathered leaves");
    // None of it arrived; the thread, which would run the timer, does not get a processor.
    world.time.fetch_add(Duration::from_secs(1).as_nanos() as u64, Ordering::SeqCst);
    poll();
    assert!(there.sent() > sent + 1, "the timer runs");
}

#[test]
fn a_poll_that_finds_something_leaves_the_link_alone_for_a_while() {
    finds_something(SERVICE_INTERVAL, false);
}

#[test]
fn and_not_for_so_long_if_it_receives_in_memory() {
    finds_something(SERVICE_INTERVAL_IN_MEMORY, true);
}

fn finds_something(interval: Duration, in_memory: bool) {
    let mut world = World::new();
    if in_memory {
        world.pair.back.is_in_memory();
    }
    for id in 0..3 {
        let Pair { near, far, .. } = &world.pair;
        near.qp.post(near.write_to(far, id)).expect("posts");
    }
    // The first poll sends what was gathered; the far thread answers.
    world.pair.near.cq.poll_with(0, |_| {});
    world.poll_until_done();
    let Pair { near, back, .. } = &world.pair;
    let before = back.receives();
    assert_eq!(near.cq.poll_with(1, |_| {}), 1);
    assert_eq!(back.receives(), before, "serviced a moment ago");
    world.time.fetch_add(interval.as_nanos() as u64, Ordering::SeqCst);
    let Pair { near, back, .. } = &world.pair;
    assert_eq!(near.cq.poll_with(1, |_| {}), 1);
    assert_eq!(back.receives(), before + 1);
}

#[test]
fn an_application_that_polls_has_the_link_to_itself() {
    let mut world = World::new();
    world.suspend();
    let (taken, before) = (world.near_thread.taken, world.now());
    while world.now() < before + 10 * TICK {
        world.post_and_poll();
        world.pass(MICROSECOND);
    }
    assert!(!world.near_thread.turns.plan.watch_link);
    assert!(world.near_thread.taken - taken <= 11, "one turn a tick");
    // No calls come any longer.
    world.pass(TICK + RECENT);
    assert!(world.near_thread.turns.plan.watch_link, "it comes back");
    let taken = world.near_thread.taken;
    world.pass(100 * TICK);
    assert!(world.near_thread.taken <= taken + 1, "an idle device takes no ticks");
}

#[test]
fn the_progress_thread_serves_requests_of_peers_although_a_caller_polls() {
    let mut world = World::new();
    for id in 0..10_000 {
        let Pair { near, far, .. } = &world.pair;
        near.cq.poll_with(1, |_| {});
        far.qp.post(far.write_to(near, id)).expect("posts");
        world.pass(MICROSECOND);
        assert!(world.near_thread.turns.plan.watch_link, "it looked away after {id} WRITEs");
        assert_eq!(world.pair.far.cq.poll_with(1, |_| {}), 1, "WRITE {id} is acknowledged");
    }
}

#[test]
fn an_application_that_blocks_hands_the_link_over() {
    let mut world = World::new();
    world.suspend();
    world.pair.near.cq.arm(false);
    world.pass(Duration::ZERO);
    assert!(world.near_thread.turns.plan.watch_link);
    assert!(!world.pair.near.context.nic().flags().spins(), "no wait has been short");
    let Pair { near, far, .. } = &world.pair;
    near.qp.post(near.write_to(far, 0)).expect("posts");
    world.pass(Duration::ZERO);
    assert!(is_readable(world.pair.near.channel.as_fd().as_raw_fd()), "the event came without a call");
}

#[test]
fn a_caller_that_drives_for_long_is_left_alone() {
    let mut world = World::new();
    let nic = world.near_thread.nic.clone();
    let (taken, start) = (world.near_thread.taken, world.now());
    let held = nic.control(|_, _| {
        world.nic().kick().kick();
        world.pass(10 * TICK);
        world.near_thread.taken - taken
    });
    assert!(held.expect("works") <= 11, "one try a tick");
    assert!(world.now() >= start + 10 * TICK);
    world.pass(2 * TICK);
    assert!(world.near_thread.turns.plan.watch_link);
}

#[test]
fn a_passive_application_is_served_with_spinning() {
    let mut world = World::new();
    let Pair { near, far, .. } = &world.pair;
    far.qp.post(far.write_to(near, 0)).expect("posts");
    world.pass(Duration::ZERO);
    assert!(world.near_thread.turns.plan.spin_until > world.now());
    let taken = world.near_thread.taken;
    world.pass(20 * MICROSECOND);
    assert!(world.near_thread.taken >= taken + 20);
    world.pass(TICK);
    let taken = world.near_thread.taken;
    world.pass(100 * TICK);
    assert_eq!(world.near_thread.taken, taken, "and not for ever");
}

/// A turn that copies a few hundred kilobytes takes longer than the spinning that follows it.
#[test]
fn spinning_begins_at_the_end_of_a_long_turn() {
    let mut world = World::new();
    world.pair.back.slow_down(world.time, 2 * PASSIVE_SPIN);
    let Pair { near, far, .. } = &world.pair;
    far.qp.post(far.write_to(near, 0)).expect("posts");
    world.pass(Duration::ZERO);
    let spins_for = world.near_thread.turns.plan.spin_until.since(world.now());
    assert_eq!(spins_for, PASSIVE_SPIN);
}

#[test]
fn the_ack_of_a_polled_completion_leaves_although_nobody_calls() {
    let mut world = World::new();
    let Pair { near, far, there, .. } = &world.pair;
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"question")).expect("posts");
    let acks = there.sent();
    near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success));
    assert_eq!(there.sent(), acks, "it waits for the answer");
    world.pass(TICK);
    assert_eq!(world.pair.there.sent(), acks + 1);
}

#[test]
fn an_ack_that_found_no_room_leaves_before_the_qp_is_destroyed() {
    let World { pair: Pair { near, far, there, .. }, .. } = World::new();
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"question")).expect("posts");
    let acks = there.sent();
    near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success));
    // Once, and again after a flush.
    there.refuse(2);
    near.cq.poll_with(1, |cqe| panic!("{cqe:?}"));
    assert_eq!(there.sent(), acks, "there is no room");
    drop(near);
    assert_eq!(there.sent(), acks + 1);
}

#[test]
fn a_qp_sends_its_waiting_acks_before_it_ends() {
    let ends: [fn(End); 3] = [
        drop,
        |near| near.qp.modify(AttrMask::STATE, &to(QpState::Err)).expect("changes"),
        |near| near.qp.modify(AttrMask::STATE, &to(QpState::Reset)).expect("changes"),
    ];
    for end in ends {
        let World { pair: Pair { near, there, .. }, .. } = owing_world();
        let acks = there.sent();
        there.refuse(40);
        end(near);
        assert_eq!(there.sent(), acks + 1);
    }
}

/// Nor would a process end whose peer has been stopped.
#[test]
fn a_link_that_never_has_room_is_not_awaited_forever() {
    let World { pair: Pair { near, there, .. }, .. } = owing_world();
    let acks = there.sent();
    there.refuse(usize::MAX);
    near.context.nic().leave();
    drop(near);
    assert_eq!(there.sent(), acks);
}

#[test]
fn waiting_acks_leave_before_the_process_even_if_another_thread_holds_the_nic() {
    let World { pair: Pair { near, there, .. }, .. } = owing_world();
    let acks = there.sent();
    let nic = near.context.nic();
    let held = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let holding = nic.control(|_, _| {
                held.wait();
                std::thread::sleep(Duration::from_millis(10));
                there.refuse(10);
            });
            holding.expect("works");
        });
        held.wait();
        nic.leave();
    });
    assert_eq!(there.sent(), acks + 1);
}

/// A near end that has found a message, and owes its ACK.
fn owing_world() -> World {
    let world = World::new();
    send(&world);
    world.pair.near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success));
    world
}

fn to(state: QpState) -> QpAttributes {
    QpAttributes { transport: QpAttr { state, ..QpAttr::default() }, ..QpAttributes::default() }
}

/// A sender that has its completion may tell the receiver of it by other means.
#[test]
fn a_completion_is_seen_before_its_ack_leaves() {
    for (through_memory, polls) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new();
        let Pair { near, there, .. } = &world.pair;
        if through_memory {
            there.shows();
        }
        let seen = Arc::new(AtomicU64::new(0));
        let (cq, finds) = (near.cq.clone(), seen.clone());
        there.before_leaving(move || {
            cq.poll_with(1, |_| _ = finds.fetch_add(1, Ordering::SeqCst));
        });
        let acks = there.sent();
        send(&world);
        assert_eq!(world.pair.there.sent(), acks);
        match polls {
            true => _ = world.pair.near.cq.poll_with(1, |cqe| panic!("the ACK left before {cqe:?}")),
            false => world.near_thread.take(true),
        }
        assert_eq!(world.pair.there.sent(), acks + 1, "through memory: {through_memory}, polls: {polls}");
        assert_eq!(seen.load(Ordering::SeqCst), 1, "through memory: {through_memory}, polls: {polls}");
    }
}

/// The process may end next, by whatever means. But a peer that sleeps is woken with the answer.
#[test]
fn the_ack_of_a_polled_completion_is_shown_at_once_where_that_takes_no_wake_up() {
    let mut world = World::new();
    world.pair.there.shows();
    send(&world);
    let Pair { near, there, .. } = &world.pair;
    let (acks, bell) = (there.sent(), there.descriptor());
    near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success));
    assert_eq!(there.sent(), acks + 1);
    assert!(!is_readable(bell), "the answer may come in a moment");
    near.cq.poll_with(1, |cqe| panic!("{cqe:?}"));
    assert!(is_readable(bell), "it does not");
    world.pass(TICK);

    send(&world);
    assert_eq!(world.pair.near.cq.poll_with(1, |cqe| assert_eq!(cqe.status, Status::Success)), 1);
    assert!(!is_readable(bell));
    world.pass(TICK);
    let Pair { far, .. } = &world.pair;
    assert_eq!(
        far.cq.poll_with(2, |cqe| assert_eq!(cqe.status, Status::Success)),
        2,
        "woken although nobody calls"
    );
}

#[test]
fn a_wait_spins_after_one_that_was_short() {
    let mut world = World::new();
    world.suspend();
    let nic = world.near_thread.nic.clone();
    let mut looks = 0;
    assert!(!nic.spin_for_event(|| {
        looks += 1;
        false
    }));
    assert_eq!(looks, 1, "the first wait blocks");
    nic.hand_over();
    world.pass(Duration::ZERO);
    assert!(world.near_thread.turns.plan.watch_link, "and hands over");

    nic.event_came(EVENT_SPIN / 2);
    let spun = |looks| {
        let mut left = looks;
        nic.spin_for_event(|| {
            world.time.fetch_add(MICROSECOND.as_nanos() as u64, Ordering::SeqCst);
            left -= 1;
            left == 0
        })
    };
    assert!(spun(50) && spun(50), "the event came while it spun");
    assert!(!spun(1000), "it does not spin for ever");
    assert!(!nic.flags().spins(), "nor the next time");
    nic.event_came(EVENT_SPIN);
    assert!(!nic.flags().spins());
}

#[test]
fn an_application_that_waits_on_the_descriptor_gets_its_event_although_waits_spin() {
    let mut world = World::new();
    world.suspend();
    world.nic().event_came(Duration::ZERO);
    let Pair { near, far, .. } = &world.pair;
    near.qp.post(near.write_to(far, 0)).expect("posts");
    near.cq.arm(false);
    world.pass(TICK + RECENT);
    assert!(is_readable(world.pair.near.channel.as_fd().as_raw_fd()), "nobody called");
    assert!(!world.nic().flags().spins(), "from now on arming hands over");
}

/// The caller has seen short waits: it sleeps where peers wake it.
fn sleeps_on_the_bell(world: &World) -> RawFd {
    world.nic().event_came(EVENT_SPIN);
    world.pair.near.cq.arm(false);
    match world.pair.near.channel.before_wait(None) {
        Block::OnBell(bell) => bell,
        Block::OnChannel => panic!("it waits for the thread"),
    }
}

fn send(world: &World) {
    let Pair { near, far, .. } = &world.pair;
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"a message")).expect("posts");
}

#[test]
fn a_caller_that_waits_is_woken_by_the_peer_and_not_by_the_thread() {
    let mut world = World::new();
    world.pass(Duration::from_millis(10));
    for _ in 0..100 {
        let bell = sleeps_on_the_bell(&world);
        world.pass(TICK / 4);
        let turns = world.near_thread.taken;
        assert!(!is_readable(bell));
        send(&world);
        world.pass(Duration::ZERO);
        assert_eq!(world.near_thread.taken, turns, "the thread sleeps");
        assert!(is_readable(bell));
        assert!(matches!(world.pair.near.channel.wait(Block::OnBell(bell)), Ok(false)));
        assert!(matches!(world.pair.near.channel.before_wait(Some(Block::OnBell(bell))), Block::OnChannel));
        assert!(world.pair.near.channel.wait(Block::OnChannel).expect("an event"));
        assert!(world.pair.near.channel.take(|_| {}).is_some());
        world.poll_until_done();
    }
}

/// It would take the processor from the caller.
#[test]
fn a_suspended_thread_does_not_take_turn_after_turn_until_the_caller_runs() {
    let mut world = World::new();
    world.suspend();
    let bell = sleeps_on_the_bell(&world);
    send(&world);
    assert!(is_readable(bell), "the caller will run");
    world.near_thread.take(false);
    let plan = world.near_thread.turns.plan;
    assert!(plan.rings_caller && !plan.watch_link, "{plan:?}");
    assert_eq!(plan.wake_at, world.now() + TICK);
}

#[test]
fn the_ack_of_what_wakes_a_caller_leaves_with_its_answer() {
    let world = World::new();
    let bell = sleeps_on_the_bell(&world);
    send(&world);
    let acks = world.pair.there.sent();
    assert!(is_readable(bell));
    let channel = &world.pair.near.channel;
    assert!(matches!(channel.before_wait(Some(Block::OnBell(bell))), Block::OnChannel));
    assert_eq!(world.pair.there.sent(), acks, "it may be answered in a moment");
}

#[test]
fn a_caller_that_never_returns_from_its_sleep_loses_the_link_to_the_thread() {
    let mut world = World::new();
    let bell = sleeps_on_the_bell(&world);
    world.pass(2 * TICK);
    send(&world);
    world.pass(Duration::ZERO);
    assert!(!is_readable(bell) || is_readable(world.pair.near.channel.as_fd().as_raw_fd()));
    assert!(is_readable(world.pair.near.channel.as_fd().as_raw_fd()), "the thread has served it");
    assert!(!world.nic().flags().serves(), "nor does another caller sleep there");
    let turns = world.near_thread.taken;
    world.pass(Duration::from_secs(1));
    assert!(world.near_thread.taken <= turns + 2, "and the thread ticks no more");
}

#[test]
fn an_event_found_by_another_thread_wakes_its_waiter() {
    let world = World::new();
    let bell = sleeps_on_the_bell(&world);
    world.pair.there.cut();
    send(&world);
    // Heard by the other thread; then its poll brings the event.
    assert!(matches!(world.pair.near.channel.wait(Block::OnBell(bell)), Ok(false)));
    world.nic().on_poll(false);
    assert!(is_readable(bell), "the event rings");
}

#[test]
fn one_caller_at_a_time_sleeps_on_the_bell() {
    let world = World::new();
    let other = world.pair.near.context.create_channel().expect("a channel");
    let bell = sleeps_on_the_bell(&world);
    assert!(matches!(other.before_wait(None), Block::OnChannel));
    assert!(
        matches!(world.pair.near.channel.before_wait(None), Block::OnChannel),
        "another thread of the channel"
    );
    assert!(matches!(world.pair.near.channel.before_wait(Some(Block::OnBell(bell))), Block::OnBell(_)));
    world.pair.near.channel.stop_waiting(Block::OnChannel);
    world.nic().event_came(EVENT_SPIN);
    assert!(matches!(other.before_wait(None), Block::OnChannel), "that was another thread, too");
    world.pair.near.channel.stop_waiting(Block::OnBell(bell));
    world.nic().event_came(EVENT_SPIN);
    assert!(matches!(other.before_wait(None), Block::OnBell(_)));
}

#[test]
fn a_channel_that_does_not_block_leaves_the_bell_alone() {
    let world = World::new();
    world.nic().event_came(EVENT_SPIN);
    let channel = &world.pair.near.channel;
    rustix::io::ioctl_fionbio(&**channel, true).expect("a descriptor");
    assert!(matches!(channel.before_wait(None), Block::OnChannel));
    let none = channel.wait(Block::OnChannel).expect_err("there is no event");
    assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_bell_that_does_not_block_is_given_up() {
    let world = World::new();
    let bell = sleeps_on_the_bell(&world);
    // SAFETY: a descriptor of the test's.
    let shared = unsafe { std::os::fd::BorrowedFd::borrow_raw(bell) };
    rustix::io::ioctl_fionbio(shared, true).expect("a descriptor");
    let channel = &world.pair.near.channel;
    assert!(matches!(channel.wait(Block::OnBell(bell)), Ok(false)));
    world.nic().event_came(EVENT_SPIN);
    assert!(matches!(channel.before_wait(None), Block::OnChannel));
}

#[test]
fn while_the_link_is_paused_the_thread_leaves_it_alone_and_no_timer_runs() {
    let mut world = World::new();
    world.pass(Duration::from_secs(1));
    world.pair.back.pause(true);
    let Pair { near, far, .. } = &world.pair;
    near.qp.post(near.write_to(far, 0)).expect("posts");
    let (sent, taken) = (world.pair.there.sent(), world.near_thread.taken);
    // The answer is here, and the descriptor readable; the timers of all retries would be over.
    let pause = Duration::from_secs(5);
    world.pass(pause);
    assert!(is_readable(world.pair.back.descriptor()));
    assert_eq!(world.pair.there.sent(), sent, "nothing is sent again");
    let turns = world.near_thread.taken - taken;
    assert!(turns as u128 <= pause.as_nanos() / PAUSE.as_nanos() + 10, "{turns} turns");
    world.pair.back.pause(false);
    world.pass(2 * PAUSE);
    world.poll_until_done();
    assert_eq!(world.pair.there.sent(), sent, "the answer was received before timers ran");
}
