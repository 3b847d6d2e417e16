//! IPv4 and IPv6 headers as RoCEv2 uses them: no options, no extension headers, UDP inside.

use crate::bytes::Writer;
use crate::eth::EtherType;
use crate::icrc::IpFacts;

/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;

pub(crate) const PROTO_UDP: u8 = 17;
pub(crate) const PROTO_IPV6_FRAGMENT: u8 = 44;

/// An IP header: what the ICRC covers, and what routers may change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// Addresses, and for IPv4 identification and flags.
    pub facts: IpFacts,
    /// Type of service or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// IPv6 flow label, 20 bits; 0 and unused for IPv4.
    pub flow_label: u32,
}

impl IpHeader {
    /// Bytes on the wire: 20 or 40.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        self.facts.ip_header_len()
    }

    /// What announces this header to Ethernet.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        match self.facts {
            IpFacts::V4 { .. } => EtherType::IPV4,
            IpFacts::V6 { .. } => EtherType::IPV6,
        }
    }

    /// Writes the header of a packet whose IP payload, UDP header included, is `payload_len` bytes.
    #[inline]
    pub(crate) fn write(&self, payload_len: u16, w: &mut Writer<'_>) {
        match self.facts {
            IpFacts::V4 { src, dst, id, flags_frag } => {
                let mut header = [0; IPV4_LEN];
                let mut h = Writer(&mut header);
                h.put([0x45, self.tos]);
                h.u16(IPV4_LEN as u16 + payload_len);
                h.u16(id);
                h.u16(flags_frag);
                h.put([self.ttl, PROTO_UDP, 0, 0]);
                h.put(src.octets());
                h.put(dst.octets());
                let checksum = ipv4_checksum(&header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                w.put(header);
            }
            IpFacts::V6 { src, dst } => {
                w.u32(6 << 28 | u32::from(self.tos) << 20 | (self.flow_label & 0xF_FFFF));
                w.u16(payload_len);
                w.put([PROTO_UDP, self.ttl]);
                w.put(src.octets());
                w.put(dst.octets());
            }
        }
    }
}

/// The Internet checksum (RFC 1071) of an IPv4 header. Over a header that contains its checksum the
/// result is 0 when it is right; to fill one in, zero the field first.
#[inline]
pub fn ipv4_checksum(header: &[u8; IPV4_LEN]) -> u16 {
    let mut sum = 0u32;
    for word in header.as_chunks::<2>().0 {
        sum += u32::from(u16::from_be_bytes(*word));
    }
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    !(sum as u16)
}
