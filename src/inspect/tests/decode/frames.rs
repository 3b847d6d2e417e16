//! Frames to decode: the known-good ones of `softrnic-wire`, one of every opcode, and connection
//! messages full of random bits.

use softrnic_wire::*;

use super::common::{A, B, Capture};

/// The frames that `softrnic-wire` keeps, with their names.
pub fn known_good() -> Vec<(&'static str, Vec<u8>)> {
    let text = include_str!("../../../wire/tests/conformance/frames.txt");
    let lines: Vec<_> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let blocks = lines.as_chunks::<3>().0;
    blocks
        .iter()
        .map(|[title, _, hex]| {
            let name = title.trim_start_matches('[').split(']').next().unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (name, (0..hex.len()).step_by(2).map(byte).collect())
        })
        .collect()
}

/// A small generator of numbers that look random, the same every time.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xFF51_AFD7_ED55_8CCD) ^ (x >> 29)
    }
}

/// One packet of every opcode, headers and flags filled with noise.
pub fn every_opcode(capture: &mut Capture, noise: &mut Noise) {
    for info in &OPCODES {
        for _ in 0..3 {
            let mut headers = vec![0; info.headers_len + 64];
            headers.fill_with(|| noise.next() as u8);
            let len = match info.payload.lengths(256) {
                (shortest, longest) if shortest == longest => longest,
                _ => 1 + noise.next() as usize % 200,
            };
            headers[0] = info.opcode.byte();
            let pad = Pad::for_payload(len);
            headers[1] = headers[1] & 0xC0 | pad.get() << 4;
            headers.truncate(info.headers_len);
            headers.resize(info.headers_len + len + pad.len() + ICRC_LEN, 0);
            let packet = Packet::parse(&headers).unwrap();
            // Management datagrams are made elsewhere.
            let bth = Bth { dest_qpn: Qpn::new(packet.bth.dest_qpn.get() | 2), ..packet.bth };
            let payload: Vec<u8> = (0..len).map(|_| noise.next() as u8).collect();
            capture.packet(A, B, bth, packet.body, &payload);
        }
    }
}

/// Every connection message, its body filled with noise.
pub fn every_cm_message(capture: &mut Capture, noise: &mut Noise) {
    for attribute in (0x10..=0x16).chain([0x17, 0x18, 0x19, 0x1A]) {
        for round in 0..4 {
            let mut body = vec![0; 232];
            body.fill_with(|| noise.next() as u8);
            if round > 0 {
                // The RDMA CM's service ids and its header.
                body[8..16].copy_from_slice(&0x0000_0000_0106_1C06u64.to_be_bytes());
                if attribute == 0x10 {
                    body[141] = 0x40;
                    body[144..156].fill(0);
                    body[160..172].fill(0);
                }
            }
            capture.mad(A, B, attribute, noise.next(), &body);
        }
    }
}

/// Frames with one VLAN tag and with two.
pub fn tagged(capture: &mut Capture) {
    capture.send(A, B, 5);
    let plain = capture.frames.pop().unwrap().1;
    for tags in [&[0x81, 0x00, 0x60, 0x05][..], &[0x88, 0xA8, 0x00, 0x07, 0x81, 0x00, 0x60, 0x05]] {
        capture.frame([&plain[..12], tags, &plain[12..]].concat());
    }
}
