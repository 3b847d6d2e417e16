//! A packet on its way, and what the fabric sees of it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use softrnic_fabric::{Ect, FlowTuple, Frame, Host, To};
use softrnic_link::capture::CapturePort;
use softrnic_wire::{IpFacts, IpHeader, ROCE_UDP_PORT};

use crate::watch::Carried;

/// UDP.
const PROTOCOL: u8 = 17;
const EXPERIENCED: u8 = 0b11;

/// A datagram and the fields of its headers.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port.
    pub sport: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
}

impl Default for Packet {
    /// An empty one, from nowhere.
    fn default() -> Packet {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Packet { src: nowhere, dst: nowhere, sport: 0, tos: 0, ttl: 0, bytes: Vec::new() }
    }
}

impl Packet {
    /// The frame that carries it from a host. `overhead` is what Ethernet, IP and UDP add on the wire, in bytes.
    pub fn into_frame(self: Box<Self>, from: Host, to: To, overhead: u32) -> Frame<Box<Packet>> {
        let flow = FlowTuple {
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: ROCE_UDP_PORT,
            protocol: PROTOCOL,
        };
        let ect = Ect::from_tos(self.tos);
        Frame {
            from,
            to,
            bytes: self.bytes.len() as u32 + overhead,
            flow,
            dscp: self.tos >> 2,
            ect,
            trimmed: false,
            payload: self,
        }
    }

    /// The packet that arrives in a frame with these ECN bits.
    #[must_use]
    pub fn arrived(mut self: Box<Self>, ect: Ect) -> Box<Packet> {
        if ect == Ect::Experienced {
            self.tos |= EXPERIENCED;
        }
        self
    }
}

impl Carried for Box<Packet> {
    fn roce(&mut self) -> Option<(IpAddr, IpAddr, &mut [u8])> {
        Some((self.src, self.dst, &mut self.bytes))
    }

    fn record(&self, ect: Ect, port: &mut CapturePort, time: u64, note: Option<Arc<str>>) {
        let facts = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => IpFacts::v4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => IpFacts::V6 { src, dst },
            _ => return,
        };
        let tos = if ect == Ect::Experienced { self.tos | EXPERIENCED } else { self.tos };
        let ip = IpHeader { facts, tos, ttl: self.ttl, flow_label: 0 };
        port.datagram(time, ip, self.sport, &self.bytes, note);
    }
}
