//! The smoothed round-trip time of one QP (`srtt`), its variation (`rttvar`), and the retransmission timeout that
//! follows (RFC 6298).

use softrnic_wire::{Psn, Time};

use crate::tuning::{INITIAL_RTO, MIN_LOSS_PROBE, MIN_PATH_SILENCE, MIN_RTO};

/// One measurement at a time: a packet that asked for an ACK, and when it was sent. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    srtt: Option<u64>,
    rttvar: u64,
    probe: Option<(Psn, Time)>,
}

impl RttEstimator {
    /// A packet that asks for an answer is sent for the first time.
    pub fn sent(&mut self, psn: Psn, now: Time) {
        if self.probe.is_none() {
            self.probe = Some((psn, now));
        }
    }

    /// Everything up to and including `psn` was acknowledged. Returns whether that was measured.
    pub fn acknowledged(&mut self, psn: Psn, now: Time) -> bool {
        let Some((probe, sent)) = self.probe else { return false };
        if probe.is_after(psn) {
            return false;
        }
        self.probe = None;
        let sample = now.nanos_since(sent);
        match self.srtt {
            None => {
                self.srtt = Some(sample);
                self.rttvar = sample / 2;
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(sample)) / 4;
                self.srtt = Some((srtt * 7 + sample) / 8);
            }
        }
        true
    }

    /// Whether the peer has answered at all.
    pub fn is_known(&self) -> bool {
        self.srtt.is_some()
    }

    /// The packet `psn` has come although others before it have not.
    pub fn arrived(&mut self, psn: Psn, now: Time) {
        if self.probe.is_some_and(|(probe, _)| probe == psn) {
            self.acknowledged(psn, now);
        }
    }

    /// These packets are sent again: their measurement would be ambiguous.
    pub fn sent_again(&mut self, from: Psn, to: Psn) {
        if self.probe.is_some_and(|(probe, _)| !probe.is_before(from) && probe.is_before(to)) {
            self.probe = None;
        }
    }

    /// A resend makes the running measurement ambiguous (Karn's rule).
    pub fn abandon(&mut self) {
        self.probe = None;
    }

    /// The smoothed round-trip time in nanoseconds, if it is known.
    pub fn smoothed(&self) -> Option<u64> {
        self.srtt
    }

    /// The retransmission timeout: how long to wait for progress before resending early, in nanoseconds.
    pub fn rto(&self) -> u64 {
        match self.srtt {
            None => INITIAL_RTO,
            Some(srtt) => (srtt * 2 + self.rttvar * 4).max(MIN_RTO),
        }
    }

    /// After how long a path that brings nothing has lost what was sent on it, in nanoseconds.
    pub fn path_silence(&self) -> u64 {
        self.srtt.map_or(INITIAL_RTO, |srtt| (srtt * 2 + self.rttvar * 4).max(MIN_PATH_SILENCE))
    }

    /// How long to wait before asking by one packet, in nanoseconds.
    pub fn loss_probe(&self) -> u64 {
        match self.srtt {
            None => INITIAL_RTO,
            Some(srtt) => (srtt * 2 + self.rttvar * 4).max(MIN_LOSS_PROBE),
        }
    }
}

#[cfg(test)]
mod tests;
