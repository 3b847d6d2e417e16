//! Serialisation, propagation, storing and forwarding.

use softrnic_fabric::{Picos, SwitchConfig, Topology};

use crate::world::{Flow, GIGABIT, World, parts, time};

const MICROSECOND: Picos = Picos::from_micros(1);

#[test]
fn a_flow_takes_its_bits_and_the_way() {
    for rate in [25 * GIGABIT, 100 * GIGABIT, 400 * GIGABIT] {
        let network = Topology::star(2, &parts(rate, MICROSECOND)).expect("a star");
        let mut world = World::new(network, 1, &[Flow::new(0, 1, 1048, 10_000)]);
        world.run(Picos::NEVER);
        // The switch stores the last frame, and sends it again.
        let expected = time(10_001, 1048, rate) + MICROSECOND + MICROSECOND;
        assert_eq!(world.last_arrival(0), expected, "{rate} bit/s");
        assert_eq!(world.log.arrived.len(), 10_000);
    }
}

#[test]
fn a_byte_at_400_gigabits_takes_20_picoseconds() {
    assert_eq!(Picos::of_bytes(1, 400 * GIGABIT), Picos(20));
    assert_eq!(Picos::of_bytes(1048, 400 * GIGABIT), Picos(20_960));
    assert_eq!(Picos(20_960).bytes_at(400 * GIGABIT), 1048);
    // Nothing is faster than its rate.
    assert_eq!(Picos::of_bytes(1, 3 * GIGABIT), Picos(2667));
}

#[test]
fn each_switch_on_the_way_stores_the_frame_once() {
    let mut parts = parts(100 * GIGABIT, MICROSECOND);
    parts.switch = SwitchConfig { latency: Picos::from_nanos(300), ..SwitchConfig::default() };
    for (network, switches, links) in [
        (Topology::star(2, &parts), 1, 2),
        (Topology::dumbbell(1, &parts), 2, 3),
        (Topology::clos(2, 1, 1, &parts), 3, 4),
    ] {
        let mut world = World::new(network.expect("a network"), 1, &[Flow::new(0, 1, 4200, 1)]);
        world.run(Picos::NEVER);
        let expected = time(1 + switches, 4200, 100 * GIGABIT).0 + links * MICROSECOND.0 + switches * 300_000;
        assert_eq!(world.last_arrival(0), Picos(expected), "{switches} switches");
    }
}

#[test]
fn two_flows_into_one_port_share_it() {
    let rate = 100 * GIGABIT;
    let network = Topology::star(3, &parts(rate, MICROSECOND)).expect("a star");
    let flows = [Flow::new(0, 2, 1000, 5_000), Flow::new(1, 2, 1000, 5_000)];
    let mut world = World::new(network, 1, &flows);
    world.run(Picos::NEVER);
    // The port is never idle from the first frame on.
    let expected = time(10_001, 1000, rate) + MICROSECOND + MICROSECOND;
    assert_eq!(world.last_arrival(0).max(world.last_arrival(1)), expected);
    // While both send, the queue grows by one frame in each frame's time.
    let peak = world.fabric.counters(world.towards(2)).queue_peak;
    assert!(peak.abs_diff(5_000 * 1000) <= 1000, "{peak}");
    // Each gets every second frame.
    let of_first = world.log.arrived[..5_000].iter().filter(|(.., payload, _)| payload.0 == 0).count();
    assert!(of_first.abs_diff(2_500) <= 1, "{of_first}");
}

#[test]
fn a_slower_link_spaces_the_frames() {
    let mut parts = parts(100 * GIGABIT, MICROSECOND);
    parts.core.rate = 25 * GIGABIT;
    let network = Topology::dumbbell(1, &parts).expect("a dumbbell");
    let mut world = World::new(network, 1, &[Flow::new(0, 1, 1000, 1_000)]);
    world.run(Picos::NEVER);
    let times: Vec<u64> = world.log.arrived.iter().map(|(at, ..)| at.0).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == time(1, 1000, 25 * GIGABIT).0));
}
