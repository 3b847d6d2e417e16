//! Datagram extended header (IBTA 9.3.2).

use crate::bytes::{Reader, Writer};
use crate::ids::{Qkey, Qpn};

/// The sender of a datagram, and the key that admits it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Deth {
    /// Must equal the receiving QP's key.
    pub qkey: Qkey,
    /// The sending QP.
    pub src_qpn: Qpn,
}

impl Deth {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Deth> {
        Some(Deth { qkey: Qkey(r.u32()?), src_qpn: Qpn::new(r.u32()?) })
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.qkey.0);
        w.u32(self.src_qpn.get());
    }
}
