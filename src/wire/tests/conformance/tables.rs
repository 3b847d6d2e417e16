//! Tables and helpers against the figures of the specification and of the Linux sources.

use std::net::{IpAddr, Ipv6Addr};

use softrnic_wire::*;

/// Opcode bytes that exist, per transport.
const DEFINED: [(Transport, &[std::ops::RangeInclusive<u8>]); 6] = [
    (Transport::Rc, &[0x00..=0x14, 0x16..=0x17, 0x1C..=0x1D]),
    (Transport::Uc, &[0x20..=0x2B]),
    (Transport::Ud, &[0x64..=0x65]),
    (Transport::Cnp, &[0x81..=0x81]),
    (Transport::Xrc, &[0xA0..=0xB4, 0xB6..=0xB7]),
    (Transport::SoftRnic, &[0xFF..=0xFF]),
];

#[test]
fn all_256_opcode_bytes_are_defined_or_refused_as_they_should_be() {
    let mut defined = 0;
    for byte in 0..=255u8 {
        let expected =
            DEFINED.iter().find(|(_, ranges)| ranges.iter().any(|r| r.contains(&byte))).map(|(t, _)| *t);
        let opcode = Opcode::from_byte(byte);
        assert_eq!(opcode.map(Opcode::transport), expected, "{byte:#04x}");
        let Some(opcode) = opcode else { continue };
        defined += 1;
        assert_eq!(opcode.byte(), byte);
        assert_eq!(opcode.info().opcode, opcode);
        assert_eq!(Opcode::new(opcode.transport(), opcode.operation()), Some(opcode));
        assert_eq!(Transport::of_byte(byte), Some(opcode.transport()));
    }
    assert_eq!(defined, OPCODES.len());
}

#[test]
fn every_row_agrees_with_its_operation() {
    for info in &OPCODES {
        let op = info.operation;
        assert_eq!(info.is_request, op.is_request(), "{}", info.name);
        assert_eq!(info.starts, op.starts_message(), "{}", info.name);
        assert_eq!(info.ends, op.ends_message(), "{}", info.name);
        assert_eq!(op.headers_len(info.transport), Some(info.headers_len), "{}", info.name);
        let wqe = (op.is_send() && info.starts) || (op.is_write() && op.has_imm());
        assert_eq!(info.consumes_rq_wqe, wqe, "{}", info.name);
        assert_eq!(info.headers.contains(&Header::ImmDt), op.has_imm(), "{}", info.name);
        assert_eq!(
            info.headers.first() == Some(&Header::XrcEth),
            info.transport == Transport::Xrc && info.is_request,
            "{}",
            info.name
        );
        assert!(info.headers_len <= MAX_HEADERS_LEN);
        assert_eq!(
            info.name.split(' ').next().map(str::to_uppercase),
            Some(format!("{:?}", info.transport).to_uppercase())
        );
    }
}

#[test]
fn a_transport_that_shares_an_operation_shares_its_row() {
    for info in OPCODES.iter().filter(|i| matches!(i.transport, Transport::Uc | Transport::Xrc)) {
        let rc = Opcode::new(Transport::Rc, info.operation).unwrap().info();
        assert_eq!(info.payload, rc.payload, "{}", info.name);
        assert_eq!(info.consumes_rq_wqe, rc.consumes_rq_wqe, "{}", info.name);
        let own: Vec<_> = info.headers.iter().filter(|h| **h != Header::XrcEth).collect();
        assert_eq!(own, rc.headers.iter().collect::<Vec<_>>(), "{}", info.name);
        assert_eq!(info.name.split_once(' ').unwrap().1, rc.name.split_once(' ').unwrap().1);
    }
}

#[test]
fn header_lengths_are_those_of_the_opcode_tables() {
    let rc = |op: Operation| op.headers_len(Transport::Rc).unwrap() - BTH_LEN;
    assert_eq!(rc(Operation::SendMiddle), 0);
    assert_eq!(rc(Operation::SendLastInv), 4);
    assert_eq!(rc(Operation::WriteOnlyImm), 20);
    assert_eq!(rc(Operation::ReadResponseMiddle), 0);
    assert_eq!(rc(Operation::Acknowledge), 4);
    assert_eq!(rc(Operation::AtomicAcknowledge), 12);
    assert_eq!(rc(Operation::CompareSwap), 28);
    assert_eq!(rc(Operation::Flush), 20);
    assert_eq!(Operation::SendOnlyImm.headers_len(Transport::Ud), Some(BTH_LEN + 12));
    assert_eq!(Operation::FetchAdd.headers_len(Transport::Xrc), Some(MAX_HEADERS_LEN));
    assert_eq!(Operation::ReadRequest.headers_len(Transport::Uc), None);
    assert_eq!(Operation::Flush.headers_len(Transport::Xrc), None);
    assert_eq!(Operation::Cnp.headers_len(Transport::Rc), None);
}

#[test]
fn payload_rules_at_their_edges() {
    use PayloadRule::*;
    let lengths = [0, 1, 8, 16, 1023, 1024, 1025];
    let allowed = |rule: PayloadRule| lengths.map(|len| rule.allows(len, 1024));
    assert_eq!(allowed(None), [true, false, false, false, false, false, false]);
    assert_eq!(allowed(FullMtu), [false, false, false, false, false, true, false]);
    assert_eq!(allowed(UpToMtu), [true, true, true, true, true, true, false]);
    assert_eq!(allowed(NonEmptyUpToMtu), [false, true, true, true, true, true, false]);
    assert_eq!(allowed(Eight), [false, false, true, false, false, false, false]);
    assert_eq!(allowed(Zeros16), [false, false, false, true, false, false, false]);
    assert_eq!(allowed(Bitmap), [true, true, true, true, false, false, false]);
}

#[test]
fn credit_codes() {
    const COUNTS: [u32; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    for (code, &count) in COUNTS.iter().enumerate() {
        let credits = Credits::from_code(code as u8);
        assert_eq!(credits.count(), Some(count));
        assert_eq!(Credits::at_most(count), credits);
        assert_eq!(Credits::at_most(count.saturating_sub(1)).code(), (code as u8).saturating_sub(1));
    }
    assert_eq!(Credits::UNLIMITED.count(), None);
    assert_eq!(Credits::at_most(u32::MAX).code(), 0x1E);
}

#[test]
fn rnr_timer_codes() {
    const TENS_OF_US: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    for (code, &tens) in TENS_OF_US.iter().enumerate() {
        let timer = RnrTimer::new(code as u8);
        assert_eq!(timer.delay_us(), tens * 10, "code {code}");
        assert_eq!(RnrTimer::at_least_us(tens * 10), timer);
    }
    assert_eq!(RnrTimer::at_least_us(0).code(), 1);
    assert_eq!(RnrTimer::at_least_us(41).code(), 5);
    assert_eq!(RnrTimer::at_least_us(u32::MAX).code(), 0);
}

#[test]
fn every_syndrome_byte_survives_and_falls_into_its_range() {
    for byte in 0..=255u8 {
        let syndrome = Syndrome::from_byte(byte);
        assert_eq!(syndrome.byte(), byte);
        let in_range = match syndrome {
            Syndrome::Ack(_) => 0x00..=0x1F,
            Syndrome::RnrNak(_) => 0x20..=0x3F,
            Syndrome::Nak(_) => 0x60..=0x7F,
            Syndrome::Reserved(b) if b < 0x80 => 0x40..=0x5F,
            Syndrome::Reserved(_) => 0x80..=0xFF,
        };
        assert!(in_range.contains(&byte), "{byte:#04x} as {syndrome:?}");
    }
    let naks = [
        NakCode::PsnSequence,
        NakCode::InvalidRequest,
        NakCode::RemoteAccess,
        NakCode::RemoteOperational,
        NakCode::InvalidRd,
        NakCode::Reserved(5),
    ];
    for (byte, nak) in (0x60..).zip(naks) {
        assert_eq!(Syndrome::from_byte(byte), Syndrome::Nak(nak));
    }
}

#[test]
fn a_psn_half_the_circle_away_is_before_not_after() {
    let (a, b) = (Psn::ZERO, Psn::new(1 << 23));
    assert_eq!((a - b, b - a), (-(1 << 23), -(1 << 23)));
    assert!(a.is_before(b) && b.is_before(a));
    assert!(Psn::new(0xFF_FFFF).is_before(Psn::ZERO));
    assert_eq!(Psn::new(0xFF_FFFF).next(), Psn::ZERO);
    assert_eq!(Psn::ZERO - 1, Psn::new(0xFF_FFFF));
    assert_eq!(Msn::new(0xFF_FFFF).next(), Msn::ZERO);
}

#[test]
fn a_psn_is_neither_before_nor_after_itself_and_its_neighbours_are() {
    for value in [0, 1, 1 << 23, 0xFF_FFFF] {
        let psn = Psn::new(value);
        assert!(!psn.is_before(psn) && !psn.is_after(psn) && psn.at_or_before(psn));
        assert!(psn.is_before(psn + 1) && !psn.is_after(psn + 1) && psn.at_or_before(psn + 1));
        assert!(!psn.is_before(psn - 1) && psn.is_after(psn - 1) && !psn.at_or_before(psn - 1));
        assert_eq!(((psn + 1) - psn, psn - (psn + 1), psn - psn), (1, -1, 0));
    }
}

#[test]
fn a_psn_that_is_moved_stays_on_the_circle() {
    let mut psn = Psn::new(0xFF_FFFE);
    psn += 3;
    assert_eq!(psn.get(), 1);
    psn -= 2;
    assert_eq!(psn.get(), 0xFF_FFFF);
}

#[test]
fn numbers_of_24_bits_drop_what_is_above() {
    let value = 0xAB12_3456;
    let kept = [Psn::new(value).get(), Msn::new(value).get(), Qpn::new(value).get(), Srqn::new(value).get()];
    assert_eq!(kept, [0x12_3456; 4]);
}

#[test]
fn numbers_are_displayed_in_their_usual_notation() {
    assert_eq!(Psn::new(100).to_string(), "100");
    assert_eq!(Msn::new(7).to_string(), "7");
    assert_eq!(Qpn::new(0x11).to_string(), "0x000011");
    assert_eq!(Rkey(0x1234).to_string(), "0x00001234");
}

#[test]
fn the_high_bit_of_a_qkey_and_of_a_pkey_has_a_meaning() {
    assert!(Qkey(0x8000_0000).is_privileged() && Qkey(u32::MAX).is_privileged());
    assert!(!Qkey(0x7FFF_FFFF).is_privileged() && !Qkey(0).is_privileged());
    assert!(Pkey(0x8000).is_full() && Pkey(0xFFFF).is_full());
    assert!(!Pkey(0x7FFF).is_full() && !Pkey(0).is_full());
}

#[test]
fn pkeys_match_within_a_partition_when_one_side_is_a_full_member() {
    assert!(Pkey::DEFAULT.matches(Pkey::DEFAULT));
    assert!(Pkey::DEFAULT.matches(Pkey(0x7FFF)) && Pkey(0x7FFF).matches(Pkey::DEFAULT));
    assert!(!Pkey(0x7FFF).matches(Pkey(0x7FFF)), "two limited members");
    assert!(!Pkey::DEFAULT.matches(Pkey(0x8001)));
    assert!(!Pkey(0x8000).matches(Pkey(0x8000)), "the invalid partition");
}

#[test]
fn source_ports_are_those_of_the_kernel() {
    for (local, remote, label, port) in [
        (0x11, 0x11, 0x00121, 0xC121),
        (0x21, 0x22, 0x00462, 0xC462),
        (0xAB_CDEF, 0x12_3456, 0xAC3E3, 0xC3C8),
    ] {
        let (local, remote) = (Qpn::new(local), Qpn::new(remote));
        assert_eq!(default_flow_label(local, remote), label);
        assert_eq!(default_flow_label(remote, local), label);
        assert_eq!(flow_label_to_sport(label), port);
    }
    assert_eq!(flow_label_to_sport(0x307C6), 0xC7CA);
    for (qpn, port) in [(1, 0xD872), (17, 0xDF94), (18, 0xF806), (19, 0xD078)] {
        assert_eq!(rxe_qpn_to_sport(Qpn::new(qpn)), port);
    }
}

#[test]
fn mtu_of_an_interface_is_that_of_rxe() {
    for (netdev, mtu) in [
        (0, 256),
        (300, 256),
        (591, 256),
        (592, 512),
        (1103, 512),
        (1104, 1024),
        (1500, 1024),
        (2127, 1024),
        (2128, 2048),
        (4175, 2048),
        (4176, 4096),
        (9000, 4096),
        (65536, 4096),
    ] {
        assert_eq!(Mtu::from_netdev_mtu(netdev).bytes(), mtu, "netdev MTU {netdev}");
    }
    for (code, mtu) in (1..).zip(Mtu::ALL) {
        assert_eq!((mtu.code(), mtu.bytes()), (code, 128 << code));
        assert_eq!((Mtu::from_code(code), Mtu::from_bytes(mtu.bytes())), (Some(mtu), Some(mtu)));
    }
    assert_eq!((Mtu::from_code(0), Mtu::from_code(6), Mtu::from_bytes(1500)), (None, None, None));
}

#[test]
fn a_message_has_at_least_one_packet() {
    for (len, packets) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (1 << 31, 1 << 21)] {
        assert_eq!(Mtu::B1024.packets(len), packets);
    }
    assert_eq!(Mtu::B256.packets(u32::MAX), 1 << 24);
}

#[test]
fn an_ip_checksum_folds_its_carries_until_none_is_left() {
    let mut header = [0; IPV4_LEN];
    header[..6].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x01]);
    assert_eq!(ipv4_checksum(&header), 0xFFFE, "0x1ffff folds to 0x10000, and that to 1");
}

#[test]
fn gids_name_addresses() {
    let v4 = Gid::from(IpAddr::from([10, 0, 0, 5]));
    assert_eq!(v4.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0005");
    assert!(v4.is_ipv4() && !v4.is_multicast() && v4.multicast_mac().is_none());
    let v6 = Gid::from(Ipv6Addr::LOCALHOST);
    assert!(!v6.is_ipv4());
    for ip in ["10.0.0.5", "::1", "fe80::1", "0.0.0.0", "::"] {
        let ip: IpAddr = ip.parse().unwrap();
        assert_eq!(Gid::from(ip).to_ip(), ip);
    }
    let local = Gid::link_local(MacAddr([0x02, 0, 0, 0, 0, 0x01]));
    assert_eq!(local.to_ip(), "fe80::ff:fe00:1".parse::<IpAddr>().unwrap());
}

#[test]
fn multicast_groups_have_their_own_macs() {
    let mac = |ip: &str| Gid::from(ip.parse::<IpAddr>().unwrap()).multicast_mac();
    assert_eq!(mac("239.129.2.3"), Some(MacAddr([0x01, 0x00, 0x5E, 0x01, 0x02, 0x03])));
    assert_eq!(mac("ff12::a0b:c0d"), Some(MacAddr([0x33, 0x33, 0x0A, 0x0B, 0x0C, 0x0D])));
    assert_eq!(mac("fe80::1"), None);
}

#[test]
fn xrc_bodies_hold_a_queue_for_requests_alone() {
    let srqn = Srqn::new(7);
    let ack = Op::Acknowledge(Aeth::ack(Msn::ZERO));
    assert_eq!(XrcBody::request(srqn, Op::SendMiddle).unwrap().srqn(), Some(srqn));
    assert_eq!(XrcBody::response(ack).unwrap().srqn(), None);
    assert_eq!(XrcBody::request(srqn, ack), None);
    assert_eq!(XrcBody::response(Op::SendMiddle), None);
    assert_eq!(XrcBody::request(srqn, Op::AtomicWrite(Reth::default())), None, "XRC has no such opcode");
}

#[test]
fn a_queue_key_s_high_bit_is_its_privilege() {
    assert!(Qkey(0x8001_0000).is_privileged());
    assert!(!Qkey(0x0123_4567).is_privileged());
}
