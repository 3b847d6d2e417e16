//! A RoCEv2 frame from the Ethernet addresses to the end of the UDP payload.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};
use crate::eth::{EthHeader, EtherType};
use crate::icrc::{IpFacts, UdpFacts};
use crate::ip::{IPV4_LEN, IPV6_LEN, IpHeader, PROTO_IPV6_FRAGMENT, PROTO_UDP, ipv4_checksum};

/// The UDP destination port of RoCEv2.
pub const ROCE_UDP_PORT: u16 = 4791;

/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// The longest header [`FrameHeader::emit`] writes: two VLAN tags, IPv6, UDP.
pub const MAX_FRAME_HEADER_LEN: usize = 22 + IPV6_LEN + UDP_LEN;

/// The most bytes, BTH to ICRC, that fit in one IPv4 packet.
pub const MAX_TRANSPORT_LEN: usize = u16::MAX as usize - IPV4_LEN - UDP_LEN;

const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1FFF;

/// A received RoCEv2 frame. Lengths come from IP and UDP, so Ethernet padding is not part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Everything before the transport bytes.
    pub header: FrameHeader,
    /// UDP checksum as received; 0 means none. Not verified: the ICRC protects better.
    pub udp_checksum: u16,
    /// BTH to ICRC inclusive, for [`crate::Packet::parse`] and [`crate::verify`].
    pub transport: &'a [u8],
    ip_bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Finds the transport bytes in `frame`, which starts at the destination MAC and may or may not
    /// carry Ethernet padding and FCS.
    ///
    /// # Errors
    /// See [`FrameError`].
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let mut r = Reader(frame);
        let (eth, ether_type) = EthHeader::read(&mut r).ok_or(FrameError::Truncated)?;
        Frame::parse_ip(eth, ether_type, r.0)
    }

    /// The facts the ICRC covers.
    #[inline]
    pub const fn facts(&self) -> UdpFacts {
        self.header.facts()
    }

    /// The packet from its IP header to the end of the ICRC, as received.
    #[inline]
    pub const fn ip_bytes(&self) -> &'a [u8] {
        self.ip_bytes
    }

    /// Whether the IPv4 header checksum is right; always true for IPv6, which has none. Parsing does not check it,
    /// because captures taken before a NIC filled it in are worth reading too.
    #[inline]
    pub fn ip_checksum_ok(&self) -> bool {
        match (self.header.ip.facts, self.ip_bytes.first_chunk()) {
            (IpFacts::V4 { .. }, Some(header)) => ipv4_checksum(header) == 0,
            _ => true,
        }
    }

    fn parse_ip(eth: EthHeader, ether_type: EtherType, l3: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (ip, ip_len) = match ether_type {
            EtherType::IPV4 => read_ipv4(l3)?,
            EtherType::IPV6 => read_ipv6(l3)?,
            EtherType::ROCE_V1 => return Err(FrameError::RoceV1),
            other => return Err(FrameError::NotIp(other)),
        };
        let ip_bytes = l3.get(..ip_len).ok_or(FrameError::Truncated)?;
        let mut r = Reader(ip_bytes.get(ip.wire_len()..).ok_or(FrameError::BadLength)?);
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *r.take::<UDP_LEN>().ok_or(FrameError::BadLength)?;
        let dst_port = u16::from_be_bytes([d0, d1]);
        if dst_port != ROCE_UDP_PORT {
            return Err(FrameError::OtherPort(dst_port));
        }
        // The ICRC covers both lengths, and a sender computes it with lengths that agree.
        if usize::from(u16::from_be_bytes([l0, l1])) != UDP_LEN + r.0.len() {
            return Err(FrameError::BadLength);
        }
        let src_port = u16::from_be_bytes([s0, s1]);
        Ok(Frame {
            header: FrameHeader { eth, ip, src_port, dst_port },
            udp_checksum: u16::from_be_bytes([c0, c1]),
            transport: r.0,
            ip_bytes,
        })
    }
}

/// Everything before the transport bytes of a frame to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameHeader {
    /// Ethernet addresses and VLAN tags.
    pub eth: EthHeader,
    /// IP header.
    pub ip: IpHeader,
    /// UDP source port; any value is legal.
    pub src_port: u16,
    /// UDP destination port, [`ROCE_UDP_PORT`].
    pub dst_port: u16,
}

impl FrameHeader {
    /// The facts the ICRC covers.
    #[inline]
    pub const fn facts(&self) -> UdpFacts {
        UdpFacts { ip: self.ip.facts, src_port: self.src_port, dst_port: self.dst_port }
    }

    /// Bytes that [`FrameHeader::emit`] writes, at most [`MAX_FRAME_HEADER_LEN`].
    #[inline]
    pub const fn wire_len(&self) -> usize {
        self.eth.wire_len() + self.ip.wire_len() + UDP_LEN
    }

    /// Writes Ethernet, IP and UDP headers for `transport_len` bytes (BTH to ICRC) to the front of `buf` and returns
    /// their length. The UDP checksum is written as 0, "none", for IPv6 too: the ICRC protects the packet better, it
    /// could only be computed once the payload is in place, and RFC 6936 lets tunnel protocols do so, as rxe does.
    ///
    /// # Panics
    /// When `buf` is shorter than [`FrameHeader::wire_len`], or `transport_len` exceeds [`MAX_TRANSPORT_LEN`].
    #[inline]
    pub fn emit(&self, buf: &mut [u8], transport_len: usize) -> usize {
        assert!(transport_len <= MAX_TRANSPORT_LEN, "transport bytes exceed an IP packet");
        let len = self.wire_len();
        let udp_len = (UDP_LEN + transport_len) as u16;
        let mut w = Writer(&mut buf[..len]);
        self.eth.write(self.ip.ether_type(), &mut w);
        self.ip.write(udp_len, &mut w);
        w.u16(self.src_port);
        w.u16(self.dst_port);
        w.u16(udp_len);
        w.u16(0);
        len
    }
}

/// Why bytes are not a RoCEv2 frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame ends before its headers, or before its IP length, do.
    Truncated,
    /// The Ethernet type is not IP, or there are more than two VLAN tags.
    NotIp(EtherType),
    /// RoCE version 1: [`crate::RoceV1Frame`] reads it.
    RoceV1,
    /// The IP version does not fit the Ethernet type.
    BadIpVersion(u8),
    /// IPv4 with a header of this many 32-bit words; RoCEv2 allows only 5.
    IpOptions(u8),
    /// A fragment; RoCEv2 forbids them.
    Fragment,
    /// The IP payload is not UDP but this protocol (or an IPv6 extension header).
    NotUdp(u8),
    /// UDP to this port, not to [`ROCE_UDP_PORT`].
    OtherPort(u16),
    /// IP and UDP lengths contradict each other, or are too small for their own headers.
    BadLength,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Truncated => f.write_str("frame is cut short"),
            FrameError::NotIp(t) => write!(f, "Ethernet type {:#06x} is not IP", t.0),
            FrameError::RoceV1 => f.write_str("RoCE version 1"),
            FrameError::BadIpVersion(v) => write!(f, "IP version {v} does not fit the Ethernet type"),
            FrameError::IpOptions(ihl) => write!(f, "IPv4 header of {ihl} words has options"),
            FrameError::Fragment => f.write_str("IP fragment"),
            FrameError::NotUdp(p) => write!(f, "IP protocol {p} is not UDP"),
            FrameError::OtherPort(p) => write!(f, "UDP port {p} is not {ROCE_UDP_PORT}"),
            FrameError::BadLength => f.write_str("IP and UDP lengths disagree"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The header and the packet's total length.
#[inline]
fn read_ipv4(l3: &[u8]) -> Result<(IpHeader, usize), FrameError> {
    let &[version_ihl, tos, len0, len1, id0, id1, frag0, frag1, ttl, proto, _, _, ref addresses @ ..] =
        l3.first_chunk::<IPV4_LEN>().ok_or(FrameError::Truncated)?;
    match (version_ihl >> 4, version_ihl & 0xF) {
        (4, 5) => {}
        (4, ihl @ 6..) => return Err(FrameError::IpOptions(ihl)),
        (4, _) => return Err(FrameError::BadLength),
        (version, _) => return Err(FrameError::BadIpVersion(version)),
    }
    let flags_frag = u16::from_be_bytes([frag0, frag1]);
    if flags_frag & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0 {
        return Err(FrameError::Fragment);
    }
    if proto != PROTO_UDP {
        return Err(FrameError::NotUdp(proto));
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *addresses;
    let facts = IpFacts::V4 {
        src: Ipv4Addr::new(s0, s1, s2, s3),
        dst: Ipv4Addr::new(d0, d1, d2, d3),
        id: u16::from_be_bytes([id0, id1]),
        flags_frag,
    };
    Ok((IpHeader { facts, tos, ttl, flow_label: 0 }, u16::from_be_bytes([len0, len1]).into()))
}

/// The header and the packet's total length.
#[inline]
fn read_ipv6(l3: &[u8]) -> Result<(IpHeader, usize), FrameError> {
    let mut r = Reader(l3.get(..IPV6_LEN).ok_or(FrameError::Truncated)?);
    let truncated = FrameError::Truncated;
    let word = r.u32().ok_or(truncated)?;
    let payload_len = r.u16().ok_or(truncated)?;
    let next_header = r.u8().ok_or(truncated)?;
    let ttl = r.u8().ok_or(truncated)?;
    let src = Ipv6Addr::from(*r.take::<16>().ok_or(truncated)?);
    let dst = Ipv6Addr::from(*r.take::<16>().ok_or(truncated)?);
    match (word >> 28, next_header) {
        (6, PROTO_UDP) => {}
        (6, PROTO_IPV6_FRAGMENT) => return Err(FrameError::Fragment),
        (6, other) => return Err(FrameError::NotUdp(other)),
        (version, _) => return Err(FrameError::BadIpVersion(version as u8)),
    }
    let facts = IpFacts::V6 { src, dst };
    let ip = IpHeader { facts, tos: (word >> 20) as u8, ttl, flow_label: word & 0xF_FFFF };
    Ok((ip, IPV6_LEN + usize::from(payload_len)))
}
