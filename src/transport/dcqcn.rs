//! DCQCN's reaction point: the rate of one QP under congestion notifications (Zhu et al., SIGCOMM 2015).
//!
//! Parameters carry the names that Linux gives them under `roce_rp`.

use core::time::Duration;

use softrnic_wire::Time;

/// Parameters of the reaction point. Rates in bytes per second, times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateParameters {
    /// Time between two rate increases.
    pub rpg_time_reset: u64,
    /// Bytes between two rate increases.
    pub rpg_byte_reset: u64,
    /// Increases of one kind before the next phase begins.
    pub rpg_threshold: u32,
    /// No pacing at or above this rate.
    pub rpg_max_rate: u64,
    /// Step of additive increase.
    pub rpg_ai_rate: u64,
    /// Step of hyper increase.
    pub rpg_hai_rate: u64,
    /// The rate never falls below this.
    pub rpg_min_rate: u64,
    /// A single CNP leaves at least this share of the rate, in per cent.
    pub rpg_min_dec_fac: u64,
    /// Weight of a new observation in alpha, as 1 / 2^g.
    pub dce_tcp_g: u32,
    /// Time between two updates of alpha.
    pub dce_tcp_rtt: u64,
    /// At most one decrease in this time.
    pub rate_reduce_monitor_period: u64,
    /// Each decrease makes the rate before it the one to recover to. Without it, the target stays as it is.
    pub clamp_tgt_rate: bool,
    /// So does one after an increase by time.
    pub clamp_tgt_rate_after_time_inc: bool,
}

impl RateParameters {
    /// As ConnectX has them, where they differ: a burst of CNPs does not lower the rate to recover to.
    pub fn keeping_target() -> RateParameters {
        RateParameters { clamp_tgt_rate: false, ..RateParameters::default() }
    }
}

impl Default for RateParameters {
    /// As in the paper.
    fn default() -> Self {
        RateParameters {
            rpg_time_reset: 300_000,
            rpg_byte_reset: 1 << 20,
            rpg_threshold: 5,
            rpg_max_rate: 40_000_000_000 / 8,
            rpg_ai_rate: 40_000_000 / 8,
            rpg_hai_rate: 400_000_000 / 8,
            rpg_min_rate: 10_000_000 / 8,
            rpg_min_dec_fac: 50,
            dce_tcp_g: 8,
            dce_tcp_rtt: 55_000,
            rate_reduce_monitor_period: 4_000,
            clamp_tgt_rate: true,
            clamp_tgt_rate_after_time_inc: true,
        }
    }
}

/// The paced rate of a QP that has received a CNP. A QP that has not sends as fast as it can.
#[derive(Clone, Debug)]
pub(crate) struct RateControl {
    parameters: RateParameters,
    current: u64,
    target: u64,
    /// Congestion estimate, in units of 1 / 2^20.
    alpha: u64,
    last_decrease: Time,
    cnp_since_alpha_update: bool,
    alpha_at: Time,
    increase_at: Time,
    time_rounds: u32,
    byte_rounds: u32,
    bytes: u64,
    next_send: Time,
}

const ALPHA_ONE: u64 = 1 << 20;

impl RateControl {
    /// The state after the first CNP.
    pub fn new(parameters: RateParameters, now: Time) -> RateControl {
        let mut rate = RateControl {
            parameters,
            current: parameters.rpg_max_rate,
            target: parameters.rpg_max_rate,
            alpha: ALPHA_ONE,
            last_decrease: Time::ZERO,
            cnp_since_alpha_update: false,
            alpha_at: now,
            increase_at: now,
            time_rounds: 0,
            byte_rounds: 0,
            bytes: 0,
            next_send: now,
        };
        rate.decrease(now);
        rate
    }

    /// Bytes per second.
    pub fn current(&self) -> u64 {
        self.current
    }

    /// How long the next packet must wait, if it must.
    pub fn hold(&self, now: Time) -> Option<Time> {
        (self.next_send > now).then_some(self.next_send)
    }

    /// A packet has left.
    pub fn sent(&mut self, now: Time, bytes: u64) {
        self.next_send = self.next_send.max(now)
            + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.current.max(1));
        self.bytes += bytes;
        if self.bytes >= self.parameters.rpg_byte_reset {
            self.bytes = 0;
            self.byte_rounds += 1;
            self.increase();
        }
    }

    /// A CNP has arrived.
    pub fn on_cnp(&mut self, now: Time) {
        self.cnp_since_alpha_update = true;
        if now.since(self.last_decrease).as_nanos() as u64 >= self.parameters.rate_reduce_monitor_period {
            self.decrease(now);
        }
    }

    /// When the next timer of the reaction point fires.
    pub fn next_timer(&self) -> Time {
        self.alpha_at.min(self.increase_at)
    }

    /// Runs the timers that are due. `false` once the QP is back at full speed and needs no control any longer.
    pub fn on_timer(&mut self, now: Time) -> bool {
        if self.alpha_at <= now {
            let observed = if self.cnp_since_alpha_update { ALPHA_ONE } else { 0 };
            self.cnp_since_alpha_update = false;
            let g = self.parameters.dce_tcp_g;
            self.alpha = self.alpha - (self.alpha >> g) + (observed >> g);
            self.alpha_at = now + Duration::from_nanos(self.parameters.dce_tcp_rtt);
        }
        if self.increase_at <= now {
            self.time_rounds += 1;
            self.increase();
            self.increase_at = now + Duration::from_nanos(self.parameters.rpg_time_reset);
        }
        self.current < self.parameters.rpg_max_rate
    }

    fn decrease(&mut self, now: Time) {
        let p = &self.parameters;
        if p.clamp_tgt_rate || p.clamp_tgt_rate_after_time_inc && self.time_rounds > 0 {
            self.target = self.current;
        }
        let cut = self.current - self.current / 2 * self.alpha / ALPHA_ONE;
        self.current = cut.max(self.current * p.rpg_min_dec_fac / 100).max(p.rpg_min_rate);
        self.alpha = self.alpha - (self.alpha >> p.dce_tcp_g) + (ALPHA_ONE >> p.dce_tcp_g);
        self.last_decrease = now;
        self.alpha_at = now + Duration::from_nanos(p.dce_tcp_rtt);
        self.increase_at = now + Duration::from_nanos(p.rpg_time_reset);
        (self.time_rounds, self.byte_rounds, self.bytes) = (0, 0, 0);
    }

    /// Fast recovery towards the old rate, then additive, then hyper increase.
    fn increase(&mut self) {
        let p = &self.parameters;
        let slower = self.time_rounds.min(self.byte_rounds);
        let faster = self.time_rounds.max(self.byte_rounds);
        if slower > p.rpg_threshold {
            self.target += p.rpg_hai_rate * (slower - p.rpg_threshold) as u64;
        } else if faster > p.rpg_threshold {
            self.target += p.rpg_ai_rate;
        }
        self.target = self.target.min(p.rpg_max_rate);
        self.current = (self.current + self.target).div_ceil(2).min(p.rpg_max_rate);
    }
}

#[cfg(test)]
mod tests;
