//! Frames that are not RoCEv2 frames, and the reason given for each.

use softrnic_wire::*;

use super::vectors::load;

#[test]
fn every_cut_of_a_frame_is_refused_as_truncated() {
    for bytes in [frame("rxe-ack-v4"), frame("rxe-send-only-v6")] {
        for cut in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..cut]), Err(FrameError::Truncated), "at {cut}");
        }
    }
    let v1 = frame("mlx-rocev1-ack");
    for cut in 0..v1.len() {
        assert_eq!(RoceV1Frame::parse(&v1[..cut]), Err(FrameError::Truncated), "at {cut}");
    }
}

#[test]
fn fragments_are_refused_in_both_families() {
    assert_eq!(refusal("rxe-ack-v4", &[(20, 0x20)]), FrameError::Fragment, "more fragments");
    assert_eq!(refusal("rxe-ack-v4", &[(20, 0x00), (21, 1)]), FrameError::Fragment, "offset");
    assert_eq!(refusal("rxe-send-only-v6", &[(20, 44)]), FrameError::Fragment);
}

#[test]
fn packets_other_than_udp_over_plain_ip_are_refused() {
    assert_eq!(refusal("rxe-ack-v4", &[(23, 6)]), FrameError::NotUdp(6));
    assert_eq!(refusal("rxe-send-only-v6", &[(20, 0)]), FrameError::NotUdp(0), "hop-by-hop options");
    assert_eq!(refusal("rxe-ack-v4", &[(14, 0x46)]), FrameError::IpOptions(6));
    assert_eq!(refusal("rxe-ack-v4", &[(14, 0x44)]), FrameError::BadLength);
    assert_eq!(refusal("rxe-ack-v4", &[(14, 0x65)]), FrameError::BadIpVersion(6));
    assert_eq!(refusal("rxe-send-only-v6", &[(14, 0x45)]), FrameError::BadIpVersion(4));
    assert_eq!(refusal("rxe-ack-v4", &[(13, 0x06)]), FrameError::NotIp(EtherType(0x0806)));
    assert_eq!(refusal("rxe-ack-v4", &[(37, 0xB8)]), FrameError::OtherPort(0x12B8));
    assert_eq!(refusal("mlx-rocev1-ack", &[]), FrameError::RoceV1);
    assert_eq!(
        RoceV1Frame::parse(&frame("rxe-ack-v4")),
        Err(FrameError::NotIp(EtherType::IPV4)),
        "version 2 is not version 1"
    );
}

#[test]
fn lengths_that_disagree_are_refused() {
    assert_eq!(refusal("rxe-ack-v4", &[(39, 0x1B)]), FrameError::BadLength, "UDP shorter than IP");
    assert_eq!(refusal("rxe-ack-v4", &[(39, 0x1D)]), FrameError::BadLength, "UDP longer than IP");
    assert_eq!(refusal("rxe-ack-v4", &[(17, 0x1B)]), FrameError::BadLength, "IP too short for UDP");
    assert_eq!(refusal("rxe-ack-v4", &[(17, 0x13)]), FrameError::BadLength, "IP too short for itself");
    assert_eq!(refusal("rxe-ack-v4", &[(17, 0x31)]), FrameError::Truncated, "IP longer than the frame");
}

#[test]
fn two_vlan_tags_are_read_and_a_third_is_not() {
    let plain = frame("rxe-ack-v4");
    let tagged = |tags: &[[u8; 4]]| {
        let mut bytes = plain[..12].to_vec();
        bytes.extend(tags.concat());
        bytes.extend(&plain[12..]);
        bytes
    };
    let inner = [0x81, 0x00, 0x60, 0x05];
    let outer = [0x88, 0xA8, 0x00, 0x07];
    let one = tagged(&[inner]);
    let eth = Frame::parse(&one).unwrap().header.eth;
    assert_eq!((eth.vlan, eth.outer_vlan), (Some(VlanTag::new(5, 3)), None));

    let two = tagged(&[outer, inner]);
    let parsed = Frame::parse(&two).unwrap();
    let service = VlanTag { tpid: EtherType::SERVICE_VLAN, tci: 7 };
    assert_eq!(
        (parsed.header.eth.vlan, parsed.header.eth.outer_vlan),
        (Some(VlanTag::new(5, 3)), Some(service))
    );
    assert!(verify(&parsed.facts(), parsed.transport), "tags are outside the ICRC");

    let three = tagged(&[outer, inner, inner]);
    assert_eq!(Frame::parse(&three), Err(FrameError::NotIp(EtherType::VLAN)));
}

#[test]
fn a_wrong_ip_checksum_is_reported_but_not_refused() {
    let mut bytes = frame("rxe-ack-v4");
    bytes[24] ^= 1;
    assert!(!Frame::parse(&bytes).unwrap().ip_checksum_ok());
}

#[test]
fn packets_of_another_version_or_unknown_opcode_are_refused() {
    let bytes = frame("rxe-ack-v4");
    let mut transport = Frame::parse(&bytes).unwrap().transport.to_vec();
    transport[1] = 3;
    assert_eq!(Packet::parse(&transport), Err(ParseError::BadTver(3)));
    transport[1] = 0;
    for (opcode, error) in [
        (0x15, ParseError::UnknownOpcode(0x15)),
        (0x44, ParseError::Unsupported(0x44)),
        (0x80, ParseError::UnknownOpcode(0x80)),
        (0xC0, ParseError::UnknownOpcode(0xC0)),
    ] {
        transport[0] = opcode;
        assert_eq!(Packet::parse(&transport), Err(error));
    }
}

fn frame(name: &str) -> Vec<u8> {
    load().into_iter().find(|v| v.name == name).expect("no such frame").bytes
}

fn refusal(name: &str, changes: &[(usize, u8)]) -> FrameError {
    let mut bytes = frame(name);
    for &(at, value) in changes {
        bytes[at] = value;
    }
    Frame::parse(&bytes).expect_err("accepted")
}
