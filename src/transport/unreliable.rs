//! The UC responder: whole messages or nothing, and never an answer (IBTA 9.8.2).

use softrnic_wire::{Op, Packet, SendTail};

use crate::MAX_MESSAGE;
use crate::completion::Status;
use crate::completion::WcOpcode;
use crate::counters::Counter;
use crate::host::{Domain, Host, RemoteAccess};
use crate::qp::Qp;
use crate::responder::Open;
use crate::wqe::Receive;

/// The rest of the message is dropped, in silence.
struct Dropped(Counter);

impl<D> Qp<D> {
    /// A UC packet. A gap drops the message it is in; the next First or Only starts afresh.
    pub(crate) fn on_unreliable<H: Host<Data = D>>(&mut self, packet: &Packet<'_>, op: Op, host: &mut H) {
        let starts = op.operation().starts_message();
        let in_order = packet.bth.psn == self.responder.expected;
        if starts || !in_order {
            self.abandon_message(in_order && self.responder.open.is_none(), host);
        }
        if starts || in_order {
            self.responder.expected = packet.bth.psn + 1;
        }
        if !starts && (!in_order || self.responder.open.is_none()) {
            return host.count(Counter::DropUcSequence);
        }
        if let Err(Dropped(counter)) = self.receive_unreliable(packet, op, host) {
            host.count(counter);
            self.abandon_message(true, host);
        }
    }

    /// Forgets an unfinished message. Its receive WQE is kept for the next one.
    fn abandon_message<H: Host<Data = D>>(&mut self, quiet: bool, host: &mut H) {
        match self.responder.open.take() {
            Some(Open::Send { receive, .. }) => self.responder.spare = Some(receive),
            Some(Open::Write { .. }) => {}
            None => return,
        }
        if !quiet {
            host.count(Counter::DropUcSequence);
        }
    }

    fn receive_unreliable<H: Host<Data = D>>(
        &mut self,
        packet: &Packet<'_>,
        op: Op,
        host: &mut H,
    ) -> Result<(), Dropped> {
        const REQUEST: Dropped = Dropped(Counter::DropUcRequest);
        let len = packet.payload.len();
        let mtu = self.config.mtu as usize;
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
                self.unreliable_send(packet, op, host)
            }
            _ if !self.attr.access.remote_write => Err(REQUEST),
            _ => self.unreliable_write(packet, op, host.own_domain(), host),
        }
    }

    fn unreliable_send<H: Host<Data = D>>(
        &mut self,
        packet: &Packet<'_>,
        op: Op,
        host: &mut H,
    ) -> Result<(), Dropped> {
        if matches!(op, Op::SendFirst | Op::SendOnly(_)) {
            let spare = self.responder.spare.take();
            let receive = match spare {
                Some(spare) => spare,
                None => host.take_recv(None).map_err(|_| Dropped(Counter::DropNoRecv))?,
            };
            self.responder.open = Some(Open::Send { receive, srqn: None, received: 0 });
        }
        let Some(Open::Send { receive: Receive { wqe, domain }, received, .. }) = &mut self.responder.open
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
            return Ok(());
        }
        let Some(Open::Send { receive, received, .. }) = self.responder.open.take() else { return Ok(()) };
        let mut completion =
            self.receive_completion(&receive.wqe, status, packet.bth.solicited || status != Status::Success);
        if status == Status::Success {
            completion.byte_len = received as u32;
            if let Op::SendLast(SendTail::Imm(imm)) | Op::SendOnly(SendTail::Imm(imm)) = op {
                completion.imm = Some(imm);
            }
            host.count(Counter::RdmaRecvs);
        }
        host.complete(completion, None);
        if status != Status::Success {
            // A receive WQE that cannot take its message is a local error of the queue (IBTA 9.9.3, class A).
            self.enter_error(host);
        }
        Ok(())
    }

    fn unreliable_write<H: Host<Data = D>>(
        &mut self,
        packet: &Packet<'_>,
        op: Op,
        domain: Domain,
        host: &mut H,
    ) -> Result<(), Dropped> {
        const REQUEST: Dropped = Dropped(Counter::DropUcRequest);
        let (reth, done) = match (op, &self.responder.open) {
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
            (_, Some(Open::Write { reth, done, .. })) => (*reth, *done),
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
        let receive = match (imm, self.responder.spare.take()) {
            (Some(_), Some(spare)) => Some(spare),
            (Some(_), None) => Some(host.take_recv(None).map_err(|_| Dropped(Counter::DropNoRecv))?),
            (None, spare) => {
                self.responder.spare = spare;
                None
            }
        };
        if len > 0
            && host.write_remote(domain, reth.rkey, reth.va.wrapping_add(done), packet.payload).is_err()
        {
            self.responder.spare = receive.or(self.responder.spare.take());
            return Err(REQUEST);
        }
        self.responder.open = (!ends).then_some(Open::Write { reth, srqn: None, done: done + len });
        if let Some(receive) = receive {
            let mut completion = self.receive_completion(&receive.wqe, Status::Success, packet.bth.solicited);
            completion.opcode = WcOpcode::RecvRdmaWithImm;
            completion.byte_len = reth.dma_len;
            completion.imm = imm;
            host.count(Counter::RdmaRecvs);
            host.complete(completion, None);
        }
        Ok(())
    }
}
