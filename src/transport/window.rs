//! The limit on bytes in flight to one peer address, shared by all QPs that talk to it.
//!
//! A peer that is software holds what we send in a socket buffer, which is often no more than 212,992 bytes. Go-back-N
//! over an overflowing buffer collapses. So the window starts below that size, grows while acknowledgements come, and
//! shrinks on loss.

use softrnic_wire::Time;

use crate::tuning::{CUT_INTERVAL, LINEAR_STEP, LOSSES_REMEMBERED, RARE_LOSS};

/// The limits of a [`Window`], in bytes of packets on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// The initial window.
    pub initial: u64,
    /// The smallest window.
    pub min: u64,
    /// The largest window.
    pub max: u64,
}

impl Default for WindowConfig {
    fn default() -> Self {
        WindowConfig { initial: 128 << 10, min: 9 << 10, max: 1 << 20 }
    }
}

/// Bytes in flight to one peer, and their limit.
#[derive(Clone, Debug)]
pub struct Window {
    config: WindowConfig,
    limit: u64,
    /// Below it the window doubles per round trip; above it, it grows by about a packet.
    threshold: u64,
    in_flight: u64,
    no_cut_before: Time,
    /// When the peer last acknowledged anything.
    progressed: Time,
    /// Bytes that were acknowledged, and bytes of packets that were missing although later ones came. Both are halved now and
    /// then.
    acknowledged: u64,
    missing: u64,
}

impl Window {
    /// An empty window.
    pub fn new(config: WindowConfig) -> Window {
        Window {
            config,
            limit: config.initial,
            threshold: config.max,
            in_flight: 0,
            no_cut_before: Time::ZERO,
            progressed: Time::ZERO,
            acknowledged: 0,
            missing: 0,
        }
    }

    /// Whether a packet may be sent: there is room, or nothing at all is in flight.
    pub fn is_open(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Whether a QP that has nothing in flight may send a packet although the window is closed. The reserve is as large
    /// as the window, so that QPs that fill the window do not hold up one that needs little.
    pub fn has_reserve(&self) -> bool {
        self.in_flight < self.limit.saturating_mul(2)
    }

    /// Whether another `bytes` after the next `next` bytes would find the window open.
    pub fn stays_open_after(&self, next: u64) -> bool {
        self.in_flight + next < self.limit
    }

    /// Bytes that may be in flight.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Counts a packet of `bytes` as in flight.
    pub fn charge(&mut self, bytes: u64) {
        self.in_flight += bytes;
    }

    /// Takes back what was charged and will not be acknowledged (after going back, or when the QP is gone).
    pub fn release(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// `bytes` in flight were acknowledged.
    pub fn on_progress(&mut self, now: Time, bytes: u64) {
        self.progressed = now;
        self.acknowledged += bytes;
        if self.acknowledged >= LOSSES_REMEMBERED {
            self.acknowledged /= 2;
            self.missing /= 2;
        }
        let was_full = self.in_flight * 2 >= self.limit;
        self.release(bytes);
        if was_full {
            let growth = if self.limit < self.threshold {
                bytes
            } else {
                (bytes * LINEAR_STEP / self.limit.max(1)).max(1)
            };
            self.limit = (self.limit + growth).min(self.config.max);
        }
    }

    /// Whether the peer has acknowledged anything after `since`.
    pub fn progressed_after(&self, since: Time) -> bool {
        self.progressed > since
    }

    /// Much was lost in the network.
    pub fn on_loss(&mut self, now: Time) {
        self.cut(now, self.config.min);
    }

    /// A packet of `bytes` is missing, although later ones have come. While that is rare, it says nothing of a buffer that
    /// overflows: the initial window remains.
    pub fn on_gap(&mut self, now: Time, bytes: u64) {
        self.missing += bytes;
        let is_rare = self.missing.saturating_mul(RARE_LOSS) <= self.acknowledged;
        self.cut(now, if is_rare { self.config.initial } else { self.config.min });
    }

    fn cut(&mut self, now: Time, least: u64) {
        if now < self.no_cut_before {
            return;
        }
        self.no_cut_before = now + CUT_INTERVAL;
        self.limit = (self.limit * 7 / 10).max(least.min(self.limit));
        self.threshold = self.limit;
    }
}

#[cfg(test)]
mod tests;
