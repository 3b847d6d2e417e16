//! The port of the loopback interface, which every machine has, told of changes. (`tests/xdp` makes real ones.)

use std::net::IpAddr;

use super::*;
use softrnic_engine::EngineConfig;

/// What a link on a real interface can carry.
const LINK_MTU: usize = 4500;

fn engine() -> Engine {
    Engine::new(EngineConfig::with_seed(1))
}

fn loopback() -> (Port, Engine, u32) {
    let mut engine = engine();
    let port = Port::follow(Attachment::Interface("lo".into()), LINK_MTU, &mut engine).expect("netlink");
    let ifindex = port.follow.as_ref().expect("an interface").ifindex;
    (port, engine, ifindex)
}

/// The events that `change` raises.
fn events(port: &mut Port, engine: &mut Engine, change: HostEvent) -> Vec<Event> {
    port.take(change, engine);
    port.announce(engine);
    engine.take_events().collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

#[test]
fn the_default_gid_comes_first_and_then_the_addresses() {
    let (port, mut engine, _) = loopback();
    assert_eq!(engine.gids().get(0), Some(ip("fe80::200:ff:fe00:0")));
    assert_eq!(engine.gids().find(ip("127.0.0.1")), Some(1));
    assert_eq!(port.state(), LinkState::Up);
}

#[test]
fn the_carrier_decides_the_state_and_each_change_is_one_event() {
    let (mut port, mut engine, ifindex) = loopback();
    let (port, engine) = (&mut port, &mut engine);
    assert_eq!(events(port, engine, HostEvent::LinkDown { ifindex }), [Event::PortError]);
    assert_eq!(port.state(), LinkState::NoCarrier);
    assert_eq!(events(port, engine, HostEvent::AdminDown { ifindex }), []);
    assert_eq!(port.state(), LinkState::AdminDown);
    assert_eq!(events(port, engine, HostEvent::LinkUp { ifindex }), [Event::PortActive]);
    assert_eq!(events(port, engine, HostEvent::LinkUp { ifindex }), []);
    assert_eq!(events(port, engine, HostEvent::LinkRemoved { ifindex: ifindex + 1 }), [], "somebody else's");
    assert!(!port.take_removal());
    assert_eq!(events(port, engine, HostEvent::LinkRemoved { ifindex }), [Event::PortError]);
    assert!(port.take_removal() && !port.take_removal(), "told once");
    assert_eq!(port.downs(), 2);
}

#[test]
fn the_mtu_is_the_interfaces_but_never_more_than_the_link_carries() {
    let (mut port, mut engine, ifindex) = loopback();
    assert_eq!((port.ip_mtu(), port.active_mtu()), (LINK_MTU, Mtu::B4096), "the interface has 65536");
    for (mtu, ip_mtu, active) in
        [(1500, 1500, Mtu::B1024), (9000, LINK_MTU, Mtu::B4096), (600, 600, Mtu::B512)]
    {
        assert_eq!(events(&mut port, &mut engine, HostEvent::MtuChanged { ifindex, mtu }), []);
        assert_eq!((port.ip_mtu(), port.active_mtu()), (ip_mtu, active));
    }
}

#[test]
fn addresses_take_the_first_free_index_and_leave_holes() {
    let (mut port, mut engine, ifindex) = loopback();
    let (port, engine) = (&mut port, &mut engine);
    let first = engine.gids().len();
    // Addresses that the machine does not have, so that their going away is believed.
    let [a, b, c] = ["192.0.2.1", "192.0.2.2", "2001:db8::3"].map(ip);
    for address in [a, b] {
        let added = HostEvent::AddressAdded { ip: address, ifindex };
        assert_eq!(events(port, engine, added), [Event::GidChange]);
    }
    assert_eq!((engine.gids().find(a), engine.gids().find(b)), (Some(first), Some(first + 1)));
    let removed = HostEvent::AddressRemoved { ip: a, ifindex };
    assert_eq!(events(port, engine, removed), [Event::GidChange]);
    assert_eq!((engine.gids().get(first), engine.gids().get(first + 1)), (None, Some(b)));
    assert_eq!(events(port, engine, removed), [], "it was gone already");
    events(port, engine, HostEvent::AddressAdded { ip: c, ifindex });
    assert_eq!(engine.gids().find(c), Some(first));
    let elsewhere = HostEvent::AddressAdded { ip: a, ifindex: u32::MAX };
    assert_eq!(events(port, engine, elsewhere), []);
}

#[test]
fn an_address_that_the_interface_still_has_stays() {
    let (mut port, mut engine, _) = loopback();
    // Another interface had it as well.
    let removed = HostEvent::AddressRemoved { ip: ip("127.0.0.1"), ifindex: u32::MAX };
    assert_eq!(events(&mut port, &mut engine, removed), []);
    assert_eq!(engine.gids().find(ip("127.0.0.1")), Some(1));
}

#[test]
fn a_device_on_one_address_has_it_at_indices_0_and_1() {
    let mut engine = engine();
    let address = ip("127.0.0.1");
    let mut port = Port::follow(Attachment::Address(address), LINK_MTU, &mut engine).expect("netlink");
    let gids =
        |engine: &mut Engine| (0..engine.gids().len()).map(|at| engine.gids().get(at)).collect::<Vec<_>>();
    assert_eq!(gids(&mut engine), [Some(address); 2]);
    let ifindex = port.follow.as_ref().expect("an interface").ifindex;
    assert_eq!(port.interface_of(address), Some(ifindex));
    let other = HostEvent::AddressAdded { ip: ip("192.0.2.9"), ifindex };
    assert_eq!(events(&mut port, &mut engine, other), []);
    assert_eq!(gids(&mut engine), [Some(address); 2]);
}

#[test]
fn a_removed_address_leaves_both_indices_and_returns_to_both() {
    let mut engine = engine();
    // The machine does not have it, so that its going away is believed.
    let address = ip("192.0.2.1");
    let mut port =
        Port::follow(Attachment::Address(ip("127.0.0.1")), LINK_MTU, &mut engine).expect("netlink");
    let follow = port.follow.as_mut().expect("an interface");
    follow.attachment = Attachment::Address(address);
    let ifindex = follow.ifindex;
    for (change, at_both) in [
        (HostEvent::AddressAdded { ip: address, ifindex }, Some(address)),
        (HostEvent::AddressRemoved { ip: address, ifindex }, None),
        (HostEvent::AddressAdded { ip: address, ifindex }, Some(address)),
    ] {
        assert_eq!(events(&mut port, &mut engine, change), [Event::GidChange]);
        assert_eq!((engine.gids().get(0), engine.gids().get(1)), (at_both, at_both));
    }
}

#[test]
fn gid_indices_out_of_range() {
    let mut engine = engine();
    let port = Port::follow(Attachment::Interface("nosuch0".into()), LINK_MTU, &mut engine).expect("netlink");
    assert_eq!((port.state(), port.descriptor()), (LinkState::AdminDown, None));
    // Some address that the machine may have by a route alone.
    let port = Port::follow(Attachment::Address(ip("192.0.2.1")), LINK_MTU, &mut engine).expect("netlink");
    assert_eq!((port.state(), port.active_mtu()), (LinkState::Up, Mtu::B4096));
}
