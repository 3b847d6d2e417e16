//! Who takes which path.

use softrnic_fabric::{
    Balance, Ect, Fabric, FlowTuple, Frame, Headroom, Host, NodeId, Nothing, Pfc, Picos, SwitchConfig, To,
    Topology,
};

use crate::world::{Flow, GIGABIT, Log, World, parts};

/// Frames that each spine sent, for flows between two leaves.
fn by_spine(balance: Balance, flows: u32, frames: u64) -> Vec<u64> {
    let mut parts = parts(100 * GIGABIT, Picos::from_micros(1));
    parts.switch.balance = balance;
    let network = Topology::clos(2, 4, flows, &parts).expect("a Clos");
    let flows: Vec<Flow> = (0..flows)
        .map(|host| Flow::new(host, flows + host, 1000, frames).sport(49_152 + host as u16))
        .collect();
    let mut world = World::new(network, 3, &flows);
    world.run(Picos::NEVER);
    assert_eq!(world.log.arrived.len() as u64, flows.len() as u64 * frames);
    let topology = world.fabric.topology();
    let ports = topology.ports();
    (0..4)
        .map(|spine| {
            let node = topology.node(&format!("spine{spine}")).expect("a spine");
            ports[node.0 as usize].iter().map(|port| world.fabric.counters(*port).tx_frames).sum()
        })
        .collect()
}

#[test]
fn ecmp_keeps_a_flow_on_one_path() {
    let sent = by_spine(Balance::Ecmp { seed: None }, 1, 500);
    assert_eq!(sent.iter().filter(|&&frames| frames == 500).count(), 1, "{sent:?}");
    // Many flows find all spines.
    let sent = by_spine(Balance::Ecmp { seed: None }, 64, 10);
    assert!(sent.iter().all(|&frames| frames > 0), "{sent:?}");
}

#[test]
fn spraying_spreads_a_flow_evenly() {
    assert_eq!(by_spine(Balance::RoundRobin, 1, 400), [100; 4]);
    let sent = by_spine(Balance::Random, 1, 4_000);
    assert!(sent.iter().all(|frames| frames.abs_diff(1_000) < 120), "{sent:?}");
    let sent = by_spine(Balance::LeastQueue, 4, 400);
    assert!(sent.iter().all(|frames| frames.abs_diff(400) <= 4), "{sent:?}");
}

#[test]
fn ecmp_chooses_as_the_hpcc_simulator() {
    // 160 flows of 20 seeds and the spine that each took there: ToR 16, spines 18 to 21, highest first.
    let mut checked = 0;
    for line in include_str!("hpcc_flow_to_spine.csv").lines().skip(1) {
        let fields: Vec<u32> = line.split(',').map(|field| field.parse().expect("a number")).collect();
        let &[_, _, src, dst, sport, dport, _, index, spine] = fields.as_slice() else { panic!("{line}") };
        let mut network = Topology::new();
        for host in 0..16 {
            network.add_host(&format!("h{host}"), Default::default()).expect("a host");
        }
        for switch in 16..22 {
            network.add_switch(&format!("s{switch}"), SwitchConfig::default()).expect("a switch");
        }
        let link = |network: &mut Topology, a, b| {
            network.link(NodeId(a), NodeId(b), Default::default()).expect("a link")
        };
        for host in 0..16 {
            link(&mut network, host, 16 + host / 8);
        }
        let mut uplinks = Vec::new();
        for spine in (18..22).rev() {
            uplinks.push(link(&mut network, 16, spine).ports()[0]);
            link(&mut network, 17, spine);
        }
        let mut fabric = Fabric::new(network, 1).expect("a fabric");
        let address = |host: u32| std::net::IpAddr::V4(std::net::Ipv4Addr::from(0x0b00_0001 + (host << 8)));
        let frame = Frame {
            from: Host(src),
            to: To::Host(Host(dst)),
            bytes: 1048,
            flow: FlowTuple {
                src: address(src),
                dst: address(dst),
                sport: sport as u16,
                dport: dport as u16,
                protocol: 17,
            },
            dscp: 0,
            ect: Ect::Not,
            trimmed: false,
            payload: (),
        };
        let port = fabric.host_ports(Host(src))[0];
        fabric.send(Picos::ZERO, port, frame, &mut Nothing).expect("room");
        fabric.run_until(Picos::from_micros(100), &mut Nothing);
        let taken = uplinks.iter().position(|port| fabric.counters(*port).tx_frames == 1).expect("an uplink");
        assert_eq!((taken as u32, 21 - taken as u32), (index, spine), "{line}");
        checked += 1;
    }
    assert_eq!(checked, 160);
}

#[test]
fn a_group_gets_one_copy_each() {
    let network = Topology::clos(3, 2, 3, &parts(100 * GIGABIT, Picos::from_micros(1))).expect("a Clos");
    let mut fabric: Fabric<(u32, u64)> = Fabric::new(network, 1).expect("a fabric");
    for host in [0, 1, 4, 7, 8] {
        fabric.join(5, Host(host));
    }
    let mut log = Log::default();
    let address = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let flow = FlowTuple { src: address, dst: address, sport: 1, dport: 4791, protocol: 17 };
    let frame = Frame {
        from: Host(0),
        to: To::Group(5),
        bytes: 300,
        flow,
        dscp: 0,
        ect: Ect::Not,
        trimmed: false,
        payload: (0, 0),
    };
    let port = fabric.host_ports(Host(0))[0];
    fabric.send(Picos::ZERO, port, frame.clone(), &mut log).expect("room");
    fabric.run_until(Picos::from_micros(100), &mut log);
    let mut hosts: Vec<u32> = log.arrived.iter().map(|(_, host, ..)| host.0).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, [1, 4, 7, 8]);
    // Once over each link: host to leaf, leaf to a spine, spine to two leaves, leaves to four hosts.
    let sent: u64 = (0..2 * fabric.topology().links().len() as u32)
        .map(|port| fabric.counters(softrnic_fabric::PortId(port)).tx_frames)
        .sum();
    assert_eq!(sent, 1 + 1 + 2 + 4);
    fabric.leave(5, Host(7));
    fabric.send(fabric.now(), port, frame, &mut log).expect("room");
    fabric.run_until(Picos::from_micros(200), &mut log);
    assert_eq!(log.arrived.len(), 4 + 3);
    assert_eq!(fabric.under_way(), 0);
}

#[test]
fn a_ring_of_switches_locks_up_and_is_found() {
    // Hosts at each of four switches send two hops clockwise: each ring link carries two flows.
    let pfc = Pfc { lossless: 1 << 3, headroom: Headroom::Auto, ..Pfc::default() };
    let config = SwitchConfig {
        buffer: 400_000,
        pfc,
        balance: Balance::Ecmp { seed: Some(1) },
        ..SwitchConfig::default()
    };
    let spec = softrnic_fabric::LinkSpec { mtu_bytes: 1048, ..Default::default() };
    let mut network = Topology::new();
    let switches: Vec<NodeId> = (0..5)
        .map(|number| network.add_switch(&format!("s{number}"), config.clone()).expect("a switch"))
        .collect();
    let host_config = softrnic_fabric::HostConfig { pfc, ..Default::default() };
    for (number, &switch) in switches.iter().enumerate() {
        let host = network.add_host(&format!("h{number}"), host_config).expect("a host");
        let node = network.node_of(host);
        network.link(node, switch, spec).expect("a link");
    }
    for number in 0..5 {
        network.link(switches[number], switches[(number + 1) % 5], spec).expect("a link");
    }
    // In a ring of five, two hops have one shortest path.
    let flows: Vec<Flow> =
        (0..5).map(|host| Flow::new(host, (host + 2) % 5, 1048, 20_000).dscp(24)).collect();
    let mut world = World::new(network, 1, &flows);
    world.run(Picos::from_micros(20_000));
    let deadlock = world.fabric.deadlock().expect("a deadlock");
    assert_eq!((deadlock.priority, deadlock.ports.len()), (3, 5));
    assert!(world.log.arrived.len() < 100_000, "all arrived");
    assert!(world.log.dropped.is_empty());
    let names: Vec<String> =
        deadlock.ports.iter().map(|port| world.fabric.topology().port_name(*port)).collect();
    for number in 0..5 {
        assert!(names.contains(&format!("s{number}-s{}", (number + 1) % 5)), "{names:?}");
    }

    // The other way round, nobody waits for anybody in a circle.
    let network = Topology::star(3, &parts(100 * GIGABIT, Picos::from_micros(1))).expect("a star");
    let mut world = World::new(network, 1, &[Flow::new(0, 2, 1000, 10), Flow::new(1, 2, 1000, 10)]);
    world.run(Picos::NEVER);
    assert_eq!(world.fabric.deadlock(), None);
}
