//! Addresses of identifiers.

use std::net::{IpAddr, SocketAddr};

use softrnic_wire::Gid;

/// The address that an identifier is bound or resolved to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `AF_INET` and `AF_INET6`.
    Ip(SocketAddr),
    /// `AF_IB`.
    Ib(IbAddress),
}

/// A native InfiniBand address (`sockaddr_ib`), in host order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct IbAddress {
    /// Partition.
    pub pkey: u16,
    /// Flow information.
    pub flow: u32,
    /// GID; zero is any.
    pub gid: Gid,
    /// Service id: for the RDMA CM, port space and port.
    pub service: u64,
    /// Significant bits of the service id.
    pub mask: u64,
    /// Scope.
    pub scope: u64,
}

impl Address {
    /// The IP address; for a GID, the address that it stands for.
    pub fn ip(&self) -> IpAddr {
        match self {
            Address::Ip(address) => address.ip(),
            Address::Ib(address) => address.gid.to_ip(),
        }
    }

    /// The port; for a service id, its low 16 bits.
    pub fn port(&self) -> u16 {
        match self {
            Address::Ip(address) => address.port(),
            Address::Ib(address) => address.service as u16,
        }
    }

    /// The IP address with what is needed to use it: the interface of a link-local one.
    pub fn on_interface(&self) -> SocketAddr {
        match self {
            Address::Ip(address) => *address,
            Address::Ib(address) => SocketAddr::new(address.gid.to_ip(), 0),
        }
    }

    /// Whether it stands for every address.
    pub fn is_any(&self) -> bool {
        match self {
            Address::Ip(address) => address.ip().is_unspecified(),
            Address::Ib(address) => address.gid == Gid::default(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}
