//! How exactly time can be told here.

use std::time::{Duration, Instant};

/// Where a thread is kept waiting for longer than this, nothing that takes milliseconds can be judged.
const MOST_JITTER: Duration = Duration::from_millis(60);

/// A time in words.
pub fn told(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What was measured before the first script, and learned since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// How much later than asked a thread of ours wakes up, at worst.
    pub jitter: Duration,
    /// A question and its answer, at worst.
    pub round_trip: Duration,
}

impl Place {
    /// Measures; `ask` asks the agent something and takes the answer.
    pub fn measure<E>(mut ask: impl FnMut() -> Result<(), E>) -> Result<Place, E> {
        let mut place = Place { jitter: Duration::ZERO, round_trip: Duration::ZERO };
        for _ in 0..50 {
            let before = Instant::now();
            ask()?;
            place.round_trip = place.round_trip.max(before.elapsed());
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            place.jitter = place.jitter.max(before.elapsed().saturating_sub(Duration::from_millis(1)));
        }
        Ok(place)
    }

    /// Counts on pauses as long as this one from now on.
    pub fn allow(&mut self, pause: Duration) {
        self.jitter = self.jitter.max(pause).min(MOST_JITTER);
    }

    /// The peer has taken so long to answer a packet.
    pub fn answered_after(&mut self, time: Duration) {
        self.round_trip = self.round_trip.max(time.min(MOST_JITTER));
    }

    /// What is still to be counted on in the next case: what was measured, or half of what was learned.
    #[must_use]
    pub fn calmed(self, measured: Place) -> Place {
        Place { round_trip: measured.round_trip.max(self.round_trip / 2), ..self }
    }

    /// After this time without a packet, none comes that answers what was sent.
    pub fn settle(&self) -> Duration {
        (4 * (self.jitter + self.round_trip)).clamp(Duration::from_millis(20), Duration::from_millis(250))
    }

    /// How much earlier than it left the peer a packet may seem to come, measured from another one.
    pub fn early(&self) -> Duration {
        self.jitter + self.round_trip
    }

    /// How much later than it should a packet may come.
    pub fn late(&self) -> Duration {
        Duration::from_millis(200) + 10 * (self.jitter + self.round_trip)
    }
}
