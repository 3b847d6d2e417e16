//! Properties of every legal packet, and of arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use softrnic_wire::*;

use super::{layout, legal};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Frame::parse(&bytes);
        let _ = RoceV1Frame::parse(&bytes);
        let _ = Packet::parse(&bytes);
    }

    /// Slightly damaged frames reach deeper into the parser than random bytes.
    #[test]
    fn damaged_frames_never_panic(
        frame in frame(300),
        flips in vec((any::<prop::sample::Index>(), 0..8u32), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (_, _, _, mut bytes) = frame;
        for (at, bit) in flips {
            *at.get_mut(&mut bytes) ^= 1 << bit;
        }
        let bytes = &bytes[..cut.index(bytes.len() + 1)];
        if let Ok(frame) = Frame::parse(bytes) {
            let _ = verify(&frame.facts(), frame.transport);
            let _ = verify_either_flush(&frame.facts(), frame.transport);
            let _ = verify_unknown_id(&frame.facts(), frame.transport);
            let _ = Packet::parse(frame.transport);
        }
        let _ = Packet::parse(bytes);
    }

    #[test]
    fn emitted_packets_parse_back(frame in frame(4096)) {
        let (header, headers, payload, bytes) = frame;
        let parsed = Frame::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.header, header);
        prop_assert_eq!(parsed.udp_checksum, 0);
        prop_assert!(parsed.ip_checksum_ok());
        prop_assert!(verify(&parsed.facts(), parsed.transport));
        let packet = Packet::parse(parsed.transport).unwrap();
        prop_assert_eq!(packet.headers(), headers);
        prop_assert_eq!(packet.payload, payload);
    }

    #[test]
    fn emission_writes_exactly_the_table_s_length(headers in legal::headers()) {
        let mut buf = [0xA5; MAX_HEADERS_LEN + 1];
        let len = headers.emit(&mut buf);
        let info = headers.body.opcode().info();
        prop_assert_eq!(len, headers.len());
        prop_assert_eq!(len, BTH_LEN + info.headers.iter().map(|h| h.size()).sum::<usize>());
        prop_assert!(buf[len..].iter().all(|&b| b == 0xA5));
        prop_assert_eq!(buf[0], info.opcode.byte());
    }

    /// The table lists the headers in the order in which they are on the wire.
    #[test]
    fn emission_follows_the_table_header_by_header(headers in legal::headers()) {
        let mut buf = [0; MAX_HEADERS_LEN];
        let len = headers.emit(&mut buf);
        let mut expected = vec![];
        for header in headers.body.opcode().info().headers {
            let before = expected.len();
            expected.extend(layout::of(*header, &headers.body).expect("the body has the header"));
            prop_assert_eq!(expected.len() - before, header.size());
        }
        prop_assert_eq!(&buf[BTH_LEN..len], expected);
    }

    /// Every reserved bit of the BTH may be set by a peer without changing what we read.
    #[test]
    fn reserved_bits_are_ignored(frame in frame(64), byte4 in 0..64u8, byte8 in 0..128u8) {
        let (_, headers, payload, bytes) = frame;
        let mut transport = Frame::parse(&bytes).unwrap().transport.to_vec();
        transport[4] |= byte4;
        transport[8] |= byte8;
        let packet = Packet::parse(&transport).unwrap();
        prop_assert_eq!(packet.headers(), headers);
        prop_assert_eq!(packet.payload, payload);
    }

    #[test]
    fn a_packet_without_all_its_headers_is_refused(headers in legal::headers(), cut in any::<prop::sample::Index>()) {
        let headers = Headers { bth: Bth { pad: Pad::NONE, ..headers.bth }, ..headers };
        let mut bytes = vec![0; headers.transport_len(0)];
        headers.emit(&mut bytes);
        prop_assert!(Packet::parse(&bytes).is_ok());
        let cut = cut.index(bytes.len());
        let error = if cut < BTH_LEN + ICRC_LEN { ParseError::TooShort } else { ParseError::TruncatedHeaders };
        prop_assert_eq!(Packet::parse(&bytes[..cut]), Err(error));
    }

    #[test]
    fn padding_that_does_not_fit_is_refused(frame in frame(16), pad in 0..4u8, more in 1..4usize) {
        let (_, headers, payload, bytes) = frame;
        let mut transport = Frame::parse(&bytes).unwrap().transport.to_vec();
        transport[1] = transport[1] & !0x30 | pad << 4;
        let padded = payload.len() + headers.bth.pad.len();
        let expected = if usize::from(pad) <= padded { Ok(padded - usize::from(pad)) } else { Err(ParseError::BadPadding) };
        prop_assert_eq!(Packet::parse(&transport).map(|p| p.payload.len()), expected);
        transport.extend(&[0; 3][..more]);
        prop_assert_eq!(Packet::parse(&transport), Err(ParseError::BadPadding));
    }

    #[test]
    fn any_ipv4_id_is_recovered(
        facts in legal::facts(), id in any::<u16>(), df in any::<bool>(), body in vec(any::<u8>(), 12..5000),
    ) {
        let IpFacts::V4 { src, dst, .. } = facts.ip else { return Ok(()) };
        let flags_frag = if df { DF } else { 0 };
        let sender = UdpFacts { ip: IpFacts::V4 { src, dst, id, flags_frag }, ..facts };
        let guess = UdpFacts { ip: IpFacts::v4(src, dst), ..facts };
        let received = icrc(&sender, &body);
        prop_assert_eq!(recover_v4_id(received, icrc(&guess, &body), body.len()), Some((id, flags_frag)));

        let mut packet = body;
        packet.extend(received.to_le_bytes());
        prop_assert_eq!(verify_unknown_id(&guess, &packet), df.then_some(id));
        // What the caller believes about ID and flags makes no difference.
        prop_assert_eq!(verify_unknown_id(&sender, &packet), df.then_some(id));
    }

    #[test]
    fn rxe_s_flush_with_any_id_verifies(facts in legal::facts(), id in any::<u16>(), reth in any::<[u8; 28]>()) {
        let IpFacts::V4 { src, dst, .. } = facts.ip else { return Ok(()) };
        let sender = UdpFacts { ip: IpFacts::V4 { src, dst, id, flags_frag: DF }, ..facts };
        let mut packet = vec![0x1C, 0, 0xFF, 0xFF, 0];
        packet.extend(&reth[1..]);
        packet.truncate(32);
        packet.extend(rxe_flush_icrc(&sender, &packet).to_le_bytes());
        prop_assert_eq!(verify_either_flush(&sender, &packet), Some(IcrcForm::RxeFlush));
        prop_assert_eq!(verify_unknown_id_rxe_flush(&facts, &packet), Some(id));
    }

    #[test]
    fn psn_distance_undoes_addition(start in any::<u32>(), n in -(1i32 << 23)..1 << 23) {
        let a = Psn::new(start);
        let b = if n < 0 { a - n.unsigned_abs() } else { a + n as u32 };
        prop_assert_eq!(b - a, n);
        prop_assert_eq!(b.is_before(a), n < 0);
        prop_assert_eq!(b.is_after(a), n > 0);
        prop_assert_eq!(b.at_or_before(a), n <= 0);
        prop_assert_eq!(a + n as u32, b, "adding a negative number modulo 2^32 agrees modulo 2^24");
        if n != -(1 << 23) {
            prop_assert_eq!(a - b, -n);
        }
    }

    #[test]
    fn psn_addition_is_that_of_the_ring(a in any::<u32>(), m in any::<u32>(), n in any::<u32>()) {
        let a = Psn::new(a);
        prop_assert_eq!((a + m) + n, a + m.wrapping_add(n));
        prop_assert_eq!((a + m) - m, a);
        prop_assert_eq!(a.next(), a + 1);
        prop_assert!((a + m).get() < 1 << 24);
    }
}

/// Header, transport headers, payload and the bytes they make.
fn frame(max_payload: usize) -> impl Strategy<Value = (FrameHeader, Headers, Vec<u8>, Vec<u8>)> {
    (legal::frame_header(), legal::headers(), vec(any::<u8>(), 0..=max_payload)).prop_map(
        |(header, mut headers, payload)| {
            headers.bth.pad = Pad::for_payload(payload.len());
            let transport_len = headers.transport_len(payload.len());
            let mut bytes = vec![0; header.wire_len() + transport_len];
            let bth = header.emit(&mut bytes, transport_len);
            let at = bth + headers.emit(&mut bytes[bth..]);
            bytes[at..at + payload.len()].copy_from_slice(&payload);
            seal(&header.facts(), &mut bytes[bth..]);
            (header, headers, payload, bytes)
        },
    )
}
