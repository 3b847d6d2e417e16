//! The base transport header as raw bytes: also for packets that are no valid packets.

use softrnic_wire::{BTH_LEN, Pkey, Psn, Qpn};

/// Twelve bytes that a base transport header occupies, whatever they hold (IBTA 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BthBytes<'a>(pub &'a [u8; BTH_LEN]);

impl BthBytes<'_> {
    /// The opcode, defined or not.
    pub const fn opcode(self) -> u8 {
        self.0[0]
    }

    /// SE.
    pub const fn solicited(self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// M.
    pub const fn mig_req(self) -> bool {
        self.0[1] & 0x40 != 0
    }

    /// PadCnt.
    pub const fn pad(self) -> u8 {
        (self.0[1] >> 4) & 3
    }

    /// TVer, which must be 0.
    pub const fn tver(self) -> u8 {
        self.0[1] & 0x0F
    }

    /// P_Key.
    pub const fn pkey(self) -> Pkey {
        Pkey(u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    /// FECN.
    pub const fn fecn(self) -> bool {
        self.0[4] & 0x80 != 0
    }

    /// BECN.
    pub const fn becn(self) -> bool {
        self.0[4] & 0x40 != 0
    }

    /// The six reserved bits beside FECN and BECN.
    pub const fn reserved_variant(self) -> u8 {
        self.0[4] & 0x3F
    }

    /// Destination QP.
    pub const fn dest_qpn(self) -> Qpn {
        Qpn::new(u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]))
    }

    /// A.
    pub const fn ack_req(self) -> bool {
        self.0[8] & 0x80 != 0
    }

    /// The seven reserved bits beside A.
    pub const fn reserved(self) -> u8 {
        self.0[8] & 0x7F
    }

    /// PSN.
    pub const fn psn(self) -> Psn {
        Psn::new(u32::from_be_bytes([0, self.0[9], self.0[10], self.0[11]]))
    }
}
