//! What frames of a live fabric carry: packets of NICs, and frames of interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use softrnic_fabric::{Ect, FlowTuple};
use softrnic_link::capture::CapturePort;
use softrnic_study::{Carried, Packet};
use softrnic_wire::ROCE_UDP_PORT;

/// See the [module](self).
#[derive(Clone)]
pub enum Cargo {
    /// Of a NIC that has joined.
    Packet(Box<Packet>),
    /// Of an interface.
    Frame(Box<EthernetFrame>),
}

impl Cargo {
    /// It has arrived with these ECN bits.
    #[must_use]
    pub fn arrived(self, ect: Ect) -> Cargo {
        match self {
            Cargo::Packet(packet) => Cargo::Packet(packet.arrived(ect)),
            Cargo::Frame(mut frame) => {
                if ect == Ect::Experienced {
                    frame.mark();
                }
                Cargo::Frame(frame)
            }
        }
    }
}

impl Carried for Cargo {
    fn roce(&mut self) -> Option<(IpAddr, IpAddr, &mut [u8])> {
        match self {
            Cargo::Packet(packet) => packet.roce(),
            Cargo::Frame(frame) => frame.roce(),
        }
    }

    fn damaged(&mut self) {
        // IPv6 has no datagrams without a checksum; the kernel at the other end drops it then.
        if let Cargo::Frame(frame) = self
            && let Some((ip, udp)) = frame.ip
            && frame.is_v4(ip)
        {
            frame.bytes[udp + 6..udp + 8].fill(0);
        }
    }

    fn record(&self, ect: Ect, port: &mut CapturePort, time: u64, note: Option<Arc<str>>) {
        match self {
            Cargo::Packet(packet) => packet.record(ect, port, time, note),
            Cargo::Frame(frame) if ect == Ect::Experienced => {
                let mut marked = frame.clone();
                marked.mark();
                port.frame(time, &marked.bytes, note);
            }
            Cargo::Frame(frame) => port.frame(time, &frame.bytes, note),
        }
    }
}

const MACS: usize = 12;
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88A8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const ECN: u8 = 0b11;

/// A frame as it is on the wire, without FCS.
#[derive(Clone, Default)]
pub struct EthernetFrame {
    pub bytes: Vec<u8>,
    /// Where the IP header is, and where what is above it begins.
    ip: Option<(usize, usize)>,
}

/// A station's address.
pub type Mac = [u8; 6];

impl EthernetFrame {
    /// Makes this one from what has arrived. `None` if it is shorter than Ethernet's header.
    pub fn fill(mut self: Box<Self>, bytes: &[u8]) -> Option<Box<EthernetFrame>> {
        let mut at = MACS;
        let kind = loop {
            let kind = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
            at += 2;
            if !VLAN_TYPES.contains(&kind) {
                break kind;
            }
            at += 2;
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.ip = match (kind, bytes.get(at)) {
            (IPV4, Some(first)) if first >> 4 == 4 && bytes.len() >= at + 20 => {
                Some((at, at + 4 * usize::from(first & 15)))
            }
            (IPV6, Some(first)) if first >> 4 == 6 && bytes.len() >= at + 40 => Some((at, at + 40)),
            _ => None,
        };
        Some(self)
    }

    pub fn to(&self) -> Mac {
        self.mac(0)
    }

    pub fn from(&self) -> Mac {
        self.mac(6)
    }

    fn mac(&self, at: usize) -> Mac {
        std::array::from_fn(|byte| self.bytes[at + byte])
    }

    fn is_v4(&self, ip: usize) -> bool {
        self.bytes[ip] >> 4 == 4
    }

    /// TOS of IPv4, or traffic class of IPv6; 0 for all else.
    pub fn tos(&self) -> u8 {
        match self.ip {
            Some((ip, _)) if self.is_v4(ip) => self.bytes[ip + 1],
            Some((ip, _)) => self.bytes[ip] << 4 | self.bytes[ip + 1] >> 4,
            None => 0,
        }
    }

    pub fn ect(&self) -> Ect {
        Ect::from_tos(self.tos())
    }

    /// Congestion experienced.
    pub fn mark(&mut self) {
        let Some((ip, _)) = self.ip else { return };
        if !self.is_v4(ip) {
            self.bytes[ip + 1] |= ECN << 4;
            return;
        }
        let [before, sum] = [ip, ip + 10].map(|at| u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]));
        self.bytes[ip + 1] |= ECN;
        let after = u16::from_be_bytes([self.bytes[ip], self.bytes[ip + 1]]);
        // The checksum follows (RFC 1624).
        let changed = u32::from(!sum) + u32::from(!before) + u32::from(after);
        let folded = (changed & 0xFFFF) + (changed >> 16);
        let sum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
        self.bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }

    /// What ECMP hashes.
    pub fn flow(&self) -> FlowTuple {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let (src, dst) = self.addresses().unwrap_or((nowhere, nowhere));
        let protocol = self.protocol().unwrap_or(0);
        let ports = match (protocol, self.ip) {
            (TCP | UDP, Some((_, transport))) => {
                self.bytes.get(transport..).and_then(|bytes| bytes.first_chunk::<4>())
            }
            _ => None,
        };
        let [s0, s1, d0, d1] = ports.copied().unwrap_or_default();
        FlowTuple {
            src,
            dst,
            sport: u16::from_be_bytes([s0, s1]),
            dport: u16::from_be_bytes([d0, d1]),
            protocol,
        }
    }

    fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let (ip, _) = self.ip?;
        if self.is_v4(ip) {
            let address = |at: usize| {
                let octets: [u8; 4] = std::array::from_fn(|byte| self.bytes[at + byte]);
                IpAddr::V4(Ipv4Addr::from(octets))
            };
            return Some((address(ip + 12), address(ip + 16)));
        }
        let address = |at: usize| {
            let octets: [u8; 16] = std::array::from_fn(|byte| self.bytes[at + byte]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        Some((address(ip + 8), address(ip + 24)))
    }

    /// What is above IP; `None` for fragments, whose ports only the first has.
    fn protocol(&self) -> Option<u8> {
        let (ip, _) = self.ip?;
        if !self.is_v4(ip) {
            return Some(self.bytes[ip + 6]);
        }
        let fragment = u16::from_be_bytes([self.bytes[ip + 6], self.bytes[ip + 7]]) & 0x3FFF;
        (fragment == 0).then(|| self.bytes[ip + 9])
    }

    fn roce(&mut self) -> Option<(IpAddr, IpAddr, &mut [u8])> {
        let (src, dst) = self.addresses()?;
        let (_, udp) = self.ip?;
        if self.protocol() != Some(UDP) {
            return None;
        }
        let header: [u8; UDP_HEADER] = *self.bytes.get(udp..)?.first_chunk()?;
        let [_, _, d0, d1, l0, l1, ..] = header;
        let end = udp + usize::from(u16::from_be_bytes([l0, l1]));
        if u16::from_be_bytes([d0, d1]) != ROCE_UDP_PORT || end > self.bytes.len() || end < udp + UDP_HEADER {
            return None;
        }
        Some((src, dst, &mut self.bytes[udp + UDP_HEADER..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(tos: u8) -> Box<EthernetFrame> {
        let mut bytes = vec![0; 14 + 20 + 8 + 16];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        bytes[14..34]
            .copy_from_slice(&[0x45, tos, 0, 44, 0, 7, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes[34..42].copy_from_slice(&[0xC0, 1, 0x12, 0xB7, 0, 24, 0xAB, 0xCD]);
        Box::<EthernetFrame>::default().fill(&bytes).expect("a frame")
    }

    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        !((sum & 0xFFFF) + (sum >> 16)) as u16
    }

    #[test]
    fn a_marked_frame_has_its_checksum() {
        for tos in [0b01, 0b10, 0xFE] {
            let mut frame = v4(tos);
            assert_eq!((frame.ect(), checksum(&frame.bytes[14..34])), (Ect::Capable, 0));
            frame.mark();
            assert_eq!((frame.ect(), frame.tos()), (Ect::Experienced, tos | 3));
            assert_eq!(checksum(&frame.bytes[14..34]), 0);
        }
    }

    #[test]
    fn a_packet_for_port_4791_is_found_behind_a_tag_and_over_ipv6() {
        let mut plain = v4(0);
        let (src, dst, bytes) = plain.roce().expect("RoCE");
        assert_eq!(
            (src.to_string(), dst.to_string(), bytes.len()),
            ("10.0.0.1".into(), "10.0.0.2".into(), 16)
        );
        let mut tagged = plain.bytes.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let mut tagged = Box::<EthernetFrame>::default().fill(&tagged).expect("a frame");
        assert_eq!((tagged.flow(), tagged.roce().is_some()), (plain.flow(), true));
        let mut v6 = vec![0; 14 + 40];
        (v6[12], v6[13]) = (0x86, 0xDD);
        (v6[14], v6[15], v6[14 + 6]) = (0x62, 0x80, UDP);
        v6.extend_from_slice(&plain.bytes[34..]);
        let mut v6 = Box::<EthernetFrame>::default().fill(&v6).expect("a frame");
        assert_eq!((v6.tos(), v6.roce().map(|(_, _, bytes)| bytes.len())), (0x28, Some(16)));
        v6.mark();
        assert_eq!(v6.ect(), Ect::Experienced);
    }

    #[test]
    fn other_frames_are_none_of_its_business() {
        let mut frame = v4(0);
        let whole = frame.bytes.clone();
        for (at, byte) in [(23, TCP), (36, 0), (38, 1), (20, 0x20)] {
            frame.bytes.clone_from(&whole);
            frame.bytes[at] = byte;
            let mut frame = Box::<EthernetFrame>::default().fill(&frame.bytes).expect("a frame");
            assert!(frame.roce().is_none(), "byte {at}");
        }
        for len in 0..whole.len() {
            if let Some(mut cut) = Box::<EthernetFrame>::default().fill(&whole[..len]) {
                assert!(len >= 14 && cut.roce().is_none());
                cut.mark();
                cut.flow();
            }
        }
    }
}
