//! Bytes that somebody else may write while they are read.

use std::marker::PhantomData;
use std::ops::Range;

/// Bytes to be copied from: ordinary ones, or memory that another process writes whenever it likes. Of those there is no
/// reference, and whoever copies them does it by code outside of the language.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    base: *const u8,
    len: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// `len` bytes from `base` can be read for `'a`.
    pub unsafe fn new(base: *const u8, len: usize) -> SharedBytes<'a> {
        SharedBytes { base, len, memory: PhantomData }
    }

    /// The first byte, from which [`len`](Self::len) can be read for `'a`.
    #[inline(always)]
    pub fn base(self) -> *const u8 {
        self.base
    }

    /// How many.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Some of them, if there are so many.
    #[inline(always)]
    pub fn get(self, range: Range<usize>) -> Option<SharedBytes<'a>> {
        let fits = range.start <= range.end && range.end <= self.len;
        fits.then(|| SharedBytes {
            base: self.base.wrapping_add(range.start),
            len: range.end - range.start,
            memory: PhantomData,
        })
    }

    /// The same.
    ///
    /// # Panics
    /// There are fewer.
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: Range<usize>) -> SharedBytes<'a> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        SharedBytes {
            base: self.base.wrapping_add(range.start),
            len: range.end - range.start,
            memory: PhantomData,
        }
    }
}

impl<'a> From<&'a [u8]> for SharedBytes<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> SharedBytes<'a> {
        SharedBytes { base: bytes.as_ptr(), len: bytes.len(), memory: PhantomData }
    }
}

impl<'a, const LEN: usize> From<&'a [u8; LEN]> for SharedBytes<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8; LEN]) -> SharedBytes<'a> {
        bytes.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u8>> for SharedBytes<'a> {
    #[inline(always)]
    fn from(bytes: &'a Vec<u8>) -> SharedBytes<'a> {
        bytes.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_inside_are_part_of_it() {
        let memory: Vec<u8> = (0..10).collect();
        let bytes = SharedBytes::from(&memory);
        let part = bytes.get(3..7).expect("inside");
        assert_eq!((part.base(), part.len()), (&raw const memory[3], 4));
        assert_eq!(part.get(1..2).map(SharedBytes::base), Some(&raw const memory[4]));
        assert!(bytes.get(10..10).is_some_and(SharedBytes::is_empty));
        for (start, end) in [(0, 11), (11, 11), (5, usize::MAX), (usize::MAX, 3)] {
            assert!(bytes.get(start..end).is_none(), "{start} to {end}");
        }
        assert!(part.get(0..5).is_none(), "a part ends where it ends");
    }
}
