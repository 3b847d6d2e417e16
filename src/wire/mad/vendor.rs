//! Management datagrams that only SoftRNICs exchange: a vendor class with an OUI (IBTA 16.5). Each is about one pair of
//! connected queue pairs. A new attribute is a new variant of [`VendorAttribute`]; docs/wire-extensions.md describes all.

use super::layout::{Bits, Layout, Pass};
use super::{BASE_VERSION, MAD_LEN, Mad, MgmtClass, SEND};
use crate::ids::{Psn, Qpn};

/// A question about a queue pair to the NIC at the other end of its connection, or the answer to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorMad {
    /// Whether it answers a question, whose transaction id it repeats.
    pub answers: bool,
    /// The queue pair of the receiver. It is where programs that share an address look whose the datagram is.
    pub to: Qpn,
    /// That of the sender, to which the other one is connected.
    pub from: Qpn,
    /// What it says.
    pub attribute: VendorAttribute,
}

/// What a [`VendorMad`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VendorAttribute {
    /// What the sender can do, in question and answer.
    Capabilities(Capabilities),
    /// How the queue pair of an answer's sender is. A question says nothing.
    Status(PeerStatus),
}

/// What a NIC can do for one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Capabilities {
    /// 1; a receiver ignores fields that it does not know.
    pub version: u8,
    /// It keeps packets that come out of order, says which came, and resends only those that did not.
    pub selective_recovery: bool,
    /// It takes packets from many source ports, and says which port a mark came on.
    pub paths: bool,
    /// How many packets, from the one that it expects, it can keep or tell apart.
    pub reorder_window: u16,
}

/// How a queue pair is, for somebody at the other end who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PeerStatus {
    /// 1; a receiver ignores fields that it does not know.
    pub version: u8,
    /// Its state, as `enum ibv_qp_state` numbers them.
    pub state: u8,
    /// The PSN that it expects.
    pub expected_psn: Psn,
    /// How often it has answered that it has no receive.
    pub rnr_naks: u32,
    /// Receives that are posted to it, or to its SRQ.
    pub receives: u32,
    /// Its own requests that are not complete.
    pub requests: u32,
}

/// The locally administered OUI of SoftRNIC: "RNI".
const OUI: Bits<24> = Bits::new(0x52_4E49);
const CLASS_VERSION: u8 = 1;
/// Attribute modifiers.
const QUESTION: u32 = 0;
const ANSWER: u32 = 1;
const CAPABILITIES: u16 = 0xFF01;
const STATUS: u16 = 0xFF02;

/// The layout of all attributes: OUI and queue pairs in front, what the attribute has behind.
#[derive(Clone, Copy, Default)]
struct Addressed<T> {
    oui: Bits<24>,
    to: Qpn,
    from: Qpn,
    rest: T,
}

/// The fields of one attribute.
trait Fields: Copy + Default {
    fn lay_out(&mut self, pass: &mut impl Pass);
}

impl<T: Fields> Layout for Addressed<T> {
    // Bytes 0 to 11 are the RMPP header, which is not used.
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(13, &mut self.oui);
        pass.field(16, &mut self.to);
        pass.field(20, &mut self.from);
        self.rest.lay_out(pass);
    }
}

impl Fields for Capabilities {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(24, &mut self.version);
        pass.bits(25, 1, 0, &mut self.selective_recovery);
        pass.bits(25, 1, 1, &mut self.paths);
        pass.field(26, &mut self.reorder_window);
    }
}

impl Fields for PeerStatus {
    fn lay_out(&mut self, pass: &mut impl Pass) {
        pass.field(24, &mut self.version);
        pass.field(25, &mut self.state);
        pass.field(28, &mut self.expected_psn);
        pass.field(32, &mut self.rnr_naks);
        pass.field(36, &mut self.receives);
        pass.field(40, &mut self.requests);
    }
}

impl Capabilities {
    /// The version that is written.
    pub const VERSION: u8 = 1;
}

impl PeerStatus {
    /// The version that is written.
    pub const VERSION: u8 = 1;
}

impl VendorAttribute {
    const fn id(&self) -> u16 {
        match self {
            VendorAttribute::Capabilities(_) => CAPABILITIES,
            VendorAttribute::Status(_) => STATUS,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            VendorAttribute::Capabilities(_) => "capabilities",
            VendorAttribute::Status(_) => "status",
        }
    }
}

impl Mad<'_> {
    /// The datagram between SoftRNICs, if this is one and all of it is there.
    pub fn vendor(&self) -> Option<VendorMad> {
        let head = (self.base_version, self.class, self.class_version, self.method, self.status);
        // The method Send, not Get: Linux answers a Get of a class that nobody has registered.
        let is_ours = head == (BASE_VERSION, MgmtClass::SOFTRNIC, CLASS_VERSION, SEND, 0);
        if !is_ours || self.attribute_modifier > ANSWER {
            return None;
        }
        match self.attribute_id {
            CAPABILITIES => self.addressed(VendorAttribute::Capabilities),
            STATUS => self.addressed(VendorAttribute::Status),
            _ => None,
        }
    }

    fn addressed<T: Fields>(&self, attribute: fn(T) -> VendorAttribute) -> Option<VendorMad> {
        let answers = self.attribute_modifier == ANSWER;
        let Addressed::<T> { oui, to, from, rest } = Addressed::read(self.body?);
        (oui == OUI).then_some(VendorMad { answers, to, from, attribute: attribute(rest) })
    }
}

impl VendorMad {
    /// Writes the datagram over the whole of `bytes`.
    pub fn emit_mad(&self, transaction_id: u64, bytes: &mut [u8; MAD_LEN]) {
        bytes.fill(0);
        bytes[..4].copy_from_slice(&[BASE_VERSION, MgmtClass::SOFTRNIC.0, CLASS_VERSION, SEND]);
        bytes[8..16].copy_from_slice(&transaction_id.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.id().to_be_bytes());
        let modifier = if self.answers { ANSWER } else { QUESTION };
        bytes[20..24].copy_from_slice(&modifier.to_be_bytes());
        let Some((_, body)) = bytes.split_last_chunk_mut() else { return };
        let (to, from) = (self.to, self.from);
        match self.attribute {
            VendorAttribute::Capabilities(rest) => Addressed { oui: OUI, to, from, rest }.write(body),
            VendorAttribute::Status(rest) => Addressed { oui: OUI, to, from, rest }.write(body),
        }
    }
}
