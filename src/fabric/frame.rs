//! What the model knows of a frame.

use std::net::IpAddr;

use crate::topology::Host;

/// Priorities of an Ethernet port, as in a VLAN tag's PCP.
pub const PRIORITIES: usize = 8;

/// A priority, below [`PRIORITIES`].
pub type Priority = u8;

/// The fields that ECMP hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol; 17 is UDP.
    pub protocol: u8,
}

/// ECN bits of the IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ect {
    /// Not ECN-capable: never marked.
    Not,
    /// ECN-capable.
    Capable,
    /// Congestion experienced.
    Experienced,
}

impl Ect {
    /// What the two low bits of an IPv4 TOS or IPv6 traffic class say.
    pub const fn from_tos(tos: u8) -> Ect {
        match tos & 0b11 {
            0b00 => Ect::Not,
            0b11 => Ect::Experienced,
            _ => Ect::Capable,
        }
    }
}

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// One host.
    Host(Host),
    /// The members of a group ([`Fabric::join`](crate::Fabric::join)), the sender excepted.
    Group(u32),
}

/// A frame on its way. `P` is what it carries.
#[derive(Clone, Debug)]
pub struct Frame<P> {
    /// Who sends it.
    pub from: Host,
    /// Where it goes.
    pub to: To,
    /// Bytes that it takes on the wire, all of Ethernet's included.
    pub bytes: u32,
    /// What ECMP hashes.
    pub flow: FlowTuple,
    /// DSCP, 0 to 63. It chooses the priority (`trust dscp`).
    pub dscp: u8,
    /// ECN bits.
    pub ect: Ect,
    /// A switch has cut off the payload instead of dropping the frame.
    pub trimmed: bool,
    /// What it carries.
    pub payload: P,
}

impl<P> Frame<P> {
    /// The same frame, carrying something else.
    pub fn map<Q>(self, carry: impl FnOnce(P) -> Q) -> Frame<Q> {
        let Frame { from, to, bytes, flow, dscp, ect, trimmed, payload } = self;
        Frame { from, to, bytes, flow, dscp, ect, trimmed, payload: carry(payload) }
    }
}
