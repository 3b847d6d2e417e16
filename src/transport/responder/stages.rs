//! What a request with the expected PSN goes through. Each stage may refuse it (IBTA 9.7.4, 9.7.5.1).
//!
//! Opcode sequence → access flags → resources → XRC SRQ → length → R_Key → execute → acknowledge.

use softrnic_wire::{Feth, Op, Reth, Rkey, SendTail};

use super::partial::{PartialMessage, WritePart};
use super::resources::{Saved, SavedKind};
use super::responses::Response;
use super::{Refusal, Request, Responder, Stage, receive_completion};
use crate::MAX_MESSAGE;
use crate::completion::Status;
use crate::context::Context;
use crate::counters::Counter;
use crate::failure::Reason;
use crate::host::{AtomicOp, Domain, Host, NoRecv, RemoteAccess};
use crate::planted::Fault;
use crate::tuning::BUSY_PACKETS;
use crate::wqe::{Receive, RecvWqe};

impl<D> Responder<D> {
    /// The stages for a request with the expected PSN.
    pub(super) fn execute<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        request: &Request<'_>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        self.check_sequence(request)?;
        self.check_access(cx, request.op)?;
        // An XRC request is checked in the domain of the SRQ that it names (IBTA Annex A14).
        let domain = match request.srqn {
            Some(srqn) => host.srq_domain(srqn).ok_or(Refusal::Invalid(Reason::NoReceiveQueue))?,
            None => host.own_domain(),
        };
        self.check_length(cx, request)?;
        let stage = Stage { cx, request, domain, host };
        match *request.op {
            Op::SendFirst | Op::SendMiddle | Op::SendLast(_) | Op::SendOnly(_) => self.receive_send(stage),
            Op::WriteFirst(_) | Op::WriteMiddle | Op::WriteLast(_) | Op::WriteOnly(..) => {
                self.receive_write(stage)
            }
            Op::ReadRequest(reth) => self.receive_read(stage, reth),
            Op::CompareSwap(eth) => {
                let op = AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_or_add };
                self.receive_atomic(stage, (eth.rkey, eth.va), op)
            }
            Op::FetchAdd(eth) => {
                let op = AtomicOp::FetchAdd { add: eth.swap_or_add };
                self.receive_atomic(stage, (eth.rkey, eth.va), op)
            }
            Op::AtomicWrite(reth) => self.receive_atomic_write(stage, reth),
            Op::Flush(feth, reth) => self.receive_flush(stage, feth, reth),
            _ => Err(Refusal::Invalid(Reason::Opcode)),
        }
    }

    /// Middle and Last belong to a message of their kind, everything else starts one (C9-82 to C9-87). All packets
    /// of an XRC message name the same SRQ.
    fn check_sequence(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let message = self.message.as_ref();
        let fits = match request.op {
            Op::SendMiddle | Op::SendLast(_) => matches!(message, Some(PartialMessage::Send { .. })),
            Op::WriteMiddle | Op::WriteLast(_) => matches!(message, Some(PartialMessage::Write { .. })),
            _ => message.is_none(),
        };
        let same_srq = message.is_none_or(|message| message.srqn() == request.srqn);
        if fits && same_srq { Ok(()) } else { Err(Refusal::Invalid(Reason::OpcodeSequence)) }
    }

    /// The QP's own access flags; a violation is an invalid request, not an access error (C9-90).
    fn check_access(&self, cx: &Context, op: &Op) -> Result<(), Refusal> {
        use softrnic_wire::Placement;
        let access = &cx.attr.access;
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
        let has_resources = !op_is_saved(op) || self.has_free_resources(cx);
        if allowed && has_resources || cx.config.has(Fault::AnyAccess) {
            return Ok(());
        }
        Err(Refusal::Invalid(if allowed { Reason::TooManyReads } else { Reason::QpAccess }))
    }

    /// Whether one more READ or atomic may be outstanding. Their answers are owed in order, so those that are
    /// not yet sent are those that are outstanding. rxe may use more, rounded up to a power of two.
    fn has_free_resources(&self, cx: &Context) -> bool {
        match cx.attr.max_dest_rd_atomic as usize {
            0 => false,
            depth => self.responses.owes_fewer_than(depth.next_power_of_two()),
        }
    }

    fn check_length(&self, cx: &Context, request: &Request<'_>) -> Result<(), Refusal> {
        let dma_len = match request.op {
            Op::WriteFirst(reth) | Op::WriteOnly(reth, _) | Op::ReadRequest(reth) => reth.dma_len,
            _ => 0,
        };
        let fits = request.has_valid_length(cx) || cx.config.has(Fault::AnyLength);
        if fits && dma_len <= MAX_MESSAGE {
            return Ok(());
        }
        Err(Refusal::Invalid(if fits { Reason::MessageTooLong } else { Reason::PayloadLength }))
    }

    fn receive_send<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        let (receive, srqn, received) = if matches!(request.op, Op::SendFirst | Op::SendOnly(_)) {
            (take_recv(request, host)?, request.srqn, 0)
        } else {
            let message = self.message.take();
            let Some(PartialMessage::Send { receive, srqn, received }) = message else {
                return Err(Refusal::Invalid(Reason::OpcodeSequence));
            };
            (receive, srqn, received)
        };
        let total = received + request.payload.len() as u64;
        let placed = place_send(&receive, received, request, domain, host);
        let (Ok(()), Op::SendLast(tail) | Op::SendOnly(tail)) = (placed, *request.op) else {
            // There is more to come, or it is refused.
            self.message = Some(PartialMessage::Send { receive, srqn, received: total });
            placed?;
            self.accept(cx, request, false);
            return Ok(());
        };
        self.accept(cx, request, true);
        let mut completion = receive_completion(cx, &receive.wqe, Status::Success, request.solicited);
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

    fn receive_write<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        let Some(part) = WritePart::of(request.op, self.message.as_ref()) else {
            return Err(Refusal::Invalid(Reason::OpcodeSequence));
        };
        if !part.is_allowed(domain, host) {
            let wqe = part.imm.and_then(|_| host.take_recv(request.srqn).ok()).map(|receive| receive.wqe);
            return Err(refuse_write(cx, request, wqe.as_ref(), host));
        }
        if !part.adds_up(request.payload) {
            return Err(Refusal::Invalid(Reason::WriteLength));
        }
        // Immediate data needs a receive WQE, and is refused before its packet is written.
        let wqe = match part.imm {
            Some(_) => Some(take_recv(request, host)?.wqe),
            None => None,
        };
        if !part.write(domain, request.payload, host) {
            return Err(refuse_write(cx, request, wqe.as_ref(), host));
        }
        self.message = part.rest(request.payload, request.srqn);
        self.accept(cx, request, part.ends);
        if let Some(wqe) = wqe {
            host.count(Counter::RdmaRecvs);
            host.complete(part.completion(cx, &wqe, request.solicited), request.srqn);
        }
        Ok(())
    }

    fn receive_read<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>, reth: Reth) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        if reth.dma_len > 0 {
            host.check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Read)
                .map_err(|_| Refusal::Access)?;
        }
        let packets = reth.dma_len.div_ceil(cx.config.mtu).max(1);
        self.msn = self.msn.next();
        self.expect(request.psn + packets);
        let saved = Saved { first: request.psn, packets, msn: self.msn, kind: SavedKind::Read(domain, reth) };
        self.resources.save(saved, cx.attr.max_dest_rd_atomic);
        self.repeat_credit.note_read(request.psn, packets);
        if packets >= BUSY_PACKETS && cx.spreads {
            host.ask_for_paths();
        }
        self.responses.push(Response::read(saved));
        Ok(())
    }

    fn receive_atomic<H: Host<Data = D>>(
        &mut self,
        stage: Stage<'_, H>,
        (rkey, va): (Rkey, u64),
        op: AtomicOp,
    ) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        if !va.is_multiple_of(8) {
            return Err(Refusal::Invalid(Reason::Misaligned));
        }
        host.check_remote(domain, rkey, va, 8, RemoteAccess::Atomic).map_err(|_| Refusal::Access)?;
        let original = host.atomic(domain, rkey, va, op).map_err(|_| Refusal::Access)?;
        self.save_and_answer(cx, request, SavedKind::Atomic(original));
        Ok(())
    }

    fn receive_atomic_write<H: Host<Data = D>>(
        &mut self,
        stage: Stage<'_, H>,
        reth: Reth,
    ) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        let bytes: [u8; 8] =
            request.payload.try_into().map_err(|_| Refusal::Invalid(Reason::PayloadLength))?;
        if !reth.va.is_multiple_of(8) {
            return Err(Refusal::Invalid(Reason::Misaligned));
        }
        host.check_remote(domain, reth.rkey, reth.va, 8, RemoteAccess::Write).map_err(|_| Refusal::Access)?;
        host.atomic_write(domain, reth.rkey, reth.va, bytes).map_err(|_| Refusal::Access)?;
        self.save_and_answer(cx, request, SavedKind::Empty);
        Ok(())
    }

    fn receive_flush<H: Host<Data = D>>(
        &mut self,
        stage: Stage<'_, H>,
        feth: Feth,
        reth: Reth,
    ) -> Result<(), Refusal> {
        let Stage { cx, request, domain, host } = stage;
        host.check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Flush(feth))
            .map_err(|_| Refusal::Access)?;
        host.flush_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, feth)
            .map_err(|_| Refusal::Access)?;
        self.save_and_answer(cx, request, SavedKind::Empty);
        Ok(())
    }

    fn save_and_answer(&mut self, cx: &Context, request: &Request<'_>, kind: SavedKind) {
        self.msn = self.msn.next();
        self.expect(request.psn + 1);
        let saved = Saved { first: request.psn, packets: 1, msn: self.msn, kind };
        self.resources.save(saved, cx.attr.max_dest_rd_atomic.max(1));
        self.responses.push(Response::saved(saved, false));
    }

    /// The packet is executed: the next PSN is expected, and an ACK is due if one was asked for.
    fn accept(&mut self, cx: &Context, request: &Request<'_>, ends: bool) {
        self.expect(request.psn + 1);
        if ends || cx.config.has(Fault::CountsPackets) {
            self.msn = self.msn.next();
        }
        if request.ack_req {
            self.responses.push(Response::ack(request.psn, self.msn));
        }
    }
}

/// The receive WQE that a request needs.
fn take_recv<H: Host>(request: &Request<'_>, host: &mut H) -> Result<Receive<H::Data>, Refusal> {
    if host.lacks_resources() {
        return Err(Refusal::NotReady);
    }
    host.take_recv(request.srqn).map_err(|none| match none {
        NoRecv::Empty => Refusal::NotReady,
        NoRecv::NoQueue => Refusal::Invalid(Reason::NoReceiveQueue),
    })
}

/// Refuses the key of a WRITE. The receive that its immediate data would have taken ends with a local access error (IBTA
/// 11.6.2); where there is none, the NAK says it all.
fn refuse_write<H: Host>(
    cx: &Context,
    request: &Request<'_>,
    wqe: Option<&RecvWqe<H::Data>>,
    host: &mut H,
) -> Refusal {
    if let Some(wqe) = wqe {
        host.complete(receive_completion(cx, wqe, Status::LocalAccess, true), request.srqn);
    }
    Refusal::Access
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
        return Err(Refusal::Invalid(Reason::ReceiveTooShort));
    }
    host.scatter(receive.domain, &receive.wqe.data, received, request.payload)
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
