//! A small seeded generator. It is our own because a seed that reproduces a failure must still do so after a dependency
//! is updated.

/// SplitMix64: passes the usual tests, and any seed is as good as another. For faults, simulations and patterns; not
/// for anything that must be unpredictable.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator seeded with `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator for one of many purposes, unrelated to those with another `stream`.
    pub fn stream(seed: u64, stream: &[u8]) -> Rng {
        let mut rng = Rng(seed);
        for byte in stream {
            rng.0 = rng.next() ^ u64::from(*byte);
        }
        Rng(rng.next())
    }

    /// A generator for a part of the work: however many numbers that takes, this one goes on the same.
    pub fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "an endless stream needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero; the bias of a 64-bit product does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p`; always draws one number.
    pub fn chance(&mut self, p: f64) -> bool {
        // A double holds 53 bits exactly.
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        unit < p
    }

    /// Fills `bytes` with what follows.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Changes one byte of a datagram, but not the fifth of the BTH: the ICRC does not cover that one, so the change
    /// would go unnoticed.
    pub(crate) fn corrupt(&mut self, bytes: &mut [u8]) {
        const NOT_COVERED: usize = 4;
        if bytes.len() <= NOT_COVERED + 1 {
            return;
        }
        let at = self.below(bytes.len() as u64 - 1) as usize;
        let change = 1 + self.below(255) as u8;
        bytes[if at < NOT_COVERED { at } else { at + 1 }] ^= change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_repeat_and_streams_differ() {
        let draw = |mut rng: Rng| (0..8).map(|_| rng.next()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_ne!(draw(Rng::stream(7, b"a")), draw(Rng::stream(7, b"b")));
        assert_ne!(draw(Rng::stream(7, b"a")), draw(Rng::stream(8, b"a")));
        // The published test vector of SplitMix64 for seed 0.
        assert_eq!(Rng::new(0).next(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn probabilities_are_met_approximately() {
        let mut rng = Rng::new(1);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((900..1100).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !rng.chance(0.0)));
        assert!((0..1000).all(|_| rng.chance(1.0)));
        assert!((0..1000).all(|_| rng.below(3) < 3));
    }

    #[test]
    fn corruption_always_changes_what_the_icrc_covers() {
        for seed in 0..2000 {
            let mut bytes = [0; 16];
            Rng::new(seed).corrupt(&mut bytes);
            assert_ne!(bytes, [0; 16], "seed {seed}");
            assert_eq!(bytes[4], 0, "seed {seed}");
        }
    }
}
