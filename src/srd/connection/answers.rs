//! What the peer says of our packets: acknowledged or refused; what is lost of them, and what that means for messages.

use core::time::Duration;

use softrnic_wire::{SrdPsn, Time};

use super::Connection;
use crate::code::{BUSY, Code};
use crate::counters::Counter;
use crate::endpoint::Config;
use crate::host::Host;
use crate::message::Work;
use crate::receiving::WORDS;
use crate::tuning::*;

impl<Q: Copy + Eq, D> Connection<Q, D> {
    pub(super) fn on_ack<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        base: SrdPsn,
        latest: SrdPsn,
        bits: &[u64; WORDS],
        host: &mut H,
    ) {
        let mut settled = 0;
        while self.flights.una().distance_from(base) < 0 {
            // Each step settles the lowest, so there is another lowest, or all are settled.
            let una = self.flights.una();
            if !self.acknowledged(now, una, una == latest, host) {
                break;
            }
            settled += 1;
        }
        for (place, &word) in bits.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let psn = base.plus(place as u32 * 64 + word.trailing_zeros());
                settled += u32::from(self.acknowledged(now, psn, psn == latest, host));
                word &= word - 1;
            }
        }
        if settled == 0 {
            return;
        }
        self.progress(now);
        self.grown += settled;
        if self.grown >= self.window {
            self.grown = 0;
            self.window = (self.window + self.window / 4 + 1).min(MAX_WINDOW);
        }
        self.look_for_losses(now);
        self.wake_dead();
    }

    /// The peer has answered something: the timeout begins anew.
    pub(super) fn progress(&mut self, now: Time) {
        self.backoff = 0;
        self.armed = now;
    }

    /// One packet was acknowledged. Returns whether anybody waited for that.
    pub(super) fn acknowledged<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        psn: SrdPsn,
        just_now: bool,
        host: &mut H,
    ) -> bool {
        let Some(flight) = self.flights.settle(psn) else { return false };
        self.flights.seen(psn, &flight);
        if just_now && !flight.sent_again {
            self.measure(now.since(flight.sent_at));
        }
        self.answered(flight.id, host);
        true
    }

    /// A packet of a message was answered; the message may be complete.
    pub(super) fn answered<H: Host<Qp = Q, Data = D>>(&mut self, id: u32, host: &mut H) {
        let Some(message) = self.messages.get(id) else { return };
        message.in_flight -= 1;
        if message.is_through() && !message.is_read() {
            self.finish(id, Code::Ok, host);
        }
    }

    /// A message has ended.
    pub(super) fn finish<H: Host<Qp = Q, Data = D>>(&mut self, id: u32, code: Code, host: &mut H) {
        let Some(message) = self.messages.remove(id) else { return };
        self.reads -= usize::from(message.is_read());
        match message.work {
            Work::Request(wqe) => host.complete_send(message.qp, wqe, code),
            Work::Answer { .. } | Work::Failure { .. } => self.answers -= 1,
            Work::Cancel => {}
        }
    }

    pub(super) fn measure(&mut self, sample: Duration) {
        // RFC 6298.
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((smooth, variation)) => {
                (smooth * 7 / 8 + sample / 8, variation * 3 / 4 + smooth.abs_diff(sample) / 4)
            }
        });
    }

    pub(super) fn timeout(&self) -> Duration {
        let base = match self.rtt {
            None => INITIAL_TIMEOUT,
            Some((smooth, variation)) => (smooth + variation * 4).clamp(MIN_TIMEOUT, MAX_TIMEOUT),
        };
        (base * (1 << self.backoff.min(6))).min(MAX_TIMEOUT)
    }

    /// How long a packet that was overtaken may still come.
    pub(super) fn patience(&self) -> Duration {
        let smooth = self.rtt.map_or(INITIAL_TIMEOUT, |(smooth, _)| smooth);
        smooth + (smooth / 4).max(MIN_REORDERING)
    }

    pub(super) fn look_for_losses(&mut self, now: Time) {
        let (found, again) = self.flights.find_lost(now, self.patience());
        self.reordering = again;
        if found > 0 {
            self.on_loss(now, found);
        }
    }

    /// The more of a window was lost, the smaller the next: a loss in a hundred says nothing of congestion.
    pub(super) fn on_loss(&mut self, now: Time, lost: u32) {
        if now < self.no_cut_before {
            return;
        }
        self.no_cut_before = now + self.patience();
        self.window = (self.window - (lost * 4).min(self.window / 2)).max(MIN_WINDOW);
        self.grown = 0;
    }

    pub(super) fn on_refusal<H: Host<Qp = Q, Data = D>>(
        &mut self,
        now: Time,
        psn: SrdPsn,
        id: u32,
        code: u8,
        config: &Config,
        host: &mut H,
    ) {
        // Ids of messages are not known to others, and a packet has but one.
        let Some(flight) = self.flights.settle(psn) else { return };
        self.flights.seen(psn, &flight);
        self.progress(now);
        let Some(message) = self.messages.get(flight.id).filter(|message| message.id == id) else {
            return self.answered(flight.id, host);
        };
        message.in_flight -= 1;
        let not_ready = code == Code::ReceiverNotReady as u8;
        if not_ready {
            host.count(Counter::NotReady);
        }
        if !matches!(message.work, Work::Request(_)) {
            // What is refused of an answer, the peer does not want; and a message that has ended is cancelled all the same.
            if !matches!(message.work, Work::Cancel) {
                self.finish(id, Code::Ok, host);
            }
        } else if not_ready && message.rnr_left == 0 {
            self.fail(id, Code::ReceiverNotReady, config, host);
        } else if not_ready || code == BUSY {
            let mut wait = BUSY_WAIT;
            if not_ready {
                wait = (NOT_READY * (1 << message.rnr_count.min(5))).min(MAX_NOT_READY);
                message.rnr_count = message.rnr_count.saturating_add(1);
                message.rnr_left -= u8::from(message.rnr_left < 7);
            }
            message.again.push((flight.offset, flight.len));
            if message.waits_until == Time::NEVER {
                self.waiting.push(id);
            }
            message.waits_until = now + wait;
        } else if message.is_read() {
            // There is nothing to cancel.
            self.finish(id, Code::of_peer(code), host);
        } else {
            self.fail(id, Code::of_peer(code), config, host);
        }
        self.wake_dead();
    }

    /// A request fails. The peer is told, if it may keep something for it.
    pub(super) fn fail<H: Host<Qp = Q, Data = D>>(
        &mut self,
        id: u32,
        code: Code,
        config: &Config,
        host: &mut H,
    ) {
        let Some(message) = self.messages.get(id) else { return };
        if !message.occupies_peer(config.payload) {
            return self.finish(id, code, host);
        }
        self.reads -= usize::from(message.is_read());
        let qp = message.qp;
        let work = core::mem::replace(&mut message.work, Work::Cancel);
        (message.length, message.sent, message.began, message.held) = (0, 0, false, true);
        message.again.clear();
        message.waits_until = Time::NEVER;
        self.waiting.retain(|&waiting| waiting != id);
        self.dead.push(id);
        if let Work::Request(wqe) = work {
            host.complete_send(qp, wqe, code);
        }
    }
}
