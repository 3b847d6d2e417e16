//! Packets by the names of their fields: built from them, broken or not, and taken apart into them.

use std::collections::BTreeMap;

use softrnic_wire::{Header, ICRC_LEN, NakCode, OPCODES, OpcodeInfo, Packet, Qpn, Syndrome};

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

/// A packet in one readable line, in the words of scripts.
pub fn describe(bytes: &[u8]) -> String {
    let packet = match Packet::parse(bytes) {
        Err(error) => return format!("{error}"),
        Ok(packet) => packet,
    };
    if packet.bth.dest_qpn == Qpn::GSI
        && let Some(message) = message::describe(packet.payload)
    {
        return message;
    }
    let Some((info, fields, payload)) = take_apart(bytes) else { return "not a packet".into() };
    let mut text = info.name.to_owned();
    for name in names().filter(|name| !UNTOLD.contains(name)) {
        match fields.get(name) {
            Some(0) if FLAGS.contains(&name) => {}
            Some(_) if FLAGS.contains(&name) => text += &format!(" {name}"),
            Some(&value) if name == "syndrome" => text += &format!(" {}", said(name, value)),
            Some(&value) => text += &format!(" {name} {}", said(name, value)),
            None => {}
        }
    }
    if !payload.is_empty() {
        text += &format!(" len {}", payload.len());
    }
    text
}

/// Fields of one bit that scripts name where they are set.
pub const FLAGS: [&str; 5] = ["A", "SE", "M", "FECN", "BECN"];

/// What a line does not say of a packet: the name has the opcode, and the others are the same in all.
const UNTOLD: [&str; 5] = ["opcode", "pad", "tver", "pkey", "M"];

/// The names of all fields, each once, in the order in which the headers have them.
fn names() -> impl Iterator<Item = &'static str> {
    let is_first = |at: usize| LAYOUT[..at].iter().all(|(name, ..)| *name != LAYOUT[at].0);
    (0..LAYOUT.len()).filter(move |&at| is_first(at)).map(|at| LAYOUT[at].0)
}

/// Which fields are not what they should be, and what they are. The one that says most comes first: a NAK has another
/// MSN than an ACK as well.
pub fn differences(found: &Fields, expected: &Fields) -> Vec<String> {
    let first = ["syndrome"].into_iter();
    let all = first.chain(names().filter(|&name| name != "syndrome"));
    all.filter_map(|name| {
        let expected = *expected.get(name)?;
        match found.get(name) {
            Some(&found) if found == expected => None,
            Some(&found) => Some(format!("{name} is {}, not {}", said(name, found), said(name, expected))),
            None => Some(format!("there is no {name}")),
        }
    })
    .collect()
}

/// The value of a field, as scripts have it.
fn said(name: &str, value: u64) -> String {
    match (name, Syndrome::from_byte(value as u8)) {
        ("syndrome", Syndrome::Ack(_)) => "ACK".into(),
        ("syndrome", Syndrome::Nak(NakCode::PsnSequence)) => "SEQ".into(),
        ("syndrome", Syndrome::Nak(NakCode::InvalidRequest)) => "INVALID".into(),
        ("syndrome", Syndrome::Nak(NakCode::RemoteAccess)) => "ACCESS".into(),
        ("syndrome", Syndrome::Nak(NakCode::RemoteOperational)) => "OPERATIONAL".into(),
        ("syndrome", Syndrome::RnrNak(_)) => format!("RNR {}", value & 0x1F),
        ("psn" | "msn" | "dma" | "A" | "SE" | "M" | "FECN" | "BECN" | "pad", _) => value.to_string(),
        _ => format!("{value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledge(syndrome: u64, msn: u64) -> (Vec<u8>, Fields) {
        let info = opcode("RC Acknowledge").expect("it is in the table");
        let told = [("opcode", info.opcode.byte().into()), ("qp", 0x11), ("psn", 100), ("pkey", 0xFFFF)];
        let fields =
            Fields::from_iter(told.into_iter().chain([("syndrome", syndrome), ("msn", msn), ("M", 1)]));
        (build(info, &fields, &[]), fields)
    }

    #[test]
    fn a_packet_is_described_in_the_script_language() {
        assert_eq!(describe(&acknowledge(0x62, 3).0), "RC Acknowledge qp 0x11 psn 100 ACCESS msn 3");
        assert_eq!(describe(&acknowledge(0x1F, 0).0), "RC Acknowledge qp 0x11 psn 100 ACK msn 0");
        assert_eq!(describe(&acknowledge(0x2C, 0).0), "RC Acknowledge qp 0x11 psn 100 RNR 12 msn 0");
        assert!(!describe(&[1, 2, 3]).is_empty());
    }

    #[test]
    fn all_differences_are_reported_and_a_nak_first() {
        let (found, expected) = (acknowledge(0x60, 0).1, acknowledge(0x1F, 1).1);
        assert_eq!(differences(&found, &expected), ["syndrome is SEQ, not ACK", "msn is 0, not 1"]);
        assert_eq!(differences(&found, &Fields::from([("imm", 7)])), ["there is no imm"]);
        assert_eq!(differences(&found, &found), [""; 0]);
    }
}
