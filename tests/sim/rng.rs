//! Seeded random choices.

/// The generator of the simulated network, with what programs of choices need.
#[derive(Clone, Debug)]
pub struct Rng(softrnic_link::Rng);

impl Rng {
    /// A generator seeded with `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(softrnic_link::Rng::new(seed))
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "an endless stream needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.0.chance(p)
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The bytes of message `id`: different for every message, and at every position in it.
pub fn pattern(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(id.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let mut bytes = vec![0; len];
    rng.0.fill(&mut bytes);
    bytes
}
