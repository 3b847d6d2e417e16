//! Numbers of queue pairs and SRQs.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Numbers of 24 bits in an order that depends only on the seed. A peer cannot guess a number from others, and each
/// number comes once before any comes again: a peer that still sends to an object that is gone does not soon reach
/// another.
pub struct Numbers {
    round: ChaCha20Rng,
    usable: RangeInclusive<u32>,
    /// Position in the order.
    next: u32,
}

const HALF_BITS: u32 = 12;
const HALF: u32 = (1 << HALF_BITS) - 1;
const LAST: u32 = (1 << (2 * HALF_BITS)) - 1;

/// With fewer, others could be inferred from many known numbers; FF1 (NIST SP 800-38G) also uses 10 for small domains.
const ROUNDS: u32 = 10;

impl Numbers {
    /// The `usable` numbers, in the order of `seed`.
    pub fn new(seed: [u8; 32], usable: RangeInclusive<u32>) -> Numbers {
        Numbers { round: ChaCha20Rng::from_seed(seed), usable, next: 0 }
    }

    /// The next number that is not `taken`, of which there must be one.
    pub fn take(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let number = self.at(self.next);
            self.next = (self.next + 1) & LAST;
            if self.usable.contains(&number) && !taken(number) {
                return number;
            }
        }
    }

    /// The number at a position: a Feistel network, which is a permutation whatever its rounds compute.
    fn at(&mut self, place: u32) -> u32 {
        let (mut left, mut right) = (place >> HALF_BITS, place & HALF);
        for round in 0..ROUNDS {
            // One block of the stream for each round and each possible half.
            self.round.set_word_pos(u128::from(round << HALF_BITS | right) * 16);
            (left, right) = (right, left ^ self.round.next_u32() & HALF);
        }
        left << HALF_BITS | right
    }

    /// Continues as if `places` numbers had been taken.
    #[cfg(test)]
    pub fn skip(&mut self, places: u32) {
        self.next = (self.next + places) & LAST;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const COUNT: usize = 20_000;

    fn numbers(seed: u8) -> Numbers {
        Numbers::new([seed; 32], 2..=0xFF_FFFE)
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
        for place in (0..=LAST).step_by(9973) {
            let number = numbers.at(place);
            let (mut left, mut right) = (number >> HALF_BITS, number & HALF);
            for round in (0..ROUNDS).rev() {
                numbers.round.set_word_pos(u128::from(round << HALF_BITS | left) * 16);
                (left, right) = (right ^ numbers.round.next_u32() & HALF, left);
            }
            assert_eq!(left << HALF_BITS | right, place);
        }
    }

    #[test]
    fn reserved_and_taken_numbers_are_passed_over() {
        let mut narrow = Numbers::new([4; 32], 2..=200_000);
        for _ in 0..20 {
            assert!((2..=200_000).contains(&narrow.take(|_| false)));
        }
        let mut numbers = numbers(5);
        let live: HashSet<u32> = (0..10).map(|_| numbers.take(|_| false)).collect();
        numbers.skip(LAST - 9);
        assert_eq!(numbers.next, 0, "all the way round");
        let again: HashSet<u32> = (0..10).map(|_| numbers.take(|number| live.contains(&number))).collect();
        assert!(again.is_disjoint(&live));
    }
}
