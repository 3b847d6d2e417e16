//! Management datagrams (IBTA 13.4.2), which travel to QP 1.

use super::cm::CmMessage;

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

const HEADER: usize = 24;
const BODY: usize = MAD_LEN - HEADER;

/// A management datagram's header, and its body if all of it was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad<'a> {
    /// 1.
    pub base_version: u8,
    /// What it is about.
    pub class: MgmtClass,
    /// 2 for communication management.
    pub class_version: u8,
    /// Response bit and method; 3 is Send.
    pub method: u8,
    /// 0 in everything but responses.
    pub status: u16,
    /// Relates answers to questions; connections are matched by communication ids instead.
    pub transaction_id: u64,
    /// Kind of message within the class.
    pub attribute_id: u16,
    /// Carries ECE options in connection requests, else 0.
    pub attribute_modifier: u32,
    /// What follows the header.
    pub body: Option<&'a [u8; BODY]>,
}

/// Management class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MgmtClass(pub u8);

impl MgmtClass {
    /// Connections are set up and torn down with it.
    pub const COMMUNICATION: MgmtClass = MgmtClass(0x07);

    /// Its name, or `other`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x01 | 0x81 => "subnet management",
            0x03 => "subnet administration",
            0x04 => "performance management",
            0x05 => "baseboard management",
            0x06 => "device management",
            0x07 => "communication management",
            0x08 => "SNMP tunnelling",
            _ => "other",
        }
    }
}

impl<'a> Mad<'a> {
    /// Reads the header; `None` when the bytes are too few for one.
    pub fn read(bytes: &'a [u8]) -> Option<Mad<'a>> {
        let header = bytes.first_chunk::<HEADER>()?;
        let &[base_version, class, class_version, method, s0, s1, _, _, ref rest @ ..] = header;
        let (tid, rest) = rest.split_first_chunk::<8>()?;
        let [a0, a1, _, _, m0, m1, m2, m3] = *rest.first_chunk::<8>()?;
        Some(Mad {
            base_version,
            class: MgmtClass(class),
            class_version,
            method,
            status: u16::from_be_bytes([s0, s1]),
            transaction_id: u64::from_be_bytes(*tid),
            attribute_id: u16::from_be_bytes([a0, a1]),
            attribute_modifier: u32::from_be_bytes([m0, m1, m2, m3]),
            body: bytes.get(HEADER..).and_then(|b| b.first_chunk()),
        })
    }

    /// The connection management message, if this is one and was captured whole.
    pub fn cm(&self) -> Option<CmMessage<'a>> {
        if self.class != MgmtClass::COMMUNICATION {
            return None;
        }
        CmMessage::read(self.attribute_id, self.body?)
    }

    /// The name of the message, also when its body was not captured.
    pub fn message_name(&self) -> &'static str {
        match self.class {
            MgmtClass::COMMUNICATION => CmMessage::name_of(self.attribute_id),
            other => other.name(),
        }
    }
}
