//! Links that damage, fail and come back.

use softrnic_fabric::{DropReason, Host, LinkChange, LinkId, Meddling, Picos, PortId, Topology};

use crate::world::{Flow, GIGABIT, World, parts};

fn clos() -> Topology {
    Topology::clos(2, 2, 1, &parts(100 * GIGABIT, Picos::from_micros(1))).expect("a Clos")
}

/// The link of a leaf to a spine: two hosts' links come first, then leaf by leaf.
fn uplink(leaf: u32, spine: u32) -> LinkId {
    LinkId(2 + 2 * leaf + spine)
}

#[test]
fn routes_follow_a_failure_after_the_convergence_time() {
    let mut world = World::new(clos(), 1, &[Flow::new(0, 1, 1000, 20_000)]);
    world.fabric.set_convergence(Picos::from_micros(200));
    world.run(Picos::from_micros(100));
    let used = (0..2)
        .find(|&spine| world.fabric.counters(uplink(0, spine).ports()[0]).tx_frames > 0)
        .expect("a spine");
    let failed = world.fabric.now();
    world.fabric.change(failed, uplink(0, used), LinkChange::Down, &mut world.log);
    world.run(Picos::NEVER);
    let lost: Vec<Picos> = world
        .log
        .dropped
        .iter()
        .map(|(at, reason, _)| {
            assert_eq!(*reason, DropReason::LinkDown);
            *at
        })
        .collect();
    // 200 us at 100 Gb/s, and what was in the queue and on the cable.
    let expected = 200_000_000 / 80_000;
    assert!((expected..expected + 40).contains(&(lost.len() as u64)), "{} lost", lost.len());
    assert!(lost.iter().all(|at| *at <= failed + Picos::from_micros(200) + Picos::from_micros(1)));
    assert_eq!(world.log.arrived.len() + lost.len(), 20_000);
    assert!(world.log.links.is_empty(), "no host's own link has failed");
}

#[test]
fn a_host_sees_its_own_link_fail_and_return() {
    let mut world = World::new(clos(), 1, &[Flow::new(0, 1, 1000, 5_000)]);
    world.run(Picos::from_micros(50));
    world.fabric.change(Picos::from_micros(50), LinkId(0), LinkChange::Down, &mut world.log);
    // Once more changes nothing.
    world.fabric.change(Picos::from_micros(50), LinkId(0), LinkChange::Down, &mut world.log);
    world.fabric.change(Picos::from_micros(60), LinkId(0), LinkChange::Up, &mut world.log);
    world.run(Picos::NEVER);
    assert_eq!(
        world.log.links,
        [(Picos::from_micros(50), Host(0), false), (Picos::from_micros(60), Host(0), true)]
    );
    assert!(!world.log.dropped.is_empty());
    assert_eq!(world.log.arrived.len() + world.log.dropped.len(), 5_000);
    assert!(world.log.arrived.iter().any(|(at, ..)| *at > Picos::from_micros(60)));
}

#[test]
fn a_black_hole_tells_nobody() {
    let mut world = World::new(clos(), 1, &[Flow::new(0, 1, 1000, 5_000)]);
    world.run(Picos::from_micros(50));
    world.fabric.change(Picos::from_micros(50), LinkId(0), LinkChange::BlackHole(true), &mut world.log);
    world.run(Picos::from_micros(100));
    world.fabric.change(Picos::from_micros(100), LinkId(0), LinkChange::BlackHole(false), &mut world.log);
    world.run(Picos::NEVER);
    assert!(world.log.links.is_empty());
    let lost = world.log.dropped.iter().filter(|(_, reason, _)| *reason == DropReason::BlackHole).count();
    assert!(lost.abs_diff(50_000_000 / 80_000) <= 1, "{lost} lost");
    assert_eq!(world.log.arrived.len() + lost, 5_000);
}

#[test]
fn bit_errors_lose_frames_by_their_length() {
    let mut parts = parts(100 * GIGABIT, Picos::from_micros(1));
    parts.edge.bit_error_rate = 1e-6;
    let network = Topology::star(2, &parts).expect("a star");
    let mut world = World::new(network, 11, &[Flow::new(0, 1, 1000, 100_000)]);
    world.run(Picos::NEVER);
    let whole = (1.0 - 1e-6_f64).powi(2 * 8000);
    let expected = 100_000.0 * (1.0 - whole);
    let lost = world.log.dropped.len() as f64;
    assert!(world.log.dropped.iter().all(|(_, reason, _)| *reason == DropReason::Damaged));
    assert!((lost - expected).abs() < 4.0 * expected.sqrt(), "{lost} instead of {expected}");
}

#[test]
fn a_slower_rate_takes_effect_with_the_next_frame() {
    let network = Topology::star(2, &parts(100 * GIGABIT, Picos::ZERO)).expect("a star");
    let mut world = World::new(network, 1, &[Flow::new(0, 1, 1000, 2_000)]);
    world.run(Picos::from_micros(40));
    world.fabric.change(Picos::from_micros(40), LinkId(1), LinkChange::Rate(10 * GIGABIT), &mut world.log);
    world.run(Picos::NEVER);
    let times: Vec<u64> = world.log.arrived.iter().map(|(at, ..)| at.0).collect();
    assert_eq!(times[11] - times[10], 80_000);
    let last = times.len() - 1;
    assert_eq!(times[last] - times[last - 1], 800_000);
}

/// What becomes of five frames if something is done to the second: the sequence numbers, as they arrive.
fn meddled(meddling: Meddling) -> (Vec<u64>, World) {
    let star = Topology::star(2, &parts(100 * GIGABIT, Picos::from_micros(1))).expect("a star");
    let mut world = World::new(star, 1, &[Flow::new(0, 1, 1000, 5)]);
    world.log.meddles = Some((PortId(0), 1, meddling));
    world.run(Picos::NEVER);
    let sequence = world.log.arrived.iter().map(|(_, _, (_, sequence), _)| *sequence).collect();
    assert_eq!(world.fabric.counters(PortId(0)).meddled, 1);
    assert_eq!(world.fabric.under_way(), 0);
    (sequence, world)
}

#[test]
fn what_is_done_on_purpose_happens_to_that_frame_alone() {
    let (arrived, world) = meddled(Meddling::Lose);
    assert_eq!(arrived, [0, 2, 3, 4]);
    assert_eq!(world.log.dropped.len(), 1);
    assert_eq!(world.log.dropped[0].1, DropReason::OnPurpose);
    let counters = world.fabric.counters(PortId(0));
    assert_eq!((counters.lost_down, counters.lost_damaged, counters.dropped), (0, 0, 0));
    assert_eq!(meddled(Meddling::Nothing).0, [0, 1, 2, 3, 4]);
    assert_eq!(meddled(Meddling::Twice).0, [0, 1, 1, 2, 3, 4]);
    assert_eq!(meddled(Meddling::Behind(2)).0, [0, 2, 3, 1, 4]);
    // At 100 Gb/s a frame takes 80 ns.
    assert_eq!(meddled(Meddling::Delay(Picos::from_nanos(200))).0, [0, 2, 3, 1, 4]);
}

#[test]
fn who_is_overtaken_by_too_few_follows_after_a_millisecond() {
    let (arrived, world) = meddled(Meddling::Behind(9));
    assert_eq!(arrived, [0, 2, 3, 4, 1]);
    let last = world.log.arrived[4].0;
    // Two links, the second of which takes the frame once more.
    let frame = Picos::from_nanos(80);
    assert_eq!(last, frame + frame + Picos::from_micros(1001) + frame + Picos::from_micros(1));
}
