//! Scenarios of the policy alone: an application, a peer, and a progress thread in virtual time.

use std::time::Duration;

use softrnic_wire::Time;

use super::{Event, Plan, Policy, is_wanted, next_wait_spins, yields};
use crate::progress::tuning::{
    EVENT_SPIN, FIRST_TICK, MAX_VAIN_WAKEUPS, PASSIVE, PASSIVE_SPIN, RECENT, REST, TICK, WANTED_AFTER,
    YIELD_AFTER,
};

struct World {
    policy: Policy,
    now: Time,
    last_poll: Time,
    deadline: Time,
}

impl World {
    /// A NIC that has not been called for a long time.
    fn new() -> World {
        let now = Time::ZERO + Duration::from_secs(1);
        let mut world =
            World { policy: Policy::default(), now, last_poll: Time::ZERO, deadline: Time::NEVER };
        world.turn(false, None);
        world
    }

    fn pass(&mut self, delay: Duration) {
        self.now += delay;
    }

    fn polls(&mut self) {
        self.last_poll = self.now;
        let _ = self.drives(false);
    }

    /// A caller drives; returns whether it kicks.
    fn drives(&mut self, posted: bool) -> bool {
        let before = self.policy.plan().wake_at;
        self.policy.on(Event::Driven { posted, deadline: self.deadline }, self.now).wake_at < before
    }

    /// The thread's turn, in which it finds requests of peers, or answers.
    fn turn(&mut self, by_link: bool, finds: Option<Found>) -> Plan {
        self.turn_after(by_link, finds, false)
    }

    fn turn_after(&mut self, by_link: bool, finds: Option<Found>, handed_over: bool) -> Plan {
        let last_poll = self.last_poll;
        self.policy.on(Event::Woken { by_link, handed_over, last_poll }, self.now);
        let (received, requests) = (finds.is_some(), finds == Some(Found::Requests));
        self.policy.on(Event::Served { received, requests, deadline: self.deadline }, self.now)
    }

    /// A caller polls until the thread is suspended.
    fn suspend(&mut self) {
        for _ in 0..MAX_VAIN_WAKEUPS {
            self.polls();
            self.turn(true, Some(Found::Answers));
        }
        assert!(!self.policy.plan().watch_link);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Requests,
    Answers,
}

#[test]
fn an_idle_thread_watches_and_sleeps() {
    let world = World::new();
    let plan = world.policy.plan();
    assert_eq!((plan.watch_link, plan.wake_at), (true, Time::NEVER));
    assert!(plan.spin_until <= world.now);
}

#[test]
fn an_application_that_polls_has_the_link_to_itself_after_a_tick_of_silence() {
    let mut world = World::new();
    let first = world.now;
    while world.now < first + TICK {
        world.polls();
        let plan = world.turn(false, None);
        assert!(plan.watch_link, "after {:?}", world.now.since(first));
        assert_eq!(plan.wake_at, world.now + TICK);
        world.pass(RECENT / 2);
    }
    world.polls();
    let plan = world.turn(false, None);
    assert_eq!((plan.watch_link, plan.wake_at), (false, world.now + FIRST_TICK));
}

#[test]
fn an_application_that_polls_has_the_link_to_itself_after_some_wakeups_in_vain() {
    for found in [None, Some(Found::Answers)] {
        let mut world = World::new();
        for wakeup in 1..=MAX_VAIN_WAKEUPS {
            world.polls();
            assert_eq!(world.turn(true, found).watch_link, wakeup < MAX_VAIN_WAKEUPS);
        }
    }
}

#[test]
fn it_is_suspended_for_longer_and_longer() {
    let mut world = World::new();
    world.suspend();
    let mut ticks = Vec::new();
    while ticks.last() != Some(&TICK) {
        world.pass(world.policy.plan().wake_at.since(world.now));
        world.polls();
        ticks.push(world.turn(false, None).wake_at.since(world.now));
    }
    assert!(ticks.iter().zip(&ticks[1..]).all(|(one, next)| *next == (*one * 2).min(TICK)), "{ticks:?}");
    assert_eq!(ticks[0], 2 * FIRST_TICK);
}

#[test]
fn a_thread_that_peers_need_watches_although_a_caller_polls() {
    let mut world = World::new();
    for round in 0..100 {
        world.polls();
        let found = if round % MAX_VAIN_WAKEUPS == 0 { Found::Requests } else { Found::Answers };
        assert!(world.turn(true, Some(found)).watch_link, "round {round}");
        world.pass(RECENT / 2);
    }
}

#[test]
fn a_suspended_thread_stays_so_while_callers_poll() {
    let mut world = World::new();
    world.suspend();
    for _ in 0..10 {
        world.pass(TICK);
        world.polls();
        assert!(!world.turn(false, None).watch_link);
    }
    world.pass(RECENT);
    world.deadline = world.now + 5 * TICK;
    let plan = world.turn(false, None);
    assert_eq!((plan.watch_link, plan.wake_at), (true, world.deadline), "nobody polls any more");
}

#[test]
fn polls_now_and_then_do_not_suspend_it() {
    let mut world = World::new();
    for _ in 0..100 {
        world.polls();
        assert!(world.turn(true, Some(Found::Answers)).watch_link);
        // The tick finds that no thread polls.
        world.pass(TICK);
        assert!(world.turn(false, None).watch_link);
        world.pass(10 * TICK);
    }
}

#[test]
fn an_application_that_blocks_hands_over() {
    let mut world = World::new();
    world.suspend();
    world.polls();
    let plan = world.turn_after(false, None, true);
    assert_eq!((plan.watch_link, plan.wake_at), (true, world.now + TICK));
    world.pass(TICK);
    let plan = world.turn(false, None);
    assert_eq!((plan.watch_link, plan.wake_at), (true, Time::NEVER));
}

#[test]
fn a_passive_application_is_served_with_spinning() {
    let mut world = World::new();
    let plan = world.turn(true, Some(Found::Requests));
    assert_eq!(plan.spin_until, world.now + PASSIVE_SPIN);
    world.pass(PASSIVE_SPIN / 2);
    assert_eq!(world.turn(true, None).spin_until, plan.spin_until, "what it does not find does not count");
    let plan = world.turn(true, Some(Found::Requests));
    assert_eq!(plan.spin_until, world.now + PASSIVE_SPIN);
}

#[test]
fn an_application_that_has_called_keeps_its_processor() {
    let calls: [fn(&mut World); 2] = [World::polls, |world| _ = world.drives(true)];
    for call in calls {
        let mut world = World::new();
        call(&mut world);
        world.pass(PASSIVE);
        assert!(world.turn(true, Some(Found::Requests)).spin_until <= world.now);
        world.pass(Duration::from_nanos(1));
        assert!(world.turn(true, Some(Found::Requests)).spin_until > world.now, "it calls no more");
    }
}

#[test]
fn a_sleeping_thread_is_kicked_for_an_earlier_deadline_once() {
    let mut world = World::new();
    world.deadline = world.now + 100 * TICK;
    assert!(world.drives(true));
    assert!(!world.drives(true), "it has been");
    world.deadline = world.now + 200 * TICK;
    assert!(!world.drives(true), "later is soon enough");
    world.deadline = world.now + 50 * TICK;
    assert!(world.drives(true));
    world.turn(false, None);
    assert_eq!(world.policy.plan().wake_at, world.deadline);
}

#[test]
fn a_ticking_thread_is_not_kicked_and_finds_the_deadline() {
    let mut world = World::new();
    world.polls();
    world.turn(true, Some(Found::Answers));
    world.deadline = world.now + RECENT;
    assert!(!world.drives(true));
    world.pass(TICK);
    assert_eq!(world.turn(false, None).wake_at, world.deadline);
}

#[test]
fn a_thread_that_is_awake_is_not_kicked() {
    let mut world = World::new();
    let last_poll = world.last_poll;
    world.policy.on(Event::Woken { by_link: true, handed_over: false, last_poll }, world.now);
    world.deadline = world.now;
    assert!(!world.drives(true));
}

#[test]
fn a_thread_that_finds_the_nic_driven_rests() {
    let world = World::new();
    let plan = world.policy.plan().rest(world.now, false);
    assert_eq!((plan.watch_link, plan.wake_at), (false, world.now + REST));
    assert_eq!(plan.rest(world.now, false).wake_at, world.now + TICK, "for longer, the second time");
    assert_eq!(plan.rest(world.now, true).wake_at, world.now + REST, "unless somebody is about to block");
    assert!(plan.spin_until <= world.now);
}

#[test]
fn a_caller_that_polls_in_vain_yields_now_and_then() {
    let mut since = 0;
    let mut now = Time::ZERO + TICK;
    let begun = now;
    while now < begun + YIELD_AFTER {
        assert!(!yields(&mut since, false, YIELD_AFTER, now));
        now += YIELD_AFTER / 6;
    }
    assert!(yields(&mut since, false, YIELD_AFTER, now));
    assert!(!yields(&mut since, false, YIELD_AFTER, now), "it has yielded");
    now += YIELD_AFTER / 2;
    assert!(!yields(&mut since, true, YIELD_AFTER, now), "this one was of use");
    now += YIELD_AFTER / 2;
    assert!(!yields(&mut since, false, YIELD_AFTER, now));
    // On a single processor every second poll in vain yields.
    assert!(yields(&mut since, false, Duration::ZERO, now));
}

#[test]
fn a_processor_that_comes_back_late_is_wanted_by_others() {
    assert!(!is_wanted(WANTED_AFTER / 2));
    assert!(is_wanted(WANTED_AFTER));
}

#[test]
fn the_next_wait_spins_after_a_short_one() {
    assert!(next_wait_spins(EVENT_SPIN / 2));
    assert!(!next_wait_spins(EVENT_SPIN));
}

#[test]
fn peers_wake_a_sleeping_caller_while_the_thread_ticks() {
    let mut world = World::new();
    let plan = world.policy.on(Event::Sleeps, world.now);
    assert!(plan.rings_caller);
    assert_eq!(plan.wake_at, world.now + TICK, "a thread that slept without end is kicked");
    world.pass(TICK / 2);
    let plan = world.turn(false, None);
    assert!(plan.rings_caller && plan.watch_link, "the thread still hears what does not come in memory");
    assert_eq!(plan.wake_at, world.now + TICK);
    world.deadline = world.now + TICK / 4;
    assert_eq!(
        world.turn(false, None).wake_at,
        world.now + TICK,
        "timers wait for the tick, as while callers poll"
    );
}

#[test]
fn a_caller_that_a_peer_has_woken_is_expected_to_sleep_again() {
    let mut world = World::new();
    world.policy.on(Event::Sleeps, world.now);
    world.policy.on(Event::Rises, world.now);
    // It is slow to call again: longer than one that polls would be.
    world.pass(TICK / 2);
    world.deadline = world.now + TICK / 4;
    assert_eq!(world.turn(false, None).wake_at, world.now + TICK, "it looks after its own deadlines");
    world.pass(TICK / 2);
    world.deadline = world.now + TICK / 4;
    assert_eq!(world.turn(false, None).wake_at, world.deadline, "it has not slept again");
}

#[test]
fn peers_do_not_wake_a_caller_that_has_slept_for_a_tick() {
    let mut world = World::new();
    world.policy.on(Event::Sleeps, world.now);
    world.pass(TICK);
    let plan = world.turn(false, None);
    assert!(!plan.rings_caller && plan.watch_link);
    assert_eq!(plan.wake_at, Time::NEVER);
}

#[test]
fn peers_do_not_wake_a_caller_that_is_awake() {
    let mut world = World::new();
    world.policy.on(Event::Sleeps, world.now);
    assert!(!world.policy.on(Event::Rises, world.now).rings_caller);
    assert!(!world.turn(false, None).rings_caller);
}
