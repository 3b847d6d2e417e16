//! Management datagrams (IBTA 13.4.2), which travel to QP 1, and the messages of the connection manager in them.

mod cm;
mod layout;
mod messages;
mod names;
mod service;
mod vendor;

pub use cm::{CmBody, CmMessage};
pub use layout::Bits;
pub use messages::{
    Apr, CmIds, CmInfo, CmPath, Dreq, Lap, Mra, Rej, RejReason, Rep, Req, Served, SidrRep, SidrReq,
};
pub use service::{AddressPair, PortSpace, PrivateHeader, ServiceId};
pub use vendor::{Capabilities, PeerStatus, VendorAttribute, VendorMad};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
/// Bytes behind its header.
pub const MAD_BODY_LEN: usize = MAD_LEN - HEADER;
const HEADER: usize = 24;

/// A management datagram's header, and its body if all of it is there.
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
    pub body: Option<&'a [u8; MAD_BODY_LEN]>,
}

/// Management class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MgmtClass(pub u8);

impl MgmtClass {
    /// Connections are set up and torn down with it.
    pub const COMMUNICATION: MgmtClass = MgmtClass(0x07);
    /// A vendor class with an OUI, in which SoftRNICs talk to each other.
    pub const SOFTRNIC: MgmtClass = MgmtClass(0x3A);
}

/// The base version of every MAD.
const BASE_VERSION: u8 = 1;
/// The class version of communication management.
const CM_CLASS_VERSION: u8 = 2;
/// The method of every connection management message.
const SEND: u8 = 3;

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

    /// The connection management message, if this is one and all of it is there. Versions and method are not checked:
    /// see [`Mad::is_cm_send`].
    pub fn cm(&self) -> Option<CmMessage<'a>> {
        if self.class != MgmtClass::COMMUNICATION {
            return None;
        }
        CmMessage::read(self.attribute_id, self.body?)
    }

    /// Whether versions, class and method are those of connection management messages. A receiver drops others.
    pub fn is_cm_send(&self) -> bool {
        (self.base_version, self.class, self.class_version, self.method)
            == (BASE_VERSION, MgmtClass::COMMUNICATION, CM_CLASS_VERSION, SEND)
    }

    /// The name of the message, even if its body is missing.
    pub fn message_name(&self) -> &'static str {
        match self.class {
            MgmtClass::COMMUNICATION => CmMessage::name_of(self.attribute_id),
            MgmtClass::SOFTRNIC => self.vendor().map_or("vendor", |vendor| vendor.attribute.name()),
            other => other.name(),
        }
    }
}

impl CmMessage<'_> {
    /// Writes the datagram that carries the message over the whole of `bytes`. `modifier` is the attribute modifier:
    /// ECE options, else 0.
    pub fn emit_mad(&self, transaction_id: u64, modifier: u32, bytes: &mut [u8; MAD_LEN]) {
        let header = [BASE_VERSION, MgmtClass::COMMUNICATION.0, CM_CLASS_VERSION, SEND, 0, 0, 0, 0];
        bytes[..8].copy_from_slice(&header);
        bytes[8..16].copy_from_slice(&transaction_id.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.body().attribute_id().to_be_bytes());
        bytes[18..20].fill(0);
        bytes[20..24].copy_from_slice(&modifier.to_be_bytes());
        if let Some((_, body)) = bytes.split_last_chunk_mut() {
            self.emit(body);
        }
    }
}
