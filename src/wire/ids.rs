//! The numbers RoCE packets carry, each a type of its own.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

const MASK24: u32 = 0x00FF_FFFF;

macro_rules! display_hex {
    ($($t:ident: $width:literal),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:#0", $width, "x}"), self.0)
            }
        }
    )*};
}
display_hex!(Qpn: 8, Srqn: 8, Rkey: 10, Qkey: 10, Pkey: 6);

/// Packet sequence number, 24 bits, counting modulo 2^24 (IBTA 9.7.1).
///
/// Order is circular, so `Psn` has no `Ord`; ask [`Psn::is_before`] or take the difference of two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Psn(u32);

impl Psn {
    /// The lowest number, 0.
    pub const ZERO: Psn = Psn(0);

    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Psn(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Psn::new(self.0 + 1)
    }

    /// Signed distance from `earlier` to `self`, in -2^23..2^23. Positive when `self` is later.
    #[inline]
    pub const fn distance_from(self, earlier: Psn) -> i32 {
        // Shifting the 24-bit difference to the top of the word lets the sign extend on the way back.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// Whether `self` comes before `other` on the circle.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether `self` comes after `other` on the circle. Neither is before nor after the number
    /// exactly 2^23 away on both sides; that one counts as before.
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        self.distance_from(other) > 0
    }

    /// Whether `self` is `other` or comes before it.
    #[inline]
    pub const fn at_or_before(self, other: Psn) -> bool {
        self.distance_from(other) <= 0
    }
}

impl Add<u32> for Psn {
    type Output = Psn;
    #[inline]
    fn add(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for Psn {
    #[inline]
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for Psn {
    type Output = Psn;
    #[inline]
    fn sub(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }
}

impl SubAssign<u32> for Psn {
    #[inline]
    fn sub_assign(&mut self, n: u32) {
        *self = *self - n;
    }
}

/// [`Psn::distance_from`] as an operator.
impl Sub<Psn> for Psn {
    type Output = i32;
    #[inline]
    fn sub(self, earlier: Psn) -> i32 {
        self.distance_from(earlier)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Message sequence number, 24 bits: how many request messages the responder has completed,
/// modulo 2^24 (IBTA 9.7.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Msn(u32);

impl Msn {
    /// The value before any message completed.
    pub const ZERO: Msn = Msn(0);

    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Msn(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The value after one more message.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Msn::new(self.0 + 1)
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Qpn(u32);

impl Qpn {
    /// QP 0, subnet management; unused on RoCE.
    pub const SMI: Qpn = Qpn(0);
    /// QP 1, general services: where connection management arrives.
    pub const GSI: Qpn = Qpn(1);
    /// Destination of multicast datagrams.
    pub const MULTICAST: Qpn = Qpn(MASK24);
    /// The last number of kernel rxe (`RXE_MAX_QP_INDEX`); NICs number from the bottom too. SoftRNICs have higher ones.
    pub const LAST_OF_RXE: Qpn = Qpn(1 << 20);

    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Qpn(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Number of an XRC shared receive queue, 24 bits (IBTA Annex A14).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Srqn(u32);

impl Srqn {
    /// Keeps the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Srqn(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Remote key: names a memory region or window to the side that owns it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Rkey(pub u32);

/// Queue key: a QP accepts only datagrams that carry its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Qkey(pub u32);

impl Qkey {
    /// Whether the high bit is set: a send work request naming such a key uses the QP's own key
    /// instead, so that only privileged code can choose it (IBTA 10.2.5).
    #[inline]
    pub const fn is_privileged(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// Partition key: bit 15 tells full from limited membership, the other 15 bits name the partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition; all that RoCE uses.
    pub const DEFAULT: Pkey = Pkey(0xFFFF);

    /// Whether this is a full member, which may talk to limited members too.
    #[inline]
    pub const fn is_full(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Whether holders of the two keys may talk: same partition, which is not the invalid
    /// partition 0, and at least one full member (IBTA 10.9.3).
    #[inline]
    pub const fn matches(self, other: Pkey) -> bool {
        let partition = self.0 & 0x7FFF;
        partition != 0 && partition == other.0 & 0x7FFF && (self.is_full() || other.is_full())
    }
}

impl Default for Pkey {
    fn default() -> Self {
        Pkey::DEFAULT
    }
}

/// Immediate data, in network order, passed through uninterpreted. Aligned like the other numbers, so that a type that
/// contains one is moved in whole words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(align(4))]
pub struct Imm(pub [u8; 4]);
