//! Smoothed round-trip time of one QP, after RFC 6298's estimator.

use softrnic_wire::{Psn, Time};

use crate::tuning::{INITIAL_RTO, MIN_RTO};

/// One measurement at a time: a packet that asked for an ACK, and when it left. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<u64>,
    variation: u64,
    probe: Option<(Psn, Time)>,
}

impl RttEstimator {
    /// A packet that asks for an answer leaves for the first time.
    pub fn sent(&mut self, psn: Psn, now: Time) {
        if self.probe.is_none() {
            self.probe = Some((psn, now));
        }
    }

    /// Everything up to and including `psn` was acknowledged.
    pub fn acknowledged(&mut self, psn: Psn, now: Time) {
        let Some((probe, sent)) = self.probe else { return };
        if probe.is_after(psn) {
            return;
        }
        self.probe = None;
        let sample = now.nanos_since(sent);
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// A resend makes the running measurement ambiguous (Karn's rule).
    pub fn abandon(&mut self) {
        self.probe = None;
    }

    /// How long to wait for progress before resending early, in nanoseconds.
    pub fn patience(&self) -> u64 {
        match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) => (smoothed * 2 + self.variation * 4).max(MIN_RTO),
        }
    }
}

#[cfg(test)]
mod tests;
