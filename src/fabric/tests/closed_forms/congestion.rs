//! Marks, pauses, full memory, priorities.

use softrnic_fabric::{
    DropReason, Ecn, Ect, Headroom, Host, Pfc, Picos, Priority, Schedule, SwitchConfig, Topology, Trim,
};

use crate::world::{Flow, GIGABIT, World, parts, time};

const RATE: u64 = 100 * GIGABIT;
/// DSCP 24 is priority 3.
const DSCP: u8 = 24;
const LOSSLESS: Priority = 3;

/// Everyone with lossless priority 3.
fn lossless(delay: Picos, buffer: u64, headroom: Headroom, mtu: u32) -> softrnic_fabric::Parts {
    let mut parts = parts(RATE, delay);
    let pfc = Pfc { lossless: 1 << LOSSLESS, headroom, ..Pfc::default() };
    parts.switch = SwitchConfig { buffer, pfc, ..SwitchConfig::default() };
    parts.host.pfc = pfc;
    for link in [&mut parts.edge, &mut parts.core] {
        link.mtu_bytes = mtu;
    }
    parts
}

#[test]
fn marks_follow_the_queue() {
    let mut parts = parts(RATE, Picos::from_micros(1));
    let ecn = Ecn { kmin: 100_000, kmax: 400_000, pmax: 0.2 };
    parts.switch.ecn[0] = Some(ecn);
    let network = Topology::star(3, &parts).expect("a star");
    let frames = 5_000;
    let mut world = World::new(network, 7, &[Flow::new(0, 2, 1000, frames), Flow::new(1, 2, 1000, frames)]);
    world.run(Picos::NEVER);
    // The queue grows to 5 MB and shrinks again, a frame in a frame's time: on each slope as many frames leave it between kmin
    // and kmax as fit in there when it shrinks, and the same when it grows.
    let between = 2.0 * 300.0;
    let above = 2.0 * (frames as f64 - 400.0);
    let expected = above + between * ecn.pmax / 2.0;
    let marked = world.log.arrived.iter().filter(|(.., ect)| *ect == Ect::Experienced).count() as f64;
    // Three standard deviations of the coin flips, and the frames at the edges.
    let spread = 3.0 * (between * ecn.pmax / 2.0).sqrt() + 4.0;
    assert!((marked - expected).abs() <= spread, "{marked} instead of {expected}");
    assert_eq!(world.fabric.counters(world.towards(2)).marked as f64, marked);
}

#[test]
fn headroom_by_arithmetic_loses_nothing_and_less_does() {
    // Memory is so scarce that everybody pauses.
    let run = |delay, headroom| {
        let network = Topology::star(5, &lossless(delay, 3 << 20, headroom, 4200)).expect("a star");
        let flows: Vec<Flow> = (0..4).map(|host| Flow::new(host, 4, 4200, 2_000).dscp(DSCP)).collect();
        let mut world = World::new(network, 1, &flows);
        world.run(Picos::NEVER);
        assert_eq!(world.sent(), 8_000);
        assert!(!world.log.paused.is_empty(), "nobody paused");
        world.log.dropped.len()
    };
    for delay in [Picos::from_nanos(100), Picos::from_micros(1), Picos::from_micros(10)] {
        let auto = Pfc::default().headroom_for(RATE, delay, 4200);
        let cable = (delay + delay).bytes_at(RATE);
        assert_eq!(auto, cable + 3 * 4200 + 84);
        assert_eq!(run(delay, Headroom::Auto), 0, "{delay:?}");
        // Nothing is sent the other way, so that no PFC frame waits for a frame: one less is enough here, and two less is not.
        assert_eq!(run(delay, Headroom::Bytes(auto - 4200)), 0, "{delay:?}");
        assert!(run(delay, Headroom::Bytes(auto - 2 * 4200)) > 0, "{delay:?}: less would do");
    }
}

#[test]
fn a_paused_port_goes_on_and_all_arrives_in_order() {
    let network =
        Topology::star(5, &lossless(Picos::from_micros(1), 1 << 20, Headroom::Auto, 1048)).expect("a star");
    let flows: Vec<Flow> = (0..4).map(|host| Flow::new(host, 4, 1048, 5_000).dscp(DSCP)).collect();
    let mut world = World::new(network, 1, &flows);
    world.run(Picos::NEVER);
    assert!(world.log.dropped.is_empty());
    for flow in 0..4 {
        let numbers = world
            .log
            .arrived
            .iter()
            .filter(|(.., payload, _)| payload.0 == flow)
            .map(|(.., payload, _)| payload.1);
        assert!(numbers.eq(0..5_000));
    }
    // The bottleneck is never idle: as long as without pauses.
    let expected = time(20_001, 1048, RATE) + Picos::from_micros(2);
    let last = (0..4).map(|flow| world.last_arrival(flow)).max().expect("flows");
    assert_eq!(last, expected);
    // Pauses and resumptions take turns at each port.
    for host in 0..4 {
        let port = world.fabric.host_ports(Host(host))[0];
        let turns: Vec<bool> =
            world.log.paused.iter().filter(|(_, paused, ..)| *paused == port).map(|(.., is)| *is).collect();
        assert!(turns.iter().enumerate().all(|(number, is)| *is == (number % 2 == 0)), "{turns:?}");
        assert_eq!(world.fabric.counters(port).pauses_received as usize, turns.len().div_ceil(2));
        assert!(world.fabric.counters(port).paused > Picos::ZERO);
    }
}

#[test]
fn a_pause_ends_by_itself_unless_it_is_renewed() {
    let pfc = Pfc { lossless: 1 << LOSSLESS, quanta: Some(1000), ..Pfc::default() };
    let mut parts = lossless(Picos::from_micros(1), 32 << 20, Headroom::Auto, 1048);
    parts.host.pfc = pfc;
    let network = Topology::star(2, &parts).expect("a star");
    let mut world = World::new(network, 1, &[Flow::new(0, 1, 1048, 1_000).dscp(DSCP)]);
    let port = world.fabric.host_ports(Host(1))[0];
    world.fabric.pause_storm(Picos::ZERO, port, 1 << LOSSLESS, &mut world.log);
    world.run(Picos::from_micros(500));
    // Renewed again and again, although a pause lasts 5.12 us.
    assert_eq!(world.log.paused.len(), 1);
    assert!(world.log.arrived.len() <= 13, "{} frames passed", world.log.arrived.len());
    let now = world.fabric.now();
    world.fabric.pause_storm(now, port, 0, &mut world.log);
    world.run(Picos::NEVER);
    assert_eq!(world.log.arrived.len(), 1_000);
    assert!(world.log.dropped.is_empty());
}

/// A pause that was taken back is not renewed, so one that comes and goes costs no more than one that stays.
#[test]
fn only_the_newest_pause_of_a_priority_is_renewed() {
    let events = |toggles: u64| {
        let mut parts = lossless(Picos::from_micros(1), 32 << 20, Headroom::Auto, 1048);
        parts.host.pfc = Pfc { lossless: 1 << LOSSLESS, quanta: Some(1000), ..Pfc::default() };
        let network = Topology::star(2, &parts).expect("a star");
        let mut world = World::new(network, 1, &[]);
        let port = world.fabric.host_ports(Host(1))[0];
        for toggle in 0..toggles {
            let at = Picos(toggle * 200_000);
            world.fabric.pause_storm(at, port, 1 << LOSSLESS, &mut world.log);
            world.fabric.pause_storm(at + Picos(100_000), port, 0, &mut world.log);
        }
        world.fabric.pause_storm(Picos::from_micros(20), port, 1 << LOSSLESS, &mut world.log);
        world.run(Picos::from_micros(50));
        let mut events = 0;
        while world.fabric.next_event().is_some_and(|at| at <= Picos::from_micros(500)) {
            world.fabric.step(&mut world.log);
            events += 1;
        }
        events
    };
    assert_eq!(events(50), events(0));
}

#[test]
fn what_does_not_fit_is_dropped_or_trimmed() {
    let run = |trim| {
        let mut parts = parts(RATE, Picos::from_micros(1));
        parts.switch = SwitchConfig { buffer: 200_000, trim, ..SwitchConfig::default() };
        parts.switch.schedule[7] = Schedule::Strict;
        let network = Topology::star(5, &parts).expect("a star");
        let flows: Vec<Flow> = (0..4).map(|host| Flow::new(host, 4, 1000, 1_000)).collect();
        let mut world = World::new(network, 1, &flows);
        world.run(Picos::NEVER);
        let peak = world.fabric.counters(world.towards(4)).queue_peak;
        (world.log, peak)
    };
    let (log, peak) = run(None);
    assert!(log.dropped.iter().all(|(_, reason, _)| *reason == DropReason::NoRoom));
    assert_eq!(log.arrived.len() + log.dropped.len(), 4_000);
    // With alpha 1 the queue gets half of the memory.
    assert!(peak.abs_diff(100_000) <= 1000, "{peak}");
    // The port is busy while senders send: a quarter passes, and what the queue holds.
    assert!(log.arrived.len().abs_diff(1_000 + 100) <= 2, "{}", log.arrived.len());

    let (log, _) = run(Some(Trim { bytes: 84, priority: 7 }));
    assert!(log.trimmed > 2_000);
    assert_eq!(log.arrived.len() + log.dropped.len(), 4_000);
    assert!(log.dropped.is_empty(), "{} headers were dropped", log.dropped.len());
}

#[test]
fn weights_and_strict_priorities_decide_who_leaves() {
    let mut parts = parts(RATE, Picos::from_micros(1));
    parts.switch.schedule[2] = Schedule::Weighted(3);
    parts.switch.schedule[6] = Schedule::Strict;
    parts.edge.mtu_bytes = 1000;
    let network = Topology::star(4, &parts).expect("a star");
    let flows = [
        Flow::new(0, 3, 1000, 4_000).dscp(8),
        Flow::new(1, 3, 1000, 4_000).dscp(16),
        Flow::new(2, 3, 1000, 400).dscp(48),
    ];
    let mut world = World::new(network, 1, &flows);
    world.run(Picos::NEVER);
    // Strict: as if it were alone, but for a frame that is being sent.
    let alone = time(401, 1000, RATE) + Picos::from_micros(2);
    assert!(world.last_arrival(2) <= alone + time(1, 1000, RATE));
    // Three to one while both wait.
    let share = |arrived: &[(Picos, Host, (u32, u64), Ect)], flow| {
        arrived.iter().filter(|(.., payload, _)| payload.0 == flow).count() as f64
    };
    let both = &world.log.arrived[1_000..4_000];
    let ratio = share(both, 1) / share(both, 0);
    assert!((ratio - 3.0).abs() < 0.1, "{ratio}");
}
