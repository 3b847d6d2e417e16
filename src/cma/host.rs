//! Queries to the machine about addresses, with sockets that send nothing.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with};

use super::error::Error;

/// Whether the address belongs to this machine: to an interface, or to the loopback network. The port is ignored.
pub(super) fn is_local(address: SocketAddr) -> bool {
    let ip = address.ip();
    if ip.is_unspecified() || ip.is_multicast() {
        return false;
    }
    ip.is_loopback() || datagram(ip).and_then(|socket| bind(&socket, &with_port(address, 0))).is_ok()
}

/// The source address that the routing table chooses for a destination. The port is ignored.
pub(super) fn source_for(destination: SocketAddr) -> Result<IpAddr, Error> {
    let socket = datagram(destination.ip()).map_err(|_| Error::NoDescriptor)?;
    // No datagram is sent.
    match connect(&socket, &with_port(destination, 4791)) {
        Ok(()) => {}
        Err(Errno::ACCESS | Errno::INVAL) => return Err(Error::Invalid),
        Err(_) => return Err(Error::NetworkUnreachable),
    }
    let source = getsockname(&socket).ok().and_then(|name| SocketAddr::try_from(name).ok());
    source.map(|source| source.ip()).ok_or(Error::NetworkUnreachable)
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn datagram(ip: IpAddr) -> Result<rustix::fd::OwnedFd, Errno> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}
