//! A packet on its way, and what the fabric sees of it.

use std::net::IpAddr;

use softrnic_fabric::{Ect, FlowTuple, Frame, Host, To};
use softrnic_wire::ROCE_UDP_PORT;

/// UDP.
const PROTOCOL: u8 = 17;
const ECN: u8 = 0b11;
const EXPERIENCED: u8 = 0b11;

/// A datagram and the fields of its headers.
#[derive(Clone, Debug)]
pub struct Packet {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub tos: u8,
    pub ttl: u8,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// The frame that carries it from one host to another. `overhead` is what Ethernet, IP and UDP add on the wire, in bytes.
    pub fn into_frame(self: Box<Self>, from: Host, to: Host, overhead: u32) -> Frame<Box<Packet>> {
        let flow = FlowTuple {
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: ROCE_UDP_PORT,
            protocol: PROTOCOL,
        };
        let ect = match self.tos & ECN {
            0 => Ect::Not,
            EXPERIENCED => Ect::Experienced,
            _ => Ect::Capable,
        };
        Frame {
            from,
            to: To::Host(to),
            bytes: self.bytes.len() as u32 + overhead,
            flow,
            dscp: self.tos >> 2,
            ect,
            trimmed: false,
            payload: self,
        }
    }

    /// The packet that arrives in a frame, with the marks that it got.
    pub fn from_frame(frame: Frame<Box<Packet>>) -> Box<Packet> {
        let mut packet = frame.payload;
        if frame.ect == Ect::Experienced {
            packet.tos |= EXPERIENCED;
        }
        packet
    }
}
