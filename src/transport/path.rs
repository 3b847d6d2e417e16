//! The path from one QP or address handle to its peer.

use core::net::IpAddr;

/// Addresses and header fields of outgoing packets, resolved from an address vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Our address (the source GID).
    pub src: IpAddr,
    /// The peer's address (the destination GID).
    pub dst: IpAddr,
    /// UDP source port.
    pub sport: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
}
