//! Frames from independent sources: each verifies, parses as what it should be, and is rebuilt byte for byte from what
//! was parsed.

use softrnic_wire::*;

use super::vectors::{Kind, Vector, load};

/// Frames with bits that we never send: offset from the BTH, and the value
/// that the sender has there instead of zero.
const RESERVED_BITS_SET: &[(&str, usize, u8)] = &[
    // This NIC sets a reserved bit next to FECN and BECN, outside the ICRC, in data packets only.
    ("hw-capture-15", 4, 0x10),
    ("hw-capture-115", 4, 0x10),
];

#[test]
fn there_are_72_frames_of_every_kind() {
    let vectors = load();
    assert_eq!(vectors.len(), 72);
    let count = |kind| vectors.iter().filter(|v| v.kind == kind).count();
    assert_eq!((count(Kind::Real), count(Kind::Independent), count(Kind::Synthetic)), (43, 3, 26));
}

#[test]
fn every_icrc_verifies() {
    for v in load() {
        match v.roce_v1() {
            Some(frame) => {
                let (covered, received) = frame.transport.split_last_chunk().unwrap();
                assert_eq!(icrc_roce_v1(frame.grh, covered).to_le_bytes(), *received, "{}", v.name);
            }
            None => {
                let frame = v.frame();
                assert!(verify(&frame.facts(), frame.transport), "{}", v.name);
                assert!(frame.ip_checksum_ok(), "{}", v.name);
            }
        }
    }
}

#[test]
fn every_flipped_bit_inside_the_icrc_is_noticed_and_every_masked_one_is_not() {
    for v in load().iter().filter(|v| v.roce_v1().is_none()) {
        let l3 = 14;
        let (masked, v6): (&[usize], _) = match v.frame().header.ip.facts {
            IpFacts::V4 { .. } => (&[1, 8, 10, 11, 26, 27, 32], false),
            IpFacts::V6 { .. } => (&[1, 2, 3, 7, 46, 47, 52], true),
        };
        for at in l3..v.bytes.len() {
            for bit in 0..8 {
                let mut damaged = v.bytes.clone();
                damaged[at] ^= 1 << bit;
                let is_masked = masked.contains(&(at - l3)) || (v6 && at == l3 && bit < 4);
                let accepted = Frame::parse(&damaged).is_ok_and(|f| verify(&f.facts(), f.transport));
                assert_eq!(accepted, is_masked, "{} byte {at} bit {bit}", v.name);
            }
        }
    }
}

#[test]
fn every_frame_parses_as_the_opcode_it_is_said_to_be() {
    for v in load() {
        let packet = Packet::parse(v.transport()).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        assert_eq!(packet.body.opcode().name(), v.opcode, "{}", v.name);
        let info = packet.body.opcode().info();
        let fits =
            Mtu::ALL.iter().any(|&mtu| info.payload.allows(packet.payload.len(), mtu.bytes() as usize));
        assert!(fits, "{}: {} bytes of payload", v.name, packet.payload.len());
    }
}

#[test]
fn every_frame_is_rebuilt_byte_for_byte() {
    let mut exceptions = 0;
    for v in load() {
        let mut rebuilt = v.rebuild();
        let bth = v.bytes.len() - v.transport().len();
        for (_, at, value) in RESERVED_BITS_SET.iter().filter(|(name, ..)| *name == v.name) {
            assert_eq!(rebuilt[bth + at], 0, "{}: not an exception any more", v.name);
            rebuilt[bth + at] = *value;
            exceptions += 1;
        }
        assert_eq!(rebuilt, v.bytes, "{}", v.name);
    }
    assert_eq!(exceptions, RESERVED_BITS_SET.len());
}

#[test]
fn the_id_of_every_ipv4_frame_is_recovered_from_its_icrc() {
    for v in load().iter().filter(|v| v.roce_v1().is_none()) {
        let frame = v.frame();
        let expected = match frame.header.ip.facts {
            IpFacts::V4 { id, flags_frag: DF, .. } => Some(id),
            // A sender that clears DF can be told from damage only where the IP header is visible.
            IpFacts::V4 { .. } => None,
            IpFacts::V6 { .. } => Some(0),
        };
        assert_eq!(verify_unknown_id(&frame.facts(), frame.transport), expected, "{}", v.name);
    }
}

#[test]
fn a_cleared_df_is_recovered_with_the_id() {
    let vectors = load();
    let v = vectors.iter().find(|v| v.name == "open-rdma-write-only-v4").unwrap();
    let frame = v.frame();
    let IpFacts::V4 { src, dst, .. } = frame.facts().ip else { panic!("not IPv4") };
    let guess = UdpFacts { ip: IpFacts::v4(src, dst), ..frame.facts() };
    let (covered, received) = frame.transport.split_last_chunk().unwrap();
    let recovered = recover_v4_id(u32::from_le_bytes(*received), icrc(&guess, covered), covered.len());
    assert_eq!(recovered, Some((1, 0)));
}

#[test]
fn a_flush_is_accepted_in_the_standard_form_and_in_that_of_rxe() {
    let vectors = load();
    let v = vectors.iter().find(|v| v.name == "syn-rc-flush-v4").unwrap();
    let frame = v.frame();
    let facts = frame.facts();
    assert_eq!(verify_either_flush(&facts, frame.transport), Some(IcrcForm::Standard));

    let mut rxe = frame.transport.to_vec();
    rxe.splice(32.., [0x9F, 0xF2, 0xB5, 0x1A]);
    assert_eq!(rxe_flush_icrc(&facts, &rxe[..32]), 0x1AB5_F29F);
    assert!(!verify(&facts, &rxe));
    assert_eq!(verify_either_flush(&facts, &rxe), Some(IcrcForm::RxeFlush));
    assert_eq!(verify_unknown_id_rxe_flush(&facts, &rxe), Some(0x1234));

    rxe[20] ^= 1;
    assert_eq!(verify_either_flush(&facts, &rxe), None);
    assert_eq!(verify_unknown_id_rxe_flush(&facts, &rxe), None);
    rxe[20] ^= 1;
    rxe[0] = 0x0C;
    assert_eq!(verify_unknown_id_rxe_flush(&facts, &rxe), None, "only FLUSH has a second form");
}

#[test]
fn a_cnp_is_built_as_captured() {
    let vectors = load();
    let v = vectors.iter().find(|v| v.name == "syn-cnp-v4").unwrap();
    let frame = v.frame();
    let mut buf = [0xAA; CNP_LEN];
    assert_eq!(emit_cnp(&frame.facts(), Qpn::new(0x12), Pkey::DEFAULT, &mut buf), CNP_LEN);
    assert_eq!(buf, frame.transport);
}

/// The worked example of a ConnectX-4 Lx notification: DSCP 48, ECT(0), source port 0.
#[test]
fn a_hardware_cnp_verifies() {
    let facts = UdpFacts {
        ip: IpFacts::V4 {
            src: [10, 0, 17, 1].into(),
            dst: [10, 0, 18, 1].into(),
            id: 0x718C,
            flags_frag: DF,
        },
        src_port: 0,
        dst_port: ROCE_UDP_PORT,
    };
    let mut buf = [0; CNP_LEN];
    emit_cnp(&facts, Qpn::new(0x118), Pkey::DEFAULT, &mut buf);
    assert_eq!(buf[28..], [0x82, 0xFD, 0x00, 0x2A]);
}

#[test]
fn ethernet_padding_is_not_taken_for_payload() {
    for v in load().iter().filter(|v| v.roce_v1().is_none()) {
        let mut padded: Vec<u8> = v.bytes.clone();
        padded.extend([0xEE; 9]);
        assert_eq!(Frame::parse(&padded), Frame::parse(&v.bytes), "{}", v.name);
    }
}

impl Vector {
    fn roce_v1(&self) -> Option<RoceV1Frame<'_>> {
        match Frame::parse(&self.bytes) {
            Err(FrameError::RoceV1) => Some(RoceV1Frame::parse(&self.bytes).unwrap()),
            _ => None,
        }
    }

    fn frame(&self) -> Frame<'_> {
        Frame::parse(&self.bytes).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn transport(&self) -> &[u8] {
        match self.roce_v1() {
            Some(frame) => frame.transport,
            None => self.frame().transport,
        }
    }

    /// Emits the whole frame from parsed values alone. A UDP checksum that is not 0, which only
    /// scapy's frames have, and version 1's route header are copied: we never send either.
    fn rebuild(&self) -> Vec<u8> {
        let packet = Packet::parse(self.transport()).unwrap();
        let mut buf = vec![0xAA; self.bytes.len()];
        let bth = match self.roce_v1() {
            Some(frame) => {
                let bth = self.bytes.len() - frame.transport.len();
                buf[..bth].copy_from_slice(&self.bytes[..bth]);
                bth
            }
            None => {
                let frame = self.frame();
                let bth = frame.header.emit(&mut buf, frame.transport.len());
                buf[bth - 2..bth].copy_from_slice(&frame.udp_checksum.to_be_bytes());
                bth
            }
        };
        let headers = packet.headers();
        let payload = bth + headers.emit(&mut buf[bth..]);
        let pad = payload + packet.payload.len();
        buf[payload..pad].copy_from_slice(packet.payload);
        buf[pad..].fill(0);
        assert_eq!(bth + headers.transport_len(packet.payload.len()), buf.len(), "{}", self.name);
        match self.roce_v1() {
            Some(frame) => {
                let at = buf.len() - ICRC_LEN;
                let icrc = icrc_roce_v1(frame.grh, &buf[bth..at]);
                buf[at..].copy_from_slice(&icrc.to_le_bytes());
            }
            None => seal(&self.frame().facts(), &mut buf[bth..]),
        }
        buf
    }
}
