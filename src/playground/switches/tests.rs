use super::*;
use crate::action::{Action, Op, Post};
use crate::packet::Fate;
use crate::world::World;

fn write(world: &mut World, end: usize, len: u32) {
    let post = serde_json::json!({ "end": end, "op": Op::Write, "len": len });
    let post: Post = serde_json::from_value(post).expect("a post");
    world.act(&Action::Post(post)).expect("it is posted");
}

fn shared() -> World {
    let setup = Setup { sides: 3, congestion_control: true, mark_at: 5_000, ..Setup::default() };
    World::new(&setup).expect("a world")
}

/// One packet of `len` bytes of data: BTH, RETH, ICRC, UDP and IP, and what Ethernet adds.
fn serialized(len: u64) -> u64 {
    ((len + 12 + 16 + 4 + 8 + 20 + u64::from(ETHERNET)) * 8).div_ceil(10)
}

#[test]
fn a_packet_alone_takes_two_links_and_waits_for_nothing() {
    let mut world = shared();
    write(&mut world, 0, 1012);
    let expected = 5_000 + 2 * serialized(1012);
    assert_eq!(world.packets[0].at.as_nanos(), expected, "as it is foreseen");
    assert_eq!(world.next_time(), Some(Time::from_nanos(expected)));
    assert!(world.step());
    assert_eq!((world.packets[0].fate, world.now.as_nanos()), (Fate::Arrived, expected));
}

#[test]
fn a_packet_of_another_nic_comes_right_behind() {
    let mut world = shared();
    write(&mut world, 0, 1012);
    write(&mut world, 2, 1012);
    while world.packets.iter().any(|packet| packet.from != 1 && packet.fate == Fate::Flying) {
        assert!(world.step());
    }
    let apart = world.packets[1].at.nanos_since(world.packets[0].at);
    assert_eq!(apart, serialized(1012));
}

#[test]
fn what_was_dropped_by_hand_never_arrives_and_what_was_delayed_arrives_later() {
    let mut world = shared();
    write(&mut world, 0, 4096);
    let foreseen = world.packets[1].at;
    world.act(&Action::Drop { packet: 0 }).expect("it is under way");
    world.act(&Action::Delay { packet: 1, ns: 30_000 }).expect("it is under way");
    while world.now < foreseen + Duration::from_nanos(60_000) && world.step() {}
    assert_eq!(world.packets[0].fate, Fate::Lost);
    assert_eq!(world.packets[1].fate, Fate::Arrived);
    assert!(world.packets[1].at >= foreseen + Duration::from_nanos(30_000));
    let taken = |packet| {
        world
            .events
            .iter()
            .any(|event| event.what == crate::view::What::Received && event.packet == Some(packet))
    };
    assert!(taken(1) && !taken(0));
}

#[test]
fn a_long_queue_marks_and_no_packet_is_lost() {
    let mut world = shared();
    for end in [0, 2] {
        write(&mut world, end, 16 << 10);
    }
    for _ in 0..200 {
        world.step();
    }
    let said = |text: &str| world.events.iter().filter(|event| event.text.contains(text)).count();
    let marked = world.packets.iter().filter(|packet| packet.ce).count();
    assert!(marked > 0 && !world.packets[0].ce, "{marked} marked");
    assert_eq!(said("the switch marks"), marked);
    assert_eq!(said("Success"), 2);
    assert!(world.packets.iter().all(|packet| packet.fate != Fate::Lost));
}

/// Two senders, with 20 WRITEs of 8192 bytes each, until all are done.
fn both(setup: Setup, mut meanwhile: impl FnMut(usize, &mut World)) -> World {
    let mut world = World::new(&setup).expect("a world");
    for end in [0, 2] {
        (0..20).for_each(|_| write(&mut world, end, 8192));
    }
    for step in 0..4000 {
        meanwhile(step, &mut world);
        if !world.step() {
            break;
        }
    }
    assert_eq!(said(&world, "RdmaWrite, Success"), 40);
    world
}

fn said(world: &World, text: &str) -> usize {
    world.events.iter().filter(|event| event.text.contains(text)).count()
}

fn incast() -> Setup {
    Setup { sides: 3, network: Network::Switch, buffer: 100_000, ..Setup::default() }
}

fn spines() -> Setup {
    Setup { network: Network::Spines, pfc: true, sports: [49_152, 49_153], ..incast() }
}

#[test]
fn without_pauses_a_full_switch_drops_and_with_them_it_does_not() {
    let lossy = both(incast(), |_, _| ());
    assert!(said(&lossy, "is lost at the switch: no room") > 0 && lossy.pauses.is_empty());
    assert!(lossy.queues.iter().all(|queue| queue.bytes <= 100_000));
    let lossless = both(Setup { pfc: true, ..incast() }, |_, _| ());
    assert_eq!(said(&lossless, "is lost"), 0);
    for nic in [0, 4] {
        let own: Vec<bool> =
            lossless.pauses.iter().filter(|pause| pause.port == nic).map(|pause| pause.paused).collect();
        assert!(!own.is_empty() && own.iter().enumerate().all(|(place, &paused)| paused == (place % 2 == 0)));
    }
}

#[test]
fn a_queue_is_empty_in_the_end() {
    let world = both(Setup { pfc: true, ..incast() }, |_, _| ());
    assert_eq!(world.queues.last().map(|queue| queue.bytes), Some(0));
}

#[test]
fn source_ports_choose_the_spine() {
    let apart = both(spines(), |_, _| ());
    let together = both(Setup { sports: [49_152; 2], ..spines() }, |_, _| ());
    let peak = |world: &World| world.queues.iter().map(|queue| queue.bytes).max().unwrap_or(0);
    assert!(peak(&apart) < 4 * 1106, "{}", peak(&apart));
    assert!(peak(&together) > 40_000, "{}", peak(&together));
}

#[test]
fn a_link_that_fails_loses_packets_until_the_routes_follow() {
    let setup = Setup { convergence: 50_000, ..spines() };
    let mut failed = Time::ZERO;
    let world = both(setup, |step, world| {
        if step == 60 {
            failed = world.now;
            world.act(&Action::Link { link: 3, up: false }).expect("a link between switches");
        }
    });
    let lost: Vec<u64> = world
        .events
        .iter()
        .filter(|event| event.text.contains("is lost at"))
        .map(|event| event.at - failed.as_nanos())
        .collect();
    assert!(lost.len() > 30 && lost.iter().all(|&after| after <= 50_000), "{lost:?}");
}

#[test]
fn links_of_nics_do_not_fail() {
    let mut world = World::new(&spines()).expect("a world");
    assert!(world.act(&Action::Link { link: 0, up: false }).is_err());
    assert!(world.act(&Action::Link { link: 7, up: false }).is_err());
}
