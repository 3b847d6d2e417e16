//! Flush extended header (IBTA Annex A19).

use crate::bytes::{Reader, Writer};

/// What a FLUSH must achieve, and for which memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feth {
    /// How far the data must have travelled.
    pub placement: Placement,
    /// Which part of the region.
    pub selectivity: Selectivity,
}

/// Placement type, four bits of which two are defined. More than one may be set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement(u8);

impl Placement {
    /// Visible to every observer at the responder.
    pub const GLOBAL_VISIBILITY: Placement = Placement(1);
    /// Safe from loss of power.
    pub const PERSISTENCE: Placement = Placement(2);
    /// Both.
    pub const BOTH: Placement = Placement(3);

    /// Keeps the low four bits; the upper two of them are reserved.
    pub const fn from_bits(bits: u8) -> Placement {
        Placement(bits & 0xF)
    }

    /// The four bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` is asked for.
    pub const fn contains(self, other: Placement) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether something is asked for and nothing reserved.
    pub const fn is_valid(self) -> bool {
        matches!(self.0, 1..=3)
    }
}

/// Selectivity level, two bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Selectivity {
    /// The address range in the RETH.
    Range,
    /// The whole memory region, whatever the range says.
    Region,
    /// The values 2 and 3, which are not defined.
    Reserved2,
    /// See `Reserved2`.
    Reserved3,
}

impl Feth {
    #[inline]
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Feth> {
        let word = r.u32()?;
        let selectivity = match (word >> 4) & 3 {
            0 => Selectivity::Range,
            1 => Selectivity::Region,
            2 => Selectivity::Reserved2,
            _ => Selectivity::Reserved3,
        };
        Some(Feth { placement: Placement::from_bits(word as u8), selectivity })
    }

    #[inline]
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        let selectivity = match self.selectivity {
            Selectivity::Range => 0,
            Selectivity::Region => 1,
            Selectivity::Reserved2 => 2,
            Selectivity::Reserved3 => 3,
        };
        w.u32(u32::from(self.placement.0) | selectivity << 4);
    }
}
