//! Base transport header (IBTA 9.2).

use crate::bytes::{Reader, Writer};
use crate::ids::{Pkey, Psn, Qpn};
use crate::opcode::Opcode;

/// Size of the base transport header in bytes.
pub const BTH_LEN: usize = 12;

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const TVER: u8 = 0x0F;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u32 = 0x8000_0000;

/// The fields of a BTH other than the opcode, which follows from the packet's [`crate::Body`].
/// Reserved bits are sent as 0 and ignored on receive; the transport version is always 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// SE: raise an event at the receiver's completion queue.
    pub solicited: bool,
    /// M: the path migration state is "migrated".
    pub mig_req: bool,
    /// Bytes of padding after the payload.
    pub pad: Pad,
    /// Partition key.
    pub pkey: Pkey,
    /// Forward congestion notification; outside the ICRC.
    pub fecn: bool,
    /// Backward congestion notification; outside the ICRC.
    pub becn: bool,
    /// The QP that is to receive the packet.
    pub dest_qpn: Qpn,
    /// A: the requester asks for an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header with MigReq set (as hardware sends it), the default P_Key and no other flag.
    pub const fn new(dest_qpn: Qpn, psn: Psn) -> Bth {
        Bth {
            solicited: false,
            mig_req: true,
            pad: Pad::NONE,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Reads the header and its opcode byte. `None` when too short; TVer comes back for the caller
    /// to judge.
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<(u8, u8, Bth)> {
        let [opcode, flags, pkey @ .., congestion, q0, q1, q2] = *r.take::<8>()?;
        let ack_psn = r.u32()?;
        let bth = Bth {
            solicited: flags & SOLICITED != 0,
            mig_req: flags & MIG_REQ != 0,
            pad: Pad((flags >> 4) & 3),
            pkey: Pkey(u16::from_be_bytes(pkey)),
            fecn: congestion & FECN != 0,
            becn: congestion & BECN != 0,
            dest_qpn: Qpn::new(u32::from_be_bytes([0, q0, q1, q2])),
            ack_req: ack_psn & ACK_REQ != 0,
            psn: Psn::new(ack_psn),
        };
        Some((opcode, flags & TVER, bth))
    }

    #[inline]
    pub(crate) fn write(&self, opcode: Opcode, w: &mut Writer<'_>) {
        self.write_byte(opcode.byte(), w);
    }

    /// The same with any opcode byte.
    #[inline]
    pub(crate) fn write_byte(&self, opcode: u8, w: &mut Writer<'_>) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let [pkey0, pkey1] = self.pkey.0.to_be_bytes();
        let flags = flag(self.solicited, SOLICITED) | flag(self.mig_req, MIG_REQ) | (self.pad.0 << 4);
        w.put([opcode, flags, pkey0, pkey1]);
        let congestion = flag(self.fecn, FECN) | flag(self.becn, BECN);
        w.u32(u32::from(congestion) << 24 | self.dest_qpn.get());
        w.u32(if self.ack_req { ACK_REQ } else { 0 } | self.psn.get());
    }
}

/// Number of padding bytes, 0..=3, that bring the payload to a multiple of four (IBTA 9.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Pad(u8);

impl Pad {
    /// No padding.
    pub const NONE: Pad = Pad(0);

    /// The padding a payload of `len` bytes needs.
    #[inline]
    pub const fn for_payload(len: usize) -> Pad {
        Pad((len.wrapping_neg() & 3) as u8)
    }

    /// Keeps the low two bits of `count`.
    #[inline]
    pub const fn new(count: u8) -> Pad {
        Pad(count & 3)
    }

    /// Bytes of padding.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Bytes of padding, as a length.
    #[inline]
    pub const fn len(self) -> usize {
        self.0 as usize
    }

    /// Whether there is no padding.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
