//! The responder: a request passes through named stages, each of which may end it (IBTA 9.7.4, 9.7.5.1).
//!
//! PSN → opcode sequence → access flags → resources → XRC SRQ → length → R_Key → execute → acknowledge.

use softrnic_wire::{Bth, Feth, Msn, NakCode, Op, Psn, Reth, Rkey, SendTail, Srqn, Syndrome};

mod delayed_ack;

use delayed_ack::DelayedAck;

use crate::completion::{Completion, QpEvent, Status, WcOpcode};
use crate::counters::Counter;
use crate::host::{AtomicOp, Domain, Host, NoRecv, RemoteAccess};
use crate::qp::Qp;
use crate::repeats::RepeatCredit;
use crate::resources::{Resources, Saved, SavedKind};
use crate::responses::{Nak, Response, Responses};
use crate::wqe::{Receive, RecvWqe};
use crate::{MAX_MESSAGE, QpState, QpType};

/// A message whose first packet has come and whose last has not.
pub(crate) enum Open<D> {
    /// A SEND into a receive WQE.
    Send { receive: Receive<D>, srqn: Option<Srqn>, received: u64 },
    /// A WRITE; the range was checked as a whole.
    Write { reth: Reth, srqn: Option<Srqn>, done: u64 },
}

impl<D> Open<D> {
    /// The XRC SRQ that the message names.
    fn srqn(&self) -> Option<Srqn> {
        match self {
            Open::Send { srqn, .. } | Open::Write { srqn, .. } => *srqn,
        }
    }
}

/// The responder's state.
pub(crate) struct Responder<D> {
    /// The PSN of the next new request.
    pub expected: Psn,
    pub msn: Msn,
    pub open: Option<Open<D>>,
    /// The receive WQE of a UC message that was dropped; the next message takes it.
    pub spare: Option<Receive<D>>,
    /// A NAK is out; nothing but the expected PSN ends the silence (IBTA 9.7.5.2.8, C9-114).
    pub nak_sent: bool,
    pub resources: Resources,
    pub responses: Responses,
    pub delayed_ack: DelayedAck,
    pub repeat_credit: RepeatCredit,
    /// COMM_EST was raised.
    pub established: bool,
}

impl<D> Responder<D> {
    pub fn new() -> Responder<D> {
        Responder {
            expected: Psn::ZERO,
            msn: Msn::ZERO,
            open: None,
            spare: None,
            nak_sent: false,
            resources: Resources::new(),
            responses: Responses::new(),
            delayed_ack: DelayedAck::default(),
            repeat_credit: RepeatCredit::default(),
            established: false,
        }
    }

    /// Everything before `psn` is done.
    fn expect(&mut self, psn: Psn) {
        self.expected = psn;
        self.resources.forget_before(psn);
    }
}

/// Why a request is refused, with what that does to the QP and to the receive WQE it had taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// NAK 0x60, once.
    Sequence,
    /// RNR NAK: no receive WQE.
    NotReady,
    /// NAK 0x61; the WQE in use, if any, ends with this status.
    Invalid(Status),
    /// NAK 0x62.
    Access,
    /// NAK 0x63: our own WQE was at fault.
    Operational,
    /// A failed remote invalidate: acknowledged all the same, then the QP ends (error class J).
    Invalidate(Rkey),
}

const INVALID: Refusal = Refusal::Invalid(Status::RemoteInvalidRequest);

/// A request, with the header facts that the stages need.
pub(crate) struct Request<'a> {
    pub psn: Psn,
    pub op: &'a Op,
    pub srqn: Option<Srqn>,
    pub ack_req: bool,
    pub solicited: bool,
    pub payload: &'a [u8],
}

impl<D> Qp<D> {
    /// A request packet of the connected, reliable services.
    pub(crate) fn on_request<H: Host<Data = D>>(&mut self, request: Request<'_>, host: &mut H) {
        if self.responder.responses.is_full() {
            // Nothing leaves: the link is blocked. The peer will ask again.
            return host.count(Counter::DropBusy);
        }
        let ahead = request.psn.distance_from(self.responder.expected);
        if ahead < 0 {
            return self.on_duplicate(&request, host);
        }
        if ahead > 0 {
            host.count(Counter::OutOfSeqRequest);
            if self.responder.nak_sent {
                return host.count(Counter::DropAfterNak);
            }
            return self.refuse(request.psn, Refusal::Sequence, host);
        }
        self.responder.nak_sent = false;
        self.note_established(host);
        match self.execute(&request, host) {
            Ok(()) => {}
            Err(refusal) => self.refuse(request.psn, refusal, host),
        }
    }

    /// The stages for a request with the expected PSN.
    fn execute<H: Host<Data = D>>(&mut self, request: &Request<'_>, host: &mut H) -> Result<(), Refusal> {
        self.check_sequence(request)?;
        self.check_access(request.op)?;
        // An XRC request is checked in the domain of the SRQ that it names (IBTA Annex A14).
        let domain = match request.srqn {
            Some(srqn) => host.srq_domain(srqn).ok_or(INVALID)?,
            None => host.own_domain(),
        };
        self.check_length(request)?;
        match *request.op {
            Op::SendFirst | Op::SendMiddle | Op::SendLast(_) | Op::SendOnly(_) => {
                self.receive_send(request, domain, host)
            }
            Op::WriteFirst(_) | Op::WriteMiddle | Op::WriteLast(_) | Op::WriteOnly(..) => {
                self.receive_write(request, domain, host)
            }
            Op::ReadRequest(reth) => self.receive_read(request, domain, reth, host),
            Op::CompareSwap(eth) => {
                let op = AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_or_add };
                self.receive_atomic(request, domain, (eth.rkey, eth.va), op, host)
            }
            Op::FetchAdd(eth) => {
                let op = AtomicOp::FetchAdd { add: eth.swap_or_add };
                self.receive_atomic(request, domain, (eth.rkey, eth.va), op, host)
            }
            Op::AtomicWrite(reth) => self.receive_atomic_write(request, domain, reth, host),
            Op::Flush(feth, reth) => self.receive_flush(request, domain, feth, reth, host),
            _ => Err(INVALID),
        }
    }

    /// Middle and Last belong to a message of their kind, everything else starts one (C9-82 to C9-87). All packets
    /// of an XRC message name the same SRQ.
    fn check_sequence(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let open = self.responder.open.as_ref();
        let fits = match request.op {
            Op::SendMiddle | Op::SendLast(_) => matches!(open, Some(Open::Send { .. })),
            Op::WriteMiddle | Op::WriteLast(_) => matches!(open, Some(Open::Write { .. })),
            _ => open.is_none(),
        };
        let same_srq = open.is_none_or(|open| open.srqn() == request.srqn);
        if fits && same_srq { Ok(()) } else { Err(INVALID) }
    }

    /// The QP's own access flags; a violation is an invalid request, not an access error (C9-90).
    fn check_access(&self, op: &Op) -> Result<(), Refusal> {
        use softrnic_wire::Placement;
        let access = &self.attr.access;
        let allowed = match op {
            Op::WriteFirst(_)
            | Op::WriteMiddle
            | Op::WriteLast(_)
            | Op::WriteOnly(..)
            | Op::AtomicWrite(_) => access.remote_write,
            Op::ReadRequest(_) => access.remote_read,
            Op::CompareSwap(_) | Op::FetchAdd(_) => access.remote_atomic,
            Op::Flush(feth, _) => {
                feth.placement.is_valid()
                    && (access.flush_global || !feth.placement.contains(Placement::GLOBAL_VISIBILITY))
                    && (access.flush_persistent || !feth.placement.contains(Placement::PERSISTENCE))
            }
            _ => true,
        };
        let has_resources = !op_is_saved(op) || self.has_free_resources();
        if allowed && has_resources { Ok(()) } else { Err(INVALID) }
    }

    /// Whether one more READ or atomic may be outstanding. Their answers are owed in order, so those that are
    /// not yet sent are those that are outstanding. rxe may use more, rounded up to a power of two.
    fn has_free_resources(&self) -> bool {
        match self.attr.max_dest_rd_atomic as usize {
            0 => false,
            depth => self.responder.responses.owes_fewer_than(depth.next_power_of_two()),
        }
    }

    /// First and Middle carry exactly the path MTU, Last something, Only no more than it (C9-92).
    fn check_length(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let len = request.payload.len();
        let mtu = self.config.mtu as usize;
        let valid = match request.op {
            Op::SendFirst | Op::SendMiddle | Op::WriteFirst(_) | Op::WriteMiddle => len == mtu,
            Op::SendLast(_) | Op::WriteLast(_) => (1..=mtu).contains(&len),
            Op::SendOnly(_) | Op::WriteOnly(..) => len <= mtu,
            Op::AtomicWrite(reth) => len == 8 && reth.dma_len == 8,
            _ => len == 0,
        };
        let dma_len = match request.op {
            Op::WriteFirst(reth) | Op::WriteOnly(reth, _) | Op::ReadRequest(reth) => reth.dma_len,
            _ => 0,
        };
        if valid && dma_len <= MAX_MESSAGE { Ok(()) } else { Err(INVALID) }
    }

    fn receive_send<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let (receive, srqn, received) = if matches!(request.op, Op::SendFirst | Op::SendOnly(_)) {
            (take_recv(request, host)?, request.srqn, 0)
        } else {
            let open = self.responder.open.take();
            let Some(Open::Send { receive, srqn, received }) = open else { return Err(INVALID) };
            (receive, srqn, received)
        };
        let total = received + request.payload.len() as u64;
        let placed = place_send(&receive, received, request, domain, host);
        let (Ok(()), Op::SendLast(tail) | Op::SendOnly(tail)) = (placed, *request.op) else {
            // There is more to come, or it is refused.
            self.responder.open = Some(Open::Send { receive, srqn, received: total });
            placed?;
            self.accept(request, false);
            return Ok(());
        };
        self.accept(request, true);
        let mut completion = self.receive_completion(&receive.wqe, Status::Success, request.solicited);
        completion.byte_len = total as u32;
        match tail {
            SendTail::Plain => {}
            SendTail::Imm(imm) => completion.imm = Some(imm),
            SendTail::Inv(rkey) => completion.invalidated = Some(rkey),
        }
        host.count(Counter::RdmaRecvs);
        host.complete(completion, srqn);
        Ok(())
    }

    fn receive_write<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let started = match *request.op {
            Op::WriteFirst(reth) | Op::WriteOnly(reth, _) => {
                if reth.dma_len > 0 {
                    host.check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Write)
                        .map_err(|_| Refusal::Access)?;
                }
                Some(reth)
            }
            _ => None,
        };
        let (reth, done) = match (started, &self.responder.open) {
            (Some(reth), _) => (reth, 0),
            (None, Some(Open::Write { reth, done, .. })) => (*reth, *done),
            _ => return Err(INVALID),
        };
        let left = reth.dma_len as u64 - done;
        let ends = matches!(request.op, Op::WriteLast(_) | Op::WriteOnly(..));
        let len = request.payload.len() as u64;
        // The packets of a WRITE must add up to the length its first one announced (C9-96).
        if if ends { len != left } else { len >= left } {
            return Err(INVALID);
        }
        let imm = match *request.op {
            Op::WriteLast(imm) | Op::WriteOnly(_, imm) => imm,
            _ => None,
        };
        // Immediate data needs a receive WQE, and is refused before its packet is written.
        let wqe = match imm {
            Some(_) => Some(take_recv(request, host)?.wqe),
            None => None,
        };
        if len > 0
            && host.write_remote(domain, reth.rkey, reth.va.wrapping_add(done), request.payload).is_err()
        {
            if let Some(wqe) = &wqe {
                let failed = self.receive_completion(wqe, Status::RemoteAccess, true);
                host.complete(failed, request.srqn);
            }
            return Err(Refusal::Access);
        }
        self.responder.open = (!ends).then_some(Open::Write { reth, srqn: request.srqn, done: done + len });
        self.accept(request, ends);
        if let (Some(wqe), Some(imm)) = (wqe, imm) {
            let mut completion = self.receive_completion(&wqe, Status::Success, request.solicited);
            completion.opcode = WcOpcode::RecvRdmaWithImm;
            completion.byte_len = reth.dma_len;
            completion.imm = Some(imm);
            host.count(Counter::RdmaRecvs);
            host.complete(completion, request.srqn);
        }
        Ok(())
    }

    fn receive_read<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        reth: Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        if reth.dma_len > 0 {
            host.check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Read)
                .map_err(|_| Refusal::Access)?;
        }
        let packets = reth.dma_len.div_ceil(self.config.mtu).max(1);
        let responder = &mut self.responder;
        responder.msn = responder.msn.next();
        responder.expect(request.psn + packets);
        let saved =
            Saved { first: request.psn, packets, msn: responder.msn, kind: SavedKind::Read(domain, reth) };
        responder.resources.save(saved, self.attr.max_dest_rd_atomic);
        responder.repeat_credit.note_read(request.psn, packets);
        responder.responses.push(Response::read(saved));
        Ok(())
    }

    fn receive_atomic<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        (rkey, va): (Rkey, u64),
        op: AtomicOp,
        host: &mut H,
    ) -> Result<(), Refusal> {
        if !va.is_multiple_of(8) {
            return Err(INVALID);
        }
        host.check_remote(domain, rkey, va, 8, RemoteAccess::Atomic).map_err(|_| Refusal::Access)?;
        let original = host.atomic(domain, rkey, va, op).map_err(|_| Refusal::Access)?;
        self.save_and_answer(request, SavedKind::Atomic(original));
        Ok(())
    }

    fn receive_atomic_write<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        reth: Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let bytes: [u8; 8] = request.payload.try_into().map_err(|_| INVALID)?;
        if !reth.va.is_multiple_of(8) {
            return Err(INVALID);
        }
        host.check_remote(domain, reth.rkey, reth.va, 8, RemoteAccess::Write).map_err(|_| Refusal::Access)?;
        host.atomic_write(domain, reth.rkey, reth.va, bytes).map_err(|_| Refusal::Access)?;
        self.save_and_answer(request, SavedKind::Empty);
        Ok(())
    }

    fn receive_flush<H: Host<Data = D>>(
        &mut self,
        request: &Request<'_>,
        domain: Domain,
        feth: Feth,
        reth: Reth,
        host: &mut H,
    ) -> Result<(), Refusal> {
        host.check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Flush(feth))
            .map_err(|_| Refusal::Access)?;
        host.flush_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, feth)
            .map_err(|_| Refusal::Access)?;
        self.save_and_answer(request, SavedKind::Empty);
        Ok(())
    }

    fn save_and_answer(&mut self, request: &Request<'_>, kind: SavedKind) {
        let responder = &mut self.responder;
        responder.msn = responder.msn.next();
        responder.expect(request.psn + 1);
        let saved = Saved { first: request.psn, packets: 1, msn: responder.msn, kind };
        responder.resources.save(saved, self.attr.max_dest_rd_atomic.max(1));
        responder.responses.push(Response::saved(saved, false));
    }

    /// The packet is executed: the next PSN is expected, and an ACK is due if one was asked for.
    fn accept(&mut self, request: &Request<'_>, ends: bool) {
        let responder = &mut self.responder;
        responder.expect(request.psn + 1);
        if ends {
            responder.msn = responder.msn.next();
        }
        if request.ack_req {
            responder.responses.push(Response::Ack { psn: request.psn, msn: responder.msn });
        }
    }

    /// A request behind the expected PSN: answered again, never executed again (IBTA 9.7.5.1.1 to .4).
    fn on_duplicate<H: Host<Data = D>>(&mut self, request: &Request<'_>, host: &mut H) {
        host.count(Counter::DuplicateRequest);
        let responder = &mut self.responder;
        let response = match request.op {
            Op::ReadRequest(reth) => {
                return match responder.resources.find_read(request.psn, reth, self.config.mtu) {
                    Some(saved) => self.repeat_read(saved, host),
                    None => host.count(Counter::DropDuplicateUnmatched),
                };
            }
            Op::CompareSwap(_) | Op::FetchAdd(_) | Op::AtomicWrite(_) | Op::Flush(..) => {
                match responder.resources.find(request.psn) {
                    Some(saved) => Response::saved(saved, true),
                    None => return host.count(Counter::DropDuplicateUnmatched),
                }
            }
            // An ACK for the newest PSN, but never over a READ or atomic whose answer may be lost as well.
            _ => {
                let newest = responder.resources.first_after(request.psn).unwrap_or(responder.expected) - 1;
                Response::Ack { psn: newest, msn: responder.msn }
            }
        };
        if !responder.responses.repeat(response) {
            host.count(Counter::DropDuplicateWaiting);
        }
    }

    /// Answers a repeated READ, or a part of it. An answer that is being sent goes back to where the repeat begins,
    /// so that there is never more than one, and in the order of the PSNs.
    fn repeat_read<H: Host<Data = D>>(&mut self, again: Saved, host: &mut H) {
        let Responder { repeat_credit: credit, responses, .. } = &mut self.responder;
        credit.note_repeat(again.first);
        if let Some(sent_again) = responses.sent_from(again.first) {
            let sent_again = sent_again.min(again.packets);
            if sent_again == 0 || !credit.take_all(sent_again) {
                return host.count(Counter::DropDuplicateWaiting);
            }
            return responses.send_again(again);
        }
        let granted = credit.take(again.packets);
        if granted < again.packets {
            host.count(Counter::DuplicateReadCut);
        }
        if !responses.repeat(Response::Read { saved: again, sent: 0, end: granted, repeated: true }) {
            host.count(Counter::DropDuplicateWaiting);
        }
    }

    /// Sends the NAK that a refusal calls for and does to the QP what its error class demands.
    pub(crate) fn refuse<H: Host<Data = D>>(&mut self, psn: Psn, refusal: Refusal, host: &mut H) {
        let msn = self.responder.msn;
        let nak = |syndrome| Response::Nak(Nak { psn, msn, syndrome });
        let response = match refusal {
            Refusal::Sequence => {
                host.count(Counter::SendSeqErr);
                self.responder.nak_sent = true;
                let psn = self.responder.expected;
                self.responder.responses.push(Response::Nak(Nak {
                    psn,
                    msn,
                    syndrome: Syndrome::Nak(NakCode::PsnSequence),
                }));
                return;
            }
            Refusal::NotReady => {
                host.count(Counter::SendRnrErr);
                self.responder.nak_sent = true;
                self.responder.responses.push(nak(Syndrome::RnrNak(self.attr.min_rnr_timer)));
                return;
            }
            Refusal::Invalid(_) => nak(Syndrome::Nak(NakCode::InvalidRequest)),
            Refusal::Access => nak(Syndrome::Nak(NakCode::RemoteAccess)),
            Refusal::Operational => nak(Syndrome::Nak(NakCode::RemoteOperational)),
            Refusal::Invalidate(_) => Response::Ack { psn, msn },
        };
        host.count(Counter::SendNak);
        let status = match refusal {
            Refusal::Invalid(status) => status,
            Refusal::Access => Status::RemoteAccess,
            Refusal::Operational => Status::LocalProtection,
            _ => Status::RemoteInvalidRequest,
        };
        if let Some(Open::Send { receive, srqn, .. }) = self.responder.open.take() {
            let completion = self.receive_completion(&receive.wqe, status, true);
            host.complete(completion, srqn);
        }
        host.event(if refusal == Refusal::Access { QpEvent::AccessError } else { QpEvent::RequestError });
        self.enter_error(host);
        self.responder.responses.push(response);
    }

    pub(crate) fn receive_completion(&self, wqe: &RecvWqe<D>, status: Status, solicited: bool) -> Completion {
        Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn: self.qpn,
            src_qpn: softrnic_wire::Qpn::new(0),
            grh: false,
            solicited,
        }
    }

    /// The BTH of a response.
    pub(crate) fn response_bth(&self, psn: Psn) -> Bth {
        let mut bth = Bth::new(self.attr.dest_qpn, psn);
        bth.mig_req = self.config.mig_req;
        bth
    }

    /// The first packet that a QP takes while it is in RTR tells the application that the peer is there.
    pub(crate) fn note_established<H: Host<Data = D>>(&mut self, host: &mut H) {
        if self.state == QpState::Rtr && !self.responder.established && self.service != QpType::Ud {
            self.responder.established = true;
            host.event(QpEvent::CommunicationEstablished);
        }
    }
}

/// The receive WQE that a request needs.
fn take_recv<H: Host>(request: &Request<'_>, host: &mut H) -> Result<Receive<H::Data>, Refusal> {
    host.take_recv(request.srqn).map_err(|none| match none {
        NoRecv::Empty => Refusal::NotReady,
        NoRecv::NoQueue => INVALID,
    })
}

/// Puts the payload of a SEND behind what was received before, and invalidates the key that it names. The receive is
/// checked in the domain of its queue, the key in that of the request.
fn place_send<H: Host>(
    receive: &Receive<H::Data>,
    received: u64,
    request: &Request<'_>,
    domain: Domain,
    host: &mut H,
) -> Result<(), Refusal> {
    let total = received + request.payload.len() as u64;
    if total > receive.wqe.length as u64 || total > MAX_MESSAGE as u64 {
        return Err(Refusal::Invalid(Status::LocalLength));
    }
    host.place(receive.domain, &receive.wqe.data, received, request.payload)
        .map_err(|_| Refusal::Operational)?;
    match *request.op {
        Op::SendLast(SendTail::Inv(rkey)) | Op::SendOnly(SendTail::Inv(rkey)) => {
            host.invalidate_remote(domain, rkey).map_err(|_| Refusal::Invalidate(rkey))
        }
        _ => Ok(()),
    }
}

fn op_is_saved(op: &Op) -> bool {
    matches!(op, Op::ReadRequest(_) | Op::CompareSwap(_) | Op::FetchAdd(_) | Op::AtomicWrite(_))
}
