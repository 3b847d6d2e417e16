//! The UC responder: whole messages or nothing, and never an answer (IBTA 9.8.2).

use softrnic_wire::{Op, Packet, SendTail};

use super::{PartialMessage, Responder, receive_completion};
use crate::MAX_MESSAGE;
use crate::completion::{Status, WcOpcode};
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::host::{Domain, Host, RemoteAccess};
use crate::wqe::Receive;

/// The rest of the message is dropped, in silence.
struct Dropped(Counter);

impl<D> Responder<D> {
    /// A UC packet. A gap drops the message it is in; the next First or Only starts afresh.
    pub fn on_unreliable<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        packet: &Packet<'_>,
        op: Op,
        host: &mut H,
    ) -> Outcome {
        let starts = op.operation().starts_message();
        let in_order = packet.bth.psn == self.epsn;
        if starts || !in_order {
            self.abandon_message(in_order && self.message.is_none(), host);
        }
        if starts || in_order {
            self.epsn = packet.bth.psn + 1;
        }
        if !starts && (!in_order || self.message.is_none()) {
            host.count(Counter::DropUcSequence);
            return Outcome::Continue;
        }
        self.receive_unreliable(cx, packet, op, host).unwrap_or_else(|Dropped(counter)| {
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

    fn receive_unreliable<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        packet: &Packet<'_>,
        op: Op,
        host: &mut H,
    ) -> Result<Outcome, Dropped> {
        const REQUEST: Dropped = Dropped(Counter::DropUcRequest);
        let len = packet.payload.len();
        let mtu = cx.config.mtu as usize;
        let valid = match op {
            Op::SendFirst | Op::SendMiddle | Op::WriteFirst(_) | Op::WriteMiddle => len == mtu,
            Op::SendLast(_) | Op::WriteLast(_) => (1..=mtu).contains(&len),
            _ => len <= mtu,
        };
        if !valid {
            return Err(REQUEST);
        }
        match op {
            Op::SendFirst | Op::SendMiddle | Op::SendLast(_) | Op::SendOnly(_) => {
                self.unreliable_send(cx, packet, op, host)
            }
            _ if !cx.attr.access.remote_write => Err(REQUEST),
            _ => self.unreliable_write(cx, packet, op, host.own_domain(), host),
        }
    }

    fn unreliable_send<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        packet: &Packet<'_>,
        op: Op,
        host: &mut H,
    ) -> Result<Outcome, Dropped> {
        if matches!(op, Op::SendFirst | Op::SendOnly(_)) {
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
        let total = *received + packet.payload.len() as u64;
        let status = if total > wqe.length as u64 || total > MAX_MESSAGE as u64 {
            Status::LocalLength
        } else if host.place(*domain, &wqe.data, *received, packet.payload).is_err() {
            Status::LocalProtection
        } else {
            Status::Success
        };
        *received = total;
        let last = matches!(op, Op::SendLast(_) | Op::SendOnly(_));
        if status == Status::Success && !last {
            return Ok(Outcome::Continue);
        }
        let Some(PartialMessage::Send { receive, received, .. }) = self.message.take() else {
            return Ok(Outcome::Continue);
        };
        let mut completion =
            receive_completion(cx, &receive.wqe, status, packet.bth.solicited || status != Status::Success);
        if status == Status::Success {
            completion.byte_len = received as u32;
            if let Op::SendLast(SendTail::Imm(imm)) | Op::SendOnly(SendTail::Imm(imm)) = op {
                completion.imm = Some(imm);
            }
            host.count(Counter::RdmaRecvs);
        }
        host.complete(completion, None);
        // A receive WQE that cannot take its message is a local error of the queue (IBTA 9.9.3, class A).
        Ok(if status == Status::Success { Outcome::Continue } else { Outcome::Fatal(status) })
    }

    fn unreliable_write<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        packet: &Packet<'_>,
        op: Op,
        domain: Domain,
        host: &mut H,
    ) -> Result<Outcome, Dropped> {
        const REQUEST: Dropped = Dropped(Counter::DropUcRequest);
        let (reth, done) = match (op, &self.message) {
            (Op::WriteFirst(reth) | Op::WriteOnly(reth, _), _) => {
                let checked = reth.dma_len == 0
                    || host
                        .check_remote(domain, reth.rkey, reth.va, reth.dma_len as u64, RemoteAccess::Write)
                        .is_ok();
                if !checked || reth.dma_len > MAX_MESSAGE {
                    return Err(REQUEST);
                }
                (reth, 0)
            }
            (_, Some(PartialMessage::Write { reth, done, .. })) => (*reth, *done),
            _ => return Err(Dropped(Counter::DropUcSequence)),
        };
        let len = packet.payload.len() as u64;
        let left = reth.dma_len as u64 - done;
        let ends = matches!(op, Op::WriteLast(_) | Op::WriteOnly(..));
        if if ends { len != left } else { len >= left } {
            return Err(REQUEST);
        }
        let imm = match op {
            Op::WriteLast(imm) | Op::WriteOnly(_, imm) => imm,
            _ => None,
        };
        let receive = match (imm, self.spare.take()) {
            (Some(_), Some(spare)) => Some(spare),
            (Some(_), None) => Some(host.take_recv(None).map_err(|_| Dropped(Counter::DropNoRecv))?),
            (None, spare) => {
                self.spare = spare;
                None
            }
        };
        if len > 0
            && host.write_remote(domain, reth.rkey, reth.va.wrapping_add(done), packet.payload).is_err()
        {
            self.spare = receive.or(self.spare.take());
            return Err(REQUEST);
        }
        self.message = (!ends).then_some(PartialMessage::Write { reth, srqn: None, done: done + len });
        if let Some(receive) = receive {
            let mut completion = receive_completion(cx, &receive.wqe, Status::Success, packet.bth.solicited);
            completion.opcode = WcOpcode::RecvRdmaWithImm;
            completion.byte_len = reth.dma_len;
            completion.imm = imm;
            host.count(Counter::RdmaRecvs);
            host.complete(completion, None);
        }
        Ok(Outcome::Continue)
    }
}
