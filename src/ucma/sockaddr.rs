//! C socket addresses of the three families that identifiers know.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use softrnic_cma::{Address, IbAddress};
use softrnic_wire::Gid;

use crate::fields::{Fields, Struct};

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// `AF_IB`, which the C library does not define.
const AF_IB: u16 = 27;

/// Size of any address: the kernel's `sockaddr_storage`.
pub const STORAGE: usize = 128;
/// Size of `sockaddr_in6`, the room in the older commands.
pub const IN6: usize = 28;

/// Reads an address of one of the families; `None` for any other.
pub fn read(from: Fields<'_>) -> Option<Address> {
    let port = u16::from_be_bytes(from.bytes(2));
    match from.u16(0) {
        AF_INET => {
            let ip = Ipv4Addr::from(from.bytes::<4>(4));
            Some(Address::Ip(SocketAddrV4::new(ip, port).into()))
        }
        AF_INET6 => {
            let ip = Ipv6Addr::from(from.bytes::<16>(8));
            let flow = u32::from_be_bytes(from.bytes(4));
            Some(Address::Ip(SocketAddrV6::new(ip, port, flow, from.u32(24)).into()))
        }
        AF_IB => Some(Address::Ib(IbAddress {
            pkey: u16::from_be_bytes(from.bytes(2)),
            flow: u32::from_be_bytes(from.bytes(4)),
            gid: Gid(from.bytes(8)),
            service: u64::from_be_bytes(from.bytes(24)),
            mask: u64::from_be_bytes(from.bytes(32)),
            scope: from.u64(40),
        })),
        _ => None,
    }
}

/// Reads an address whose length the caller gives, which must be that of its family (`rdma_addr_size`).
pub fn read_exact(from: Fields<'_>, length: u16) -> Option<Address> {
    read(from).filter(|address| size(address) == usize::from(length))
}

/// Reads an address from a field that only fits IP addresses (`rdma_addr_size_in6`).
pub fn read_ip(from: Fields<'_>) -> Option<Address> {
    read(from).filter(|address| matches!(address, Address::Ip(_)))
}

/// The length of an address in C.
pub fn size(address: &Address) -> usize {
    match address {
        Address::Ip(SocketAddr::V4(_)) => 16,
        Address::Ip(SocketAddr::V6(_)) => IN6,
        Address::Ib(_) => 48,
    }
}

/// An address in C, padded with zeros.
pub fn bytes(address: &Address) -> [u8; STORAGE] {
    let mut to = Struct::<STORAGE>::new();
    match address {
        Address::Ip(SocketAddr::V4(v4)) => {
            to.u16(0, AF_INET).put(2, &v4.port().to_be_bytes()).put(4, &v4.ip().octets());
        }
        Address::Ip(SocketAddr::V6(v6)) => {
            to.u16(0, AF_INET6).put(2, &v6.port().to_be_bytes()).put(4, &v6.flowinfo().to_be_bytes());
            to.put(8, &v6.ip().octets()).u32(24, v6.scope_id());
        }
        Address::Ib(ib) => {
            to.u16(0, AF_IB).put(2, &ib.pkey.to_be_bytes()).put(4, &ib.flow.to_be_bytes()).put(8, &ib.gid.0);
            to.put(24, &ib.service.to_be_bytes()).put(32, &ib.mask.to_be_bytes()).u64(40, ib.scope);
        }
    }
    to.0
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn ipv4_is_sixteen_bytes_with_port_and_address_in_network_order() {
        let wire = [2, 0, 0x1c, 0x72, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let address = read_exact(Fields(&wire), 16).expect("an address");
        assert_eq!(address, Address::Ip("127.0.0.1:7282".parse().expect("an address")));
        assert_eq!(bytes(&address)[..16], wire);
        assert_eq!(read_exact(Fields(&wire), 28), None, "a length of another family");
        assert_eq!(read_exact(Fields(&wire), 0), None);
    }

    #[test]
    fn ipv6_keeps_flow_label_and_scope() {
        let mut wire = [0; 28];
        wire[..8].copy_from_slice(&[10, 0, 0, 80, 0, 1, 2, 3]);
        wire[8..12].copy_from_slice(&[0xfe, 0x80, 0, 0]);
        wire[23] = 9;
        wire[24] = 7;
        let address = read_exact(Fields(&wire), 28).expect("an address");
        let Address::Ip(SocketAddr::V6(v6)) = address else { panic!("{address:?}") };
        assert_eq!((v6.port(), v6.flowinfo(), v6.scope_id()), (80, 0x10203, 7));
        assert_eq!(bytes(&address)[..28], wire);
    }

    #[test]
    fn a_gid_with_a_service_is_forty_eight_bytes() {
        let mut wire = [0; 48];
        wire[..4].copy_from_slice(&[27, 0, 0xff, 0xff]);
        wire[8..24].copy_from_slice(&Gid::from(IpAddr::from([10, 0, 0, 1])).0);
        wire[24..32].copy_from_slice(&0x0106_1c72_u64.to_be_bytes());
        wire[32..40].copy_from_slice(&u64::MAX.to_be_bytes());
        let address = read_exact(Fields(&wire), 48).expect("an address");
        let Address::Ib(ib) = address else { panic!("{address:?}") };
        assert_eq!((ib.pkey, ib.service, ib.mask), (0xffff, 0x0106_1c72, u64::MAX));
        assert_eq!(bytes(&address)[..48], wire);
        assert_eq!(read_ip(Fields(&wire)), None, "does not fit the older commands");
    }

    #[test]
    fn no_other_family_is_an_address() {
        for family in [0, 1, 11, 28, 0xFFFF_u16] {
            let mut wire = [0; STORAGE];
            wire[..2].copy_from_slice(&family.to_ne_bytes());
            assert_eq!(read(Fields(&wire)), None, "{family}");
        }
    }
}
