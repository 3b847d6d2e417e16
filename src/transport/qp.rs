//! One queue pair: its state, and the way from each event to the part that handles it.

use softrnic_wire::{Body, Headers, Msn, Op, Packet, Psn, Qpn, Syndrome, Time, UcOp, XrcBody};

use crate::attr::{AttrError, AttrMask, QpAttr, QpState, QpType};
use crate::completer::Answer;
use crate::completion::QpEvent;
use crate::config::Config;
use crate::counters::Counter;
use crate::dcqcn::{RateControl, RateParameters};
use crate::hints::{Caller, Hints};
use crate::host::{Host, Payload, Transmit};
use crate::requester::Requester;
use crate::responder::{Request, Responder};
use crate::rtt::RttEstimator;
use crate::send_queue::{Entry, SendQueue};
use crate::timers::{Timers, take_due};
use crate::transitions;
use crate::wqe::{SendOp, SendWqe};

/// A queue pair. `D` is where local bytes live, known to the host alone.
pub struct Qp<D> {
    pub(crate) qpn: Qpn,
    pub(crate) service: QpType,
    pub(crate) state: QpState,
    pub(crate) attr: QpAttr,
    pub(crate) config: Config,
    pub(crate) sq: SendQueue<D>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder<D>,
    pub(crate) timers: Timers,
    pub(crate) rtt: RttEstimator,
    pub(crate) rate_parameters: RateParameters,
    pub(crate) rate: Option<RateControl>,
    /// A CNP to the peer is due.
    cnp_due: bool,
    last_cnp: Option<Time>,
}

/// What a QP could do in one [`Qp::poll_transmit`].
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
    /// The budget is used up: ask again.
    Budget,
    /// The window to the peer is closed: ask again when it opens.
    Window,
    /// The link is full: ask again when it has room.
    LinkFull,
    /// An ACK waits for a reply: ask again in the next call, and when a timer comes.
    DelayedAck,
}

/// What is known of a received packet besides its transport headers.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The network marked it: congestion experienced.
    pub ce: bool,
    /// The 40 bytes that precede a UD payload in its receive buffer.
    pub grh: &'a [u8; 40],
}

/// A look inside, for statistics and `query_qp`.
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
    pub retries_left: u8,
    pub rnr_wait: bool,
    /// Bytes per second that congestion control allows; `None` when it does not limit.
    pub paced_rate: Option<u64>,
    /// Responses that wait to be sent.
    pub responses: usize,
    /// READs and atomics that are kept to answer them again.
    pub saved: usize,
}

impl<D> Qp<D> {
    /// A QP in RESET.
    pub fn new(qpn: Qpn, service: QpType, config: Config, rate_parameters: RateParameters) -> Qp<D> {
        Qp {
            qpn,
            service,
            state: QpState::Reset,
            attr: QpAttr::default(),
            config,
            sq: SendQueue::new(Psn::ZERO),
            requester: Requester::new(),
            responder: Responder::new(),
            timers: Timers::STOPPED,
            rtt: RttEstimator::default(),
            rate_parameters,
            rate: None,
            cnp_due: false,
            last_cnp: None,
        }
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its transport service.
    pub fn service(&self) -> QpType {
        self.service
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Its attributes; those that its state has not needed yet have no meaning.
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// A look inside.
    pub fn status(&self) -> QpStatus {
        QpStatus {
            state: self.state,
            send_psn: self.sq.cursor,
            una: self.sq.una,
            expected_psn: self.responder.expected,
            msn: self.responder.msn,
            in_flight: self.sq.in_flight,
            charged: self.charged(),
            queued_sends: self.sq.entries.len(),
            retries_left: self.requester.retries_left,
            rnr_wait: self.requester.rnr_wait,
            paced_rate: self.rate.as_ref().map(RateControl::current),
            responses: self.responder.responses.len(),
            saved: self.responder.resources.len(),
        }
    }

    /// Changes attributes and state (IBTA 11.2.4.2).
    ///
    /// # Errors
    /// The transition, an attribute or a value is not allowed; nothing has changed then.
    pub fn modify<H: Host<Data = D>>(
        &mut self,
        mask: AttrMask,
        attr: &QpAttr,
        host: &mut H,
    ) -> Result<(), AttrError> {
        if mask.has(AttrMask::CUR_STATE) && attr.cur_state != self.state {
            return Err(AttrError::CurState);
        }
        let to = if mask.has(AttrMask::STATE) { attr.state } else { self.state };
        transitions::check(self.service, self.state, to, mask)?;
        attr.check(mask)?;
        if to == QpState::Reset {
            self.reset(host);
            return Ok(());
        }
        let from = self.state;
        self.attr.apply(mask, attr);
        self.config.mtu = self.attr.mtu.bytes();
        match to {
            QpState::Err => {
                self.responder.responses.clear();
                self.responder.delayed_ack.cancel();
                self.enter_error(host);
            }
            QpState::Rtr => {
                self.responder.expected = self.attr.rq_psn;
                self.state = to;
            }
            QpState::Rts => {
                if from == QpState::Rtr {
                    self.sq.restart_at(self.attr.sq_psn);
                }
                self.requester.retries_left = self.attr.retry_cnt;
                self.requester.rnr_retries_left = self.attr.rnr_retry;
                self.state = to;
            }
            QpState::Sqd => {
                self.requester.drained_reported &= from == QpState::Sqd;
                self.state = to;
                self.report_drained(host);
            }
            _ => self.state = to,
        }
        Ok(())
    }

    /// Whether [`post_send`](Self::post_send) takes another work request now; if not, it will when one is complete.
    /// `false` also if there is no memory for any.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.sq.has_room()
    }

    /// Takes a work request. The caller has checked that the state accepts it ([`Qp::accepts_sends`]).
    pub fn post_send<H: Host<Data = D>>(&mut self, wqe: SendWqe<D>, host: &mut H) {
        self.sq.push(wqe);
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.flush_sends(host);
        }
    }

    /// Flushes a receive queue to which something was posted in ERR.
    pub fn on_recv_posted<H: Host<Data = D>>(&mut self, host: &mut H) {
        if self.state == QpState::Err {
            self.flush_receives(host);
        }
    }

    /// A packet for this QP, its ICRC and P_Key verified and its addresses matched.
    pub fn on_packet<H: Host<Data = D>>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        received: Received<'_>,
        host: &mut H,
    ) {
        if received.ce && packet.body != Body::Cnp {
            self.note_congestion(now, host);
        }
        match (&packet.body, self.service) {
            (Body::Rc(op), QpType::Rc) => self.on_reliable(now, packet, op, None, host),
            (Body::Xrc(xrc), QpType::XrcInitiator | QpType::XrcTarget) => {
                self.on_reliable(now, packet, &xrc.op(), xrc.srqn(), host);
            }
            (Body::Uc(op), QpType::Uc) if self.takes_requests() => {
                self.note_established(host);
                self.on_unreliable(packet, Op::from(*op), host);
            }
            (Body::Ud { deth, imm }, QpType::Ud) if self.takes_requests() => {
                self.on_datagram(packet, deth, *imm, received.grh, host);
            }
            (Body::Cnp, _) => self.on_cnp(now, host),
            (Body::Uc(_), QpType::Uc) | (Body::Ud { .. }, QpType::Ud) => host.count(Counter::DropState),
            _ => host.count(Counter::DropOpcode),
        }
        self.report_drained(host);
    }

    /// Sends at most `budget` packets.
    pub fn poll_transmit<H: Host<Data = D>>(
        &mut self,
        now: Time,
        host: &mut H,
        hints: Hints,
        budget: usize,
    ) -> Progress {
        let mut progress = Progress { sent: 0, stop: Stop::Idle };
        self.transmit_cnp(host, &mut progress);
        let lone_ack = self.responder.responses.one_ack();
        if let Some(psn) = lone_ack
            && progress.sent == 0
            && !self.has_requests()
        {
            let has_outstanding = self.sq.is_outstanding();
            if self.responder.delayed_ack.waits(now, psn, hints, has_outstanding) {
                progress.stop = Stop::DelayedAck;
                return progress;
            }
        } else {
            let posted = hints.caller == Caller::Post && self.has_requests();
            self.responder.delayed_ack.sending(now, posted);
        }
        if lone_ack.is_some() && (hints.segments || self.next_is_short_write()) {
            // Behind a request, the shorter ACK can share a segmented send with it; in front of it, never, and a
            // second send is most of a small message's latency. And where each packet arrives by itself, a peer that
            // has posted, and polls for the end of that, would stop to look for a WRITE that is yet to come.
            self.transmit_requests(now, host, budget, &mut progress);
            self.report_drained(host);
            let stop = progress.stop;
            if stop != Stop::LinkFull {
                let budget = progress.sent + 1;
                self.transmit_responses(host, budget, &mut progress);
                if progress.stop != Stop::LinkFull {
                    progress.stop = stop;
                }
            }
            return progress;
        }
        self.transmit_responses(host, budget, &mut progress);
        if progress.stop == Stop::Idle {
            self.transmit_requests(now, host, budget, &mut progress);
            self.report_drained(host);
        }
        progress
    }

    /// Whether the next request is one packet that the peer's application finds in its memory and nowhere else.
    fn next_is_short_write(&self) -> bool {
        self.sq.entries.get(self.sq.at).is_some_and(|entry| {
            matches!(entry.wqe.op, SendOp::Write { imm: None, .. }) && entry.wqe.length <= self.config.mtu
        })
    }

    fn has_requests(&self) -> bool {
        self.sq.at < self.sq.entries.len() && !self.requester.rnr_wait
    }

    /// Follows the port's active MTU, in bytes: the limit of UD payloads.
    pub fn set_ud_mtu(&mut self, bytes: u32) {
        self.config.ud_mtu = bytes;
    }

    /// When [`Qp::on_timeout`] is due, if ever.
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self.timers.next().min(self.responder.delayed_ack.deadline());
        (next != Time::NEVER).then_some(next)
    }

    /// Runs every timer that is due.
    pub fn on_timeout<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        self.responder.delayed_ack.on_timeout(now);
        if take_due(&mut self.timers.rnr, now) {
            self.on_rnr_timeout();
        }
        take_due(&mut self.timers.pace, now);
        if take_due(&mut self.timers.rate, now)
            && let Some(rate) = &mut self.rate
        {
            if rate.on_timer(now) {
                self.timers.rate = rate.next_timer();
            } else {
                self.rate = None;
            }
        }
        if take_due(&mut self.timers.ack, now) {
            self.on_ack_timeout(now, host);
        } else if take_due(&mut self.timers.early, now) {
            self.on_early_timeout(now, host);
        }
    }

    /// Whether a packet could be sent now, as far as the QP itself knows.
    pub fn wants_transmit(&self) -> bool {
        self.cnp_due || !self.responder.responses.is_empty() || self.has_requests()
    }

    /// Whether `post_send` is legal (IBTA 10.3.1): RTS, SQD, SQE, and ERR, where it is flushed.
    pub fn accepts_sends(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }

    /// Whether `post_recv` is legal: every state but RESET.
    pub fn accepts_receives(&self) -> bool {
        self.state != QpState::Reset
    }

    /// Gives up everything in flight before the QP is destroyed; nothing is completed.
    pub fn close<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.drop_flight(host);
        self.state = QpState::Reset;
    }

    fn on_reliable<H: Host<Data = D>>(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        op: &Op,
        srqn: Option<softrnic_wire::Srqn>,
        host: &mut H,
    ) {
        let psn = packet.bth.psn;
        if op.operation().is_request() {
            if !self.takes_requests() || self.service == QpType::XrcInitiator {
                return host.count(Counter::DropState);
            }
            let request = Request {
                psn,
                op,
                srqn,
                ack_req: packet.bth.ack_req,
                solicited: packet.bth.solicited,
                payload: packet.payload,
            };
            return self.on_request(request, host);
        }
        if !matches!(self.state, QpState::Rts | QpState::Sqd) {
            return host.count(Counter::DropState);
        }
        match *op {
            Op::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack(_) => self.on_ack(now, psn, host),
                Syndrome::RnrNak(timer) => self.on_rnr_nak(now, psn, timer, host),
                Syndrome::Nak(code) => self.on_nak(now, psn, code, host),
                Syndrome::Reserved(_) => host.count(Counter::DropReservedSyndrome),
            },
            Op::ReadResponseFirst(_) | Op::ReadResponseMiddle => {
                self.on_answer(now, psn, Answer::ReadMore(packet.payload), host);
            }
            Op::ReadResponseLast(_) | Op::ReadResponseOnly(_) => {
                self.on_answer(now, psn, Answer::ReadEnd(packet.payload), host);
            }
            Op::AtomicAcknowledge(_, original) => self.on_answer(now, psn, Answer::Atomic(original), host),
            _ => host.count(Counter::DropOpcode),
        }
    }

    fn takes_requests(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Moves to ERR and flushes both queues in order (IBTA 10.3.1.6).
    pub(crate) fn enter_error<H: Host<Data = D>>(&mut self, host: &mut H) {
        let first_time = self.state != QpState::Err;
        self.state = QpState::Err;
        self.timers = Timers::STOPPED;
        self.rate = None;
        self.requester.rnr_wait = false;
        self.drop_flight(host);
        self.flush_sends(host);
        let spare = self.responder.spare.take().map(|spare| (spare.wqe, None));
        for (wqe, srqn) in self.take_open_receive().into_iter().chain(spare) {
            let completion = self.receive_completion(&wqe, crate::Status::Flushed, true);
            host.complete(completion, srqn);
        }
        self.flush_receives(host);
        if first_time && host.has_srq() && self.service != QpType::XrcInitiator {
            host.event(QpEvent::LastWqeReached);
        }
    }

    /// Moves to SQE: the send queue is flushed, receiving goes on.
    pub(crate) fn enter_send_queue_error<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.state = QpState::Sqe;
        self.timers = Timers::STOPPED;
        self.flush_sends(host);
    }

    /// Something that the QP cannot do without has failed, such as a completion queue: moves to ERR.
    pub fn abort<H: Host<Data = D>>(&mut self, host: &mut H) {
        if !matches!(self.state, QpState::Reset | QpState::Err) {
            self.enter_error(host);
        }
    }

    fn flush_sends<H: Host<Data = D>>(&mut self, host: &mut H) {
        while !self.sq.entries.is_empty() {
            self.complete_front(crate::Status::Flushed, host);
        }
    }

    fn flush_receives<H: Host<Data = D>>(&mut self, host: &mut H) {
        if host.has_srq() {
            return;
        }
        while let Ok(receive) = host.take_recv(None) {
            let completion = self.receive_completion(&receive.wqe, crate::Status::Flushed, true);
            host.complete(completion, None);
        }
    }

    fn take_open_receive(&mut self) -> Option<(crate::RecvWqe<D>, Option<softrnic_wire::Srqn>)> {
        match self.responder.open.take() {
            Some(crate::responder::Open::Send { receive, srqn, .. }) => Some((receive.wqe, srqn)),
            _ => None,
        }
    }

    /// Back to the beginning: queues are emptied without completions.
    fn reset<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.drop_flight(host);
        host.retire_sends(self.sq.entries.len() as u32);
        while !host.has_srq() && host.take_recv(None).is_ok() {}
        *self = Qp::new(self.qpn, self.service, self.config, self.rate_parameters);
    }

    /// SQ_DRAINED: everything that was started before SQD is complete.
    fn report_drained<H: Host<Data = D>>(&mut self, host: &mut H) {
        if self.state == QpState::Sqd && !self.requester.drained_reported && self.sq.is_drained() {
            self.requester.drained_reported = true;
            if self.attr.sqd_notify {
                host.event(QpEvent::SendQueueDrained);
            }
        }
    }

    /// A packet came with the congestion mark: tell its sender, at most once per interval (Annex A17.9).
    fn note_congestion<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        host.count(Counter::EcnMarked);
        let interval = std::time::Duration::from_micros(self.config.cnp_interval_us as u64);
        if self.service != QpType::Ud && self.last_cnp.is_none_or(|last| now.since(last) >= interval) {
            self.last_cnp = Some(now);
            self.cnp_due = true;
        }
    }

    fn transmit_cnp<H: Host<Data = D>>(&mut self, host: &mut H, progress: &mut Progress) {
        if !std::mem::take(&mut self.cnp_due) || !self.takes_requests() {
            return;
        }
        // DSCP 48, ECN-capable: what hardware sends, so that switches favour it.
        let path = crate::Path { tos: 0xC2, ..self.attr.path };
        let mut bth = softrnic_wire::Bth::new(self.attr.dest_qpn, Psn::ZERO);
        bth.becn = true;
        bth.mig_req = false;
        let packet = Transmit {
            path: &path,
            headers: Headers { bth, body: Body::Cnp },
            payload: Payload::Zeros(softrnic_wire::CNP_RESERVED_LEN),
            attempt: 0,
        };
        if host.transmit(packet).is_ok() {
            progress.sent += 1;
            host.count(Counter::CnpSent);
        }
    }

    fn on_cnp<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        if !self.config.congestion_control || !matches!(self.service, QpType::Rc | QpType::XrcInitiator) {
            return host.count(Counter::CnpIgnored);
        }
        host.count(Counter::CnpHandled);
        match &mut self.rate {
            Some(rate) => rate.on_cnp(now),
            None => self.rate = Some(RateControl::new(self.rate_parameters, now)),
        }
        self.timers.rate = self.rate.as_ref().map_or(Time::NEVER, RateControl::next_timer);
    }

    /// The packet body that carries a request of `entry`; `None` if the service has no such request.
    pub(crate) fn request_body(&self, entry: &Entry<D>, op: Op) -> Option<Body> {
        match (&entry.wqe.op, self.service) {
            (SendOp::Datagram { qkey, imm, .. }, QpType::Ud) => Some(self.datagram_body(*qkey, *imm)),
            (SendOp::Datagram { .. }, _) | (_, QpType::Ud | QpType::XrcTarget) => None,
            (_, QpType::XrcInitiator) => XrcBody::request(entry.wqe.srqn?, op).map(Body::Xrc),
            (_, QpType::Uc) => UcOp::from_op(op).map(Body::Uc),
            (_, QpType::Rc) => Some(Body::Rc(op)),
        }
    }

    pub(crate) fn response_body(&self, op: Op) -> Body {
        match (self.service, XrcBody::response(op)) {
            (QpType::XrcInitiator | QpType::XrcTarget, Some(xrc)) => Body::Xrc(xrc),
            _ => Body::Rc(op),
        }
    }
}
