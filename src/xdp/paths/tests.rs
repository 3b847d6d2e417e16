use std::net::{Ipv4Addr, Ipv6Addr};

use softrnic_wire::{EtherType, Frame, MacAddr};

use super::*;

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn identity() -> Identity {
    Identity {
        ifindex: 5,
        mac: OURS,
        is_up: true,
        wanted: Vec::new(),
        addresses: [IpAddr::from([10, 0, 0, 1])].into(),
        groups: [IpAddr::from([239, 1, 1, 1])].into(),
        max_datagram: 4472,
    }
}

fn vlan(id: u16, tpid: EtherType, egress: [u8; 8]) -> Vlan {
    Vlan { lower: 5, id, tpid, egress }
}

fn resolution(vlans: Vec<Vlan>) -> Resolution {
    Resolution {
        ifindex: 7,
        lower: 5,
        src: [10, 0, 0, 1].into(),
        next_hop: [10, 0, 0, 2].into(),
        local: false,
        neighbour: Neighbour::Known(THEIRS),
        src_mac: OURS,
        vlans,
        mtu: 1500,
    }
}

fn path(dst: IpAddr, resolution: Resolution) -> Path {
    let (facts, ip_len) = match dst {
        IpAddr::V4(dst) => {
            (IpFacts::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst, id: 0, flags_frag: DF }, IPV4_LEN)
        }
        IpAddr::V6(dst) => (IpFacts::V6 { src: Ipv6Addr::LOCALHOST, dst }, IPV6_LEN),
    };
    let mut path = Path {
        target: Target::Unreachable,
        max_datagram: 4472,
        header: FrameHeader {
            eth: EthHeader::default(),
            ip: IpHeader { facts, tos: 0, ttl: 0, flow_label: 0 },
            src_port: 0,
            dst_port: ROCE_UDP_PORT,
        },
        vlans: Vec::new(),
        generation: 0,
        resolved: Time::ZERO,
    };
    fill_in(&mut path, resolution, dst, ip_len, &identity());
    path
}

fn flow(dst: IpAddr, tos: u8) -> Flow {
    Flow { src: [10, 0, 0, 1].into(), dst, sport: 50_000, slot: None, tos, ttl: 7 }
}

#[test]
fn headers_carry_the_flow_and_the_tags_with_their_priorities() {
    let dst = IpAddr::from([10, 0, 0, 2]);
    let inner = vlan(7, EtherType::VLAN, [1, 0, 2, 0, 3, 0, 5, 0]);
    let outer = vlan(100, EtherType::SERVICE_VLAN, [0, 0, 0, 0, 0, 0, 6, 0]);
    for (tos, inner_pcp, outer_pcp) in [(0, 1, 0), (0x02, 1, 0), (0x08, 2, 0), (0x10, 5, 6), (0x18, 3, 0)] {
        let path = path(dst, resolution(vec![inner.clone(), outer.clone()]));
        assert_eq!((path.target, path.max_datagram), (Target::Network, 1500 - 28));
        let header = path.header(&flow(dst, tos));
        let mut bytes = vec![0; header.wire_len() + 16];
        header.emit(&mut bytes, 16);
        let frame = Frame::parse(&bytes).expect("frame");
        assert!(frame.ip_checksum_ok());
        let eth = frame.header.eth;
        assert_eq!((eth.src, eth.dst), (OURS, THEIRS));
        let (vlan, outer_vlan) = (eth.vlan.expect("tag"), eth.outer_vlan.expect("tag"));
        assert_eq!((vlan.tpid, vlan.id(), vlan.pcp()), (EtherType::VLAN, 7, inner_pcp));
        assert_eq!(
            (outer_vlan.tpid, outer_vlan.id(), outer_vlan.pcp()),
            (EtherType::SERVICE_VLAN, 100, outer_pcp)
        );
        assert_eq!((frame.header.src_port, frame.header.ip.tos, frame.header.ip.ttl), (50_000, tos, 7));
    }
}

#[test]
fn a_path_leads_nowhere_unless_it_leaves_by_our_interface() {
    let dst = IpAddr::from([10, 0, 0, 2]);
    for (change, target) in [
        ((|_| ()) as fn(&mut Resolution), Target::Network),
        (|resolution| resolution.lower = 6, Target::Unreachable),
        (|resolution| resolution.local = true, Target::Unreachable),
        (|resolution| resolution.neighbour = Neighbour::Pending, Target::Pending),
        (|resolution| resolution.neighbour = Neighbour::Unreachable, Target::Pending),
    ] {
        let mut resolution = resolution(Vec::new());
        change(&mut resolution);
        assert_eq!(path(dst, resolution).target, target);
    }
    assert_eq!(path([239, 1, 1, 1].into(), resolution(Vec::new())).target, Target::Both);
    assert_eq!(path([239, 1, 1, 2].into(), resolution(Vec::new())).target, Target::Network);
}

#[test]
fn the_routes_mtu_bounds_datagrams() {
    let v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    assert_eq!(path(v6, resolution(Vec::new())).max_datagram, 1500 - 48);
    assert_eq!(path(v6, Resolution { mtu: 9000, ..resolution(Vec::new()) }).max_datagram, 4472);
    assert_eq!(path(v6, Resolution { mtu: 40, ..resolution(Vec::new()) }).max_datagram, 0);
}
