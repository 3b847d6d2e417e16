//! Messages of the connection manager by the names of their fields, in the management datagrams that carry them.

use softrnic_wire::{CmBody, MAD_LEN, Mad};

use crate::packet::{self, Fields};
use crate::target::{Outgoing, Seal};

/// The message to QP 1 that a line is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MessageKind {
    Req,
    Mra,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
    Lap,
    Apr,
}

use MessageKind::*;

impl MessageKind {
    /// All, with their names in scripts, in the order of their attribute ids.
    pub const NAMES: [(&'static str, MessageKind); 11] = [
        ("REQ", Req),
        ("MRA", Mra),
        ("REJ", Rej),
        ("REP", Rep),
        ("RTU", Rtu),
        ("DREQ", Dreq),
        ("DREP", Drep),
        ("SIDR_REQ", SidrReq),
        ("SIDR_REP", SidrRep),
        ("LAP", Lap),
        ("APR", Apr),
    ];

    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        MessageKind::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// What the body of a received message is.
    pub fn of(body: &CmBody<'_>) -> MessageKind {
        match body {
            CmBody::Req(_) => Req,
            CmBody::Mra(_) => Mra,
            CmBody::Rej(_) => Rej,
            CmBody::Rep(_) => Rep,
            CmBody::Rtu(_) => Rtu,
            CmBody::Dreq(_) => Dreq,
            CmBody::Drep(_) => Drep,
            CmBody::SidrReq(_) => SidrReq,
            CmBody::SidrRep(_) => SidrRep,
            CmBody::Lap(_) => Lap,
            CmBody::Apr(_) => Apr,
        }
    }
}

/// Bytes of the header in front of every message.
const HEADER: usize = 24;

/// Fields of the header (IBTA 13.4.2): name, first bit, bits.
const OF_ALL: &[(&str, usize, usize)] = &[
    ("base", 0, 8),
    ("class", 8, 8),
    ("version", 16, 8),
    ("method", 24, 8),
    ("status", 32, 16),
    ("tid", 64, 64),
    ("attribute", 128, 16),
    ("modifier", 160, 32),
];

/// Fields of each message (IBTA 12.6), with their byte in it, their bit there, and their bits.
const LAYOUT: &[(&str, &[MessageKind], usize, usize, usize)] = &[
    ("id", &[Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr], 0, 0, 32),
    ("remote", &[Mra, Rej, Rep, Rtu, Dreq, Drep, Lap, Apr], 4, 0, 32),
    ("service", &[Req, SidrReq], 8, 0, 64),
    ("service", &[SidrRep], 12, 0, 64),
    ("guid", &[Req], 16, 0, 64),
    ("guid", &[Rep], 28, 0, 64),
    ("qkey", &[Req], 28, 0, 32),
    ("qkey", &[Rep], 8, 0, 32),
    ("qkey", &[SidrRep], 20, 0, 32),
    ("qpn", &[Req], 32, 0, 24),
    ("qpn", &[Rep], 12, 0, 24),
    ("qpn", &[Dreq, SidrRep], 8, 0, 24),
    ("resources", &[Req], 35, 0, 8),
    ("resources", &[Rep], 24, 0, 8),
    ("depth", &[Req], 39, 0, 8),
    ("depth", &[Rep], 25, 0, 8),
    ("transport", &[Req], 43, 5, 2),
    ("psn", &[Req], 44, 0, 24),
    ("psn", &[Rep], 20, 0, 24),
    ("cm_timeout", &[Req], 47, 0, 5),
    ("retry", &[Req], 47, 5, 3),
    ("pkey", &[Req], 48, 0, 16),
    ("pkey", &[SidrReq], 4, 0, 16),
    ("mtu", &[Req], 50, 0, 4),
    ("rnr", &[Req], 50, 5, 3),
    ("rnr", &[Rep], 27, 0, 3),
    ("srq", &[Req], 51, 4, 1),
    ("srq", &[Rep], 27, 3, 1),
    ("ext", &[Req], 51, 5, 3),
    ("gid", &[Req], 68, 0, 32),
    ("rgid", &[Req], 84, 0, 32),
    ("alt_lid", &[Req], 96, 0, 16),
    ("failover", &[Rep], 26, 5, 2),
    ("what", &[Mra, Rej], 8, 0, 2),
    ("wait", &[Mra], 9, 0, 5),
    ("reason", &[Rej], 10, 0, 16),
    ("info_len", &[Rej], 9, 0, 7),
    ("info", &[Rej], 12, 0, 64),
    ("code", &[SidrRep], 4, 0, 8),
    // The RDMA CM's own header, in front of the private data (IBTA Annex A11).
    ("header", &[Req], 140, 0, 8),
    ("header", &[SidrReq], 16, 0, 8),
    ("ip", &[Req], 141, 0, 4),
    ("ip", &[SidrReq], 17, 0, 4),
];

/// The one name that a field of this message is kept under.
pub fn field(kind: MessageKind, name: &str) -> Option<&'static str> {
    let of_all = OF_ALL.iter().find(|(known, ..)| *known == name).map(|(known, ..)| *known);
    let own = || LAYOUT.iter().find(|(known, of, ..)| *known == name && of.contains(&kind));
    of_all.or_else(|| own().map(|(known, ..)| *known))
}

/// Where a field is in the datagram: its first bit, and how many.
fn place(kind: MessageKind, name: &str) -> Option<(usize, usize)> {
    let of_all = OF_ALL.iter().find(|(known, ..)| *known == name).map(|&(_, at, len)| (at, len));
    let own = || LAYOUT.iter().find(|(known, of, ..)| *known == name && of.contains(&kind));
    of_all.or_else(|| own().map(|&(_, _, byte, bit, len)| (8 * (HEADER + byte) + bit, len)))
}

/// Gives a field of a datagram another value.
pub fn set(kind: MessageKind, bytes: &mut [u8; MAD_LEN], name: &str, value: u64) {
    if let Some((at, len)) = place(kind, name) {
        packet::put(bytes, at, len, value);
    }
}

/// The value of a field of a datagram.
pub fn get(kind: MessageKind, bytes: &[u8; MAD_LEN], name: &str) -> Option<u64> {
    place(kind, name).map(|(at, len)| packet::get(bytes, at, len))
}

/// The Q_Key of QP 1 (IBTA 10.2.5).
pub const GSI_QKEY: u64 = 0x8001_0000;

/// What the headers in front of a message say, as far as a script may change it.
pub fn carrier() -> Fields {
    Fields::from([("qkey", GSI_QKEY), ("pkey", 0xFFFF)])
}

/// The packet that takes a datagram to QP 1.
pub fn carried(payload: &[u8], mut fields: Fields) -> Vec<u8> {
    let info = packet::opcode("UD SEND Only").unwrap_or_else(|| unreachable!("it is in the table"));
    fields.extend([("opcode", info.opcode.byte().into()), ("qp", 1), ("src", 1), ("A", 1), ("M", 1)]);
    packet::build(info, &fields, payload)
}

/// A message to the peer's connection manager.
pub fn datagram(payload: &[u8]) -> Outgoing {
    Outgoing { bytes: carried(payload, carrier()), seal: Seal::Good, stranger: false, tos: 0 }
}

/// A message in one readable line, with the fields that tell most.
pub fn describe(payload: &[u8]) -> Option<String> {
    let bytes: &[u8; MAD_LEN] = payload.try_into().ok()?;
    let mad = Mad::read(bytes)?;
    let kind = MessageKind::of(mad.cm()?.body());
    let told = ["id", "remote", "qpn", "psn", "what", "reason", "code"];
    let fields = told.into_iter().filter_map(|name| Some((name, get(kind, bytes, name)?)));
    let fields: String = fields.map(|(name, value)| format!(" {name} {value:#x}")).collect();
    Some(format!("CM {}{fields}", kind.name()))
}

/// Whether a packet goes to QP 1.
pub fn is_message(packet: &[u8]) -> bool {
    packet.get(5..8) == Some(&[0, 0, 1])
}

/// The number by which its receiver knows what a message is about.
pub fn addressee(packet: &[u8]) -> Option<u32> {
    let (_, _, payload) = packet::take_apart(packet)?;
    let bytes: &[u8; MAD_LEN] = payload.try_into().ok()?;
    let kind = MessageKind::of(Mad::read(bytes)?.cm()?.body());
    get(kind, bytes, if kind == SidrRep { "id" } else { "remote" }).map(|id| id as u32)
}
