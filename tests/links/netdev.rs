//! What `netdev` knows about a machine, and which changes it notices.

use std::os::fd::AsRawFd;

use softrnic_netdev::{Host, HostEvent, LinkState, Neighbour, NoRoute, Query, Queues};
use softrnic_wire::{EtherType, MacAddr};

use softrnic_link_tests::{Namespace, Pair, can_run, has_vlans, ip, join, now, wait_for};

fn open(namespace: &Namespace) -> Host {
    namespace.enter(|| Host::open().expect("host"))
}

/// Polls until `done` has seen enough; returns all events.
fn events_until(host: &mut Host, what: &str, done: impl Fn(&[HostEvent], &Host) -> bool) -> Vec<HostEvent> {
    let mut events = Vec::new();
    wait_for(what, || {
        host.poll(&mut |event| events.push(event)).expect("poll");
        done(&events, host)
    });
    events
}

fn query(dst: &str, src: Option<&str>, oif: Option<u32>) -> Query {
    Query { dst: ip(dst), src: src.map(ip), oif }
}

#[test]
fn interfaces_and_addresses_are_listed() {
    if !can_run("interfaces_and_addresses_are_listed") {
        return;
    }
    let pair = Pair::new(4500, 3);
    pair.a.ip("link set eth0 address 02:00:00:00:00:42");
    pair.a.ip("addr add 10.0.0.9/24 dev eth0");
    let host = open(&pair.a);
    let interface = host.interface_by_name("eth0").expect("interface");
    assert_eq!(interface.mac, MacAddr([2, 0, 0, 0, 0, 0x42]));
    assert_eq!((interface.mtu, interface.state), (4500, LinkState::Up));
    assert_eq!((interface.kind.as_deref(), interface.is_ethernet), (Some("veth"), true));
    assert_eq!((interface.xdp_programs.as_slice(), &interface.vlan), ([].as_slice(), &None));
    pair.a.enter(|| {
        assert_eq!(interface.driver().expect("driver"), "veth");
        assert_eq!(interface.queues(), Queues { rx: 3, tx: 3 });
    });
    let addresses: Vec<_> =
        host.stacked_addresses(interface.index).map(|address| (address.ip, address.prefix_len)).collect();
    for expected in [(ip("10.0.0.1"), 24), (ip("10.0.0.9"), 24), (ip("fd00::1"), 64)] {
        assert!(addresses.contains(&expected), "{addresses:?}");
    }
    assert_eq!(host.owner(ip("10.0.0.9")), Some(interface.index));
    assert_eq!(host.owner(ip("10.0.0.2")), None);
    let lo = host.interface_by_name("lo").expect("loopback");
    assert_eq!((lo.mac, lo.is_ethernet, lo.state), (MacAddr::default(), true, LinkState::Up));
}

#[test]
fn changes_are_reported() {
    if !can_run("changes_are_reported") {
        return;
    }
    let pair = Pair::new(1500, 1);
    let mut host = open(&pair.a);
    let ifindex = host.interface_by_name("eth0").expect("interface").index;
    // Events that are still in flight from the setup.
    host.poll(&mut |_| {}).expect("poll");

    let mut expect = |change: &dyn Fn(), expected: HostEvent| {
        let before = host.generation();
        change();
        let what = format!("{expected:?}");
        let events = events_until(&mut host, &what, |events, _| events.contains(&expected));
        assert_eq!(events.iter().filter(|event| **event == expected).count(), 1, "{events:?}");
        assert!(host.generation() > before);
    };
    let (v4, v6) = (ip("10.0.0.20"), ip("fd00::20"));
    let removed = |ip| HostEvent::AddressRemoved { ip, ifindex };
    let added = |ip| HostEvent::AddressAdded { ip, ifindex };
    expect(&|| pair.a.ip("addr add 10.0.0.20/24 dev eth0"), added(v4));
    expect(&|| pair.a.ip("addr del 10.0.0.20/24 dev eth0"), removed(v4));
    expect(&|| pair.a.ip("addr add fd00::20/64 dev eth0"), added(v6));
    expect(&|| pair.a.ip("addr del fd00::20/64 dev eth0"), removed(v6));
    expect(&|| pair.a.ip("link set eth0 mtu 1400"), HostEvent::MtuChanged { ifindex, mtu: 1400 });
    expect(&|| pair.a.ip("link set eth0 address 02:00:00:00:00:43"), HostEvent::MacChanged { ifindex });
    expect(&|| pair.b.ip("link set eth0 down"), HostEvent::LinkDown { ifindex });
    expect(&|| pair.b.ip("link set eth0 up"), HostEvent::LinkUp { ifindex });
    expect(&|| pair.a.ip("link set eth0 down"), HostEvent::AdminDown { ifindex });
    expect(&|| pair.a.ip("link set eth0 up"), HostEvent::LinkUp { ifindex });
    let neighbour = HostEvent::NeighbourChanged { ip: ip("10.0.0.30"), ifindex };
    expect(&|| pair.a.ip("neigh add 10.0.0.30 lladdr 02:00:00:00:00:30 dev eth0"), neighbour);
    expect(&|| pair.a.ip("neigh del 10.0.0.30 dev eth0"), neighbour);
    expect(&|| pair.a.ip("route add 10.5.0.0/16 via 10.0.0.2"), HostEvent::RoutesChanged);
    expect(&|| pair.a.ip("link del eth0"), HostEvent::LinkRemoved { ifindex });
    assert_eq!(host.interface(ifindex), None);
    assert_eq!(host.owner(ip("10.0.0.1")), None);
}

#[test]
fn an_address_counts_once_it_proved_to_be_no_duplicate() {
    if !can_run("an_address_counts_once_it_proved_to_be_no_duplicate") {
        return;
    }
    let pair = Pair::new(1500, 1);
    pair.a.enter(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/eth0/accept_dad", "1").expect("sysctl");
        std::fs::write("/proc/sys/net/ipv6/conf/eth0/dad_transmits", "1").expect("sysctl");
    });
    let mut host = open(&pair.a);
    let ifindex = host.interface_by_name("eth0").expect("interface").index;
    pair.a.ip("addr add fd00::21/64 dev eth0");
    // The other side has this one.
    pair.a.ip("addr add fd00::2/64 dev eth0");
    host.poll(&mut |_| {}).expect("poll");
    assert_eq!((host.owner(ip("fd00::21")), host.owner(ip("fd00::2"))), (None, None), "tentative");
    let good = HostEvent::AddressAdded { ip: ip("fd00::21"), ifindex };
    events_until(&mut host, "the address to be good", |events, _| events.contains(&good));
    assert_eq!((host.owner(ip("fd00::21")), host.owner(ip("fd00::2"))), (Some(ifindex), None));
}

#[test]
fn lost_notifications_are_made_up_for() {
    if !can_run("lost_notifications_are_made_up_for") {
        return;
    }
    let pair = Pair::new(1500, 1);
    let mut host = open(&pair.a);
    let ifindex = host.interface_by_name("eth0").expect("interface").index;
    // SAFETY: the value is alive and of the length given.
    let set = unsafe {
        let least: libc::c_int = 0;
        libc::setsockopt(
            host.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const least).cast(),
            size_of_val(&least) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    for number in 1..=100 {
        pair.a.ip(&format!("addr add 10.0.1.{number}/32 dev eth0"));
    }
    pair.a.ip("link set eth0 mtu 1400");
    pair.a.ip("addr del 10.0.0.1/24 dev eth0");
    pair.a.ip("neigh add 10.0.0.30 lladdr 02:00:00:00:00:30 dev eth0");
    let mut events = Vec::new();
    host.poll(&mut |event| events.push(event)).expect("poll");
    for expected in
        (1..=100).map(|number| HostEvent::AddressAdded { ip: [10, 0, 1, number].into(), ifindex }).chain([
            HostEvent::MtuChanged { ifindex, mtu: 1400 },
            HostEvent::AddressRemoved { ip: ip("10.0.0.1"), ifindex },
            HostEvent::NeighbourChanged { ip: ip("10.0.0.30"), ifindex },
            HostEvent::RoutesChanged,
        ])
    {
        assert!(events.contains(&expected), "{expected:?}");
    }
}

#[test]
fn destinations_are_resolved() {
    if !can_run("destinations_are_resolved") {
        return;
    }
    let pair = Pair::new(4500, 1);
    let mac = |namespace: &Namespace| open(namespace).interface_by_name("eth0").expect("interface").mac;
    let (mac_a, mac_b) = (mac(&pair.a), mac(&pair.b));
    pair.a.ip("route add 10.8.0.0/16 via 10.0.0.2 mtu 2000");
    pair.a.ip("route add 10.9.0.0/16 via inet6 fd00::2 dev eth0");
    pair.a.ip("-6 route add fd08::/64 via fd00::2");
    pair.a.ip("route add prohibit 10.66.0.0/16");
    pair.a.ip("addr add 10.0.0.11/24 dev eth0");
    pair.a.enter(|| {
        let mut host = Host::open().expect("host");
        let ifindex = host.interface_by_name("eth0").expect("interface").index;
        let mut resolve = |query: Query| {
            let mut resolution = host.resolve(now(), &query);
            wait_for("the neighbour", || {
                host.poll(&mut |_| {}).expect("poll");
                resolution = host.resolve(now(), &query);
                resolution.as_ref().map(|resolution| resolution.neighbour) != Ok(Neighbour::Pending)
            });
            resolution
        };
        for (dst, src, next_hop, mtu) in [
            ("10.0.0.2", "10.0.0.1", "10.0.0.2", 4500),
            ("10.8.0.5", "10.0.0.1", "10.0.0.2", 2000),
            ("10.9.0.5", "10.0.0.1", "fd00::2", 4500),
            ("fd00::2", "fd00::1", "fd00::2", 4500),
            ("fd08::5", "fd00::1", "fd00::2", 4500),
        ] {
            for oif in [None, Some(ifindex)] {
                let found = resolve(query(dst, None, oif)).expect(dst);
                assert_eq!((found.ifindex, found.lower, found.local), (ifindex, ifindex, false), "{dst}");
                assert_eq!((found.src, found.next_hop, found.mtu), (ip(src), ip(next_hop), mtu), "{dst}");
                assert_eq!((found.neighbour, found.src_mac), (Neighbour::Known(mac_b), mac_a), "{dst}");
                assert_eq!(found.vlans, []);
            }
        }
        let chosen = resolve(query("10.0.0.2", Some("10.0.0.11"), Some(ifindex))).expect("resolved");
        assert_eq!(chosen.src, ip("10.0.0.11"));
        assert!(resolve(query("10.0.0.1", None, None)).expect("resolved").local);
        let group = resolve(query("239.1.2.3", Some("10.0.0.1"), None)).expect("resolved");
        assert_eq!(group.neighbour, Neighbour::Known(MacAddr([1, 0, 0x5E, 1, 2, 3])));
        let group = resolve(query("ff0e::1:203", Some("fd00::1"), Some(ifindex))).expect("resolved");
        assert_eq!(group.neighbour, Neighbour::Known(MacAddr([0x33, 0x33, 0, 1, 2, 3])));
        assert_eq!(resolve(query("10.66.0.1", None, None)), Err(NoRoute::Unroutable));
        assert_eq!(resolve(query("10.77.0.1", None, None)), Err(NoRoute::Unroutable));
        assert_eq!(resolve(query("ff0e::1", None, None)), Err(NoRoute::Unroutable));
        // A route that comes later is found.
        pair.a.ip("route add 10.77.0.0/16 via 10.0.0.2");
        assert_eq!(resolve(query("10.77.0.1", None, None)).expect("resolved").next_hop, ip("10.0.0.2"));
    });
}

#[test]
fn a_neighbour_that_does_not_answer_is_pending_and_then_unreachable() {
    if !can_run("a_neighbour_that_does_not_answer_is_pending_and_then_unreachable") {
        return;
    }
    let pair = Pair::new(1500, 1);
    pair.a.enter(|| {
        // Three times, 50 ms apart.
        std::fs::write("/proc/sys/net/ipv4/neigh/eth0/retrans_time_ms", "50").expect("sysctl");
        let mut host = Host::open().expect("host");
        let query = query("10.0.0.99", None, None);
        let first = host.resolve(now(), &query).expect("routed");
        assert_eq!(first.neighbour, Neighbour::Pending);
        wait_for("the kernel to give up", || {
            host.poll(&mut |_| {}).expect("poll");
            host.resolve(now(), &query).expect("routed").neighbour == Neighbour::Unreachable
        });
        pair.b.ip("addr add 10.0.0.99/24 dev eth0");
        wait_for("it to be asked again", || {
            host.poll(&mut |_| {}).expect("poll");
            matches!(host.resolve(now(), &query).expect("routed").neighbour, Neighbour::Known(_))
        });
    });
}

#[test]
fn a_neighbour_that_is_forgotten_is_asked_for_at_once() {
    if !can_run("a_neighbour_that_is_forgotten_is_asked_for_at_once") {
        return;
    }
    let pair = Pair::new(1500, 1);
    pair.a.enter(|| {
        let mut host = Host::open().expect("host");
        let query = query("10.0.0.2", None, None);
        // As if no time had passed, so that the answer is not to a repeated request.
        let now = now();
        let is_known = |host: &mut Host| {
            host.poll(&mut |_| {}).expect("poll");
            matches!(host.resolve(now, &query).expect("routed").neighbour, Neighbour::Known(_))
        };
        for _ in 0..3 {
            wait_for("the neighbour to be known", || is_known(&mut host));
            pair.a.ip("neigh flush dev eth0");
            host.poll(&mut |_| {}).expect("poll");
            assert_eq!(host.resolve(now, &query).expect("routed").neighbour, Neighbour::Pending);
        }
        wait_for("the neighbour to be known", || is_known(&mut host));
    });
}

#[test]
fn vlan_interfaces_name_their_tags() {
    let test = "vlan_interfaces_name_their_tags";
    if !can_run(test) || !has_vlans(test) {
        return;
    }
    let (a, b) = (Namespace::new("a"), Namespace::new("b"));
    join(&a, "eth0", &b, "eth0", 4500, 1);
    a.ip("link add link eth0 name outer type vlan proto 802.1ad id 100");
    a.ip("link add link outer name inner mtu 1500 type vlan id 7 egress-qos-map 0:1 6:5");
    a.ip("link set outer up");
    a.ip("link set inner up");
    a.ip("addr add 10.7.0.1/24 dev inner");
    a.ip("neigh add 10.7.0.2 lladdr 02:00:00:00:00:07 dev inner");
    let mut host = open(&a);
    let index = |host: &Host, name: &str| host.interface_by_name(name).expect(name).index;
    let (eth0, inner) = (index(&host, "eth0"), index(&host, "inner"));
    assert!(host.is_stacked(inner, eth0) && !host.is_stacked(eth0, inner));
    assert!(host.stacked_addresses(eth0).any(|address| address.ip == ip("10.7.0.1")));
    let found = host.resolve(now(), &query("10.7.0.2", None, None)).expect("resolved");
    assert_eq!((found.ifindex, found.lower, found.mtu), (inner, eth0, 1500));
    assert_eq!(found.neighbour, Neighbour::Known(MacAddr([2, 0, 0, 0, 0, 7])));
    let [inner, outer] = found.vlans.as_slice() else { panic!("{:?}", found.vlans) };
    assert_eq!((inner.id, inner.tpid), (7, EtherType::VLAN));
    assert_eq!((outer.id, outer.tpid), (100, EtherType::SERVICE_VLAN));
    // Best effort, bulk, interactive, interactive bulk.
    assert_eq!([0, 8, 16, 24].map(|tos| inner.pcp(tos)), [1, 0, 5, 0]);
    assert_eq!([0, 8, 16, 24].map(|tos| outer.pcp(tos)), [0, 0, 0, 0]);
}
