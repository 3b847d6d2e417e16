//! What the XDP program does with each kind of frame.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pnet_packet::MutablePacket;
use pnet_packet::ethernet::{EtherType, EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, Ipv4Packet, MutableIpv4Packet};
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet_packet::udp::{MutableUdpPacket, UdpPacket};
use pnet_packet::vlan::{MutableVlanPacket, VlanPacket};
use softrnic_link::{Datagram, HeaderId, Link};
use softrnic_wire::{DF, ROCE_UDP_PORT};
use softrnic_xdp::{XdpLink, XdpOptions, XdpVerdicts};

use softrnic_link_tests::{Pair, can_run, ip, now, wait_for};

const TRANSPORT: usize = 40;
/// Offsets in an untagged IPv4 frame.
const IP: usize = 14;
const UDP: usize = 34;

/// What is to become of a frame.
#[derive(Clone, Copy)]
enum Fate {
    /// The link delivers it.
    Arrives,
    /// The program redirects it, and the link finds it malformed.
    Malformed,
    /// The kernel gets it; which of the program's counters says so.
    Passed(fn(&XdpVerdicts) -> u64),
}

impl Fate {
    fn counter(self) -> fn(&XdpVerdicts) -> u64 {
        match self {
            Fate::Arrives | Fate::Malformed => |verdicts| verdicts.redirected,
            Fate::Passed(counter) => counter,
        }
    }
}

#[test]
fn each_frame_goes_where_it_belongs() {
    if !can_run("each_frame_goes_where_it_belongs") {
        return;
    }
    let pair = Pair::new(1500, 1);
    // So that nothing but these frames is sent.
    pair.a.enter(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1").expect("sysctl");
    });
    let wire = pair.a.enter(|| RawSocket::open("eth0").expect("raw socket"));
    let mut link = pair.b.enter(|| XdpLink::open("eth0", &XdpOptions::default()).expect("link"));
    for (what, frame, fate) in frames() {
        let before = link.verdicts().expect("verdicts");
        let malformed_before = link.counters().rx_malformed;
        wire.send(&frame).expect(what);
        wait_for(what, || total(&link.verdicts().expect("verdicts")) > total(&before));
        let after = link.verdicts().expect("verdicts");
        assert_eq!(total(&after), total(&before) + 1, "{what}: {before:?} {after:?}");
        assert_eq!(fate.counter()(&after), fate.counter()(&before) + 1, "{what}: {before:?} {after:?}");
        let mut arrived = 0;
        let mut receive = || {
            link.receive(now(), 64, &mut |datagram| {
                check(what, &datagram);
                arrived += 1;
            });
            (arrived, link.counters().rx_malformed - malformed_before)
        };
        match fate {
            Fate::Arrives => wait_for(what, || receive() == (1, 0)),
            Fate::Malformed => wait_for(what, || receive() == (0, 1)),
            Fate::Passed(_) => assert_eq!(receive(), (0, 0), "{what}"),
        }
    }
}

fn frames() -> Vec<(&'static str, Vec<u8>, Fate)> {
    let ours = ("10.0.0.1", "10.0.0.2");
    let one_tag = &[(EtherTypes::Vlan, 5)];
    let two_tags = &[(EtherTypes::PBridge, 6), (EtherTypes::Vlan, 5)];
    let three_tags = &[(EtherTypes::Vlan, 7), (EtherTypes::PBridge, 6), (EtherTypes::Vlan, 5)];
    let not_ip = Fate::Passed(|verdicts| verdicts.passed_not_ip);
    let not_udp = Fate::Passed(|verdicts| verdicts.passed_not_udp);
    let fragment = Fate::Passed(|verdicts| verdicts.passed_fragment);
    let other_port = Fate::Passed(|verdicts| verdicts.passed_other_port);
    let other_address = Fate::Passed(|verdicts| verdicts.passed_other_address);
    let truncated = Fate::Passed(|verdicts| verdicts.passed_truncated);
    let v6 = ("fd00::1", "fd00::2");
    vec![
        ("IPv4", frame(ours, &[]), Fate::Arrives),
        ("IPv6", frame(v6, &[]), Fate::Arrives),
        ("IPv4 behind a tag", frame(ours, one_tag), Fate::Arrives),
        ("IPv6 behind a tag", frame(v6, one_tag), Fate::Arrives),
        ("IPv4 behind two tags", frame(ours, two_tags), Fate::Arrives),
        ("IPv6 behind two tags", frame(v6, two_tags), Fate::Arrives),
        ("IPv4 behind three tags", frame(ours, three_tags), not_ip),
        ("Ethernet padding", patch(ours, |bytes| bytes.extend([0; 9])), Fate::Arrives),
        ("a UDP checksum that is wrong", patch(ours, |bytes| bytes[UDP + 7] = 9), Fate::Arrives),
        ("congestion experienced", patch(ours, |bytes| set_ip(bytes, 1, 3)), Fate::Arrives),
        ("IPv4 options", patch(ours, add_options), Fate::Malformed),
        ("an IPv4 checksum that is wrong", patch(ours, |bytes| bytes[IP + 10] ^= 1), Fate::Malformed),
        ("a UDP length that is wrong", patch(ours, |bytes| bytes[UDP + 5] += 1), Fate::Malformed),
        ("an IP length beyond the frame", patch(ours, |bytes| set_ip(bytes, 2, 4)), Fate::Malformed),
        ("a first fragment", patch(ours, |bytes| set_ip(bytes, 6, 0x20)), fragment),
        ("a later fragment", patch(ours, |bytes| set_ip(bytes, 7, 0x10)), fragment),
        ("TCP", patch(ours, |bytes| set_ip(bytes, 9, 6)), not_udp),
        ("an IPv6 fragment", patch(v6, |bytes| bytes[IP + 6] = 44), not_udp),
        ("IPv6 hop-by-hop options", patch(v6, |bytes| bytes[IP + 6] = 0), not_udp),
        ("ARP", patch(ours, |bytes| bytes[13] = 6), not_ip),
        ("RoCE version 1", patch(ours, |bytes| bytes[12..14].copy_from_slice(&[0x89, 0x15])), not_ip),
        ("another UDP port", patch(ours, |bytes| bytes[UDP + 3] += 1), other_port),
        ("another IPv4 address", frame(("10.0.0.1", "10.0.0.3"), &[]), other_address),
        ("another IPv6 address", frame(("fd00::1", "fd00::3"), &[]), other_address),
        ("a group that was not joined", frame(("10.0.0.1", "239.9.9.9"), &[]), other_address),
        ("an IPv4 header that is too short", patch(ours, |bytes| set_ip(bytes, 0, 0x44)), truncated),
        ("an IP version that is wrong", patch(ours, |bytes| set_ip(bytes, 0, 0x65)), truncated),
        ("an IPv4 header cut short", patch(ours, |bytes| bytes.truncate(IP + 19)), truncated),
        ("an IPv6 header cut short", patch(v6, |bytes| bytes.truncate(IP + 39)), truncated),
        ("a UDP header cut short", patch(ours, |bytes| bytes.truncate(UDP + 7)), truncated),
        ("a tag cut short", patch(ours, tag_cut_short), truncated),
    ]
}

/// A frame from and to these addresses, behind VLAN tags of these types and numbers.
fn frame((src, dst): (&str, &str), tags: &[(EtherType, u16)]) -> Vec<u8> {
    let udp_len = UdpPacket::minimum_packet_size() + TRANSPORT;
    let (ether_type, ip_header_len) = match ip(src) {
        std::net::IpAddr::V4(_) => (EtherTypes::Ipv4, Ipv4Packet::minimum_packet_size()),
        std::net::IpAddr::V6(_) => (EtherTypes::Ipv6, Ipv6Packet::minimum_packet_size()),
    };
    let ip_at = EthernetPacket::minimum_packet_size() + tags.len() * VlanPacket::minimum_packet_size();
    let mut bytes = vec![0x5A; ip_at + ip_header_len + udp_len];
    let mut eth = MutableEthernetPacket::new(&mut bytes).expect("room");
    eth.set_destination([0xFF; 6].into());
    eth.set_source([2, 0, 0, 0, 0, 1].into());
    eth.set_ethertype(tags.first().map_or(ether_type, |(tag, _)| *tag));
    let mut rest = eth.payload_mut();
    for (place, (_, id)) in tags.iter().enumerate() {
        let (tag, behind) = rest.split_at_mut(VlanPacket::minimum_packet_size());
        let mut tag = MutableVlanPacket::new(tag).expect("room");
        tag.set_priority_code_point(pnet_packet::vlan::ClassOfService(3));
        tag.set_drop_eligible_indicator(0);
        tag.set_vlan_identifier(*id);
        tag.set_ethertype(tags.get(place + 1).map_or(ether_type, |(tag, _)| *tag));
        rest = behind;
    }
    let (header, rest) = rest.split_at_mut(ip_header_len);
    match (ip(src), ip(dst)) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            header.fill(0);
            let mut header = MutableIpv4Packet::new(header).expect("room");
            header.set_version(4);
            header.set_header_length(5);
            header.set_total_length((ip_header_len + udp_len) as u16);
            header.set_identification(0x1234);
            header.set_flags(ipv4::Ipv4Flags::DontFragment);
            header.set_ttl(63);
            header.set_next_level_protocol(IpNextHeaderProtocols::Udp);
            header.set_source(src);
            header.set_destination(dst);
            header.set_checksum(ipv4::checksum(&header.to_immutable()));
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
            header.fill(0);
            let mut header = MutableIpv6Packet::new(header).expect("room");
            header.set_version(6);
            header.set_payload_length(udp_len as u16);
            header.set_next_header(IpNextHeaderProtocols::Udp);
            header.set_hop_limit(63);
            header.set_source(src);
            header.set_destination(dst);
        }
        _ => panic!("two families"),
    }
    let mut udp = MutableUdpPacket::new(rest).expect("room");
    udp.set_source(50_000);
    udp.set_destination(ROCE_UDP_PORT);
    udp.set_length(udp_len as u16);
    udp.set_checksum(0);
    bytes
}

/// An untagged frame with something changed.
fn patch(addresses: (&str, &str), change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = frame(addresses, &[]);
    change(&mut bytes);
    bytes
}

/// Sets a byte of the IPv4 header, and the checksum of its first twenty.
fn set_ip(bytes: &mut [u8], offset: usize, value: u8) {
    bytes[IP + offset] = value;
    bytes[IP + 10..IP + 12].fill(0);
    let checksum = pnet_packet::util::checksum(&bytes[IP..UDP], 5);
    bytes[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
}

/// Four bytes of "no operation".
fn add_options(bytes: &mut Vec<u8>) {
    bytes.splice(UDP..UDP, [1; 4]);
    bytes[IP + 3] += 4;
    set_ip(bytes, 0, 0x46);
}

fn tag_cut_short(bytes: &mut Vec<u8>) {
    bytes.splice(12..12, [0x81, 0]);
    bytes.truncate(17);
}

fn check(what: &str, datagram: &Datagram<'_>) {
    assert_eq!(datagram.bytes, [0x5A; TRANSPORT], "{what}");
    assert_eq!((datagram.sport, datagram.ttl), (50_000, 63), "{what}");
    assert_eq!(datagram.tos, if what.starts_with("congestion") { 3 } else { 0 });
    let header = datagram.ip_header.expect("seen");
    if datagram.src.is_ipv4() {
        assert_eq!(datagram.id, HeaderId::Seen { id: 0x1234, flags: DF });
        assert_eq!((header.len(), header[0]), (20, 0x45));
    } else {
        assert_eq!((datagram.id, header.len()), (HeaderId::None, 40));
    }
}

fn total(verdicts: &XdpVerdicts) -> u64 {
    verdicts.redirected
        + verdicts.passed_no_socket
        + verdicts.passed_not_ip
        + verdicts.passed_not_udp
        + verdicts.passed_fragment
        + verdicts.passed_other_port
        + verdicts.passed_other_address
        + verdicts.passed_truncated
}

/// Sends frames as they are.
struct RawSocket {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
}

impl RawSocket {
    fn open(interface: &str) -> io::Result<RawSocket> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: the name is a C string; the address is plain C data, for which all zero is valid; the descriptor is
        // new and has no other owner.
        unsafe {
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(RawSocket { socket: OwnedFd::from_raw_fd(socket), address })
        }
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: frame and address are alive and of the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.address).cast(),
                size_of_val(&self.address) as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
