//! Global identifiers: how verbs name a RoCEv2 address.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::eth::MacAddr;

/// A GID: an IPv6 address, or an IPv4 address mapped into one. Network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// An empty slot of a GID table.
    pub const ZERO: Gid = Gid([0; 16]);

    /// The GID a RoCE port has before it has any address: fe80::/64 and the EUI-64 of its MAC.
    pub const fn link_local(mac: MacAddr) -> Gid {
        let [a, b, c, d, e, f] = mac.0;
        Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xFF, 0xFE, d, e, f])
    }

    /// The address packets for this GID go to: IPv4 when mapped, else IPv6 (IBTA A17.4.5.2).
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Whether packets for this GID go over IPv4.
    pub const fn is_ipv4(self) -> bool {
        self.to_v6().to_ipv4_mapped().is_some()
    }

    /// Whether this names a multicast group of either family.
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// The hardware address of a multicast group: 01:00:5e and 23 bits of the IPv4 group
    /// (RFC 1112), or 33:33 and 32 bits of the IPv6 group (RFC 2464). `None` for unicast.
    pub fn multicast_mac(self) -> Option<MacAddr> {
        let [.., b, c, d] = self.0;
        match self.to_ip() {
            ip if !ip.is_multicast() => None,
            IpAddr::V4(_) => Some(MacAddr([0x01, 0x00, 0x5E, b & 0x7F, c, d])),
            IpAddr::V6(_) => Some(MacAddr([0x33, 0x33, self.0[12], b, c, d])),
        }
    }

    const fn to_v6(self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.0)
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Gid {
        Gid(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Gid {
        Gid(ip.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

/// Eight groups of four digits, nothing left out, as sysfs prints GIDs.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.to_v6().segments().iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{group:04x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
