//! What loops report.

use std::time::Duration;

use serde::Serialize;

/// What a stream of messages came to.
#[derive(Serialize)]
pub struct Stream {
    pub messages: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Bytes that arrived per second.
    pub bandwidth: f64,
    /// Messages that arrived per second.
    pub rate: f64,
    /// Processor time of both processes.
    pub cpu_seconds: f64,
}

impl Stream {
    pub fn new(messages: u64, bytes: u64, elapsed: Duration, cpu: Duration) -> Stream {
        let seconds = elapsed.as_secs_f64();
        Stream {
            messages,
            bytes,
            seconds,
            bandwidth: bytes as f64 / seconds,
            rate: messages as f64 / seconds,
            cpu_seconds: cpu.as_secs_f64(),
        }
    }
}

/// Round trips, in microseconds.
#[derive(Serialize)]
pub struct RoundTrips {
    pub samples: usize,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
}

/// Round trips as they are taken.
pub struct Samples(Vec<u32>);

impl Samples {
    /// With room for a second of the shortest.
    pub fn new() -> Samples {
        Samples(Vec::with_capacity(1 << 18))
    }

    #[inline]
    pub fn add(&mut self, trip: Duration) {
        self.0.push(trip.as_nanos().min(u32::MAX.into()) as u32);
    }

    pub fn summary(mut self) -> Result<RoundTrips, &'static str> {
        if self.0.is_empty() {
            return Err("not one round trip in the time given");
        }
        self.0.sort_unstable();
        let rank = |per_mille: usize| self.0[(self.0.len() * per_mille).div_ceil(1000).max(1) - 1];
        let [p50, p99, p99_9] = [500, 990, 999].map(|share| f64::from(rank(share)) / 1e3);
        Ok(RoundTrips { samples: self.0.len(), p50, p99, p99_9 })
    }
}
