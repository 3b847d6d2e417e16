use std::net::Ipv6Addr;

use super::*;

/// From 192.0.2.1 to 192.0.2.2, behind 20 undefined bytes.
fn ipv4() -> [u8; GRH] {
    let mut bytes = [0xFF; GRH];
    // The bytes before may look like IPv6.
    bytes[0] = 0x60;
    let header = [0x45, 0x6A, 0, 92, 0, 0, 0x40, 0, 17, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    bytes[20..].copy_from_slice(&header);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn ipv6() -> [u8; GRH] {
    let mut bytes = [0; GRH];
    bytes[..8].copy_from_slice(&[0x66, 0xA1, 0x23, 0x45, 0, 72, 17, 33]);
    bytes[8..24].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    bytes[24..].copy_from_slice(&"2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
    bytes
}

#[test]
fn an_ipv4_header_is_found_behind_undefined_bytes() {
    let expected = Header {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        flow_label: 0,
        traffic_class: 0x6A,
        hop_limit: 17,
    };
    assert_eq!(Header::read(&ipv4()), Some(expected));
}

#[test]
fn an_ipv6_header_is_read_in_full() {
    let expected = Header {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        flow_label: 0x12345,
        traffic_class: 0x6A,
        hop_limit: 33,
    };
    assert_eq!(Header::read(&ipv6()), Some(expected));
}

#[test]
fn a_wrong_checksum_makes_it_ipv6_or_nothing() {
    let mut bytes = ipv4();
    bytes[31] ^= 1;
    assert!(Header::read(&bytes).unwrap().src.is_ipv6());
    bytes[0] = 0x45;
    assert_eq!(Header::read(&bytes), None);
}

#[test]
fn attributes_without_a_route_or_with_another_port_are_refused() {
    let good = ibv_ah_attr { is_global: 1, port_num: 1, ..NO_ADDRESS };
    assert!(address_vector(&good).is_ok());
    assert_eq!(address_vector(&ibv_ah_attr { is_global: 0, ..good }), Err(Errno::INVAL));
    assert_eq!(address_vector(&ibv_ah_attr { port_num: 2, ..good }), Err(Errno::INVAL));
}

#[test]
fn attributes_survive_a_round_trip() {
    let address = AddressVector {
        dgid: Gid::from(IpAddr::from([192, 0, 2, 1])),
        sgid_index: 3,
        flow_label: 0x54321,
        traffic_class: 0x6A,
        hop_limit: 9,
    };
    assert_eq!(address_vector(&ah_attr(&address)), Ok(address));
}
