//! Numbers of queue pairs and SRQs.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Numbers in an order that depends only on the seed. A peer cannot guess a number from others, and each
/// number comes once before any comes again: a peer that still sends to an object that is gone does not soon reach
/// another.
pub struct Numbers {
    round: ChaCha20Rng,
    block: Block,
    usable: RangeInclusive<u32>,
    /// Position in the order.
    next: u32,
}

/// Numbers that differ in their lowest bits, of which there are an even number.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    first: u32,
    half_bits: u32,
}

/// Those of 24 bits.
pub const ALL: Block = Block { first: 0, half_bits: 12 };

impl Block {
    /// The block of all these numbers: a power of four, beginning at a multiple of it.
    pub const fn of(numbers: RangeInclusive<u32>) -> Block {
        let count = *numbers.end() - *numbers.start() + 1;
        Block { first: *numbers.start(), half_bits: count.ilog2() / 2 }
    }

    /// Its last number.
    pub const fn last(self) -> u32 {
        self.first | self.places()
    }

    /// The last place, where the first has number 0.
    const fn places(self) -> u32 {
        (1 << (2 * self.half_bits)) - 1
    }

    const fn half(self) -> u32 {
        (1 << self.half_bits) - 1
    }
}

/// With fewer, others could be inferred from many known numbers; FF1 (NIST SP 800-38G) also uses 10 for small domains.
const ROUNDS: u32 = 10;

impl Numbers {
    /// The `usable` numbers of a block, in the order of `seed`.
    pub fn new(seed: [u8; 32], block: Block, usable: RangeInclusive<u32>) -> Numbers {
        Numbers { round: ChaCha20Rng::from_seed(seed), block, usable, next: 0 }
    }

    /// The next number that is not `taken`, of which there must be one.
    pub fn take(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let number = self.at(self.next);
            self.next = (self.next + 1) & self.block.places();
            if self.usable.contains(&number) && !taken(number) {
                return number;
            }
        }
    }

    /// The number at a position: a Feistel network, which is a permutation whatever its rounds compute.
    fn at(&mut self, place: u32) -> u32 {
        let Block { first, half_bits } = self.block;
        let (mut left, mut right) = (place >> half_bits, place & self.block.half());
        for round in 0..ROUNDS {
            // One block of the stream for each round and each possible half.
            self.round.set_word_pos(u128::from(round << half_bits | right) * 16);
            (left, right) = (right, left ^ self.round.next_u32() & self.block.half());
        }
        first | left << half_bits | right
    }

    /// Continues as if `places` numbers had been taken.
    #[cfg(test)]
    pub fn skip(&mut self, places: u32) {
        self.next = (self.next + places) & self.block.places();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const COUNT: usize = 20_000;

    fn numbers(seed: u8) -> Numbers {
        Numbers::new([seed; 32], ALL, 2..=0xFF_FFFE)
    }

    fn first(seed: u8) -> Vec<u32> {
        let mut numbers = numbers(seed);
        (0..COUNT).map(|_| numbers.take(|_| false)).collect()
    }

    #[test]
    fn numbers_are_unique_and_do_not_follow_from_one_another() {
        let one = first(1);
        assert_eq!(one.iter().collect::<HashSet<_>>().len(), COUNT, "none comes twice");
        let steps: HashSet<u32> = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > COUNT * 99 / 100, "only {} different steps", steps.len());
        for bit in 0..24 {
            let set = |numbers: &[u32]| numbers.iter().filter(|number| *number >> bit & 1 == 1).count();
            assert!((COUNT * 9 / 20..COUNT * 11 / 20).contains(&set(&one)), "bit {bit} is not even");
            let changed: Vec<u32> = one.windows(2).map(|pair| pair[0] ^ pair[1]).collect();
            assert!((COUNT * 9 / 20..COUNT * 11 / 20).contains(&set(&changed)), "bit {bit} follows the last");
        }
        let other: HashSet<u32> = first(2).into_iter().collect();
        let common = one.iter().filter(|number| other.contains(number)).count();
        assert!(common < 100, "{common} of {COUNT} are another seed's too, where chance gives 24");
        assert_eq!(one, first(1), "a seed repeats its numbers");
    }

    #[test]
    fn all_usable_numbers_come_once_in_a_round() {
        // Some of the places, and what maps to them: the network is undone by running it backwards.
        let mut numbers = numbers(3);
        let Block { half_bits, .. } = ALL;
        for place in (0..=ALL.last()).step_by(9973) {
            let number = numbers.at(place);
            let (mut left, mut right) = (number >> half_bits, number & ALL.half());
            for round in (0..ROUNDS).rev() {
                numbers.round.set_word_pos(u128::from(round << half_bits | left) * 16);
                (left, right) = (right ^ numbers.round.next_u32() & ALL.half(), left);
            }
            assert_eq!(left << half_bits | right, place);
        }
    }

    #[test]
    fn reserved_and_taken_numbers_are_passed_over() {
        let mut narrow = Numbers::new([4; 32], ALL, 2..=200_000);
        for _ in 0..20 {
            assert!((2..=200_000).contains(&narrow.take(|_| false)));
        }
        let mut numbers = numbers(5);
        let live: HashSet<u32> = (0..10).map(|_| numbers.take(|_| false)).collect();
        numbers.skip(ALL.last() - 9);
        assert_eq!(numbers.next, 0, "all the way round");
        let again: HashSet<u32> = (0..10).map(|_| numbers.take(|number| live.contains(&number))).collect();
        assert!(again.is_disjoint(&live));
    }

    #[test]
    fn a_block_has_all_its_numbers_and_no_others() {
        let block = Block::of(0x5C_0000..=0x5F_FFFF);
        assert_eq!((block.first, block.last()), (0x5C_0000, 0x5F_FFFF));
        let mut numbers = Numbers::new([6; 32], block, 2..=0xFF_FFFE);
        let taken: HashSet<u32> = (0..1 << 18).map(|_| numbers.take(|_| false)).collect();
        assert_eq!(taken.len(), 1 << 18);
        assert!(taken.iter().all(|number| (block.first..=block.last()).contains(number)));
        let first: Vec<u32> = (0..8).map(|_| numbers.take(|_| false)).collect();
        let mut other = Numbers::new([7; 32], block, 2..=0xFF_FFFE);
        assert_ne!(first, (0..8).map(|_| other.take(|_| false)).collect::<Vec<_>>(), "the seed decides");
    }
}
