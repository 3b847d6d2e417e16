//! Service ids, which name what a connection or datagram service is asked for, and the RDMA CM's private header, which
//! says who asks.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::Field;

/// What a connection or datagram service is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ServiceId(pub u64);

/// A port space of the RDMA CM (IBTA Annex A11.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortSpace {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// Either, by native InfiniBand addresses.
    Ib,
    /// IP over InfiniBand.
    IpoIb,
}

impl PortSpace {
    /// Every port space.
    pub const ALL: [PortSpace; 4] = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib, PortSpace::IpoIb];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            PortSpace::Tcp => "TCP",
            PortSpace::Udp => "UDP",
            PortSpace::Ib => "IB",
            PortSpace::IpoIb => "IPoIB",
        }
    }

    /// Its number, as `enum rdma_port_space` has it.
    pub const fn number(self) -> u16 {
        match self {
            PortSpace::Tcp => 0x0106,
            PortSpace::Udp => 0x0111,
            PortSpace::Ib => 0x013F,
            PortSpace::IpoIb => 0x0002,
        }
    }
}

impl ServiceId {
    /// The id that the RDMA CM makes out of a port space and a port.
    pub const fn of_port(space: PortSpace, port: u16) -> ServiceId {
        ServiceId((space.number() as u64) << 16 | port as u64)
    }

    /// Port space and port, when the RDMA CM made the id out of them.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = PortSpace::ALL.into_iter().find(|space| self.0 >> 16 == u64::from(space.number()))?;
        Some((space, self.0 as u16))
    }
}

impl Field for ServiceId {
    const BITS: u32 = 64;
    fn to_u64(self) -> u64 {
        self.0
    }
    fn from_u64(value: u64) -> Self {
        ServiceId(value)
    }
}

/// What the RDMA CM puts in front of an application's private data in a REQ or SIDR_REQ (IBTA Annex A11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrivateHeader {
    /// Major and minor version, four bits each; 0.
    pub version: u8,
    /// The connecting side's port; the other port is in the service id.
    pub src_port: u16,
    /// Of the connecting side and of the listening side.
    pub addresses: AddressPair,
}

/// Source and destination, which are of one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum AddressPair {
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

impl AddressPair {
    /// `None` when the families differ.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<AddressPair> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(AddressPair::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(AddressPair::V6 { src, dst }),
            _ => None,
        }
    }

    /// Where the message comes from.
    pub const fn src(&self) -> IpAddr {
        match *self {
            AddressPair::V4 { src, .. } => IpAddr::V4(src),
            AddressPair::V6 { src, .. } => IpAddr::V6(src),
        }
    }

    /// Where it goes.
    pub const fn dst(&self) -> IpAddr {
        match *self {
            AddressPair::V4 { dst, .. } => IpAddr::V4(dst),
            AddressPair::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }

    /// 4 or 6.
    pub const fn ip_version(&self) -> u8 {
        match self {
            AddressPair::V4 { .. } => 4,
            AddressPair::V6 { .. } => 6,
        }
    }
}

impl PrivateHeader {
    /// Bytes of the header.
    pub const LEN: usize = 36;

    /// Reads it; `None` when it is too short or its IP version is neither 4 nor 6.
    pub fn read(private: &[u8]) -> Option<PrivateHeader> {
        let bytes: &[u8; Self::LEN] = private.first_chunk()?;
        let field = |at: usize| -> [u8; 16] { core::array::from_fn(|i| bytes[at + i]) };
        // An IPv4 address is in the last four bytes of its field.
        let v4 = |at: usize| Ipv4Addr::from_octets(core::array::from_fn(|i| bytes[at + 12 + i]));
        let addresses = match bytes[1] >> 4 {
            4 => AddressPair::V4 { src: v4(4), dst: v4(20) },
            6 => AddressPair::V6 { src: field(4).into(), dst: field(20).into() },
            _ => return None,
        };
        Some(PrivateHeader {
            version: bytes[0],
            src_port: u16::from_be_bytes([bytes[2], bytes[3]]),
            addresses,
        })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.version;
        bytes[1] = self.addresses.ip_version() << 4;
        bytes[2..4].copy_from_slice(&self.src_port.to_be_bytes());
        match self.addresses {
            AddressPair::V4 { src, dst } => {
                bytes[16..20].copy_from_slice(&src.octets());
                bytes[32..36].copy_from_slice(&dst.octets());
            }
            AddressPair::V6 { src, dst } => {
                bytes[4..20].copy_from_slice(&src.octets());
                bytes[20..36].copy_from_slice(&dst.octets());
            }
        }
        bytes
    }
}
