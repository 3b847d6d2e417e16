//! One RoCE packet of either version.

use std::net::IpAddr;

use softrnic_wire::{
    BTH_LEN, Body, EthHeader, FrameHeader, GRH_LEN, Gid, ICRC_LEN, IcrcForm, IpFacts, Mad, Opcode, Packet,
    ParseError, SrdPacket, icrc, icrc_roce_v1, is_srd, verify_either_flush,
};

use super::bth::BthBytes;

/// A RoCE packet and everything around it.
#[derive(Clone, Copy, Debug)]
pub struct Roce<'a> {
    /// Addresses and headers below the transport.
    pub net: Net<'a>,
    /// Whether the Ethernet header was in the capture; else it is made up and must not be shown.
    pub eth_captured: bool,
    /// The captured part of BTH to ICRC.
    pub bytes: &'a [u8],
    /// Bytes from BTH to ICRC on the wire.
    pub wire_len: usize,
    /// What the transport bytes say.
    pub transport: Transport<'a>,
    /// Whether the invariant CRC is right.
    pub icrc: Icrc,
}

/// Headers below the transport.
#[derive(Clone, Copy, Debug)]
pub enum Net<'a> {
    /// RoCEv2.
    V2 {
        /// Ethernet, IP, UDP.
        header: FrameHeader,
        /// As received; 0 means none.
        udp_checksum: u16,
        /// Whether the IPv4 header checksum is right; true for IPv6.
        ip_checksum_ok: bool,
    },
    /// RoCE version 1.
    V1 {
        /// Ethernet addresses and tags.
        eth: EthHeader,
        /// Source GID.
        src: Gid,
        /// Destination GID.
        dst: Gid,
        /// Traffic class.
        tclass: u8,
        /// Hop limit.
        hop_limit: u8,
        /// The route header itself.
        grh: &'a [u8; GRH_LEN],
    },
}

/// What the transport bytes are.
#[derive(Clone, Copy, Debug)]
pub enum Transport<'a> {
    /// A packet. Its payload and ICRC may lie beyond what was captured; see [`Roce::payload`].
    Packet(Packet<'a>),
    /// Bytes that are no packet, and why; the first twelve are still shown as a BTH.
    Malformed(ParseError),
    /// The capture ends inside the headers.
    HeadersCut,
}

/// The state of a packet's ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Icrc {
    /// Right.
    Good,
    /// Right by the computation that Linux rxe uses for FLUSH, wrong by the specification.
    RxeFlush,
    /// Wrong.
    Bad {
        /// As in the packet, read least significant byte first.
        received: u32,
        /// What it should be.
        computed: u32,
    },
    /// Not to be known, because the capture kept only a part of the packet.
    NotCaptured,
}

impl<'a> Roce<'a> {
    /// Reads transport bytes of which the first `here` were captured; the others must be there, with
    /// any content.
    #[inline(always)]
    pub(super) fn read(net: Net<'a>, eth_captured: bool, whole: &'a [u8], here: usize) -> Roce<'a> {
        debug_assert!(here <= whole.len());
        let transport = match Packet::parse(whole) {
            Ok(packet) if here >= packet.body.headers_len() => Transport::Packet(packet),
            Ok(_) => Transport::HeadersCut,
            Err(_) if here < whole.len() && here < BTH_LEN => Transport::HeadersCut,
            Err(error) => Transport::Malformed(error),
        };
        let icrc = if here < whole.len() { Icrc::NotCaptured } else { net.check_icrc(whole) };
        Roce { net, eth_captured, bytes: &whole[..here], wire_len: whole.len(), transport, icrc }
    }

    /// The packet, if it is one.
    #[inline]
    pub fn packet(&self) -> Option<&Packet<'a>> {
        match &self.transport {
            Transport::Packet(packet) => Some(packet),
            _ => None,
        }
    }

    /// The packet of SRD, if it is one and was captured as a whole. To all else it is a packet of an unknown opcode.
    #[cold]
    pub fn srd(&self) -> Option<SrdPacket<'a>> {
        match self.transport {
            Transport::Malformed(ParseError::UnknownOpcode(byte)) if is_srd(byte) => {
                SrdPacket::parse(self.bytes).ok()
            }
            _ => None,
        }
    }

    /// The opcode, if it is defined.
    #[inline]
    pub fn opcode(&self) -> Option<Opcode> {
        match &self.transport {
            Transport::Packet(packet) => Some(packet.body.opcode()),
            _ => self.bytes.first().and_then(|byte| Opcode::from_byte(*byte)),
        }
    }

    /// The first twelve bytes, if they were captured.
    #[inline]
    pub fn bth(&self) -> Option<BthBytes<'a>> {
        self.bytes.first_chunk().map(BthBytes)
    }

    /// The captured part of the payload, padding not included.
    pub fn payload(&self) -> &'a [u8] {
        match &self.transport {
            Transport::Packet(packet) => {
                let captured = self.bytes.len().saturating_sub(packet.body.headers_len());
                &packet.payload[..packet.payload.len().min(captured)]
            }
            _ => &[],
        }
    }

    /// The ICRC as received, if it was captured.
    pub fn icrc_received(&self) -> Option<u32> {
        let whole = self.bytes.len() == self.wire_len;
        whole.then(|| self.bytes.last_chunk::<ICRC_LEN>()).flatten().map(|b| u32::from_le_bytes(*b))
    }

    /// The management datagram, if this is a datagram to QP 1 that holds one.
    pub fn mad(&self) -> Option<Mad<'a>> {
        match self.packet()? {
            Packet { bth, body: Body::Ud { .. }, .. } if bth.dest_qpn == softrnic_wire::Qpn::GSI => {
                Mad::read(self.payload())
            }
            _ => None,
        }
    }
}

impl Net<'_> {
    /// Where the packet comes from.
    #[inline]
    pub fn src(&self) -> IpAddr {
        match self {
            Net::V2 { header, .. } => match header.ip.facts {
                IpFacts::V4 { src, .. } => src.into(),
                IpFacts::V6 { src, .. } => src.into(),
            },
            Net::V1 { src, .. } => src.to_ip(),
        }
    }

    /// Where the packet goes to.
    #[inline]
    pub fn dst(&self) -> IpAddr {
        match self {
            Net::V2 { header, .. } => match header.ip.facts {
                IpFacts::V4 { dst, .. } => dst.into(),
                IpFacts::V6 { dst, .. } => dst.into(),
            },
            Net::V1 { dst, .. } => dst.to_ip(),
        }
    }

    /// Ethernet addresses and VLAN tags.
    #[inline]
    pub const fn eth(&self) -> &EthHeader {
        match self {
            Net::V2 { header, .. } => &header.eth,
            Net::V1 { eth, .. } => eth,
        }
    }

    /// DSCP in the upper six bits, ECN in the lower two.
    #[inline]
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Net::V2 { header, .. } => header.ip.tos,
            Net::V1 { tclass, .. } => *tclass,
        }
    }

    /// Whether a router on the way marked the packet: congestion experienced.
    #[inline]
    pub const fn congestion_experienced(&self) -> bool {
        self.traffic_class() & 3 == 3
    }

    #[inline(always)]
    fn check_icrc(&self, transport: &[u8]) -> Icrc {
        let Some((covered, received)) = transport.split_last_chunk::<ICRC_LEN>() else {
            return Icrc::Bad { received: 0, computed: 0 };
        };
        let received = u32::from_le_bytes(*received);
        match self {
            Net::V2 { header, .. } => match verify_either_flush(&header.facts(), transport) {
                Some(IcrcForm::Standard) => Icrc::Good,
                Some(IcrcForm::RxeFlush) => Icrc::RxeFlush,
                None => Icrc::Bad { received, computed: icrc(&header.facts(), covered) },
            },
            Net::V1 { grh, .. } => match icrc_roce_v1(grh, covered) {
                right if right == received => Icrc::Good,
                computed => Icrc::Bad { received, computed },
            },
        }
    }
}
