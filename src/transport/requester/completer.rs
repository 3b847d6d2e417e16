//! The completer: what responses mean for outstanding work requests (IBTA 9.7.5.2, 9.7.6).

use core::time::Duration;

use softrnic_wire::{NakCode, Psn, Qpn, RnrTimer, Time};

use super::send_queue::Entry;
use super::timers::ack_timeout;
use super::{Requester, RnrWaiting};
use crate::QpType;
use crate::completion::{Completion, Status};
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::{Attempt, Concern, QpFacts, Reason};
use crate::host::{Host, PeerProcess};
use crate::planted::Fault;
use crate::tuning::{ANSWER_POLL, MAX_EARLY_RESENDS, RNR_CONCERN};
use crate::wqe::SendOp;

/// A response that carries data of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// READ Response First or Middle: more follows.
    ReadMore(&'a [u8]),
    /// READ Response Last or Only.
    ReadEnd(&'a [u8]),
    /// The former value of an atomic's word.
    Atomic(u64),
}

/// Why not everything before a response's PSN could be taken as acknowledged.
enum Unacknowledged {
    /// The responder answered out of order, or acknowledged beyond an unanswered READ or atomic: the answer was lost
    /// (an implied NAK).
    ImpliedNak,
    /// A work request behind it could not be sent, and fails now.
    Fatal(Reason),
}

impl<D> Requester<D> {
    /// A positive acknowledgement of `psn`.
    pub fn on_ack<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, psn: Psn, host: &mut H) -> Outcome {
        if !self.covers(psn, host) {
            self.note_stale(cx);
            return Outcome::Continue;
        }
        match self.acknowledge(cx, now, psn + 1, host) {
            Ok(()) => {}
            Err(Unacknowledged::ImpliedNak) => return self.answer_is_missing(cx, now, psn + 1, host),
            Err(Unacknowledged::Fatal(reason)) => return Outcome::Fatal(reason),
        }
        Outcome::Continue
    }

    /// NAK: the responder expects `psn` (sequence error), or refuses it.
    pub fn on_nak<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        psn: Psn,
        code: NakCode,
        host: &mut H,
    ) -> Outcome {
        if !self.covers(psn, host) {
            return Outcome::Continue;
        }
        host.count(if code == NakCode::PsnSequence { Counter::RcvdSeqErr } else { Counter::RcvdNak });
        let implied_nak = match self.acknowledge(cx, now, psn, host) {
            Ok(()) => false,
            Err(Unacknowledged::ImpliedNak) => true,
            Err(Unacknowledged::Fatal(reason)) => return Outcome::Fatal(reason),
        };
        let reason = match code {
            NakCode::PsnSequence => None,
            NakCode::InvalidRequest => Some(Reason::NakInvalidRequest),
            NakCode::RemoteAccess => Some(Reason::NakRemoteAccess),
            NakCode::RemoteOperational => Some(Reason::NakRemoteOperation),
            // Reserved codes, and RD's, which an RC responder may not send.
            _ => {
                host.count(Counter::DropReservedSyndrome);
                return Outcome::Continue;
            }
        };
        // A refused READ has failed, whichever responses before the NAK were lost.
        let refuses_front = self.queue.entries.front().is_some_and(|front| front.owns(psn));
        match reason {
            Some(reason) if !implied_nak || refuses_front => return Outcome::Fatal(reason),
            _ if implied_nak => self.implied_nak(now, host),
            _ => return self.on_sequence_nak(now, host),
        }
        Outcome::Continue
    }

    /// RNR NAK: the responder had no receive WQE for `psn` (IBTA 9.7.5.2.8).
    pub fn on_rnr_nak<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        psn: Psn,
        timer: RnrTimer,
        host: &mut H,
    ) -> Outcome {
        if !self.covers(psn, host) {
            return Outcome::Continue;
        }
        host.count(Counter::RcvdRnrErr);
        match self.acknowledge(cx, now, psn, host) {
            Ok(()) if self.rnr_wait => return Outcome::Continue,
            Ok(()) => {}
            Err(Unacknowledged::ImpliedNak) => {
                self.implied_nak(now, host);
                return Outcome::Continue;
            }
            Err(Unacknowledged::Fatal(reason)) => return Outcome::Fatal(reason),
        }
        self.note_rnr(cx, now, host);
        let delay = if cx.config.has(Fault::NoRnrDelay) { Duration::ZERO } else { timer.delay() };
        match self.rnr_retries_left {
            7 if cx.attr.rnr_retry == 7 => {}
            // A debugger may have stopped the thread that posts receives, and not the NIC's.
            _ if self.peer_process(cx, host) == PeerProcess::Stopped => {
                self.ask_again(cx, now, host);
            }
            // What was seen before this NAK does not suffice to give up.
            0 => match self.ask_again(cx, now, host) {
                PeerProcess::Stopped => {}
                PeerProcess::Awaited => self.given_up_unless_stopped = Some(now + delay),
                PeerProcess::NotStopped => return rnr_retries_exceeded(host),
            },
            _ => {
                self.rnr_retries_left -= 1;
                self.ask_again(cx, now, host);
            }
        }
        self.fall_silent(host);
        self.rewind(host);
        self.restarted_at = None;
        self.rnr_wait = true;
        self.timers.rnr = now + if self.given_up_unless_stopped.is_some() { ANSWER_POLL } else { delay };
        Outcome::Continue
    }

    /// The wait after an RNR NAK is over, or it may be known by now whether the peer's process is stopped.
    pub(super) fn on_rnr_timeout<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
    ) -> Outcome {
        let until = match self.given_up_unless_stopped.map(|due| (self.peer_process(cx, host), due)) {
            None => now,
            Some((PeerProcess::Stopped, due)) => {
                self.given_up_unless_stopped = None;
                due
            }
            Some((PeerProcess::Awaited, _)) => now + ANSWER_POLL,
            Some((PeerProcess::NotStopped, _)) => return rnr_retries_exceeded(host),
        };
        self.rnr_wait = until > now;
        if self.rnr_wait {
            self.timers.rnr = until;
        }
        Outcome::Continue
    }

    /// Tells the host when the peer has had no receive for long.
    fn note_rnr<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) {
        let una = self.queue.una;
        let waiting = self.rnr_waiting.filter(|waiting| waiting.at == una);
        let mut waiting = waiting.unwrap_or(RnrWaiting { at: una, since: now, is_told: false });
        if !waiting.is_told
            && now >= waiting.since + RNR_CONCERN
            && let Some(front) = self.queue.entries.front()
        {
            waiting.is_told = true;
            let (attempt, qp) = (Attempt::of(&front.wqe), QpFacts::of(cx));
            host.concern(Concern::NoReceiveAtPeer { since: waiting.since, attempt, qp });
        }
        self.rnr_waiting = Some(waiting);
    }

    /// A READ response or the answer to an atomic.
    pub fn on_answer<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        psn: Psn,
        answer: Answer<'_>,
        host: &mut H,
    ) -> Outcome {
        if !self.covers(psn, host) {
            self.note_late(cx);
            return Outcome::Continue;
        }
        match self.acknowledge(cx, now, psn, host) {
            Ok(()) => {}
            Err(Unacknowledged::ImpliedNak) if self.is_selective(cx) => {
                return match self.note_executed(cx, now, psn, host) {
                    Outcome::Continue => self.on_answer_ahead(cx, now, psn, answer, host),
                    fatal @ Outcome::Fatal(_) => fatal,
                };
            }
            Err(Unacknowledged::ImpliedNak) => {
                self.implied_nak(now, host);
                return Outcome::Continue;
            }
            Err(Unacknowledged::Fatal(reason)) => return Outcome::Fatal(reason),
        }
        if !self.queue.entries.front().is_some_and(|front| front.owns(psn)) {
            host.count(Counter::DropGhostResponse);
            return Outcome::Continue;
        }
        let placed = self.place_answer(cx, 0, psn, answer, host).and_then(|()| {
            self.advance_una(cx, now, psn + 1, host);
            self.note_progress(cx, now, host);
            self.complete_ready(cx, host)
        });
        match placed {
            Ok(()) if self.board.is_some() => self.note_executed(cx, now, psn + 1, host),
            Ok(()) => Outcome::Continue,
            Err(reason) => Outcome::Fatal(reason),
        }
    }

    /// The answer to a READ or atomic before `to` is missing, although the peer has executed everything before that.
    fn answer_is_missing<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        to: Psn,
        host: &mut H,
    ) -> Outcome {
        if self.is_selective(cx) {
            return self.note_executed(cx, now, to, host);
        }
        self.implied_nak(now, host);
        Outcome::Continue
    }

    /// Checks an answer against its request, the entry at `at`, and stores its data.
    pub(super) fn place_answer<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        at: usize,
        psn: Psn,
        answer: Answer<'_>,
        host: &mut H,
    ) -> Result<(), Reason> {
        let domain = host.own_domain();
        let front = &self.queue.entries[at];
        let is_last_awaited = self.queue.awaited.front().is_none_or(|&(_, last)| last == psn);
        match (&front.wqe.op, answer) {
            (SendOp::Read { .. }, Answer::ReadMore(bytes) | Answer::ReadEnd(bytes)) => {
                let mtu = cx.config.mtu as u64;
                let offset = (psn - front.first) as u64 * mtu;
                let expected = (front.wqe.length as u64 - offset).min(mtu);
                let ends = matches!(answer, Answer::ReadEnd(_));
                // What is asked for again selectively ends elsewhere.
                if ends != is_last_awaited && !self.queue.awaited.is_empty() && !cx.selective {
                    return Err(Reason::AnswerEnd);
                }
                if bytes.len() as u64 != expected && !cx.config.has(Fault::AnyResponse) {
                    return Err(Reason::AnswerLength);
                }
                host.scatter(domain, &front.wqe.data, offset, bytes).map_err(|_| Reason::LocalMemory)
            }
            (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Answer::Atomic(original)) => {
                let bytes = original.to_ne_bytes();
                host.scatter(domain, &front.wqe.data, 0, &bytes).map_err(|_| Reason::LocalMemory)
            }
            (SendOp::AtomicWrite { .. }, Answer::ReadEnd([])) => Ok(()),
            (SendOp::Flush { .. }, Answer::ReadEnd([])) => {
                if cx.service == QpType::Rc {
                    host.peer().flush.on_answer(front.sent.saturating_sub(1));
                }
                Ok(())
            }
            _ => Err(Reason::AnswerKind),
        }
    }

    /// Whether a response's PSN is outstanding; any other is a ghost (IBTA 9.7.5.2.1).
    fn covers<H: Host<Data = D>>(&self, psn: Psn, host: &mut H) -> bool {
        let outstanding = !psn.is_before(self.queue.una) && psn.is_before(self.queue.end);
        if !outstanding {
            host.count(Counter::DropGhostResponse);
        }
        outstanding
    }

    /// Everything before `to` is acknowledged, up to the first READ or atomic that has no answer yet.
    fn acknowledge<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        to: Psn,
        host: &mut H,
    ) -> Result<(), Unacknowledged> {
        let una = self.queue.una;
        if self.board.is_some() {
            return match self.note_executed(cx, now, to, host) {
                Outcome::Fatal(reason) => Err(Unacknowledged::Fatal(reason)),
                Outcome::Continue if self.queue.una.is_before(to) => Err(Unacknowledged::ImpliedNak),
                Outcome::Continue => Ok(()),
            };
        }
        let outcome = self.complete_until(cx, now, to, host);
        if self.queue.una != una {
            self.note_progress(cx, now, host);
        }
        outcome
    }

    /// Moves `una` towards `to`, and completes what it passes.
    fn complete_until<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        to: Psn,
        host: &mut H,
    ) -> Result<(), Unacknowledged> {
        while self.queue.una.is_before(to)
            && let Some(front) = self.queue.entries.front()
        {
            if front.wants_response() {
                return Err(Unacknowledged::ImpliedNak);
            }
            let end = front.first + front.packets;
            let reached = if to.is_before(end) { to } else { end };
            self.advance_una(cx, now, reached, host);
            if reached == end {
                self.complete_front(cx, Status::Success, host);
            }
            self.complete_ready(cx, host).map_err(Unacknowledged::Fatal)?;
        }
        Ok(())
    }

    /// `una` moves to `to`, which lies in the front entry or just behind it.
    #[inline(always)]
    pub(super) fn advance_una<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, to: Psn, host: &mut H) {
        let landed = self.landed_before(cx, now, to, host);
        let freed = self.queue.acknowledge_to(to, cx.config.mtu, landed);
        self.note_answer(now, freed, host);
    }

    /// Progress: the peer has answered everything before `una`, which has moved.
    pub(super) fn note_progress<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) {
        if self.rtt.acknowledged(self.queue.una - 1, now) {
            self.note_round_trip(cx, host);
        }
        self.retries_left = cx.attr.retry_cnt;
        self.rnr_retries_left = cx.attr.rnr_retry;
        self.restarted_at = None;
        self.early_resends = 0;
        self.awaits_answer = false;
        self.given_up_unless_stopped = None;
        self.asked_at = None;
        self.timers.ack = Time::NEVER;
        self.timers.early = Time::NEVER;
        self.arm_retransmission(cx, now);
    }

    /// Completes the entries at the front that need no further acknowledgement.
    ///
    /// # Errors
    /// The front entry fails for this reason.
    pub(super) fn complete_ready<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        host: &mut H,
    ) -> Result<(), Reason> {
        while self.queue.started > 0 {
            let front = &self.queue.entries[0];
            if let Some(reason) = front.fault {
                return Err(reason);
            }
            // A local operation, which owns no PSN, is at the front when everything before it is acknowledged.
            if self.queue.una.is_before(front.first + front.packets) {
                return Ok(());
            }
            self.complete_front(cx, Status::Success, host);
        }
        Ok(())
    }

    /// Completes the front entry, if there is one, and removes it.
    pub fn complete_front<H: Host<Data = D>>(&mut self, cx: &Context, status: Status, host: &mut H) {
        let Some(Entry { wqe, .. }) = self.queue.entries.front() else { return };
        let is_reported = wqe.signaled || status != Status::Success;
        let completion = is_reported.then(|| Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.wc_opcode(),
            byte_len: if status == Status::Success { wqe.length } else { 0 },
            imm: if status == Status::Success { wqe.imm() } else { None },
            invalidated: None,
            qpn: cx.qpn,
            src_qpn: Qpn::new(0),
            grh: false,
            solicited: status != Status::Success,
        });
        self.queue.pop();
        host.retire_sends(1);
        if let Some(completion) = completion {
            host.complete(completion, None);
        }
    }

    /// The answer to a READ or atomic was lost: asks again from the first missing one.
    fn implied_nak<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        if self.rnr_wait || self.restarted_at == Some(self.queue.una) {
            return;
        }
        host.count(Counter::ImpliedNakSeqErr);
        host.note_loss();
        host.peer().window.on_loss(now);
        self.restart(host);
    }

    fn on_sequence_nak<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) -> Outcome {
        if self.rnr_wait || self.restarted_at == Some(self.queue.una) {
            return Outcome::Continue;
        }
        if self.retries_left == 0 {
            host.count(Counter::RetryExceededErr);
            return Outcome::Fatal(Reason::SequenceNaks);
        }
        self.retries_left -= 1;
        host.note_loss();
        host.peer().window.on_loss(now);
        self.restart(host);
        Outcome::Continue
    }

    /// Goes back to the oldest unacknowledged PSN.
    fn restart<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.count(Counter::CompleterRetryErr);
        self.rewind(host);
        self.restarted_at = Some(self.queue.una);
    }

    /// Moves the cursor back to `una`.
    fn rewind<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.recall_flight(host);
        self.rtt.abandon();
        self.since_ack_request = 0;
        self.timers.ack = Time::NEVER;
        self.timers.early = Time::NEVER;
    }

    /// Starts the retransmission timers if something is in flight and they are not running.
    #[inline(always)]
    pub(super) fn arm_retransmission(&mut self, cx: &Context, now: Time) {
        if !self.queue.is_outstanding() || !cx.is_reliable() {
            return;
        }
        if self.timers.ack == Time::NEVER {
            self.timers.ack = ack_timeout(now, cx.attr.timeout);
            self.waits_since = now;
        }
        let resends = self.doublings();
        let may_resend = cx.config.early_retransmission && resends < MAX_EARLY_RESENDS;
        if self.timers.early == Time::NEVER && (may_resend || !self.is_probing()) {
            let wait = if cx.selective { self.probe_wait() } else { self.rtt.rto() };
            self.timers.early = now.after_nanos(wait << resends);
            self.waits_since = now;
        }
    }

    /// What is to be sent again has to wait for the link. A peer that reads nothing may be why, so its time goes on.
    pub(super) fn go_on_waiting(&mut self, cx: &Context, now: Time) {
        if cx.is_reliable() && self.timers.ack == Time::NEVER {
            self.timers.ack = ack_timeout(now, cx.attr.timeout);
            self.waits_since = now;
        }
    }

    /// The local ACK timeout has passed without progress (IBTA 9.7.6.1.3, C9-141). While the peer's process is stopped,
    /// the NIC in it cannot answer, and no retry counts.
    pub(super) fn on_ack_timeout<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
    ) -> Outcome {
        let asks = !core::mem::take(&mut self.awaits_answer);
        if asks {
            host.count(Counter::Timeout);
            if self.retries_left == cx.attr.retry_cnt {
                self.silent_since = Some(self.waits_since);
            }
        }
        let mut process = self.peer_process(cx, host);
        if self.retries_left == 0 && asks && process != PeerProcess::Stopped {
            // What was seen when this timeout began does not suffice to give up.
            process = self.ask_again(cx, now, host);
        }
        match process {
            PeerProcess::Stopped => {}
            PeerProcess::Awaited if self.retries_left == 0 => {
                self.awaits_answer = true;
                self.timers.ack = now + ANSWER_POLL;
                return Outcome::Continue;
            }
            _ if self.retries_left == 0 => {
                host.count(Counter::RetryExceededErr);
                return Outcome::Fatal(Reason::NoAnswer);
            }
            _ if cx.config.has(Fault::EndlessRetries) => {}
            _ => self.retries_left -= 1,
        }
        self.ask_again(cx, now, host);
        self.suspect_loss(now, host);
        self.fall_silent(host);
        self.restart(host);
        self.restarted_at = None;
        Outcome::Continue
    }

    /// What has been seen of the peer's process since the last question.
    fn peer_process<H: Host<Data = D>>(&self, cx: &Context, host: &mut H) -> PeerProcess {
        let seen = |since| host.peer_process(&cx.attr.path, cx.attr.dest_qpn, since);
        self.asked_at.map_or(PeerProcess::NotStopped, seen)
    }

    /// Has the host look at the peer's process.
    fn ask_again<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) -> PeerProcess {
        self.asked_at = Some(now);
        self.peer_process(cx, host)
    }

    /// A few round trips without progress: a NAK or the last packets may be lost, or the peer's QP is gone.
    pub(super) fn on_early_timeout<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) {
        if self.give_up_waiting() {
            self.arm_retransmission(cx, now);
            return;
        }
        if cx.config.early_retransmission && self.probe_for_loss(cx) {
            host.count(Counter::EarlyRetransmit);
            // What comes now may be the answer to something later.
            self.rtt.abandon();
            self.note_probe();
            return;
        }
        // One that has never answered may have dropped what came before it was ready.
        if host.loses_nothing() && self.rtt.is_known() {
            return;
        }
        self.fall_silent(host);
        if !cx.config.early_retransmission {
            return;
        }
        let ack = self.timers.ack;
        host.count(Counter::EarlyRetransmit);
        // The first silence may only mean that the peer waits for a processor: no reason to shrink the window.
        if self.early_resends > 0 {
            self.suspect_loss(now, host);
        }
        self.restart(host);
        self.restarted_at = None;
        self.early_resends += 1;
        // The local ACK timer continues as if nothing had been resent: only progress re-arms it.
        self.timers.ack = ack;
    }
}

fn rnr_retries_exceeded<D>(host: &mut impl Host<Data = D>) -> Outcome {
    host.count(Counter::RetryRnrExceededErr);
    Outcome::Fatal(Reason::ReceiverNotReady)
}
