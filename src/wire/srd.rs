//! Packets of scalable reliable datagrams (SRD): a manufacturer's opcodes of the BTH, 0xC0 to 0xDF, which only SoftRNICs
//! speak with each other. `docs/wire-extensions.md` has the format and the rules.
//!
//! They are apart from [`crate::Packet`]: to all else that reads packets they are what they are to every other RoCE device,
//! packets of an unknown opcode.

use core::fmt;

use crate::bytes::{Reader, Writer};
use crate::headers::{BTH_LEN, Bth};
use crate::icrc::ICRC_LEN;
use crate::ids::{Imm, Qkey, Qpn, Rkey};
use crate::packet::ParseError;

/// The longest headers of SRD in front of a payload, those of a WRITE: payloads are that much shorter than the MTU, so that no packet is longer
/// than one of another service with an XRC header can be.
pub const SRD_HEADERS_LEN: usize = BTH_LEN + COMMON_LEN + MESSAGE_LEN + WRITE_LEN;

/// Packets that a receiver keeps apart, and so the most that a sender may have in flight.
pub const SRD_WINDOW: u32 = 512;

const COMMON_LEN: usize = 16;
const MESSAGE_LEN: usize = 8;
const WRITE_LEN: usize = 28;
const HAS_IMM: u8 = 1;

/// What an SRD packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is a body of the same name")]
pub enum SrdOpcode {
    Send = 0xC0,
    Write = 0xC1,
    ReadRequest = 0xC2,
    ReadResponse = 0xC3,
    ReadFailure = 0xC4,
    Cancel = 0xC5,
    Acknowledge = 0xC8,
    Refuse = 0xC9,
    Hello = 0xCA,
    Reset = 0xCB,
}

impl SrdOpcode {
    /// All of them.
    pub const ALL: [SrdOpcode; 10] = {
        use SrdOpcode::*;
        [Send, Write, ReadRequest, ReadResponse, ReadFailure, Cancel, Acknowledge, Refuse, Hello, Reset]
    };

    /// The one with this byte.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<SrdOpcode> {
        SrdOpcode::ALL.into_iter().find(|opcode| *opcode as u8 == byte)
    }

    /// Its name, as the other opcodes have one.
    pub const fn name(self) -> &'static str {
        match self {
            SrdOpcode::Send => "SRD SEND",
            SrdOpcode::Write => "SRD RDMA WRITE",
            SrdOpcode::ReadRequest => "SRD RDMA READ Request",
            SrdOpcode::ReadResponse => "SRD RDMA READ Response",
            SrdOpcode::ReadFailure => "SRD RDMA READ Failure",
            SrdOpcode::Cancel => "SRD Cancel",
            SrdOpcode::Acknowledge => "SRD Acknowledge",
            SrdOpcode::Refuse => "SRD Refuse",
            SrdOpcode::Hello => "SRD Hello",
            SrdOpcode::Reset => "SRD Reset",
        }
    }

    /// Whether its packets are part of messages, numbered, and sent again if they are lost.
    pub const fn is_numbered(self) -> bool {
        (self as u8) < SrdOpcode::Acknowledge as u8
    }

    /// Bytes of BTH and headers.
    pub const fn headers_len(self) -> usize {
        let own = match self {
            SrdOpcode::Send => MESSAGE_LEN + 16,
            SrdOpcode::Write => MESSAGE_LEN + WRITE_LEN,
            SrdOpcode::ReadRequest => MESSAGE_LEN + 20,
            SrdOpcode::ReadResponse | SrdOpcode::ReadFailure => MESSAGE_LEN + 4,
            SrdOpcode::Cancel => MESSAGE_LEN,
            SrdOpcode::Acknowledge => 4 + SRD_WINDOW as usize / 8,
            SrdOpcode::Refuse => 8,
            SrdOpcode::Hello | SrdOpcode::Reset => 0,
        };
        BTH_LEN + COMMON_LEN + own
    }
}

/// Whether a BTH with this opcode begins a packet of SRD.
#[inline]
pub const fn is_srd(byte: u8) -> bool {
    byte >> 5 == 0xC0 >> 5
}

/// Number of a packet within one direction of a connection: 32 bits, in circular order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SrdPsn(pub u32);

impl SrdPsn {
    /// Signed distance from `earlier`.
    #[inline]
    pub const fn distance_from(self, earlier: SrdPsn) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// The number `count` later.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> SrdPsn {
        SrdPsn(self.0.wrapping_add(count))
    }
}

/// Which message of its sender a numbered packet is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdMessage {
    /// The lowest PSN that the sender still waits for: the receiver forgets those before it.
    pub una: SrdPsn,
    /// The message. A READ's answer has the number of its request.
    pub id: u32,
}

/// A part of a message that goes to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdPart {
    /// The key of the queue pair.
    pub qkey: Qkey,
    /// Bytes of the whole message.
    pub length: u32,
    /// Where in it the payload is.
    pub offset: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdRemote {
    /// The address of the whole message.
    pub va: u64,
    /// Its key.
    pub rkey: Rkey,
}

/// What an SRD packet says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrdBody {
    /// Part of a SEND.
    Send(SrdMessage, SrdPart, Option<Imm>),
    /// Part of a WRITE.
    Write(SrdMessage, SrdPart, SrdRemote, Option<Imm>),
    /// Asks for memory; its part is the whole, from 0 on.
    ReadRequest(SrdMessage, SrdPart, SrdRemote),
    /// Part of the answer, at this offset.
    ReadResponse(SrdMessage, u32),
    /// There is no (further) answer, for the reason of this number.
    ReadFailure(SrdMessage, u8),
    /// The message will not be completed.
    Cancel(SrdMessage),
    /// All before the PSN of the packet have come, and those that the bits say: bit `i` stands for the PSN `i` later.
    Acknowledge {
        /// The last that came.
        latest: SrdPsn,
        /// What came besides.
        bits: [u64; SRD_WINDOW as usize / 64],
    },
    /// The packet with this PSN came, and its message was refused for the reason of this number.
    Refuse {
        /// The message.
        id: u32,
        /// The reason.
        code: u8,
    },
    /// Who sends this wants to know whether the receiver's tag is still in use.
    Hello,
    /// The receiver's tag names no connection.
    Reset,
}

impl SrdBody {
    /// The opcode that this is sent with.
    pub const fn opcode(&self) -> SrdOpcode {
        match self {
            SrdBody::Send(..) => SrdOpcode::Send,
            SrdBody::Write(..) => SrdOpcode::Write,
            SrdBody::ReadRequest(..) => SrdOpcode::ReadRequest,
            SrdBody::ReadResponse(..) => SrdOpcode::ReadResponse,
            SrdBody::ReadFailure(..) => SrdOpcode::ReadFailure,
            SrdBody::Cancel(..) => SrdOpcode::Cancel,
            SrdBody::Acknowledge { .. } => SrdOpcode::Acknowledge,
            SrdBody::Refuse { .. } => SrdOpcode::Refuse,
            SrdBody::Hello => SrdOpcode::Hello,
            SrdBody::Reset => SrdOpcode::Reset,
        }
    }

    /// The message of a numbered packet.
    pub const fn message(&self) -> Option<SrdMessage> {
        match *self {
            SrdBody::Send(message, ..)
            | SrdBody::Write(message, ..)
            | SrdBody::ReadRequest(message, ..)
            | SrdBody::ReadResponse(message, _)
            | SrdBody::ReadFailure(message, _)
            | SrdBody::Cancel(message) => Some(message),
            _ => None,
        }
    }

    /// The immediate data.
    pub const fn imm(&self) -> Option<Imm> {
        match *self {
            SrdBody::Send(_, _, imm) | SrdBody::Write(_, _, _, imm) => imm,
            _ => None,
        }
    }
}

/// The headers of an SRD packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdHeaders {
    /// Base transport header. Its PSN is the low 24 bits of `psn`.
    pub bth: Bth,
    /// The sender's queue pair.
    pub src_qpn: Qpn,
    /// The sender's name of the connection, chosen at random.
    pub src_tag: u32,
    /// The receiver's, 0 until the sender knows it.
    pub dst_tag: u32,
    /// The packet's number; of an ACK the lowest that is missing, of a refusal that of the refused packet.
    pub psn: SrdPsn,
    /// What it is.
    pub body: SrdBody,
}

/// A received SRD packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrdPacket<'a> {
    /// Its headers.
    pub headers: SrdHeaders,
    /// Its payload without padding.
    pub payload: &'a [u8],
    /// The ICRC as received; parsing does not verify it.
    pub icrc: [u8; ICRC_LEN],
}

impl<'a> SrdPacket<'a> {
    /// Reads a packet from exactly the bytes between the UDP header and the end of the ICRC.
    ///
    /// # Errors
    /// See [`ParseError`].
    pub fn parse(bytes: &'a [u8]) -> Result<SrdPacket<'a>, ParseError> {
        let (covered, &icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(ParseError::TooShort)?;
        let mut r = Reader(covered);
        let (byte, tver, bth) = Bth::read(&mut r).ok_or(ParseError::TooShort)?;
        if tver != 0 {
            return Err(ParseError::BadTver(tver));
        }
        let opcode = SrdOpcode::from_byte(byte).ok_or(ParseError::UnknownOpcode(byte))?;
        let headers = SrdHeaders::read(opcode, bth, &mut r).ok_or(ParseError::TruncatedHeaders)?;
        let padded = r.0;
        if !padded.len().is_multiple_of(4) || padded.len() < bth.pad.len() {
            return Err(ParseError::BadPadding);
        }
        let payload = &padded[..padded.len() - bth.pad.len()];
        Ok(SrdPacket { headers, payload, icrc })
    }
}

impl SrdHeaders {
    /// Bytes that [`emit`](Self::emit) writes.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.body.opcode().headers_len()
    }

    /// Bytes from the BTH to the end of the ICRC with a payload of that length.
    pub const fn transport_len(&self, payload_len: usize) -> usize {
        self.len() + payload_len + self.bth.pad.len() + ICRC_LEN
    }

    /// Writes the headers to the front of `buf` and returns their length.
    ///
    /// # Panics
    /// When `buf` is shorter than [`len`](Self::len).
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let len = self.len();
        let mut w = Writer(&mut buf[..len]);
        self.bth.write_byte(self.body.opcode() as u8, &mut w);
        let flags = if self.body.imm().is_some() { HAS_IMM } else { 0 };
        w.u32(u32::from(flags) << 24 | self.src_qpn.get());
        w.u32(self.src_tag);
        w.u32(self.dst_tag);
        w.u32(self.psn.0);
        self.body.write(&mut w);
        debug_assert!(w.0.is_empty());
        len
    }

    fn read(opcode: SrdOpcode, bth: Bth, r: &mut Reader<'_>) -> Option<SrdHeaders> {
        let word = r.u32()?;
        let has_imm = (word >> 24) as u8 & HAS_IMM != 0;
        let (src_tag, dst_tag, psn) = (r.u32()?, r.u32()?, SrdPsn(r.u32()?));
        let body = SrdBody::read(opcode, has_imm, r)?;
        Some(SrdHeaders { bth, src_qpn: Qpn::new(word), src_tag, dst_tag, psn, body })
    }
}

impl SrdBody {
    fn write(&self, w: &mut Writer<'_>) {
        if let Some(SrdMessage { una, id }) = self.message() {
            w.u32(una.0);
            w.u32(id);
        }
        match *self {
            SrdBody::Send(_, part, imm) => {
                part.write(w);
                w.put(imm.unwrap_or_default().0);
            }
            SrdBody::Write(_, part, remote, imm) => {
                part.write(w);
                w.put(imm.unwrap_or_default().0);
                remote.write(w);
            }
            SrdBody::ReadRequest(_, SrdPart { qkey, length, .. }, remote) => {
                w.u32(qkey.0);
                w.u32(length);
                remote.write(w);
            }
            SrdBody::ReadResponse(_, offset) => w.u32(offset),
            SrdBody::ReadFailure(_, code) => w.put([code, 0, 0, 0]),
            SrdBody::Acknowledge { latest, bits } => {
                w.u32(latest.0);
                bits.iter().for_each(|word| w.u64(*word));
            }
            SrdBody::Refuse { id, code } => {
                w.u32(id);
                w.put([code, 0, 0, 0]);
            }
            SrdBody::Cancel(_) | SrdBody::Hello | SrdBody::Reset => {}
        }
    }

    fn read(opcode: SrdOpcode, has_imm: bool, r: &mut Reader<'_>) -> Option<SrdBody> {
        let mut message = SrdMessage { una: SrdPsn(0), id: 0 };
        if opcode.is_numbered() {
            message = SrdMessage { una: SrdPsn(r.u32()?), id: r.u32()? };
        }
        Some(match opcode {
            SrdOpcode::Send => {
                let part = SrdPart::read(r)?;
                SrdBody::Send(message, part, read_imm(has_imm, r)?)
            }
            SrdOpcode::Write => {
                let part = SrdPart::read(r)?;
                let imm = read_imm(has_imm, r)?;
                SrdBody::Write(message, part, SrdRemote::read(r)?, imm)
            }
            SrdOpcode::ReadRequest => {
                let part = SrdPart { qkey: Qkey(r.u32()?), length: r.u32()?, offset: 0 };
                SrdBody::ReadRequest(message, part, SrdRemote::read(r)?)
            }
            SrdOpcode::ReadResponse => SrdBody::ReadResponse(message, r.u32()?),
            SrdOpcode::ReadFailure => SrdBody::ReadFailure(message, r.take::<4>()?[0]),
            SrdOpcode::Cancel => SrdBody::Cancel(message),
            SrdOpcode::Acknowledge => {
                let latest = SrdPsn(r.u32()?);
                let mut bits = [0; SRD_WINDOW as usize / 64];
                for word in &mut bits {
                    *word = r.u64()?;
                }
                SrdBody::Acknowledge { latest, bits }
            }
            SrdOpcode::Refuse => SrdBody::Refuse { id: r.u32()?, code: r.take::<4>()?[0] },
            SrdOpcode::Hello => SrdBody::Hello,
            SrdOpcode::Reset => SrdBody::Reset,
        })
    }
}

/// The field is there in any case.
fn read_imm(has_imm: bool, r: &mut Reader<'_>) -> Option<Option<Imm>> {
    let imm = Imm(*r.take()?);
    Some(has_imm.then_some(imm))
}

impl SrdPart {
    fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.qkey.0);
        w.u32(self.length);
        w.u32(self.offset);
    }

    fn read(r: &mut Reader<'_>) -> Option<SrdPart> {
        Some(SrdPart { qkey: Qkey(r.u32()?), length: r.u32()?, offset: r.u32()? })
    }
}

impl SrdRemote {
    fn write(&self, w: &mut Writer<'_>) {
        w.u64(self.va);
        w.u32(self.rkey.0);
    }

    fn read(r: &mut Reader<'_>) -> Option<SrdRemote> {
        Some(SrdRemote { va: r.u64()?, rkey: Rkey(r.u32()?) })
    }
}

impl fmt::Display for SrdPsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::headers::Pad;
    use crate::{Opcode, Packet, Psn};

    const MESSAGE: SrdMessage = SrdMessage { una: SrdPsn(0x0102_0304), id: 0x0506_0708 };
    const PART: SrdPart = SrdPart { qkey: Qkey(0x1111_2222), length: 9000, offset: 4032 };
    const REMOTE: SrdRemote = SrdRemote { va: 0x1122_3344_5566_7788, rkey: Rkey(0x99AA_BBCC) };

    fn bodies() -> Vec<SrdBody> {
        let imm = Some(Imm([1, 2, 3, 4]));
        vec![
            SrdBody::Send(MESSAGE, PART, None),
            SrdBody::Send(MESSAGE, PART, imm),
            SrdBody::Write(MESSAGE, PART, REMOTE, None),
            SrdBody::Write(MESSAGE, PART, REMOTE, imm),
            SrdBody::ReadRequest(MESSAGE, SrdPart { offset: 0, ..PART }, REMOTE),
            SrdBody::ReadResponse(MESSAGE, 77),
            SrdBody::ReadFailure(MESSAGE, 7),
            SrdBody::Cancel(MESSAGE),
            SrdBody::Acknowledge { latest: SrdPsn(5), bits: [1, u64::MAX, 0, 1 << 63, 2, 3, 4, 5] },
            SrdBody::Refuse { id: 12, code: 10 },
            SrdBody::Hello,
            SrdBody::Reset,
        ]
    }

    fn packet(body: SrdBody, payload: &[u8]) -> Vec<u8> {
        let psn = SrdPsn(0xFEDC_BA98);
        let bth = Bth { pad: Pad::for_payload(payload.len()), ..Bth::new(Qpn::new(0x3FF), Psn::new(psn.0)) };
        let headers = SrdHeaders { bth, src_qpn: Qpn::new(0xABCDEF), src_tag: 3, dst_tag: 4, psn, body };
        let mut bytes = vec![0; headers.transport_len(payload.len())];
        let at = headers.emit(&mut bytes);
        bytes[at..at + payload.len()].copy_from_slice(payload);
        let parsed = SrdPacket::parse(&bytes).expect("what was emitted");
        assert_eq!((parsed.headers, parsed.payload), (headers, payload));
        bytes
    }

    #[test]
    fn every_packet_reads_back_as_it_was_written() {
        for body in bodies() {
            packet(body, &[]);
            packet(body, b"seven B");
        }
    }

    #[test]
    fn what_is_cut_short_is_no_packet() {
        for body in bodies() {
            let bytes = packet(body, &[]);
            for len in 0..bytes.len() {
                assert!(SrdPacket::parse(&bytes[..len]).is_err(), "{body:?} of {len} B");
            }
        }
    }

    #[test]
    fn no_other_device_knows_these_opcodes() {
        for body in bodies() {
            let bytes = packet(body, &[]);
            assert!(is_srd(bytes[0]));
            assert_eq!(Packet::parse(&bytes), Err(ParseError::UnknownOpcode(bytes[0])));
        }
        for byte in 0..=u8::MAX {
            assert!(!(is_srd(byte) && Opcode::from_byte(byte).is_some()));
            assert_eq!(is_srd(byte), (0xC0..=0xDF).contains(&byte));
        }
    }

    #[test]
    fn a_write_has_the_longest_headers_of_those_with_a_payload() {
        let with_payload = SrdOpcode::ALL.into_iter().filter(|opcode| opcode.is_numbered());
        assert_eq!(with_payload.map(SrdOpcode::headers_len).max(), Some(SRD_HEADERS_LEN));
        assert_eq!(SrdOpcode::Write.headers_len(), SRD_HEADERS_LEN);
    }
}
