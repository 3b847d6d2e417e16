//! The source of numbers that peers must not be able to predict.

use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The secret of a device. Each purpose has its own seed, derived with ChaCha20: what is seen of one purpose reveals
/// nothing about another, nor about the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; 32]);

/// What unpredictable numbers are used for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    MemoryKeys = 1,
    QueuePairs = 2,
    SharedReceiveQueues = 3,
    Connections = 4,
    Srd = 5,
}

impl Seed {
    /// From 32 secret bytes.
    pub fn new(secret: [u8; 32]) -> Seed {
        Seed(secret)
    }

    /// The seed of one purpose.
    pub(super) fn of(&self, purpose: Purpose) -> [u8; 32] {
        let mut stream = ChaCha20Rng::from_seed(self.0);
        stream.set_stream(purpose as u64);
        let mut seed = [0; 32];
        stream.fill_bytes(&mut seed);
        seed
    }
}

/// From a number that may be known, so that a run can be repeated.
impl From<u64> for Seed {
    fn from(number: u64) -> Seed {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&number.to_le_bytes());
        Seed(secret)
    }
}

/// Hidden in logs.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSES: [Purpose; 5] = [
        Purpose::MemoryKeys,
        Purpose::QueuePairs,
        Purpose::SharedReceiveQueues,
        Purpose::Connections,
        Purpose::Srd,
    ];

    fn distance(a: &[u8; 32], b: &[u8; 32]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    #[test]
    fn purposes_have_unrelated_seeds() {
        let secret = [7; 32];
        let seeds = PURPOSES.map(|purpose| Seed::new(secret).of(purpose));
        for (place, seed) in seeds.iter().enumerate() {
            assert!(distance(seed, &secret) > 80, "not the secret itself");
            for other in &seeds[..place] {
                assert!(distance(seed, other) > 80, "{seed:?} {other:?}");
            }
        }
    }

    #[test]
    fn every_bit_of_the_secret_decides_about_every_purpose() {
        for bit in 0..256 {
            let mut other = [7; 32];
            other[bit / 8] ^= 1 << (bit % 8);
            for purpose in PURPOSES {
                let changed = distance(&Seed::new([7; 32]).of(purpose), &Seed::new(other).of(purpose));
                assert!((80..176).contains(&changed), "bit {bit} changes {changed} bits of {purpose:?}");
            }
        }
    }

    #[test]
    fn a_number_repeats_its_seed_and_nothing_shows_it() {
        assert_eq!(Seed::from(5).of(Purpose::QueuePairs), Seed::from(5).of(Purpose::QueuePairs));
        assert_ne!(Seed::from(5).of(Purpose::QueuePairs), Seed::from(6).of(Purpose::QueuePairs));
        assert_eq!(format!("{:?}", Seed::from(5)), "Seed(…)");
    }
}
