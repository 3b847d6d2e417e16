//! A whole transport packet: what UDP carries, from the BTH to the ICRC.

use core::fmt;

use crate::body::Body;
use crate::bytes::{Reader, Writer};
use crate::headers::{BTH_LEN, Bth};
use crate::icrc::ICRC_LEN;
use crate::opcode::{Header, Opcode, Transport};

/// The longest BTH and extended headers of any opcode: an XRC atomic.
pub const MAX_HEADERS_LEN: usize = BTH_LEN + Header::XrcEth.size() + Header::AtomicEth.size();

/// A received packet, checked as far as possible without knowing the QP. The caller that knows the path MTU checks
/// payload lengths against it, with [`crate::PayloadRule::allows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Opcode and extended headers.
    pub body: Body,
    /// Payload without its padding.
    pub payload: &'a [u8],
    /// The ICRC as received; parsing does not verify it.
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Reads a packet from exactly the bytes between the UDP header and the end of the ICRC.
    ///
    /// # Errors
    /// See [`ParseError`]. Reserved bits and the content of padding are not judged.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (covered, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(ParseError::TooShort)?;
        let mut r = Reader(covered);
        let (opcode, tver, bth) = Bth::read(&mut r).ok_or(ParseError::TooShort)?;
        if tver != 0 {
            return Err(ParseError::BadTver(tver));
        }
        let info = match Opcode::from_byte(opcode) {
            Some(opcode) => opcode.info(),
            None if Transport::of_byte(opcode) == Some(Transport::Rd) => {
                return Err(ParseError::Unsupported(opcode));
            }
            None => return Err(ParseError::UnknownOpcode(opcode)),
        };
        let body = Body::read(info, &mut r).ok_or(ParseError::TruncatedHeaders)?;
        debug_assert_eq!(covered.len() - r.0.len(), info.headers_len);
        let padded = r.0;
        if !padded.len().is_multiple_of(4) || padded.len() < bth.pad.len() {
            return Err(ParseError::BadPadding);
        }
        let payload = &padded[..padded.len() - bth.pad.len()];
        Ok(Packet { bth, body, payload, icrc: u32::from_le_bytes(*icrc) })
    }

    /// The ICRC as received, in wire order.
    #[inline]
    pub const fn icrc_bytes(&self) -> [u8; ICRC_LEN] {
        self.icrc.to_le_bytes()
    }

    /// The headers alone, ready to be emitted again.
    #[inline]
    pub const fn headers(&self) -> Headers {
        Headers { bth: self.bth, body: self.body }
    }
}

/// Why bytes are not a packet. Such packets are dropped silently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// Not even a BTH and an ICRC.
    TooShort,
    /// The transport version is not 0.
    BadTver(u8),
    /// The opcode is not defined, or only by a manufacturer.
    UnknownOpcode(u8),
    /// An opcode of the obsolete reliable datagram transport.
    Unsupported(u8),
    /// The packet ends before the extended headers of its opcode do.
    TruncatedHeaders,
    /// PadCnt exceeds what follows the headers, or that is not a multiple of four.
    BadPadding,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::TooShort => f.write_str("too short for BTH and ICRC"),
            ParseError::BadTver(v) => write!(f, "transport version {v} is not 0"),
            ParseError::UnknownOpcode(b) => write!(f, "opcode {b:#04x} is not defined"),
            ParseError::Unsupported(b) => write!(f, "opcode {b:#04x} is of the reliable datagram transport"),
            ParseError::TruncatedHeaders => f.write_str("ends before its extended headers do"),
            ParseError::BadPadding => f.write_str("payload and PadCnt disagree"),
        }
    }
}

impl core::error::Error for ParseError {}

/// BTH and extended headers to be sent. The opcode follows from `body`; `bth.pad` must fit the
/// payload ([`crate::Pad::for_payload`]).
///
/// A sender emits these, copies the payload behind them, zeroes the padding, and seals the packet
/// with [`crate::seal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Opcode and extended headers.
    pub body: Body,
}

impl Headers {
    /// Bytes that [`Headers::emit`] writes, at most [`MAX_HEADERS_LEN`].
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.body.headers_len()
    }

    /// Bytes from the BTH to the end of the ICRC when `payload_len` bytes follow the headers.
    #[inline]
    pub fn transport_len(&self, payload_len: usize) -> usize {
        self.len() + payload_len + self.bth.pad.len() + ICRC_LEN
    }

    /// Writes the headers to the front of `buf` and returns their length.
    ///
    /// # Panics
    /// When `buf` is shorter than [`Headers::len`].
    #[inline(always)]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let opcode = self.body.opcode();
        let len = opcode.headers_len();
        let mut w = Writer(&mut buf[..len]);
        self.bth.write(opcode, &mut w);
        self.body.write(&mut w);
        debug_assert!(w.0.is_empty());
        len
    }
}
