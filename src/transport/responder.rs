//! The responder: executes the requests of the peer and answers them (IBTA 9.7.4, 9.7.5.1).
//!
//! New requests pass the stages of `responder/stages.rs`, repeated ones are answered in `responder/duplicates.rs`.
//! Responses wait in `responder/responses.rs`; `responder/delayed_ack.rs` decides how long an ACK may wait.

mod datagram;
mod delayed_ack;
mod duplicates;
mod notification;
mod partial;
mod paths;
mod reorder;
mod repeats;
mod resources;
mod responses;
mod stages;
mod unreliable;

#[cfg(test)]
mod tests;

use softrnic_wire::{AtomicEth, Msn, NakCode, Op, Packet, Psn, Qpn, Rkey, Srqn, Syndrome, Time};

use crate::completion::{Completion, QpEvent, Status, WcOpcode};
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::{Attempt, Failure, Reason};
use crate::hints::Hints;
use crate::host::{Domain, Host};
use crate::planted::Fault;
use crate::qp::{Progress, QpStatus};
use crate::wqe::{Receive, RecvWqe, RemoteBuffer};
use crate::{QpState, QpType};

use delayed_ack::DelayedAck;
use notification::NotificationPoint;
use partial::PartialMessage;
use paths::{AckPorts, Repeated};
use reorder::Reorder;
use repeats::RepeatCredit;
use resources::Resources;
use responses::{LoneAck, Nak, Response, Responses};

/// The receiving half of a QP.
pub(crate) struct Responder<D> {
    /// The PSN of the next new request.
    epsn: Psn,
    msn: Msn,
    message: Option<PartialMessage<D>>,
    /// The receive WQE of a UC message that was dropped; the next message uses it.
    spare: Option<Receive<D>>,
    /// A NAK has been sent; only the expected PSN ends the silence that follows (IBTA 9.7.5.2.8, C9-114).
    nak_sent: bool,
    /// Requests that have come before their turn.
    reorder: Reorder,
    resources: Resources,
    responses: Responses,
    delayed_ack: DelayedAck,
    repeat_credit: RepeatCredit,
    notification: NotificationPoint,
    /// What was repeated, from a peer that knows of paths, and where acknowledgements to it leave.
    repeated: Repeated,
    ack_ports: AckPorts,
    /// COMM_EST has been raised.
    established: bool,
}

/// Why a request is refused, and what that does to the QP and to the receive WQE already taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// NAK 0x60, once.
    Sequence,
    /// RNR NAK: no receive WQE.
    NotReady,
    /// NAK 0x61; the WQE in use, if any, ends with the reason's status.
    Invalid(Reason),
    /// NAK 0x62.
    Access,
    /// NAK 0x63: our own WQE was at fault.
    Operational,
    /// A failed remote invalidate: acknowledged all the same, then the QP fails (error class J).
    Invalidate(Rkey),
}

/// A request, with the header facts that the stages need.
pub(crate) struct Request<'a> {
    pub psn: Psn,
    pub op: &'a Op,
    pub srqn: Option<Srqn>,
    pub ack_req: bool,
    pub solicited: bool,
    pub payload: &'a [u8],
}

/// A request on its way through the stages, and what they need to execute it.
struct Stage<'a, H> {
    cx: &'a Context,
    request: &'a Request<'a>,
    /// Where its keys must be.
    domain: Domain,
    host: &'a mut H,
}

impl<'a> Request<'a> {
    pub fn new(packet: &Packet<'a>, op: &'a Op, srqn: Option<Srqn>) -> Request<'a> {
        let (bth, payload) = (&packet.bth, packet.payload);
        Request { psn: bth.psn, op, srqn, ack_req: bth.ack_req, solicited: bth.solicited, payload }
    }

    /// What it asks for, as far as this packet says.
    #[cold]
    fn attempt(&self) -> Attempt {
        let atomic = |eth: &AtomicEth| Some(RemoteBuffer { va: eth.va, rkey: eth.rkey });
        let (opcode, length, remote) = match self.op {
            Op::WriteFirst(reth) | Op::WriteOnly(reth, _) => {
                (WcOpcode::RdmaWrite, reth.dma_len, Some(RemoteBuffer::of(reth)))
            }
            Op::WriteMiddle | Op::WriteLast(_) => (WcOpcode::RdmaWrite, self.payload.len() as u32, None),
            Op::ReadRequest(reth) => (WcOpcode::RdmaRead, reth.dma_len, Some(RemoteBuffer::of(reth))),
            Op::CompareSwap(eth) => (WcOpcode::CompareSwap, 8, atomic(eth)),
            Op::FetchAdd(eth) => (WcOpcode::FetchAdd, 8, atomic(eth)),
            Op::AtomicWrite(reth) => (WcOpcode::AtomicWrite, reth.dma_len, Some(RemoteBuffer::of(reth))),
            Op::Flush(_, reth) => (WcOpcode::Flush, reth.dma_len, Some(RemoteBuffer::of(reth))),
            _ => (WcOpcode::Send, self.payload.len() as u32, None),
        };
        Attempt { opcode, wr_id: None, length: length.into(), remote, room: None }
    }

    /// First and Middle carry exactly the path MTU, Last something, Only no more than it (C9-92).
    fn has_valid_length(&self, cx: &Context) -> bool {
        let announced = !matches!(self.op, Op::AtomicWrite(reth) if reth.dma_len != 8);
        announced && self.op.operation().payload().allows(self.payload.len(), cx.config.mtu as usize)
    }
}

impl<D> Responder<D> {
    pub fn new() -> Responder<D> {
        Responder {
            epsn: Psn::ZERO,
            msn: Msn::ZERO,
            message: None,
            spare: None,
            nak_sent: false,
            reorder: Reorder::default(),
            resources: Resources::new(),
            responses: Responses::new(),
            delayed_ack: DelayedAck::default(),
            repeat_credit: RepeatCredit::default(),
            notification: NotificationPoint::default(),
            repeated: Repeated::Nothing,
            ack_ports: AckPorts::default(),
            established: false,
        }
    }

    /// Adds its part to a snapshot.
    pub fn describe(&self, status: &mut QpStatus) {
        status.expected_psn = self.epsn;
        status.msn = self.msn;
        status.responses = self.responses.len();
        status.saved = self.resources.len();
    }

    /// The PSN of the first request.
    pub fn start_at(&mut self, psn: Psn) {
        self.epsn = psn;
    }

    /// Handles a request packet of the connected, reliable services.
    pub fn on_request<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        request: Request<'_>,
        host: &mut H,
    ) -> Outcome {
        if self.responses.is_full() {
            // Nothing can be sent: the link is blocked. The peer will ask again.
            host.count(Counter::DropBusy);
            return Outcome::Continue;
        }
        let ahead = request.psn.distance_from(self.epsn);
        let is_atomic = matches!(request.op, Op::FetchAdd(_) | Op::CompareSwap(_));
        if ahead < 0 && !(is_atomic && cx.config.has(Fault::RepeatsAtomics)) {
            self.on_duplicate(cx, &request, host);
            return Outcome::Continue;
        }
        if ahead > 0 {
            host.count(Counter::OutOfSeqRequest);
            if cx.selective && self.keep_for_later(cx, &request, host) {
                return Outcome::Continue;
            }
            host.note_loss();
            if self.nak_sent || cx.config.has(Fault::SilentAtGaps) {
                host.count(Counter::DropAfterNak);
                return Outcome::Continue;
            }
            return self.refuse(cx, request.psn, Refusal::Sequence, request.attempt(), host);
        }
        self.nak_sent = false;
        self.note_established(cx, host);
        match self.execute(cx, &request, host) {
            Ok(()) => {
                if self.has_kept() {
                    self.after_executing(cx, host);
                }
                Outcome::Continue
            }
            Err(refusal) => self.refuse(cx, request.psn, refusal, request.attempt(), host),
        }
    }

    /// The first packet accepted in RTR tells the application that the peer is there.
    pub fn note_established<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        if cx.state == QpState::Rtr && !self.established && cx.service != QpType::Ud {
            self.established = true;
            host.event(QpEvent::CommunicationEstablished);
        }
    }

    /// A packet arrived with the congestion mark.
    pub fn note_congestion<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, sport: u16, host: &mut H) {
        self.notification.note(cx, now, sport, host);
    }

    /// Whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        self.notification.is_due() || !self.responses.is_empty()
    }

    /// Sends the CNP that is due, if one is.
    pub fn transmit_cnp<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H, progress: &mut Progress) {
        self.notification.transmit(cx, host, progress);
    }

    /// Whether a response waits to be sent.
    pub fn owes_answer(&self) -> bool {
        !self.responses.is_empty()
    }

    /// The ACK, if nothing else waits to be sent.
    pub fn lone_ack(&self) -> Option<LoneAck> {
        self.responses.lone_ack()
    }

    /// Whether an ACK, which is all that the QP has to send, waits for a reply.
    pub fn delays_ack(&mut self, now: Time, ack: LoneAck, hints: Hints, has_outstanding: bool) -> bool {
        self.delayed_ack.waits(now, ack, hints, has_outstanding)
    }

    /// The QP sends; `posted` when that is a request that has just been posted.
    pub fn note_sending(&mut self, now: Time, posted: bool) {
        self.delayed_ack.sending(now, posted);
    }

    /// When [`on_timeout`](Self::on_timeout) is due; never, if no timer runs.
    pub fn deadline(&self) -> Time {
        self.delayed_ack.deadline()
    }

    /// Runs the timer if it is due.
    pub fn on_timeout(&mut self, now: Time) {
        self.delayed_ack.on_timeout(now);
    }

    /// Drops all responses not yet sent.
    pub fn forget_responses(&mut self) {
        self.responses.clear();
        self.delayed_ack.cancel();
    }

    /// Ends the message that a fatal outcome was about with that status.
    pub fn fail_message<H: Host<Data = D>>(&mut self, cx: &Context, status: Status, host: &mut H) {
        if let Some(PartialMessage::Send { receive, srqn, .. }) = self.message.take() {
            host.complete(receive_completion(cx, &receive.wqe, status, true), srqn);
        }
    }

    /// Forgets the requests that have come before their turn.
    pub fn forget_kept<H: Host<Data = D>>(&mut self, host: &mut H) {
        self.reorder.clear(host);
    }

    /// Completes as flushed the receive WQEs that it has taken.
    pub fn flush<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        self.forget_kept(host);
        self.fail_message(cx, Status::Flushed, host);
        if let Some(spare) = self.spare.take() {
            host.complete(receive_completion(cx, &spare.wqe, Status::Flushed, true), None);
        }
    }

    /// Everything before `psn` is done.
    fn expect(&mut self, psn: Psn) {
        self.epsn = psn;
        self.resources.forget_before(psn);
    }

    /// What a packet that is refused was a part of.
    fn message_of(&self, packet: Attempt) -> Attempt {
        match &self.message {
            Some(PartialMessage::Send { receive, received, .. }) if packet.opcode == WcOpcode::Send => {
                let wr_id = Some(receive.wqe.wr_id);
                Attempt { wr_id, length: *received, room: Some(receive.wqe.length), ..packet }
            }
            Some(PartialMessage::Write { reth, .. }) if packet.opcode == WcOpcode::RdmaWrite => {
                Attempt { length: reth.dma_len.into(), remote: Some(RemoteBuffer::of(reth)), ..packet }
            }
            _ => packet,
        }
    }

    /// Queues the NAK for a refusal, and returns what its error class requires of the QP.
    fn refuse<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        psn: Psn,
        refusal: Refusal,
        attempt: Attempt,
        host: &mut H,
    ) -> Outcome {
        let msn = self.msn;
        let nak = |psn, syndrome| Response::Nak(Nak { psn, msn, syndrome });
        let (response, reason) = match refusal {
            Refusal::Sequence => {
                host.count(Counter::SendSeqErr);
                self.nak_sent = true;
                self.responses.push(nak(self.epsn, Syndrome::Nak(NakCode::PsnSequence)));
                return Outcome::Continue;
            }
            Refusal::NotReady => {
                host.count(Counter::SendRnrErr);
                self.nak_sent = true;
                self.responses.push(nak(psn, Syndrome::RnrNak(cx.attr.min_rnr_timer)));
                return Outcome::Continue;
            }
            Refusal::Invalid(reason) => (nak(psn, Syndrome::Nak(NakCode::InvalidRequest)), reason),
            Refusal::Access if cx.config.has(Fault::WrongNak) => {
                (nak(psn, Syndrome::Nak(NakCode::InvalidRequest)), Reason::RemoteMemory)
            }
            Refusal::Access => (nak(psn, Syndrome::Nak(NakCode::RemoteAccess)), Reason::RemoteMemory),
            Refusal::Operational => {
                (nak(psn, Syndrome::Nak(NakCode::RemoteOperational)), Reason::ReceiveMemory)
            }
            Refusal::Invalidate(_) => (Response::ack(psn, msn), Reason::RemoteInvalidate),
        };
        host.count(Counter::SendNak);
        host.event(if refusal == Refusal::Access { QpEvent::AccessError } else { QpEvent::RequestError });
        self.responses.push(response);
        let attempt = Some(self.message_of(attempt));
        host.failed(Failure::new(cx, reason, attempt));
        Outcome::Fatal(reason)
    }
}

/// A message of an unreliable service cannot be received.
#[cold]
fn fail_receive<H: Host>(
    cx: &Context,
    reason: Reason,
    length: u64,
    wqe: &RecvWqe<H::Data>,
    host: &mut H,
) -> Outcome {
    let (wr_id, room) = (Some(wqe.wr_id), Some(wqe.length));
    let attempt = Attempt { opcode: WcOpcode::Recv, wr_id, length, remote: None, room };
    host.failed(Failure::new(cx, reason, Some(attempt)));
    Outcome::Fatal(reason)
}

/// The completion of a receive WQE, before it is known what the message brings.
pub(crate) fn receive_completion<D>(
    cx: &Context,
    wqe: &RecvWqe<D>,
    status: Status,
    solicited: bool,
) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        status,
        opcode: WcOpcode::Recv,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qpn: cx.qpn,
        src_qpn: Qpn::new(0),
        grh: false,
        solicited,
    }
}
