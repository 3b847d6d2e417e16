use std::net::IpAddr;

use softrnic_cma::{Ece, Error, IdKind};
use softrnic_nic::verbs::{Mtu, Psn, Qkey, QpState, Qpn};
use softrnic_transport::QpAttr;

use super::*;

/// Bytes of a struct that is zero but for these fields.
fn zero_but<const N: usize>(fields: &[(usize, &[u8])]) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

fn gid(address: [u8; 4]) -> Gid {
    Gid::from(IpAddr::from(address))
}

fn resolved() -> Query {
    Query {
        kind: IdKind::CONNECTED,
        device: Some(DeviceIdentity { guid: 0x0200_0102_0304_0506, index: -1 }),
        local: Some(Address::Ip(([10, 0, 0, 1], 40000).into())),
        peer: Some(Address::Ip(([10, 0, 0, 2], 7174).into())),
        local_gid: gid([10, 0, 0, 1]),
        peer_gid: gid([10, 0, 0, 2]),
        pkey: 0xFFFF,
        path: Some(PathRecord {
            dgid: gid([10, 0, 0, 2]),
            sgid: gid([10, 0, 0, 1]),
            flow_label: 0xA_BCDE,
            hop_limit: 64,
            traffic_class: 0x20,
            pkey: 0xFFFF,
            sl: 3,
            mtu: Mtu::B1024,
            packet_life: 18,
        }),
    }
}

const GUID: [u8; 8] = [2, 0, 1, 2, 3, 4, 5, 6];
const LOCAL: [u8; 8] = [2, 0, 0x9c, 0x40, 10, 0, 0, 1];
const PEER: [u8; 8] = [2, 0, 0x1c, 0x06, 10, 0, 0, 2];

#[test]
fn addresses_with_the_device() {
    let expected = zero_but(&[
        (0, &GUID),
        (8, &[1, 0, 0xFF, 0xFF, 16, 0, 16, 0]),
        (16, &LOCAL),
        (144, &PEER),
        (272, &[0xFF; 4]),
    ]);
    assert_eq!(addresses(&resolved()), expected);
}

#[test]
fn an_id_that_is_not_bound_has_neither_addresses_nor_device() {
    let idle = Query {
        device: None,
        local: None,
        peer: None,
        local_gid: Gid::ZERO,
        peer_gid: Gid::ZERO,
        path: None,
        ..resolved()
    };
    assert_eq!(addresses(&idle), zero_but(&[(10, &[0xFF, 0xFF])]));
    assert_eq!(paths(&idle, 440), [0; 8]);
}

#[test]
fn gids_are_addresses_with_services() {
    let of = |gid: Gid, port: u16| {
        let service = (0x0106_0000 | u64::from(port)).to_be_bytes();
        zero_but::<48>(&[(0, &[27, 0, 0xFF, 0xFF]), (8, &gid.0), (24, &service)])
    };
    let expected = zero_but(&[
        (0, &GUID),
        (8, &[1, 0, 0xFF, 0xFF, 48, 0, 48, 0]),
        (16, &of(gid([10, 0, 0, 1]), 40000)),
        (144, &of(gid([10, 0, 0, 2]), 7174)),
        (272, &[0xFF; 4]),
    ]);
    assert_eq!(gids(&resolved()), expected);
}

#[test]
fn a_path_is_as_a_subnet_administrator_would_send_it() {
    let expected = zero_but::<80>(&[
        (0, &[1]),
        (8, &[0x2B]),
        (16 + 8, &gid([10, 0, 0, 2]).0),
        (16 + 24, &gid([10, 0, 0, 1]).0),
        (16 + 44, &[0x0A, 0xBC, 0xDE, 64, 0x20, 0x81, 0xFF, 0xFF, 0, 3, 0x83, 0x83, 0x92]),
    ]);
    assert_eq!(paths(&resolved(), 440), expected);
    assert_eq!(paths(&resolved(), 79), expected[..8], "no room for it");
}

#[test]
fn a_route_as_the_older_library_asks_for_it() {
    let expected = zero_but(&[
        (0, &GUID),
        (8, &gid([10, 0, 0, 2]).0),
        (24, &gid([10, 0, 0, 1]).0),
        (8 + 40, &[0, 0x0A, 0xBC, 0xDE, 1, 0, 0, 0, 3, 0, 0, 0, 0xFF, 0xFF, 64, 0x20]),
        (8 + 56, &[1, 3, 2, 2, 3, 2, 18]),
        (136, &LOCAL),
        (164, &PEER),
        (192, &[1, 0, 0, 0, 1]),
        (200, &[0xFF; 4]),
    ]);
    assert_eq!(route(&resolved()), expected);
}

#[test]
fn attributes_of_a_qp() {
    let access =
        QpAccess { remote_write: true, remote_read: true, remote_atomic: true, ..QpAccess::default() };
    let attributes = QpAttributes {
        transport: QpAttr {
            state: QpState::Rtr,
            mtu: Mtu::B1024,
            rq_psn: Psn::new(0x11),
            sq_psn: Psn::new(0x22),
            dest_qpn: Qpn::new(0x33),
            access,
            qkey: Qkey(0x44),
            max_rd_atomic: 5,
            max_dest_rd_atomic: 6,
            timeout: 18,
            retry_cnt: 7,
            rnr_retry: 6,
            ..QpAttr::default()
        },
        address: Some(AddressVector {
            dgid: gid([10, 0, 0, 2]),
            sgid_index: 1,
            flow_label: 0xA_BCDE,
            traffic_class: 0x20,
            hop_limit: 64,
        }),
    };
    let mut expected = zero_but::<144>(&[
        (0, &[0x81]),
        (4, &[2]),
        (12, &[3]),
        (20, &[0x44, 0, 0, 0, 0x11, 0, 0, 0, 0x22, 0, 0, 0, 0x33, 0, 0, 0, 0b1110]),
        (40, &gid([10, 0, 0, 2]).0),
        (56, &[0xDE, 0xBC, 0x0A, 0, 1, 64, 0x20]),
        (69, &[1, 1]),
        (130, &[5, 6]),
        (133, &[1, 18, 7, 6]),
    ]);
    let told = qp_attributes(&attributes, AttrMask::from_bits_retain(0x81));
    // What the mask does not name is of no account.
    expected[8..12].copy_from_slice(&told[8..12]);
    expected[132] = told[132];
    assert_eq!(told, expected);
}

#[test]
fn statuses_are_negative_for_errors_alone() {
    assert_eq!(status(EventStatus::Done), 0);
    assert_eq!(status(EventStatus::Failed(Error::TimedOut)), -110);
    assert_eq!(status(EventStatus::Refused(28)), 28);
    assert_eq!(status(EventStatus::Own(-7)), -7);
}

#[test]
fn connection_parameters_of_a_peer() {
    let params = ConnParams {
        qpn: Qpn::new(0x12_3456),
        private: vec![0xAA; 56],
        srq: true,
        responder_resources: 1,
        initiator_depth: 2,
        flow_control: true,
        retry_count: 7,
        rnr_retry: 6,
        ece: Ece { vendor_id: 9, options: 8 },
        ..ConnParams::default()
    };
    let expected =
        zero_but::<272>(&[(0, &[0x56, 0x34, 0x12]), (8, &[0xAA; 56]), (264, &[56, 1, 1, 2, 1, 7, 6, 0])]);
    assert_eq!(conn_param(&params), expected);
}

#[test]
fn parameters_of_a_datagram_service() {
    let params = UdParams {
        qpn: Qpn::new(0xFF_FFFF),
        qkey: Qkey(0x0123_4567),
        address: Some(AddressVector {
            dgid: gid([239, 1, 2, 3]),
            sgid_index: 1,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 1,
        }),
        private: vec![0xBB; 136],
    };
    let expected = zero_but::<304>(&[
        (0, &[0xFF, 0xFF, 0xFF, 0, 0x67, 0x45, 0x23, 0x01]),
        (8, &gid([239, 1, 2, 3]).0),
        (8 + 20, &[1, 1]),
        (8 + 29, &[1, 1]),
        (40, &[0xBB; 136]),
        (296, &[136]),
    ]);
    assert_eq!(ud_param(&params), expected);
}
