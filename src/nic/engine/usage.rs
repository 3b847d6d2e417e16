//! How much an engine holds, so that tests and statistics can see that it is bounded.

use super::Engine;

/// What an engine keeps. Everything but `in_flight`, which is in bytes, is a number of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Peer addresses that queue pairs are connected to.
    pub peers: usize,
    /// Bytes in flight to all peers.
    pub in_flight: u64,
    /// Queue pairs that wait for a peer's window.
    pub waiting: usize,
    /// Queue pairs that may have something to send.
    pub active: usize,
    /// Timers.
    pub timers: usize,
    /// Responses that wait to be sent.
    pub responses: usize,
    /// READs and atomics that are kept for repeated requests.
    pub saved: usize,
}

impl Engine {
    /// How much this engine holds.
    pub fn usage(&self) -> Usage {
        let statuses = || self.qps.values().map(|slot| slot.qp.status());
        Usage {
            queue_pairs: self.qps.len(),
            peers: self.peers.iter().count(),
            in_flight: self.peers.iter().map(|(_, window)| window.in_flight()).sum(),
            waiting: self.peers.waiting(),
            active: self.active.len(),
            timers: self.timers.len(),
            responses: statuses().map(|status| status.responses).sum(),
            saved: statuses().map(|status| status.saved).sum(),
        }
    }
}
