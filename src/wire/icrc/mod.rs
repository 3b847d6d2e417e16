//! The invariant CRC (IBTA 7.8.1, A17.3.3): CRC-32 over eight bytes of ones and the packet from its
//! IP header to its padding, with everything a router may change replaced by ones.

mod recovery;

use core::net::{Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

pub use recovery::{IdRecovery, recover_v4_id, verify_unknown_id, verify_unknown_id_rxe_flush};

use crate::bytes::Writer;
use crate::frame::{ROCE_UDP_PORT, UDP_LEN};
use crate::headers::BTH_LEN;
use crate::ip::{IPV4_LEN, IPV6_LEN, PROTO_UDP};
use crate::opcode::{Operation, Transport};
use crate::roce_v1::GRH_LEN;

/// Bytes of an ICRC. It goes on the wire least significant byte first.
pub const ICRC_LEN: usize = 4;

/// IPv4 flags and fragment offset of a packet that must not be fragmented: all RoCE packets.
pub const DF: u16 = 0x4000;

/// What the ICRC covers of an IP header, apart from the length, which follows from the packet's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpFacts {
    /// IPv4 without options.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
        /// Identification, in host order.
        id: u16,
        /// Flags and fragment offset as one word in host order; [`DF`] unless a peer is odd.
        flags_frag: u16,
    },
    /// IPv6 without extension headers.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

impl IpFacts {
    /// IPv4 with ID 0 and DF, as an unconnected Linux UDP socket with `IP_PMTUDISC_DO` sends.
    pub const fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> IpFacts {
        IpFacts::V4 { src, dst, id: 0, flags_frag: DF }
    }

    /// Bytes of the IP header.
    #[inline]
    pub const fn ip_header_len(&self) -> usize {
        match self {
            IpFacts::V4 { .. } => IPV4_LEN,
            IpFacts::V6 { .. } => IPV6_LEN,
        }
    }
}

/// What the ICRC covers outside the transport bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpFacts {
    /// Facts of the IP header.
    pub ip: IpFacts,
    /// UDP source port.
    pub src_port: u16,
    /// UDP destination port.
    pub dst_port: u16,
}

impl UdpFacts {
    /// Those of a RoCEv2 packet.
    #[inline]
    pub const fn roce(ip: IpFacts, src_port: u16) -> UdpFacts {
        UdpFacts { ip, src_port, dst_port: ROCE_UDP_PORT }
    }
}

/// Which of two computations an ICRC agrees with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IcrcForm {
    /// The specification's.
    Standard,
    /// That of rxe for FLUSH: [`rxe_flush_icrc`].
    RxeFlush,
}

/// The ICRC of the packet that carries `transport`: BTH to the last byte of padding, the ICRC's own place not included.
// Inlined, so that the facts are not first gathered into one struct: what was just stored in pieces is slow to load as
// a whole.
#[inline(always)]
pub fn icrc(facts: &UdpFacts, transport: &[u8]) -> u32 {
    let mut masked = [0xFF; MASKED];
    let at = mask_ip_and_udp(facts, transport.len(), &mut masked);
    let together = if transport.len() <= MASKED - at { transport.len() } else { BTH_LEN };
    let (front, rest) = transport.split_at(together);
    let end = at + front.len();
    masked[at..end].copy_from_slice(front);
    masked[at + BTH_VARIANT_BYTE] = 0xFF;
    let mut hasher = Hasher::new();
    hasher.update(&masked[..end]);
    if !rest.is_empty() {
        hasher.update(rest);
    }
    hasher.finalize()
}

/// The ICRC that Linux rxe computes for FLUSH, and the only one it accepts. Its opcode table gives
/// FLUSH no payload offset, so BTH, FETH and RETH enter the sum a second time, unmasked.
#[inline]
pub fn rxe_flush_icrc(facts: &UdpFacts, transport: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(icrc(facts, transport));
    hasher.update(transport);
    hasher.finalize()
}

/// The ICRC of a RoCE version 1 packet: its route header is masked as IPv6 is.
pub fn icrc_roce_v1(grh: &[u8; GRH_LEN], transport: &[u8]) -> u32 {
    let mut masked = *grh;
    masked[0] |= 0x0F;
    masked[1..4].fill(0xFF);
    masked[7] = 0xFF;
    let mut hasher = Hasher::new_with_initial(CRC_OF_LRH);
    hasher.update(&masked);
    let (bth, len) = masked_bth(transport);
    hasher.update(&bth[..len]);
    hasher.update(transport.get(BTH_LEN..).unwrap_or_default());
    hasher.finalize()
}

/// Computes the ICRC of `packet` (BTH to ICRC inclusive) and writes it into the last four bytes.
///
/// # Panics
/// When `packet` is shorter than an ICRC.
#[inline(always)]
pub fn seal(facts: &UdpFacts, packet: &mut [u8]) {
    let at = packet.len() - ICRC_LEN;
    let (covered, place) = packet.split_at_mut(at);
    place.copy_from_slice(&icrc(facts, covered).to_le_bytes());
}

/// Whether the last four bytes of `packet` (BTH to ICRC inclusive) are its ICRC.
#[inline]
pub fn verify(facts: &UdpFacts, packet: &[u8]) -> bool {
    match split_icrc(packet) {
        Some((covered, received)) => icrc(facts, covered) == received,
        None => false,
    }
}

/// Like [`verify`], but a FLUSH may also carry the ICRC that rxe computes for it. Returns which of the two it was.
pub fn verify_either_flush(facts: &UdpFacts, packet: &[u8]) -> Option<IcrcForm> {
    let (covered, received) = split_icrc(packet)?;
    if icrc(facts, covered) == received {
        Some(IcrcForm::Standard)
    } else if is_flush(covered) && rxe_flush_icrc(facts, covered) == received {
        Some(IcrcForm::RxeFlush)
    } else {
        None
    }
}

/// CRC-32 of the local route header, eight bytes of ones.
const CRC_OF_LRH: u32 = 0x2144_DF1C;

const BTH_VARIANT_BYTE: usize = 4;

/// Bytes of ones that stand in for InfiniBand's local route header. With them, the headers over IPv4 are three blocks of the
/// sixteen bytes that are hashed at a time.
const LRH_LEN: usize = 8;

/// Bytes that are copied to be masked: the headers, or all of a short packet, which is then hashed in one call. A
/// second call would cost more than hashing all of its bytes.
const MASKED: usize = LRH_LEN + IPV6_LEN + UDP_LEN + BTH_LEN + 64;

/// Writes the IP and UDP headers of a packet with `transport_len` bytes before its ICRC behind the local route header of
/// `masked`, which is all ones, and returns where they end.
#[inline]
fn mask_ip_and_udp(facts: &UdpFacts, transport_len: usize, masked: &mut [u8; MASKED]) -> usize {
    // A packet longer than IP can carry has no right answer; the wrapped lengths only keep this function total.
    let udp_len = (transport_len + ICRC_LEN + UDP_LEN) as u16;
    let mut w = Writer(&mut masked[LRH_LEN..]);
    match facts.ip {
        IpFacts::V4 { src, dst, id, flags_frag } => {
            w.put([0x45, 0xFF]);
            w.u16(udp_len.wrapping_add(IPV4_LEN as u16));
            w.u16(id);
            w.u16(flags_frag);
            w.put([0xFF, PROTO_UDP, 0xFF, 0xFF]);
            w.put(src.octets());
            w.put(dst.octets());
        }
        IpFacts::V6 { src, dst } => {
            w.u32(0x6FFF_FFFF);
            w.u16(udp_len);
            w.put([PROTO_UDP, 0xFF]);
            w.put(src.octets());
            w.put(dst.octets());
        }
    }
    w.u16(facts.src_port);
    w.u16(facts.dst_port);
    w.u16(udp_len);
    w.u16(0xFFFF);
    LRH_LEN + facts.ip.ip_header_len() + UDP_LEN
}

/// The BTH with its variant byte replaced by ones, and how much of it `transport` holds.
#[inline]
fn masked_bth(transport: &[u8]) -> ([u8; BTH_LEN], usize) {
    let mut bth = [0xFF; BTH_LEN];
    let len = transport.len().min(BTH_LEN);
    bth[..len].copy_from_slice(&transport[..len]);
    bth[BTH_VARIANT_BYTE] = 0xFF;
    (bth, len)
}

#[inline]
fn split_icrc(packet: &[u8]) -> Option<(&[u8], u32)> {
    let (covered, icrc) = packet.split_last_chunk::<ICRC_LEN>()?;
    Some((covered, u32::from_le_bytes(*icrc)))
}

#[inline]
fn is_flush(transport: &[u8]) -> bool {
    transport.first() == Some(&(Transport::Rc as u8 | Operation::Flush as u8))
}
