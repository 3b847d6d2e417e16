//! A bit for each packet of a reorder window.

use softrnic_wire::REORDER_WINDOW;

const WORDS: usize = REORDER_WINDOW / 64;

/// Bits numbered from 0, which stands for the oldest packet that is not done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct WindowBits([u64; WORDS]);

impl WindowBits {
    /// Whether a bit is set; not, if it is beyond the window.
    pub fn has(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// Sets a bit; `false` if it was set, or is beyond the window.
    pub fn set(&mut self, at: u32) -> bool {
        let Some(word) = self.0.get_mut(at as usize / 64) else { return false };
        let mask = 1 << (at % 64);
        let is_new = *word & mask == 0;
        *word |= mask;
        is_new
    }

    /// The first bit from `at` on that is not set; the size of the window if there is none.
    pub fn next_unset(&self, at: u32) -> u32 {
        self.next(at, |word| !word)
    }

    /// The first bit from `at` on that is set; the size of the window if there is none.
    pub fn next_set(&self, at: u32) -> u32 {
        self.next(at, |word| word)
    }

    fn next(&self, at: u32, look: impl Fn(u64) -> u64) -> u32 {
        let mut from = at % 64;
        for (index, word) in self.0.iter().enumerate().skip(at as usize / 64) {
            let rest = look(*word) >> from << from;
            if rest != 0 {
                return index as u32 * 64 + rest.trailing_zeros();
            }
            from = 0;
        }
        REORDER_WINDOW as u32
    }

    /// The first `count` packets are done: each bit gets a number that much lower.
    pub fn shift(&mut self, count: u32) {
        let (words, bits) = (count as usize / 64, count % 64);
        for index in 0..WORDS {
            let word = |at: usize| self.0.get(at).copied().unwrap_or(0);
            let low = word(index + words) >> bits;
            let high = if bits == 0 { 0 } else { word(index + words + 1) << (64 - bits) };
            self.0[index] = low | high;
        }
    }

    /// As on the wire, without the bytes of the end that have no bit. Whole words of four bytes, which need no padding.
    pub fn to_bytes(self) -> ([u8; REORDER_WINDOW / 8], usize) {
        let mut bytes = [0; REORDER_WINDOW / 8];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        (bytes, used.next_multiple_of(4))
    }

    /// What came from the wire, as far as there is room.
    pub fn from_bytes(bytes: &[u8]) -> WindowBits {
        let mut bits = WindowBits::default();
        for (at, byte) in bytes.iter().enumerate().take(REORDER_WINDOW / 8) {
            bits.0[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    const ALL: u32 = REORDER_WINDOW as u32;

    fn bits_of(set: impl IntoIterator<Item = u32>) -> WindowBits {
        let mut bits = WindowBits::default();
        set.into_iter().for_each(|at| assert!(bits.set(at)));
        bits
    }

    proptest! {
        /// It does what a set of numbers does.
        #[test]
        fn it_is_a_set_of_numbers(set in btree_set(0..ALL, 0..40), by in 0..ALL + 70, at in 0..ALL + 2) {
            let bits = bits_of(set.iter().copied());
            for number in 0..ALL {
                prop_assert_eq!(bits.has(number), set.contains(&number));
            }
            prop_assert_eq!(bits.next_set(at), set.range(at..).next().copied().unwrap_or(ALL));
            prop_assert_eq!(bits.next_unset(at), (at..ALL).find(|n| !set.contains(n)).unwrap_or(ALL));
            let mut shifted = bits;
            shifted.shift(by);
            prop_assert_eq!(shifted, bits_of(set.iter().filter(|n| **n >= by).map(|n| n - by)));
            let (bytes, len) = bits.to_bytes();
            prop_assert!(len.is_multiple_of(4));
            prop_assert_eq!(WindowBits::from_bytes(&bytes[..len]), bits);
        }

        #[test]
        fn any_bytes_are_some_bits(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let bits = WindowBits::from_bytes(&bytes);
            let count = bytes.iter().take(REORDER_WINDOW / 8).map(|byte| byte.count_ones()).sum::<u32>();
            prop_assert_eq!((0..ALL + 8).filter(|at| bits.has(*at)).count(), count as usize);
        }
    }

    #[test]
    fn nothing_is_beyond_the_window() {
        let mut bits = WindowBits::default();
        assert!(bits.set(ALL - 1) && !bits.set(ALL - 1), "once");
        assert!(!bits.set(ALL) && !bits.has(ALL));
    }
}
