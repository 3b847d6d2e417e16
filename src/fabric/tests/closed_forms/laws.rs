//! What holds for every network.

use softrnic_fabric::{
    Balance, Ecn, Headroom, HostConfig, LinkChange, LinkId, Pfc, Picos, SwitchConfig, Topology, TopologyError,
};

use crate::world::{Flow, GIGABIT, Log, World, parts};

/// Everything at once: lossy and lossless, marks, failures, spraying.
fn storm(seed: u64) -> (Log, u64, usize) {
    let balance =
        [Balance::default(), Balance::RoundRobin, Balance::Random, Balance::LeastQueue][seed as usize % 4];
    let pfc = Pfc { lossless: 1 << 3, headroom: Headroom::Auto, ..Pfc::default() };
    let mut parts = parts(100 * GIGABIT, Picos::from_nanos(500));
    parts.switch = SwitchConfig { buffer: 1 << 20, pfc, balance, ..SwitchConfig::default() };
    parts.switch.ecn[3] = Some(Ecn { kmin: 20_000, kmax: 80_000, pmax: 0.5 });
    parts.host.pfc = pfc;
    parts.core.rate = 40 * GIGABIT;
    for link in [&mut parts.edge, &mut parts.core] {
        link.mtu_bytes = 1500;
        link.frame_error_rate = 0.001;
    }
    let network = Topology::clos(3, 2, 3, &parts).expect("a Clos");
    let links = network.links().len() as u64;
    let flows: Vec<Flow> = (0..18_u32)
        .map(|number| {
            let src = number % 9;
            let dst = (src + 1 + (number * 7 + seed as u32) % 8) % 9;
            Flow::new(src, dst, 200 + number * 70, 300)
                .dscp(if number % 3 == 0 { 0 } else { 24 })
                .sport(number as u16)
        })
        .collect();
    let mut world = World::new(network, seed, &flows);
    world.fabric.set_convergence(Picos::from_micros(3));
    for step in 1..40_u64 {
        let at = Picos::from_micros(step * 2);
        world.run(at);
        let link = LinkId(((seed * 31 + step * 17) % links) as u32);
        let change = if step % 2 == 0 { LinkChange::Up } else { LinkChange::Down };
        let link = if step % 2 == 0 { LinkId(((seed * 31 + (step - 1) * 17) % links) as u32) } else { link };
        world.fabric.change(at, link, change, &mut world.log);
    }
    world.run(Picos::from_micros(100_000));
    (world.log.clone(), world.sent(), world.fabric.under_way())
}

#[test]
fn every_frame_arrives_or_is_lost_for_a_reason() {
    for seed in 0..40 {
        let (log, sent, under_way) = storm(seed);
        assert_eq!(
            log.arrived.len() as u64 + log.dropped.len() as u64 + under_way as u64,
            sent,
            "seed {seed}"
        );
        assert_eq!((sent, under_way), (18 * 300, 0), "seed {seed}: something is stuck");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(storm(5), storm(5));
    assert_ne!(storm(5).0, storm(9).0);
}

#[test]
fn a_network_that_cannot_work_is_refused() {
    let refused = |network: Topology| {
        softrnic_fabric::Fabric::<()>::new(network, 1).err().map(|error| error.to_string())
    };
    let mut network = Topology::new();
    network.add_host("a", HostConfig::default()).expect("a host");
    assert_eq!(network.add_switch("a", SwitchConfig::default()), Err(TopologyError::NameTaken("a".into())));
    assert_eq!(refused(network).as_deref(), Some("host a has no link"));

    let mut network = Topology::dumbbell(1, &parts(GIGABIT, Picos::ZERO)).expect("a dumbbell");
    let lonely = network.add_host("lonely", HostConfig::default()).expect("a host");
    let switch = network.add_switch("apart", SwitchConfig::default()).expect("a switch");
    network.link(network.node_of(lonely), switch, Default::default()).expect("a link");
    assert_eq!(refused(network).as_deref(), Some("no path leads from h0 to lonely"));

    let mut parts = parts(100 * GIGABIT, Picos::from_micros(10));
    parts.switch.pfc.lossless = 0xff;
    parts.switch.buffer = 1 << 20;
    let message = refused(Topology::star(4, &parts).expect("a star")).expect("a refusal");
    assert!(
        message.starts_with("switch s0 has 1048576 bytes of memory, but reserves and headroom"),
        "{message}"
    );
}
