//! What the XDP program does with each kind of frame.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use softrnic_link::{Datagram, HeaderId, Link};
use softrnic_wire::{
    DF, EthHeader, EtherType, FrameHeader, IpFacts, IpHeader, MacAddr, ROCE_UDP_PORT, VlanTag, ipv4_checksum,
};
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
    let tag = |tpid, id| Some(VlanTag { tpid, ..VlanTag::new(id, 3) });
    let one_tag = |eth: &mut EthHeader| eth.vlan = tag(EtherType::VLAN, 5);
    let two_tags = |eth: &mut EthHeader| {
        eth.vlan = tag(EtherType::VLAN, 5);
        eth.outer_vlan = tag(EtherType::SERVICE_VLAN, 6);
    };
    let three_tags = || {
        let mut bytes = frame(ours, two_tags);
        bytes.splice(12..12, [0x81, 0, 0, 7]);
        bytes
    };
    let not_ip = Fate::Passed(|verdicts| verdicts.passed_not_ip);
    let not_udp = Fate::Passed(|verdicts| verdicts.passed_not_udp);
    let fragment = Fate::Passed(|verdicts| verdicts.passed_fragment);
    let other_port = Fate::Passed(|verdicts| verdicts.passed_other_port);
    let other_address = Fate::Passed(|verdicts| verdicts.passed_other_address);
    let truncated = Fate::Passed(|verdicts| verdicts.passed_truncated);
    let v6 = ("fd00::1", "fd00::2");
    vec![
        ("IPv4", frame(ours, |_| {}), Fate::Arrives),
        ("IPv6", frame(v6, |_| {}), Fate::Arrives),
        ("IPv4 behind a tag", frame(ours, one_tag), Fate::Arrives),
        ("IPv6 behind a tag", frame(v6, one_tag), Fate::Arrives),
        ("IPv4 behind two tags", frame(ours, two_tags), Fate::Arrives),
        ("IPv6 behind two tags", frame(v6, two_tags), Fate::Arrives),
        ("IPv4 behind three tags", three_tags(), not_ip),
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
        ("another IPv4 address", frame(("10.0.0.1", "10.0.0.3"), |_| {}), other_address),
        ("another IPv6 address", frame(("fd00::1", "fd00::3"), |_| {}), other_address),
        ("a group that was not joined", frame(("10.0.0.1", "239.9.9.9"), |_| {}), other_address),
        ("an IPv4 header that is too short", patch(ours, |bytes| set_ip(bytes, 0, 0x44)), truncated),
        ("an IP version that is wrong", patch(ours, |bytes| set_ip(bytes, 0, 0x65)), truncated),
        ("an IPv4 header cut short", patch(ours, |bytes| bytes.truncate(IP + 19)), truncated),
        ("an IPv6 header cut short", patch(v6, |bytes| bytes.truncate(IP + 39)), truncated),
        ("a UDP header cut short", patch(ours, |bytes| bytes.truncate(UDP + 7)), truncated),
        ("a tag cut short", patch(ours, tag_cut_short), truncated),
    ]
}

/// A frame from and to these addresses.
fn frame((src, dst): (&str, &str), edit: impl Fn(&mut EthHeader)) -> Vec<u8> {
    let facts = match (ip(src), ip(dst)) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            IpFacts::V4 { src, dst, id: 0x1234, flags_frag: DF }
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
        _ => panic!("two families"),
    };
    let mut eth = EthHeader::untagged(MacAddr::BROADCAST, MacAddr([2, 0, 0, 0, 0, 1]));
    edit(&mut eth);
    let header = FrameHeader {
        eth,
        ip: IpHeader { facts, tos: 0, ttl: 63, flow_label: 0 },
        src_port: 50_000,
        dst_port: ROCE_UDP_PORT,
    };
    let mut bytes = vec![0x5A; header.wire_len() + TRANSPORT];
    header.emit(&mut bytes, TRANSPORT);
    bytes
}

/// An untagged frame with something changed.
fn patch(addresses: (&str, &str), change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = frame(addresses, |_| {});
    change(&mut bytes);
    bytes
}

/// Sets a byte of the IPv4 header, and the checksum.
fn set_ip(bytes: &mut [u8], offset: usize, value: u8) {
    bytes[IP + offset] = value;
    bytes[IP + 10..IP + 12].fill(0);
    let checksum = ipv4_checksum(bytes[IP..].first_chunk().expect("header"));
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
