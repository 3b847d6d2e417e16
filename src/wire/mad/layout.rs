//! Where the fields of a management datagram are: each message states its layout once, and the same statement reads
//! and writes it.

use super::MAD_BODY_LEN;
use crate::gid::Gid;
use crate::ids::{Pkey, Psn, Qkey, Qpn};

/// A number of `N` bits, at most 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bits<const N: u32>(u32);

impl<const N: u32> Bits<N> {
    /// The largest value.
    pub const MAX: Bits<N> = Bits(u32::MAX >> (32 - N));

    /// Keeps the low `N` bits of `value`.
    pub const fn new(value: u32) -> Self {
        Bits(value & Self::MAX.0)
    }

    /// The number, below 2^N.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Something that fills a fixed number of bits of a message.
pub(super) trait Field: Copy {
    const BITS: u32;
    fn to_u64(self) -> u64;
    fn from_u64(value: u64) -> Self;
}

macro_rules! field {
    ($($t:ty: $bits:literal, $to:expr, $from:expr;)*) => {$(
        impl Field for $t {
            const BITS: u32 = $bits;
            fn to_u64(self) -> u64 {
                $to(self)
            }
            fn from_u64(value: u64) -> Self {
                $from(value)
            }
        }
    )*};
}
field! {
    u8: 8, u64::from, |v| v as u8;
    u16: 16, u64::from, |v| v as u16;
    u32: 32, u64::from, |v| v as u32;
    u64: 64, |v| v, |v| v;
    bool: 1, u64::from, |v| v != 0;
    Qpn: 24, |v: Qpn| v.get().into(), |v| Qpn::new(v as u32);
    Psn: 24, |v: Psn| v.get().into(), |v| Psn::new(v as u32);
    Qkey: 32, |v: Qkey| v.0.into(), |v| Qkey(v as u32);
    Pkey: 16, |v: Pkey| v.0.into(), |v| Pkey(v as u16);
}

impl<const N: u32> Field for Bits<N> {
    const BITS: u32 = N;
    fn to_u64(self) -> u64 {
        self.get().into()
    }
    fn from_u64(value: u64) -> Self {
        Bits::new(value as u32)
    }
}

/// A message with fixed places for its fields.
pub(super) trait Layout: Default {
    /// Goes through all fields, in either direction.
    fn lay_out(&mut self, pass: &mut impl Pass);

    fn read(bytes: &[u8; MAD_BODY_LEN]) -> Self {
        let mut message = Self::default();
        message.lay_out(&mut Reading(bytes));
        message
    }

    /// Sets the fields' bits of `bytes`, which are zero.
    fn write(mut self, bytes: &mut [u8; MAD_BODY_LEN]) {
        self.lay_out(&mut Writing(bytes));
    }
}

/// A pass over a message: [`Reading`] sets each field from the bytes, [`Writing`] the bytes from each field.
pub(super) trait Pass {
    /// The big-endian number in the `len` bytes at `at`, of which `mask` belongs to a field that is now `value`.
    fn number(&mut self, at: usize, len: usize, mask: u64, value: u64) -> u64;

    /// A field that begins at byte `at` and fills whole bytes.
    fn field<T: Field>(&mut self, at: usize, field: &mut T) {
        self.bits(at, T::BITS.div_ceil(8) as usize, 0, field);
    }

    /// A field in the `len` bytes at `at`, whose lowest bit is bit `low` of them.
    fn bits<T: Field>(&mut self, at: usize, len: usize, low: u32, field: &mut T) {
        let mask = (u64::MAX >> (64 - T::BITS)) << low;
        *field = T::from_u64((self.number(at, len, mask, field.to_u64() << low) & mask) >> low);
    }

    fn gid(&mut self, at: usize, gid: &mut Gid) {
        let (high, low) = gid.0.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().fold(0, |n, &b| n << 8 | u64::from(b));
        let (mut high, mut low) = (half(high), half(low));
        self.field(at, &mut high);
        self.field(at + 8, &mut low);
        gid.0[..8].copy_from_slice(&high.to_be_bytes());
        gid.0[8..].copy_from_slice(&low.to_be_bytes());
    }
}

/// Sets fields from a message's bytes.
struct Reading<'a>(&'a [u8; MAD_BODY_LEN]);

impl Pass for Reading<'_> {
    fn number(&mut self, at: usize, len: usize, _: u64, _: u64) -> u64 {
        self.0[at..at + len].iter().fold(0, |n, &b| n << 8 | u64::from(b))
    }
}

/// Sets a message's bytes, which were zero, from fields.
struct Writing<'a>(&'a mut [u8; MAD_BODY_LEN]);

impl Pass for Writing<'_> {
    fn number(&mut self, at: usize, len: usize, mask: u64, value: u64) -> u64 {
        for (i, byte) in self.0[at..at + len].iter_mut().rev().enumerate() {
            *byte |= ((value & mask) >> (8 * i)) as u8;
        }
        value
    }
}
