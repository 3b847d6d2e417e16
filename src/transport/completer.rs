//! The completer: what responses mean for outstanding work requests (IBTA 9.7.5.2, 9.7.6).

use softrnic_wire::{NakCode, Psn, RnrTimer, Time};

use crate::completion::{Completion, Status};
use crate::counters::Counter;
use crate::host::Host;
use crate::qp::Qp;
use crate::send_queue::Entry;
use crate::timers::ack_timeout;
use crate::wqe::SendOp;
use crate::{QpState, QpType};

/// A response that carries an answer of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// READ Response First or Middle: more follows.
    ReadMore(&'a [u8]),
    /// READ Response Last or Only.
    ReadEnd(&'a [u8]),
    /// The former value of an atomic's word.
    Atomic(u64),
}

/// Early resends in a row before only the local ACK timeout is left.
const MAX_EARLY_RESENDS: u32 = 8;

/// A responder that answers out of order, or acknowledges over an unanswered READ or atomic: the answer
/// was lost on the way (an implied NAK).
struct ImpliedNak;

impl<D> Qp<D> {
    /// A positive acknowledgement of `psn`.
    pub(crate) fn on_ack<H: Host<Data = D>>(&mut self, now: Time, psn: Psn, host: &mut H) {
        if !self.covers(psn, host) {
            return;
        }
        if self.acknowledge(now, psn + 1, host).is_err() {
            self.implied_nak(now, host);
        }
    }

    /// NAK: the responder expects `psn` (sequence error), or refuses it.
    pub(crate) fn on_nak<H: Host<Data = D>>(&mut self, now: Time, psn: Psn, code: NakCode, host: &mut H) {
        if !self.covers(psn, host) {
            return;
        }
        host.count(if code == NakCode::PsnSequence { Counter::RcvdSeqErr } else { Counter::RcvdNak });
        let answered = self.acknowledge(now, psn, host);
        let status = match code {
            NakCode::PsnSequence => None,
            NakCode::InvalidRequest => Some(Status::RemoteInvalidRequest),
            NakCode::RemoteAccess => Some(Status::RemoteAccess),
            NakCode::RemoteOperational => Some(Status::RemoteOperation),
            // Reserved codes, and RD's, which no RC responder may send.
            _ => return host.count(Counter::DropReservedSyndrome),
        };
        // A READ that is refused has failed, whatever responses before the NAK were lost.
        let refuses_front = self.sq.entries.front().is_some_and(|front| front.packets > 0 && front.owns(psn));
        match status {
            Some(status) if answered.is_ok() || refuses_front => self.fail(status, host),
            _ if answered.is_err() => self.implied_nak(now, host),
            _ => self.on_sequence_nak(now, host),
        }
    }

    /// RNR NAK: the responder had no receive WQE for `psn` (IBTA 9.7.5.2.8).
    pub(crate) fn on_rnr_nak<H: Host<Data = D>>(
        &mut self,
        now: Time,
        psn: Psn,
        timer: RnrTimer,
        host: &mut H,
    ) {
        if !self.covers(psn, host) {
            return;
        }
        host.count(Counter::RcvdRnrErr);
        if self.acknowledge(now, psn, host).is_err() {
            return self.implied_nak(now, host);
        }
        if self.requester.rnr_wait {
            return;
        }
        match self.requester.rnr_retries_left {
            7 if self.attr.rnr_retry == 7 => {}
            0 => {
                host.count(Counter::RetryRnrExceededErr);
                return self.fail(Status::RnrRetryExceeded, host);
            }
            _ => self.requester.rnr_retries_left -= 1,
        }
        self.fall_silent(host);
        self.rewind(host);
        self.requester.restarted_at = None;
        self.requester.rnr_wait = true;
        self.timers.rnr = now + timer.delay();
    }

    /// A READ response or an atomic's answer.
    pub(crate) fn on_answer<H: Host<Data = D>>(
        &mut self,
        now: Time,
        psn: Psn,
        answer: Answer<'_>,
        host: &mut H,
    ) {
        if !self.covers(psn, host) {
            return;
        }
        if self.acknowledge(now, psn, host).is_err() {
            return self.implied_nak(now, host);
        }
        let Some(front) = self.sq.entries.front() else { return };
        if self.sq.una != psn || !front.owns(psn) {
            return host.count(Counter::DropGhostResponse);
        }
        match self.place_answer(psn, answer, host) {
            Ok(()) => {
                self.advance_una(now, psn + 1, host);
                self.complete_ready(host);
            }
            Err(status) => self.fail(status, host),
        }
    }

    /// Checks an answer against the request at the front and stores what it brings.
    fn place_answer<H: Host<Data = D>>(
        &mut self,
        psn: Psn,
        answer: Answer<'_>,
        host: &mut H,
    ) -> Result<(), Status> {
        let domain = host.own_domain();
        let front = &self.sq.entries[0];
        let is_last_awaited = self.sq.awaited.front().is_none_or(|&(_, last)| last == psn);
        match (&front.wqe.op, answer) {
            (SendOp::Read { .. }, Answer::ReadMore(bytes) | Answer::ReadEnd(bytes)) => {
                let offset = (psn - front.first) as u64 * self.config.mtu as u64;
                let expected = (front.wqe.length as u64 - offset).min(self.config.mtu as u64);
                let ends = matches!(answer, Answer::ReadEnd(_));
                if ends != is_last_awaited && !self.sq.awaited.is_empty() {
                    return Err(Status::BadResponse);
                }
                if bytes.len() as u64 != expected {
                    return Err(Status::LocalLength);
                }
                host.place(domain, &front.wqe.data, offset, bytes).map_err(|_| Status::LocalProtection)
            }
            (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Answer::Atomic(original)) => {
                let bytes = original.to_ne_bytes();
                host.place(domain, &front.wqe.data, 0, &bytes).map_err(|_| Status::LocalProtection)
            }
            (SendOp::AtomicWrite { .. }, Answer::ReadEnd([])) => Ok(()),
            (SendOp::Flush { .. }, Answer::ReadEnd([])) => {
                host.flush_answered(front.sent.saturating_sub(1));
                Ok(())
            }
            _ => Err(Status::BadResponse),
        }
    }

    /// Whether a response's PSN is one that is outstanding; anything else is a ghost (IBTA 9.7.5.2.1).
    fn covers<H: Host<Data = D>>(&self, psn: Psn, host: &mut H) -> bool {
        let outstanding = !psn.is_before(self.sq.una) && psn.is_before(self.sq.end);
        if !outstanding {
            host.count(Counter::DropGhostResponse);
        }
        outstanding
    }

    /// Everything before `to` is acknowledged, so far as no READ or atomic without its answer lies there.
    fn acknowledge<H: Host<Data = D>>(&mut self, now: Time, to: Psn, host: &mut H) -> Result<(), ImpliedNak> {
        while self.sq.una.is_before(to) && self.sq.started > 0 {
            let front = &self.sq.entries[0];
            if front.packets > 0 && front.wants_response() {
                return Err(ImpliedNak);
            }
            let end = front.first + front.packets;
            let reached = if to.is_before(end) { to } else { end };
            self.advance_una(now, reached, host);
            if reached == end {
                self.complete_front(Status::Success, host);
            }
            self.complete_ready(host);
        }
        Ok(())
    }

    /// Progress: `una` moves to `to`, which lies in the front entry or just behind it.
    fn advance_una<H: Host<Data = D>>(&mut self, now: Time, to: Psn, host: &mut H) {
        let freed = self.sq.acknowledge_to(to, self.config.mtu);
        self.note_answer(now, freed, host);
        self.rtt.acknowledged(to - 1, now);
        let requester = &mut self.requester;
        requester.retries_left = self.attr.retry_cnt;
        requester.rnr_retries_left = self.attr.rnr_retry;
        requester.restarted_at = None;
        requester.early_resends = 0;
        self.timers.ack = Time::NEVER;
        self.timers.early = Time::NEVER;
        self.arm_retransmission(now);
    }

    /// Completes whatever at the front needs no more acknowledgement.
    pub(crate) fn complete_ready<H: Host<Data = D>>(&mut self, host: &mut H) {
        while self.sq.started > 0 && !matches!(self.state, QpState::Err | QpState::Sqe) {
            let front = &self.sq.entries[0];
            if let Some(status) = front.fault {
                return self.fail(status, host);
            }
            let answered = front.packets > 0 && !self.sq.una.is_before(front.first + front.packets);
            if !front.is_local() && !answered {
                return;
            }
            self.complete_front(Status::Success, host);
        }
    }

    /// Reports the front entry and removes it.
    pub(crate) fn complete_front<H: Host<Data = D>>(&mut self, status: Status, host: &mut H) {
        let Some(Entry { wqe, .. }) = self.sq.entries.front() else { return };
        let is_reported = wqe.signaled || status != Status::Success;
        let completion = is_reported.then(|| Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.wc_opcode(),
            byte_len: if status == Status::Success { wqe.length } else { 0 },
            imm: if status == Status::Success { wqe.imm() } else { None },
            invalidated: None,
            qpn: self.qpn,
            src_qpn: softrnic_wire::Qpn::new(0),
            grh: false,
            solicited: status != Status::Success,
        });
        self.sq.pop();
        host.retire_sends(1);
        if let Some(completion) = completion {
            host.complete(completion, None);
        }
    }

    /// The front entry failed: it reports why, everything behind it is flushed (IBTA 9.9.2). Unreliable
    /// services lose no more than their send queue by it, until it is set to RTS again (IBTA 10.3.1.7).
    pub(crate) fn fail<H: Host<Data = D>>(&mut self, status: Status, host: &mut H) {
        self.complete_front(status, host);
        match self.service {
            QpType::Uc | QpType::Ud => self.enter_send_queue_error(host),
            QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget => self.enter_error(host),
        }
    }

    /// A READ's or atomic's answer was lost: ask again from the first one that is missing.
    fn implied_nak<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        if self.requester.rnr_wait || self.requester.restarted_at == Some(self.sq.una) {
            return;
        }
        host.count(Counter::ImpliedNakSeqErr);
        host.window().on_loss(now);
        self.restart(host);
    }

    fn on_sequence_nak<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        if self.requester.rnr_wait || self.requester.restarted_at == Some(self.sq.una) {
            return;
        }
        if self.requester.retries_left == 0 {
            host.count(Counter::RetryExceededErr);
            return self.fail(Status::RetryExceeded, host);
        }
        self.requester.retries_left -= 1;
        host.window().on_loss(now);
        self.restart(host);
    }

    /// Goes back to the oldest unacknowledged PSN.
    fn restart<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.count(Counter::CompleterRetryErr);
        self.rewind(host);
        self.requester.restarted_at = Some(self.sq.una);
    }

    /// Moves the cursor back to `una`.
    pub(crate) fn rewind<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.recall_flight(host);
        self.rtt.abandon();
        self.requester.since_ack_request = 0;
        self.timers.ack = Time::NEVER;
        self.timers.early = Time::NEVER;
    }

    /// Starts the retransmission timers if something is in flight and they do not run.
    pub(crate) fn arm_retransmission(&mut self, now: Time) {
        if !self.sq.is_outstanding() || matches!(self.service, QpType::Uc | QpType::Ud) {
            return;
        }
        if self.timers.ack == Time::NEVER {
            self.timers.ack = ack_timeout(now, self.attr.timeout);
            self.requester.waits_since = now;
        }
        let resends = self.requester.early_resends;
        let may_resend = self.config.early_retransmission && resends < MAX_EARLY_RESENDS;
        if self.timers.early == Time::NEVER && (may_resend || !self.is_probing()) {
            self.timers.early = now.after_nanos(self.rtt.patience() << resends);
            self.requester.waits_since = now;
        }
    }

    /// The local ACK timeout has passed without progress (IBTA 9.7.6.1.3, C9-141).
    pub(crate) fn on_ack_timeout<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        host.count(Counter::Timeout);
        if self.requester.retries_left == 0 {
            host.count(Counter::RetryExceededErr);
            return self.fail(Status::RetryExceeded, host);
        }
        self.requester.retries_left -= 1;
        self.suspect_loss(now, host);
        self.fall_silent(host);
        self.restart(host);
        self.requester.restarted_at = None;
    }

    /// A few round trips without progress: a NAK or the last packets may be lost, or the peer's QP is gone.
    pub(crate) fn on_early_timeout<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        self.fall_silent(host);
        if !self.config.early_retransmission {
            return;
        }
        let ack = self.timers.ack;
        host.count(Counter::EarlyRetransmit);
        // The first silence may only be a peer that waits for a processor: no reason to shrink the window.
        if self.requester.early_resends > 0 {
            self.suspect_loss(now, host);
        }
        self.restart(host);
        self.requester.restarted_at = None;
        self.requester.early_resends += 1;
        // The attribute's timer goes on as if nothing had been resent: only progress re-arms it.
        self.timers.ack = ack;
    }

    /// The RNR wait is over.
    pub(crate) fn on_rnr_timeout(&mut self) {
        self.requester.rnr_wait = false;
    }
}
