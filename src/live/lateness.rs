//! How late deliveries are.

use std::time::Duration;

use softrnic_fabric::Picos;

/// How much later than the model says frames were given to NICs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lateness {
    frames: u64,
    sum: u64,
    most: u64,
}

impl Lateness {
    /// A frame that arrives at one virtual time is delivered at another.
    pub fn note(&mut self, due: Picos, now: Picos) {
        let late = (now - due).0;
        self.frames += 1;
        self.sum = self.sum.saturating_add(late);
        self.most = self.most.max(late);
    }

    /// On average.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum / self.frames.max(1) / 1000)
    }

    /// At most.
    pub fn most(&self) -> Duration {
        Duration::from_nanos(self.most / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_the_most_are_kept() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.mean(), Duration::ZERO);
        for late in [1, 3] {
            lateness.note(Picos::from_micros(10), Picos::from_micros(10 + late));
        }
        assert_eq!((lateness.mean(), lateness.most()), (Duration::from_micros(2), Duration::from_micros(3)));
    }
}
