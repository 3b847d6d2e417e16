//! Sizes of flows as they were measured in data centres.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// The names that there are, for messages.
pub const KNOWN: &str = "web-search, storage";

/// A distribution: the share of flows, in per cent, that have at most so many bytes. Between two points it grows evenly.
pub struct Sizes(&'static [(u32, f64)]);

/// A web search cluster (DCTCP, SIGCOMM 2010), by the points that simulators use.
const WEB_SEARCH: Sizes = Sizes(&[
    (0, 0.0),
    (10_000, 15.0),
    (20_000, 20.0),
    (30_000, 30.0),
    (50_000, 40.0),
    (80_000, 53.0),
    (200_000, 60.0),
    (1_000_000, 70.0),
    (2_000_000, 80.0),
    (5_000_000, 90.0),
    (10_000_000, 97.0),
    (30_000_000, 100.0),
]);

/// A storage cluster (HPCC, SIGCOMM 2019).
const STORAGE: Sizes = Sizes(&[
    (0, 0.0),
    (4_000, 22.93),
    (8_000, 69.21),
    (16_000, 80.61),
    (32_000, 90.47),
    (64_000, 93.53),
    (128_000, 96.77),
    (256_000, 97.53),
    (2_000_000, 100.0),
]);

impl Sizes {
    /// Those with a name.
    pub fn named(name: &str) -> Option<Sizes> {
        match name {
            "web-search" => Some(WEB_SEARCH),
            "storage" => Some(STORAGE),
            _ => None,
        }
    }

    /// Bytes of a flow on average.
    pub fn mean(&self) -> f64 {
        let pairs = self.0.windows(2);
        pairs.map(|pair| f64::from(pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1) / 100.0).sum()
    }

    /// Bytes of a flow, at least 1.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let share = 100.0 * uniform(rng);
        let above = self.0.partition_point(|(_, below)| *below <= share).clamp(1, self.0.len() - 1);
        let ((low, from), (high, to)) = (self.0[above - 1], self.0[above]);
        let bytes = f64::from(low) + f64::from(high - low) * (share - from) / (to - from);
        (bytes as u64).max(1)
    }
}

/// From 0 to 1, without 1.
pub fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn what_is_drawn_has_the_mean_and_the_shares() {
        assert_eq!(WEB_SEARCH.mean(), 1_711_250.0);
        for name in ["web-search", "storage"] {
            let sizes = Sizes::named(name).expect("a distribution");
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let drawn: Vec<u64> = (0..200_000).map(|_| sizes.draw(&mut rng)).collect();
            let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{name}: {mean} instead of {}", sizes.mean());
            for (bytes, share) in sizes.0 {
                let below = drawn.iter().filter(|drawn| **drawn <= u64::from(*bytes)).count();
                let found = 100.0 * below as f64 / drawn.len() as f64;
                assert!((found - share).abs() < 0.5, "{name}: {found} % instead of {share} have {bytes} B");
            }
        }
        assert!(Sizes::named("luck").is_none());
    }
}
