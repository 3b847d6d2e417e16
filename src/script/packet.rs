//! Packets by the names of their fields: built from them, broken or not, and taken apart into them.

use std::collections::BTreeMap;

use softrnic_wire::{Header, ICRC_LEN, OPCODES, OpcodeInfo, Packet, Qpn};

use crate::message;

/// Values of header fields by name.
pub type Fields = BTreeMap<&'static str, u64>;

/// Every field that a script can name, with its place in which header: offset and length in bits.
const LAYOUT: &[(&str, Header, usize, usize)] = &[
    ("opcode", Header::Bth, 0, 8),
    ("SE", Header::Bth, 8, 1),
    ("M", Header::Bth, 9, 1),
    ("pad", Header::Bth, 10, 2),
    ("tver", Header::Bth, 12, 4),
    ("pkey", Header::Bth, 16, 16),
    ("FECN", Header::Bth, 32, 1),
    ("BECN", Header::Bth, 33, 1),
    ("qp", Header::Bth, 40, 24),
    ("A", Header::Bth, 64, 1),
    ("psn", Header::Bth, 72, 24),
    ("srq", Header::XrcEth, 8, 24),
    ("va", Header::Reth, 0, 64),
    ("key", Header::Reth, 64, 32),
    ("dma", Header::Reth, 96, 32),
    ("va", Header::AtomicEth, 0, 64),
    ("key", Header::AtomicEth, 64, 32),
    ("swap", Header::AtomicEth, 96, 64),
    ("compare", Header::AtomicEth, 160, 64),
    ("syndrome", Header::Aeth, 0, 8),
    ("msn", Header::Aeth, 8, 24),
    ("original", Header::AtomicAckEth, 0, 64),
    ("imm", Header::ImmDt, 0, 32),
    ("inv", Header::Ieth, 0, 32),
    ("qkey", Header::Deth, 0, 32),
    ("src", Header::Deth, 40, 24),
    ("place", Header::Feth, 28, 4),
    ("select", Header::Feth, 26, 2),
];

/// The one name that a field is kept under.
pub fn field(name: &str) -> Option<&'static str> {
    LAYOUT.iter().find(|(known, ..)| *known == name).map(|(known, ..)| *known)
}

/// The opcode with this name in the table of `wire`.
pub fn opcode(name: &str) -> Option<&'static OpcodeInfo> {
    OPCODES.iter().find(|info| info.name == name)
}

/// Headers with these fields, the payload, padding, and room for the ICRC. Fields that are not given are 0.
pub fn build(info: &OpcodeInfo, fields: &Fields, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &header in headers(info).iter() {
        let at = bytes.len();
        bytes.resize(at + header.size(), 0);
        for &(name, _, offset, len) in LAYOUT.iter().filter(|(_, of, ..)| *of == header) {
            put(&mut bytes[at..], offset, len, fields.get(name).copied().unwrap_or(0));
        }
    }
    bytes.extend(payload);
    let pad = fields.get("pad").map_or(0, |&pad| pad as usize);
    bytes.resize(bytes.len() + pad + ICRC_LEN, 0);
    bytes
}

/// The fields of a packet, and its payload without padding. `None` when it is no packet at all.
pub fn take_apart(bytes: &[u8]) -> Option<(&'static OpcodeInfo, Fields, &[u8])> {
    let info = OPCODES.iter().find(|info| Some(&info.opcode.byte()) == bytes.first())?;
    let mut fields = Fields::new();
    let mut at = 0;
    for &header in headers(info).iter() {
        let part = bytes.get(at..at + header.size())?;
        for &(name, _, offset, len) in LAYOUT.iter().filter(|(_, of, ..)| *of == header) {
            fields.insert(name, get(part, offset, len));
        }
        at += header.size();
    }
    let end = bytes.len().checked_sub(ICRC_LEN + fields["pad"] as usize)?;
    Some((info, fields, bytes.get(at..end)?))
}

fn headers(info: &OpcodeInfo) -> Vec<Header> {
    let mut headers = vec![Header::Bth];
    headers.extend(info.headers);
    headers
}

pub fn put(bytes: &mut [u8], offset: usize, len: usize, value: u64) {
    for bit in 0..len {
        let place = offset + bit;
        let mask = 0x80 >> (place % 8);
        if value >> (len - 1 - bit) & 1 == 1 {
            bytes[place / 8] |= mask;
        } else {
            bytes[place / 8] &= !mask;
        }
    }
}

pub fn get(bytes: &[u8], offset: usize, len: usize) -> u64 {
    (offset..offset + len)
        .fold(0, |value, place| value << 1 | u64::from(bytes[place / 8] >> (7 - place % 8) & 1))
}

/// A packet in one readable line.
pub fn describe(bytes: &[u8]) -> String {
    match Packet::parse(bytes) {
        Err(error) => format!("{error}"),
        Ok(packet) => {
            let bth = packet.bth;
            let name = packet.body.opcode().name();
            let flags = [(bth.ack_req, " A"), (bth.solicited, " SE"), (bth.becn, " BECN")];
            let flags: String = flags.into_iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
            if bth.dest_qpn == Qpn::GSI
                && let Some(message) = message::describe(packet.payload)
            {
                return message;
            }
            let (qpn, psn, len) = (bth.dest_qpn, bth.psn, packet.payload.len());
            format!("{name} qp {qpn} psn {psn}{flags} len {len} {:?}", packet.body)
        }
    }
}
