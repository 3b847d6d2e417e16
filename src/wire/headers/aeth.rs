//! ACK extended header (IBTA 9.3.5) and its syndrome: credits, RNR timers, NAK codes.

use crate::bytes::{Reader, Writer};
use crate::ids::Msn;

/// How the responder judged a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Messages the responder has completed so far.
    pub msn: Msn,
}

impl Aeth {
    /// A plain acknowledgement that sets no credit limit.
    pub const fn ack(msn: Msn) -> Aeth {
        Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
    }

    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Aeth> {
        let word = r.u32()?;
        Some(Aeth { syndrome: Syndrome::from_byte((word >> 24) as u8), msn: Msn::new(word) })
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.u32(u32::from(self.syndrome.byte()) << 24 | self.msn.get());
    }
}

/// The first byte of an AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Everything up to the packet's PSN has arrived.
    Ack(Credits),
    /// The receiver has no work request for the message; send again after the delay.
    RnrNak(RnrTimer),
    /// The request was refused.
    Nak(NakCode),
    /// The reserved type 2, or bit 7 set: to be ignored, never to be sent. Holds the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// Reads the byte; every value has a meaning here.
    #[inline]
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & 0x1F;
        match byte >> 5 {
            0 => Syndrome::Ack(Credits(value)),
            1 => Syndrome::RnrNak(RnrTimer(value)),
            3 => Syndrome::Nak(NakCode::from_code(value)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.0,
            Syndrome::RnrNak(timer) => 0x20 | timer.0,
            Syndrome::Nak(code) => 0x60 | code.code(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

/// End-to-end credit code, five bits (IBTA 9.7.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Credits(u8);

impl Credits {
    /// The code that sets no limit; also what a responder with a shared receive queue sends.
    pub const UNLIMITED: Credits = Credits(0x1F);

    /// Keeps the low five bits of `code`.
    pub const fn from_code(code: u8) -> Credits {
        Credits(code & 0x1F)
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How many messages may be sent past the AETH's MSN, `None` for no limit.
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            0x1F => None,
            small @ 0..=3 => Some(small as u32),
            // From 4 on, pairs of codes step through 2^n and 1.5 * 2^n.
            code => Some((2 + (code as u32 & 1)) << (code / 2 - 1)),
        }
    }

    /// The largest code that promises no more than `available` messages, never `UNLIMITED`.
    pub const fn at_most(available: u32) -> Credits {
        let mut code = 0x1E;
        while code > 0 {
            if let Some(n) = Credits(code).count()
                && n <= available
            {
                break;
            }
            code -= 1;
        }
        Credits(code)
    }
}

/// RNR NAK timer code, five bits (IBTA 9.7.5.2.8). Code 0 is the longest delay, not none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Keeps the low five bits of `code`.
    pub const fn new(code: u8) -> RnrTimer {
        RnrTimer(code & 0x1F)
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long the requester must wait, in microseconds.
    pub const fn delay_us(self) -> u32 {
        // In units of 10 us: 1, 2, 3, 4, 6, 8, 12, 16 ... with code 0 standing for the value after the last.
        let code = if self.0 == 0 { 32 } else { self.0 as u32 };
        let units = if code < 4 { code } else { (2 + (code & 1)) << (code / 2 - 1) };
        units * 10
    }

    /// How long the requester must wait.
    pub const fn delay(self) -> core::time::Duration {
        core::time::Duration::from_micros(self.delay_us() as u64)
    }

    /// The shortest delay that is at least `us` microseconds; the longest if none is.
    pub const fn at_least_us(us: u32) -> RnrTimer {
        let mut code = 1;
        while code < 32 {
            if RnrTimer(code).delay_us() >= us {
                return RnrTimer(code);
            }
            code += 1;
        }
        RnrTimer(0)
    }
}

/// Why a request was refused (IBTA 9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A PSN is missing; resend from the NAK's PSN.
    PsnSequence,
    /// The request makes no sense to the responder.
    InvalidRequest,
    /// Key, range or rights do not allow the access.
    RemoteAccess,
    /// The responder failed for reasons of its own.
    RemoteOperational,
    /// Reliable datagram only.
    InvalidRd,
    /// Codes 5..=31.
    Reserved(u8),
}

impl NakCode {
    /// Reads the low five bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> NakCode {
        match code & 0x1F {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRd,
            other => NakCode::Reserved(other),
        }
    }

    /// The code, below 32.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
            NakCode::Reserved(code) => code & 0x1F,
        }
    }
}
