//! The UC responder: whole messages or nothing, and never an answer (IBTA 9.8.2).

use softrnic_wire::{Op, SendTail};

use super::partial::{PartialMessage, WritePart};
use super::{Request, Responder, Stage, fail_receive, receive_completion};
use crate::MAX_MESSAGE;
use crate::completion::Status;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::Reason;
use crate::host::Host;
use crate::wqe::Receive;

/// The rest of the message is dropped, in silence.
struct Dropped(Counter);

const BAD_REQUEST: Dropped = Dropped(Counter::DropUcRequest);

impl<D> Responder<D> {
    /// A UC packet. A gap drops the message it is in; the next First or Only starts afresh.
    pub fn on_unreliable<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        request: &Request<'_>,
        host: &mut H,
    ) -> Outcome {
        let starts = request.op.operation().starts_message();
        let in_order = request.psn == self.epsn;
        if starts || !in_order {
            self.abandon_message(in_order && self.message.is_none(), host);
        }
        if starts || in_order {
            self.epsn = request.psn + 1;
        }
        if !starts && (!in_order || self.message.is_none()) {
            host.count(Counter::DropUcSequence);
            return Outcome::Continue;
        }
        let stage = Stage { cx, request, domain: host.own_domain(), host: &mut *host };
        self.receive_unreliable(stage).unwrap_or_else(|Dropped(counter)| {
            host.count(counter);
            self.abandon_message(true, host);
            Outcome::Continue
        })
    }

    /// Forgets an unfinished message. Its receive WQE is kept for the next one.
    fn abandon_message<H: Host<Data = D>>(&mut self, quiet: bool, host: &mut H) {
        match self.message.take() {
            Some(PartialMessage::Send { receive, .. }) => self.spare = Some(receive),
            Some(PartialMessage::Write { .. }) => {}
            None => return,
        }
        if !quiet {
            host.count(Counter::DropUcSequence);
        }
    }

    fn receive_unreliable<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>) -> Result<Outcome, Dropped> {
        if !stage.request.has_valid_length(stage.cx) {
            return Err(BAD_REQUEST);
        }
        match stage.request.op {
            Op::SendFirst | Op::SendMiddle | Op::SendLast(_) | Op::SendOnly(_) => self.unreliable_send(stage),
            _ if !stage.cx.attr.access.remote_write => Err(BAD_REQUEST),
            _ => self.unreliable_write(stage),
        }
    }

    fn unreliable_send<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>) -> Result<Outcome, Dropped> {
        let Stage { cx, request, host, .. } = stage;
        if matches!(request.op, Op::SendFirst | Op::SendOnly(_)) {
            let spare = self.spare.take();
            let receive = match spare {
                Some(spare) => spare,
                None => host.take_recv(None).map_err(|_| Dropped(Counter::DropNoRecv))?,
            };
            self.message = Some(PartialMessage::Send { receive, srqn: None, received: 0 });
        }
        let Some(PartialMessage::Send { receive: Receive { wqe, domain }, received, .. }) = &mut self.message
        else {
            return Err(Dropped(Counter::DropUcSequence));
        };
        let total = *received + request.payload.len() as u64;
        let outcome = if total > wqe.length as u64 || total > MAX_MESSAGE as u64 {
            fail_receive(cx, Reason::ReceiveTooShort, total, wqe, host)
        } else if host.scatter(*domain, &wqe.data, *received, request.payload).is_err() {
            fail_receive(cx, Reason::ReceiveMemory, total, wqe, host)
        } else {
            Outcome::Continue
        };
        let status = outcome.status();
        *received = total;
        let last = matches!(request.op, Op::SendLast(_) | Op::SendOnly(_));
        if status == Status::Success && !last {
            return Ok(Outcome::Continue);
        }
        let Some(PartialMessage::Send { receive, received, .. }) = self.message.take() else {
            return Ok(Outcome::Continue);
        };
        let mut completion =
            receive_completion(cx, &receive.wqe, status, request.solicited || status != Status::Success);
        if status == Status::Success {
            completion.byte_len = received as u32;
            if let Op::SendLast(SendTail::Imm(imm)) | Op::SendOnly(SendTail::Imm(imm)) = *request.op {
                completion.imm = Some(imm);
            }
            host.count(Counter::RdmaRecvs);
        }
        host.complete(completion, None);
        // A receive WQE that cannot take its message is a local error of the queue (IBTA 9.9.3, class A).
        Ok(outcome)
    }

    fn unreliable_write<H: Host<Data = D>>(&mut self, stage: Stage<'_, H>) -> Result<Outcome, Dropped> {
        let Stage { cx, request, domain, host } = stage;
        let part =
            WritePart::of(request.op, self.message.as_ref()).ok_or(Dropped(Counter::DropUcSequence))?;
        let too_long = part.starts && part.reth.dma_len > MAX_MESSAGE;
        if too_long || !part.is_allowed(domain, host) || !part.adds_up(request.payload) {
            return Err(BAD_REQUEST);
        }
        let receive = match (part.imm, self.spare.take()) {
            (Some(_), Some(spare)) => Some(spare),
            (Some(_), None) => Some(host.take_recv(None).map_err(|_| Dropped(Counter::DropNoRecv))?),
            (None, spare) => {
                self.spare = spare;
                None
            }
        };
        if !part.write(domain, request.payload, host) {
            self.spare = receive.or(self.spare.take());
            return Err(BAD_REQUEST);
        }
        self.message = part.rest(request.payload, None);
        if let Some(receive) = receive {
            host.count(Counter::RdmaRecvs);
            host.complete(part.completion(cx, &receive.wqe, request.solicited), None);
        }
        Ok(Outcome::Continue)
    }
}
