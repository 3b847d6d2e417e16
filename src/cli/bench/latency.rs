//! Percentiles of many durations.

use std::time::Duration;

use serde::Serialize;

/// Percentiles of a latency, in microseconds.
#[derive(Clone, Copy, Serialize)]
pub struct Percentiles {
    pub samples: usize,
    pub min: f64,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

/// Samples collected so far, in nanoseconds.
pub struct Samples(Vec<u32>);

impl Samples {
    /// Room for a second of the shortest samples, so that the vector seldom grows during a measurement.
    pub fn new() -> Samples {
        Samples(Vec::with_capacity(1 << 18))
    }

    #[inline]
    pub fn add(&mut self, sample: Duration) {
        self.0.push(u32::try_from(sample.as_nanos()).unwrap_or(u32::MAX));
    }

    /// `divisor` is 2 where a sample is a round trip and the result is one way.
    pub fn percentiles(mut self, divisor: f64) -> Option<Percentiles> {
        self.0.sort_unstable();
        let samples = self.0.len();
        let at = |share: f64| {
            // The smallest sample that at least this share does not exceed.
            let rank = ((samples as f64 * share).ceil() as usize).clamp(1, samples);
            f64::from(self.0[rank - 1]) / divisor / 1e3
        };
        (samples > 0).then(|| Percentiles {
            samples,
            min: at(0.0),
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            max: at(1.0),
        })
    }
}

/// The median; of an even number, the mean of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_rank() {
        let mut samples = Samples::new();
        (1..=1000).rev().for_each(|micros| samples.add(Duration::from_micros(micros)));
        let found = samples.percentiles(1.0).expect("there are samples");
        assert_eq!(
            (found.min, found.p50, found.p99, found.p99_9, found.max),
            (1.0, 500.0, 990.0, 999.0, 1000.0)
        );
        assert!(Samples::new().percentiles(1.0).is_none());
    }

    #[test]
    fn half_a_round_trip_is_one_way() {
        let mut samples = Samples::new();
        samples.add(Duration::from_micros(10));
        assert_eq!(samples.percentiles(2.0).expect("one").max, 5.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
