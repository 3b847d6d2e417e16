//! Connection management messages: reading returns what was written, and no two fields share a bit.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use softrnic_wire::*;

use super::vectors;

/// The attribute ids of all messages.
const ATTRIBUTES: std::ops::RangeInclusive<u16> = 0x10..=0x1A;

fn emitted(message: &CmMessage<'_>) -> [u8; MAD_LEN] {
    let mut bytes = [0xEE; MAD_LEN];
    message.emit_mad(0x0123_4567_89AB_CDEF, 7, &mut bytes);
    bytes
}

fn vendor_attribute() -> impl Strategy<Value = VendorAttribute> {
    let capabilities = (any::<u8>(), any::<[bool; 2]>(), any::<u16>());
    let status = (any::<[u8; 2]>(), any::<u32>(), any::<[u32; 3]>());
    prop_oneof![
        capabilities.prop_map(|(version, [selective_recovery, paths], reorder_window)| {
            VendorAttribute::Capabilities(Capabilities { version, selective_recovery, paths, reorder_window })
        }),
        status.prop_map(|([version, state], psn, [rnr_naks, receives, requests])| {
            let expected_psn = Psn::new(psn);
            VendorAttribute::Status(PeerStatus { version, state, expected_psn, rnr_naks, receives, requests })
        }),
    ]
}

proptest! {
    /// Whatever a peer sends can be written again, and then reads the same. Only reserved bits, and what a length
    /// leaves out, are lost.
    #[test]
    fn any_body_survives_parsing_and_writing(attribute in ATTRIBUTES, body in vec(any::<u8>(), MAD_BODY_LEN)) {
        let body: [u8; MAD_BODY_LEN] = body.try_into().unwrap();
        let message = CmMessage::read(attribute, &body).unwrap();
        prop_assert_eq!(message.body().attribute_id(), attribute);
        prop_assert_eq!(message.private().len(), message.body().private_room());
        let bytes = emitted(&message);
        let mad = Mad::read(&bytes).unwrap();
        prop_assert!(mad.is_cm_send());
        prop_assert_eq!((mad.transaction_id, mad.attribute_modifier), (0x0123_4567_89AB_CDEF, 7));
        prop_assert_eq!(mad.cm(), Some(message));
    }

    /// A single bit of a body is a field's, or reserved: it never shows in two fields, nor moves when written.
    #[test]
    fn each_bit_stays_where_it_is(attribute in ATTRIBUTES, bit in 0..MAD_BODY_LEN * 8) {
        let mut body = [0; MAD_BODY_LEN];
        body[bit / 8] = 1 << (bit % 8);
        let bytes = emitted(&CmMessage::read(attribute, &body).unwrap());
        let written = &bytes[MAD_LEN - MAD_BODY_LEN..];
        prop_assert!(written == body || written.iter().all(|&byte| byte == 0), "{written:x?}");
    }

    #[test]
    fn a_truncated_mad_has_no_message(len in 0..MAD_LEN) {
        let bytes = emitted(&CmMessage::new(CmBody::Rtu(CmIds { local: 1, remote: 2 }), &[]).unwrap());
        let mad = Mad::read(&bytes[..len]);
        prop_assert_eq!(mad.is_some(), len >= MAD_LEN - MAD_BODY_LEN);
        prop_assert!(mad.is_none_or(|mad| mad.cm().is_none()));
    }

    #[test]
    fn what_softrnics_tell_each_other_comes_back(
        answers in any::<bool>(), to in any::<u32>(), from in any::<u32>(), attribute in vendor_attribute(),
        len in 0..MAD_LEN,
    ) {
        let vendor = VendorMad { answers, to: Qpn::new(to), from: Qpn::new(from), attribute };
        let mut bytes = [0xEE; MAD_LEN];
        vendor.emit_mad(0x0123_4567_89AB_CDEF, &mut bytes);
        let mad = Mad::read(&bytes).unwrap();
        prop_assert_eq!((mad.transaction_id, mad.method), (0x0123_4567_89AB_CDEF, 3));
        prop_assert!(!mad.is_cm_send() && mad.cm().is_none());
        prop_assert_eq!(mad.vendor(), Some(vendor));
        prop_assert!(Mad::read(&bytes[..len]).is_none_or(|mad| mad.vendor().is_none()));
        // Programs that share an address find the slot of the queue pair here (udp/members/program.rs).
        prop_assert_eq!(&bytes[40..43], &to.to_be_bytes()[1..]);
    }

    /// Other vendors, classes, versions, methods and attributes are none of ours.
    #[test]
    fn another_vendors_mad_is_not_taken_for_ours(
        at in prop::sample::select(vec![0_usize, 1, 2, 3, 4, 5, 16, 17, 20, 21, 22, 23, 37, 38, 39]), change in 1..=u8::MAX,
        attribute in vendor_attribute(),
    ) {
        let vendor = VendorMad { answers: false, to: Qpn::new(7), from: Qpn::new(8), attribute };
        let mut bytes = [0; MAD_LEN];
        vendor.emit_mad(1, &mut bytes);
        bytes[at] ^= change;
        let read = Mad::read(&bytes).unwrap().vendor();
        let is_other = |read: VendorMad| at == 17 && read.attribute.name() != attribute.name();
        let is_answer = |read| (at, change) == (23, 1) && read == VendorMad { answers: true, ..vendor };
        prop_assert!(read.is_none_or(|read| is_other(read) || is_answer(read)), "{:?}", read);
    }

    #[test]
    fn the_private_header_comes_back(v4 in any::<bool>(), port in any::<u16>(), a in any::<u128>(), b in any::<u128>()) {
        let addresses = if v4 {
            AddressPair::V4 { src: Ipv4Addr::from_bits(a as u32), dst: Ipv4Addr::from_bits(b as u32) }
        } else {
            AddressPair::V6 { src: Ipv6Addr::from_bits(a), dst: Ipv6Addr::from_bits(b) }
        };
        let header = PrivateHeader { version: 0, src_port: port, addresses };
        let bytes = header.to_bytes();
        prop_assert_eq!(PrivateHeader::read(&bytes), Some(header));
        prop_assert_eq!(AddressPair::new(addresses.src(), addresses.dst()), Some(addresses));
        prop_assert_eq!(PrivateHeader::read(&bytes[..PrivateHeader::LEN - 1]), None);
    }

    #[test]
    fn service_ids_contain_port_spaces_and_ports(port in any::<u16>(), other in any::<u64>()) {
        for space in PortSpace::ALL {
            prop_assert_eq!(ServiceId::of_port(space, port).port(), Some((space, port)));
        }
        if let Some((space, port)) = ServiceId(other).port() {
            prop_assert_eq!(ServiceId::of_port(space, port).0, other);
        }
    }
}

#[test]
fn private_data_that_is_too_long_is_refused() {
    let long = [0; MAD_BODY_LEN];
    for attribute in ATTRIBUTES {
        let zeros = [0; MAD_BODY_LEN];
        let body = *CmMessage::read(attribute, &zeros).unwrap().body();
        let room = body.private_room();
        assert!(CmMessage::new(body, &long[..room]).is_some(), "{attribute:#x}");
        assert!(CmMessage::new(body, &long[..room + 1]).is_none(), "{attribute:#x}");
    }
    assert!(CmInfo::<7>::new(&long[..72]).is_some_and(|info| info.bytes().len() == 72));
    assert!(CmInfo::<7>::new(&long[..73]).is_none());
    assert_eq!(CmMessage::read(0x0F, &long), None);
    assert_eq!(CmMessage::read(0x1B, &long), None);
}

#[test]
fn known_frames_are_rewritten_byte_for_byte() {
    let mut seen = 0;
    for vector in vectors::load().iter().filter(|vector| vector.name.contains("-cm-")) {
        let frame = Frame::parse(&vector.bytes).unwrap();
        let packet = Packet::parse(frame.transport).unwrap();
        let mad = Mad::read(packet.payload).unwrap();
        let message = mad.cm().expect(vector.name);
        let mut bytes = [0; MAD_LEN];
        message.emit_mad(mad.transaction_id, mad.attribute_modifier, &mut bytes);
        assert_eq!(bytes, packet.payload, "{}", vector.name);
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} frames");
}

#[test]
fn a_request_has_its_fields_at_their_offsets() {
    let service = ServiceId::of_port(PortSpace::Tcp, 7174);
    assert_eq!(service.0, 0x0106_1C06, "rping's");
    let request = Req { service, qpn: Qpn::new(0x11), mtu_code: Bits::new(3), ..Req::default() };
    assert_eq!(request.mtu(), Some(Mtu::B1024));
    let addresses = AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    let header = PrivateHeader { version: 0, src_port: 40000, addresses }.to_bytes();
    let bytes = emitted(&CmMessage::new(CmBody::Req(request), &header).unwrap());
    assert_eq!(bytes[24 + 140..][..4], [0, 0x40, 0x9C, 0x40]);
    assert_eq!(bytes[24 + 156..][..4], [10, 0, 0, 1]);
    assert_eq!(bytes[24 + 172..][..4], [10, 0, 0, 2]);
}
