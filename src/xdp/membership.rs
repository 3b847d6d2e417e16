//! Multicast groups, joined through the kernel so that routers, bridges and the driver let them through.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use softrnic_netdev::Host;

/// Sockets that exist only to be members: the kernel limits the groups per socket.
#[derive(Default)]
pub(super) struct Membership {
    sockets: HashMap<IpAddr, Vec<UdpSocket>>,
}

impl Membership {
    /// Joins `group` on the interface and on those of its VLANs that have addresses.
    pub(super) fn join(&mut self, group: IpAddr, ifindex: u32, host: &Host) -> io::Result<()> {
        let mut interfaces: HashSet<u32> =
            host.stacked_addresses(ifindex).map(|address| address.ifindex).collect();
        interfaces.insert(ifindex);
        let mut sockets = Vec::new();
        let mut refusal = None;
        for interface in interfaces {
            match join_on(group, interface) {
                Ok(socket) => sockets.push(socket),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) if sockets.is_empty() => Err(error),
            _ => {
                self.sockets.insert(group, sockets);
                Ok(())
            }
        }
    }

    pub(super) fn leave(&mut self, group: IpAddr) {
        self.sockets.remove(&group);
    }
}

fn join_on(group: IpAddr, ifindex: u32) -> io::Result<UdpSocket> {
    match group {
        IpAddr::V4(group) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: ifindex as libc::c_int,
            };
            // SAFETY: the request has the given length, and lives through the call, which reads it.
            let joined = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::IPPROTO_IP,
                    libc::IP_ADD_MEMBERSHIP,
                    (&raw const request).cast(),
                    size_of_val(&request) as libc::socklen_t,
                )
            };
            if joined < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
        }
        IpAddr::V6(group) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v6(&group, ifindex)?;
            Ok(socket)
        }
    }
}
