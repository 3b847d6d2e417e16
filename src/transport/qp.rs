//! One queue pair: its state, and the routing of each event to the half that handles it.

use softrnic_wire::{Body, Msn, Op, Packet, Psn, Qpn, Srqn, Syndrome, Time};

use crate::attr::{AttrError, QpAttr, QpState, QpType};
use crate::completion::{QpEvent, Status};
use crate::config::Config;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::dcqcn::RateParameters;
use crate::hints::{Caller, Hints};
use crate::host::Host;
use crate::mask::AttrMask;
use crate::requester::{Answer, Requester};
use crate::responder::{Request, Responder, receive_completion};
use crate::transitions;
use crate::wqe::SendWqe;

/// A queue pair. `D` describes local bytes, and only the host interprets it.
pub struct Qp<D> {
    context: Context,
    requester: Requester<D>,
    responder: Responder<D>,
}

/// What one [`Qp::poll_transmit`] did.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Packets sent.
    pub sent: usize,
    /// What stopped it.
    pub stop: Stop,
}

/// Why a QP stopped sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Nothing can be sent until a packet, a post or a timer comes.
    Idle,
    /// The budget is used up: call again.
    Budget,
    /// The window to the peer is closed: call again when it opens.
    Window,
    /// The link is full: call again when it has room.
    LinkFull,
    /// An ACK waits for a reply: call again in the next call of the application, and when a timer fires.
    DelayedAck,
}

/// What is known about a received packet besides its transport headers.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The network marked it: congestion experienced.
    pub ce: bool,
    /// The UDP port that it was sent from.
    pub sport: u16,
    /// The 40 bytes that precede a UD payload in its receive buffer.
    pub grh: &'a [u8; 40],
}

/// A snapshot, for statistics and `query_qp`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct QpStatus {
    pub state: QpState,
    pub send_psn: Psn,
    pub una: Psn,
    pub expected_psn: Psn,
    pub msn: Msn,
    pub in_flight: u64,
    /// Of those, bytes that the window to the peer counts.
    pub charged: u64,
    pub queued_sends: usize,
    /// The peer has not answered since the host was asked about its process.
    pub doubts_peer: bool,
    pub retries_left: u8,
    pub rnr_wait: bool,
    /// Since when nothing has gone on, if requests are in flight.
    pub waits_since: Option<Time>,
    /// Bytes per second that congestion control allows; `None` when it does not limit.
    pub paced_rate: Option<u64>,
    /// Responses that wait to be sent.
    pub responses: usize,
    /// READs and atomics that are kept for duplicates.
    pub saved: usize,
}

impl<D> Qp<D> {
    /// A QP in RESET.
    pub fn new(qpn: Qpn, service: QpType, config: Config, rate_parameters: RateParameters) -> Qp<D> {
        let (state, attr) = (QpState::Reset, QpAttr::default());
        Qp {
            context: Context { qpn, service, state, attr, config, selective: false, spreads: false },
            requester: Requester::new(rate_parameters),
            responder: Responder::new(),
        }
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.context.qpn
    }

    /// Its transport service.
    pub fn service(&self) -> QpType {
        self.context.service
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.context.state
    }

    /// Its attributes; those that its state has not yet needed are meaningless.
    pub fn attr(&self) -> &QpAttr {
        &self.context.attr
    }

    /// A snapshot of it.
    pub fn status(&self) -> QpStatus {
        let mut status = QpStatus::of(self.context.state);
        self.requester.describe(&mut status);
        self.responder.describe(&mut status);
        status
    }

    /// Changes attributes and state (IBTA 11.2.4.2).
    ///
    /// # Errors
    /// The transition, an attribute or a value is not allowed. Nothing has changed then.
    pub fn modify<H: Host<Data = D>>(
        &mut self,
        mask: AttrMask,
        attr: &QpAttr,
        host: &mut H,
    ) -> Result<(), AttrError> {
        let cx = &mut self.context;
        let from = cx.state;
        if mask.contains(AttrMask::CUR_STATE) && attr.cur_state != from {
            return Err(AttrError::CurState);
        }
        let to = if mask.contains(AttrMask::STATE) { attr.state } else { from };
        transitions::check(cx.service, from, to, mask)?;
        attr.check(mask)?;
        if to == QpState::Reset {
            self.reset(host);
            return Ok(());
        }
        cx.attr.apply(mask, attr);
        cx.config.mtu = cx.attr.mtu.bytes();
        if to == QpState::Err {
            self.responder.forget_responses();
            self.enter_error(host);
            return Ok(());
        }
        cx.state = to;
        match to {
            QpState::Rtr => self.responder.start_at(cx.attr.rq_psn),
            QpState::Rts => self.requester.start(cx, from == QpState::Rtr),
            QpState::Sqd => self.requester.drain(cx, from == QpState::Sqd, host),
            _ => {}
        }
        Ok(())
    }

    /// Whether [`post_send`](Self::post_send) accepts another work request now; if not, it will once one completes.
    /// `false` also if there is no memory for any.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.requester.has_room()
    }

    /// Queues a work request. The caller has checked that the state accepts it ([`Qp::accepts_sends`]).
    #[inline]
    pub fn post_send<H: Host<Data = D>>(&mut self, wqe: SendWqe<D>, host: &mut H) {
        self.requester.post(wqe);
        if matches!(self.context.state, QpState::Err | QpState::Sqe) {
            self.requester.flush(&self.context, host);
        }
    }

    /// Flushes a receive queue to which a work request was posted in ERR.
    pub fn on_recv_posted<H: Host<Data = D>>(&mut self, host: &mut H) {
        if self.context.state == QpState::Err {
            self.flush_receives(host);
        }
    }

    /// Handles a packet for this QP whose ICRC and P_Key are verified and whose addresses match.
    pub fn on_packet<H: Host<Data = D>>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        received: Received<'_>,
        host: &mut H,
    ) {
        let (cx, responder) = (&self.context, &mut self.responder);
        if received.ce && packet.body != Body::Cnp {
            responder.note_congestion(cx, now, received.sport, host);
        }
        match (&packet.body, cx.service) {
            (Body::Rc(op), QpType::Rc) => {
                self.on_reliable(now, packet, op, None, host);
                if self.responder.has_kept() {
                    self.execute_kept(now, host);
                }
            }
            (Body::Xrc(xrc), QpType::XrcInitiator | QpType::XrcTarget) => {
                self.on_reliable(now, packet, &xrc.op(), xrc.srqn(), host);
            }
            (Body::Uc(op), QpType::Uc) if cx.takes_requests() => {
                responder.note_established(cx, host);
                let outcome = responder.on_unreliable(cx, &Request::new(packet, &Op::from(*op), None), host);
                self.after_responder(outcome, host);
            }
            (Body::Ud { deth, imm }, QpType::Ud) if cx.takes_requests() => {
                let outcome = responder.on_datagram(cx, packet, deth, *imm, received.grh, host);
                self.after_responder(outcome, host);
            }
            (Body::Cnp, _) => {
                let port = packet.payload.first_chunk().map_or(0, |port| u16::from_be_bytes(*port));
                self.requester.on_cnp(cx, now, port, host);
            }
            (Body::SelectiveAck(_), QpType::Rc) if cx.config.selective_recovery && cx.sends_requests() => {
                // The peer knows of us, though its answer may have been lost.
                self.context.selective = true;
                let cx = &self.context;
                let outcome = self.requester.on_selective_ack(cx, now, packet.bth.psn, packet.payload, host);
                self.after_requester(outcome, host);
            }
            (Body::Uc(_), QpType::Uc) | (Body::Ud { .. }, QpType::Ud) => host.count(Counter::DropState),
            _ => host.count(Counter::DropOpcode),
        }
        self.requester.report_drained(&self.context, host);
    }

    /// Sends at most `budget` packets.
    pub fn poll_transmit<H: Host<Data = D>>(
        &mut self,
        now: Time,
        host: &mut H,
        hints: Hints,
        budget: usize,
    ) -> Progress {
        let Qp { context: cx, requester, responder } = &mut *self;
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        responder.transmit_cnp(cx, host, &mut progress);
        let lone_ack = responder.lone_ack();
        let has_requests = requester.has_requests();
        match lone_ack {
            Some(ack) if progress.sent == 0 && !has_requests => {
                if responder.delays_ack(now, ack, hints, requester.has_outstanding()) {
                    progress.stop = Stop::DelayedAck;
                    return progress;
                }
            }
            _ => responder.note_sending(now, has_requests && hints.caller == Caller::Post),
        }
        // Behind a request, the shorter ACK can share a segmented send with it; in front of it, it cannot, and a second
        // send is most of a small message's latency. And where each packet arrives separately, a peer that polls for
        // the completion of its own request would stop to look for a WRITE that has not yet arrived.
        let writes = requester.next_is_short_write(cx);
        if lone_ack.is_some() && (hints.segments || writes) {
            self.transmit_requests(now, host, budget, &mut progress);
            if !writes {
                // The same peer would stop to look for a WRITE that the ACK does not follow at once.
                host.show();
            }
            let stop = progress.stop;
            if stop != Stop::LinkFull {
                let budget = progress.sent + 1;
                self.transmit_responses(now, host, budget, &mut progress);
                if progress.stop != Stop::LinkFull {
                    progress.stop = stop;
                }
            }
            return progress;
        }
        self.transmit_responses(now, host, budget, &mut progress);
        if progress.stop == Stop::Idle {
            self.transmit_requests(now, host, budget, &mut progress);
        }
        progress
    }

    /// Whether an ACK is all that it has to answer.
    pub fn has_lone_ack(&self) -> bool {
        self.responder.lone_ack().is_some()
    }

    /// Whether the peer waits for an answer.
    pub fn owes_answer(&self) -> bool {
        self.responder.owes_answer()
    }

    /// Sends an ACK that is all that it has to answer, whatever there is to send besides. Returns whether the link took it.
    pub fn transmit_ack<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) -> bool {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        self.transmit_responses(now, host, 1, &mut progress);
        if progress.sent > 0 {
            self.responder.note_sending(now, false);
        }
        progress.sent > 0
    }

    /// The NIC of the peer recovers from losses selectively, and knows that this one does.
    pub fn agree_on_selective_recovery(&mut self) {
        self.context.selective = self.context.service == QpType::Rc && self.context.config.selective_recovery;
    }

    /// The NIC of the peer takes packets from many paths, and recovers selectively. `is_told`: it knows that this one does. Returns
    /// whether packets are spread from now on.
    pub fn agree_on_paths(&mut self, now: Time, is_told: bool) -> bool {
        let config = &self.context.config;
        // If nothing comes by any path, many are tried between two timeouts.
        self.context.spreads = self.context.selective && config.paths > 1 && config.early_retransmission;
        is_told && self.context.spreads && self.requester.spread(&self.context, now)
    }

    /// Whether both ends recover from losses selectively.
    pub fn recovers_selectively(&self) -> bool {
        self.context.selective
    }

    /// Follows the port's active MTU, in bytes: the limit of UD payloads.
    pub fn set_ud_mtu(&mut self, bytes: u32) {
        self.context.config.ud_mtu = bytes;
    }

    /// When [`Qp::on_timeout`] is due, if ever.
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self.requester.deadline().min(self.responder.deadline());
        (next != Time::NEVER).then_some(next)
    }

    /// Runs every timer that is due.
    pub fn on_timeout<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        self.responder.on_timeout(now);
        let outcome = self.requester.on_timeout(&self.context, now, host);
        self.after_requester(outcome, host);
    }

    /// Whether a packet could be sent now, as far as the QP itself can tell.
    pub fn wants_transmit(&self) -> bool {
        self.responder.wants_transmit() || self.requester.has_requests()
    }

    /// Whether `post_send` is legal (IBTA 10.3.1): RTS, SQD, SQE, and ERR, where it is flushed.
    pub fn accepts_sends(&self) -> bool {
        matches!(self.context.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }

    /// Whether `post_recv` is legal: every state but RESET.
    pub fn accepts_receives(&self) -> bool {
        self.context.state != QpState::Reset
    }

    /// Abandons everything in flight before the QP is destroyed; nothing is completed.
    pub fn close<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.requester.stop(host);
        self.responder.forget_kept(host);
        self.context.state = QpState::Reset;
    }

    /// Something that the QP cannot do without, such as a completion queue, has failed: moves to ERR.
    pub fn abort<H: Host<Data = D>>(&mut self, host: &mut H) {
        if !matches!(self.context.state, QpState::Reset | QpState::Err) {
            self.enter_error(host);
        }
    }

    fn on_reliable<H: Host<Data = D>>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        op: &Op,
        srqn: Option<Srqn>,
        host: &mut H,
    ) {
        let (cx, psn) = (&self.context, packet.bth.psn);
        if op.operation().is_request() {
            if !cx.takes_requests() || cx.service == QpType::XrcInitiator {
                return host.count(Counter::DropState);
            }
            let outcome = self.responder.on_request(cx, Request::new(packet, op, srqn), host);
            if cx.config.paths > 1 {
                self.responder.note_load(cx, packet, host);
                self.responder.note_repeats(now, self.requester.paths.as_deref_mut(), host);
            }
            return self.after_responder(outcome, host);
        }
        if !cx.sends_requests() {
            return host.count(Counter::DropState);
        }
        let requester = &mut self.requester;
        let outcome = match *op {
            Op::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack(_) => requester.on_ack(cx, now, psn, host),
                Syndrome::RnrNak(timer) => requester.on_rnr_nak(cx, now, psn, timer, host),
                Syndrome::Nak(code) => requester.on_nak(cx, now, psn, code, host),
                Syndrome::Reserved(_) => return host.count(Counter::DropReservedSyndrome),
            },
            Op::ReadResponseFirst(_) | Op::ReadResponseMiddle => {
                requester.on_answer(cx, now, psn, Answer::ReadMore(packet.payload), host)
            }
            Op::ReadResponseLast(_) | Op::ReadResponseOnly(_) => {
                requester.on_answer(cx, now, psn, Answer::ReadEnd(packet.payload), host)
            }
            Op::AtomicAcknowledge(_, original) => {
                requester.on_answer(cx, now, psn, Answer::Atomic(original), host)
            }
            _ => return host.count(Counter::DropOpcode),
        };
        self.after_requester(outcome, host);
    }

    /// Executes the requests that came before their turn, as far as it is theirs now.
    #[cold]
    #[inline(never)]
    fn execute_kept<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        while let Some(kept) = self.responder.next_kept(&self.context, host) {
            self.on_reliable(now, &kept.packet(self.context.qpn), &kept.op, None, host);
            host.return_buffer(kept.into_buffer());
        }
    }

    fn transmit_requests<H: Host<Data = D>>(
        &mut self,
        now: Time,
        host: &mut H,
        budget: usize,
        progress: &mut Progress,
    ) {
        let outcome = self.requester.transmit(&self.context, now, host, budget, progress);
        self.after_requester(outcome, host);
        self.requester.report_drained(&self.context, host);
    }

    fn transmit_responses<H: Host<Data = D>>(
        &mut self,
        now: Time,
        host: &mut H,
        budget: usize,
        progress: &mut Progress,
    ) {
        // The message that ends the QP is answered too, once.
        loop {
            let Qp { context: cx, requester, responder } = &mut *self;
            let paths = requester.paths.as_deref_mut();
            match responder.transmit(cx, now, paths, host, budget, progress) {
                outcome @ Outcome::Fatal(_) => self.after_responder(outcome, host),
                Outcome::Continue => return,
            }
        }
    }

    /// A work request has failed: it reports why, and everything behind it is flushed (IBTA 9.9.2). An unreliable
    /// service loses only its send queue, until the QP is set to RTS again (IBTA 10.3.1.7).
    fn after_requester<H: Host<Data = D>>(&mut self, outcome: Outcome, host: &mut H) {
        let Outcome::Fatal(reason) = outcome else { return };
        self.requester.fail_front(&self.context, reason, host);
        if self.context.is_reliable() {
            return self.enter_error(host);
        }
        self.context.state = QpState::Sqe;
        self.requester.stop(host);
        self.requester.flush(&self.context, host);
    }

    /// A message could not be received, or a request was refused for good.
    fn after_responder<H: Host<Data = D>>(&mut self, outcome: Outcome, host: &mut H) {
        let Outcome::Fatal(reason) = outcome else { return };
        self.responder.fail_message(&self.context, reason.status(), host);
        self.enter_error(host);
    }

    /// Moves to ERR and flushes both queues in order (IBTA 10.3.1.6).
    fn enter_error<H: Host<Data = D>>(&mut self, host: &mut H) {
        let cx = &mut self.context;
        let before = core::mem::replace(&mut cx.state, QpState::Err);
        self.requester.stop(host);
        self.requester.flush(cx, host);
        self.responder.flush(cx, host);
        self.flush_receives(host);
        if before != QpState::Err && host.has_srq() && self.context.service != QpType::XrcInitiator {
            host.event(QpEvent::LastWqeReached);
        }
    }

    fn flush_receives<H: Host<Data = D>>(&mut self, host: &mut H) {
        if host.has_srq() {
            return;
        }
        while let Ok(receive) = host.take_recv(None) {
            host.complete(receive_completion(&self.context, &receive.wqe, Status::Flushed, true), None);
        }
    }

    /// Returns to the initial state: queues are emptied without completions.
    fn reset<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.requester.reset(host);
        while !host.has_srq() && host.take_recv(None).is_ok() {}
        self.responder.forget_kept(host);
        self.responder = Responder::new();
        self.context.selective = false;
        self.context.spreads = false;
        self.context.state = QpState::Reset;
        self.context.attr = QpAttr::default();
    }
}

impl QpStatus {
    fn of(state: QpState) -> QpStatus {
        QpStatus {
            state,
            send_psn: Psn::ZERO,
            una: Psn::ZERO,
            expected_psn: Psn::ZERO,
            msn: Msn::ZERO,
            in_flight: 0,
            charged: 0,
            queued_sends: 0,
            doubts_peer: false,
            retries_left: 0,
            rnr_wait: false,
            waits_since: None,
            paced_rate: None,
            responses: 0,
            saved: 0,
        }
    }
}

#[cfg(test)]
mod tests;
