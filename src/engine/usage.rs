//! How much an engine holds, so that tests and statistics can check that it is bounded.

use super::Engine;

/// The size of an engine's state. All values are numbers of entries, except `in_flight` and `held`, which are in bytes.
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
    /// READs and atomics kept for repeated requests.
    pub saved: usize,
    /// Bytes of requests that have come before their turn.
    pub held: usize,
}

impl Engine {
    /// The size of this engine's state.
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
            held: self.shared.held,
            saved: statuses().map(|status| status.saved).sum(),
        }
    }
}
