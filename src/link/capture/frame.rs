//! Builds the Ethernet frame that could have carried a datagram.

use std::net::IpAddr;

use softrnic_wire::{
    EthHeader, FrameHeader, ICRC_LEN, IpFacts, IpHeader, MAX_FRAME_HEADER_LEN, MAX_TRANSPORT_LEN, MacAddr,
    ROCE_UDP_PORT, UDP_LEN, UdpFacts,
};

/// What is recorded about a datagram besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) interface: u32,
    pub(super) outbound: bool,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// Bytes of what was given, of which fewer may have been kept.
    pub(super) len: usize,
    pub(super) given: Given,
}

/// What the bytes of a record are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given {
    /// BTH to ICRC.
    Datagram {
        ip: IpHeader,
        sport: u16,
        /// Whether `ip` has the IPv4 ID that was on the wire, or only a likely one.
        id_is_known: bool,
        /// Whether the datagram came with its ICRC. If not, it is computed for the file.
        has_icrc: bool,
    },
    /// A whole Ethernet frame, without FCS.
    Frame,
}

impl Given {
    /// Whether it is for more than one.
    pub(super) fn is_group(&self, kept: &[u8]) -> bool {
        match self {
            Given::Datagram { ip, .. } => match ip.facts {
                IpFacts::V4 { dst, .. } => dst.is_multicast(),
                IpFacts::V6 { dst, .. } => dst.is_multicast(),
            },
            Given::Frame => kept.first().is_some_and(|first| first & 1 != 0),
        }
    }
}

/// Bytes of the shortest headers before a BTH: Ethernet, IPv4, UDP.
const SHORTEST_HEADERS: usize = 14 + 20 + UDP_LEN;

/// The most bytes of a datagram that are in the first `snap_len` bytes of a frame.
pub(super) fn kept_of(snap_len: usize) -> usize {
    snap_len.saturating_sub(SHORTEST_HEADERS)
}

/// Appends the frame of a datagram, of which `kept` was kept, to `output`; returns its length on the wire.
///
/// An IPv4 ID that the socket hid is recovered from the ICRC, so that readers of the file find the ICRC correct; if the
/// ICRC is wrong, the likely ID stays. Without the whole datagram, the likely ID stays as well, and the UDP checksum is
/// 0: not computed.
pub(super) fn build(meta: &Meta, kept: &[u8], output: &mut Vec<u8>) -> usize {
    let Given::Datagram { ip, sport, id_is_known, has_icrc } = meta.given else {
        output.extend_from_slice(kept);
        return meta.len;
    };
    let datagram_len = meta.len.min(MAX_TRANSPORT_LEN);
    let kept = &kept[..kept.len().min(datagram_len)];
    let is_whole = kept.len() == datagram_len;
    let likely = ip.facts;
    let mut ip = ip;
    if let (IpFacts::V4 { id, .. }, false, true) = (&mut ip.facts, id_is_known, is_whole) {
        let facts = UdpFacts { ip: likely, src_port: sport, dst_port: ROCE_UDP_PORT };
        if let Some(found) = softrnic_wire::verify_unknown_id(&facts, kept) {
            *id = found;
        }
    }
    let (src, dst): (IpAddr, IpAddr) = match ip.facts {
        IpFacts::V4 { src, dst, .. } => (src.into(), dst.into()),
        IpFacts::V6 { src, dst } => (src.into(), dst.into()),
    };
    let header = FrameHeader {
        eth: EthHeader::untagged(mac_of(dst), mac_of(src)),
        ip,
        src_port: sport,
        dst_port: ROCE_UDP_PORT,
    };
    let start = output.len();
    output.resize(start + MAX_FRAME_HEADER_LEN, 0);
    let header_len = header.emit(&mut output[start..], datagram_len);
    output.truncate(start + header_len);
    output.extend_from_slice(kept);
    if is_whole {
        let frame = &mut output[start..];
        if !has_icrc && frame.len() >= header_len + ICRC_LEN {
            let facts = UdpFacts { ip: ip.facts, src_port: sport, dst_port: ROCE_UDP_PORT };
            softrnic_wire::seal(&facts, &mut frame[header_len..]);
        }
        // Both kinds of IP header end with the two addresses.
        let addresses = if src.is_ipv4() { 8 } else { 32 };
        let udp = header_len - UDP_LEN;
        let checksum = udp_checksum(&frame[udp - addresses..udp], &frame[udp..]);
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
    header_len + datagram_len
}

/// A stable address that no hardware has: locally administered, or the group's.
pub(super) fn mac_of(ip: IpAddr) -> MacAddr {
    MacAddr(match ip {
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            [0x01, 0x00, 0x5E, b & 0x7F, c, d]
        }
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [0x02, 0x00, a, b, c, d]
        }
        IpAddr::V6(ip) => {
            let o = ip.octets();
            if ip.is_multicast() {
                [0x33, 0x33, o[12], o[13], o[14], o[15]]
            } else {
                // One byte, folded from the upper half, tells networks apart.
                let upper = o[..12].iter().fold(0, |sum: u8, byte| sum.rotate_left(3) ^ byte);
                [0x06, upper, o[12], o[13], o[14], o[15]]
            }
        }
    })
}

/// The checksum of a UDP datagram (RFC 768, RFC 8200 8.1), which covers the IP addresses too.
fn udp_checksum(addresses: &[u8], datagram: &[u8]) -> u16 {
    const PROTOCOL: u64 = 17;
    let sum = sum_words(addresses) + sum_words(datagram) + datagram.len() as u64 + PROTOCOL;
    let mut folded = sum;
    while folded > 0xFFFF {
        folded = (folded & 0xFFFF) + (folded >> 16);
    }
    match !(folded as u16) {
        // Zero means "no checksum".
        0 => 0xFFFF,
        checksum => checksum,
    }
}

fn sum_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum + rest.first().map_or(0, |last| u64::from(*last) << 8)
}
