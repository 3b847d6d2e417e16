//! Messages of which some packets have come, and what the next packet of a WRITE is to them.

use softrnic_wire::{Imm, Op, Reth, Srqn};

use super::receive_completion;
use crate::completion::{Completion, Status, WcOpcode};
use crate::context::Context;
use crate::host::{Domain, Host, RemoteAccess};
use crate::wqe::{Receive, RecvWqe};

/// A message whose first packet has arrived and whose last has not.
pub(super) enum PartialMessage<D> {
    /// A SEND into a receive WQE.
    Send { receive: Receive<D>, srqn: Option<Srqn>, received: u64 },
    /// A WRITE; the range was checked as a whole.
    Write { reth: Reth, srqn: Option<Srqn>, done: u64 },
}

impl<D> PartialMessage<D> {
    /// The XRC SRQ that the message names.
    pub fn srqn(&self) -> Option<Srqn> {
        match self {
            PartialMessage::Send { srqn, .. } | PartialMessage::Write { srqn, .. } => *srqn,
        }
    }
}

/// A packet of a WRITE, by its place in the message.
pub(super) struct WritePart {
    pub reth: Reth,
    /// Bytes that came before it.
    done: u64,
    pub starts: bool,
    pub ends: bool,
    pub imm: Option<Imm>,
}

impl WritePart {
    /// `None` if the packet goes on with a WRITE and there is none.
    #[inline]
    pub fn of<D>(op: &Op, message: Option<&PartialMessage<D>>) -> Option<WritePart> {
        let (reth, done, starts) = match (*op, message) {
            (Op::WriteFirst(reth) | Op::WriteOnly(reth, _), _) => (reth, 0, true),
            (_, Some(PartialMessage::Write { reth, done, .. })) => (*reth, *done, false),
            _ => return None,
        };
        let (ends, imm) = match *op {
            Op::WriteLast(imm) | Op::WriteOnly(_, imm) => (true, imm),
            _ => (false, None),
        };
        Some(WritePart { reth, done, starts, ends, imm })
    }

    /// Whether the peer may write to the whole range, where the first packet names it.
    #[inline]
    pub fn is_allowed(&self, domain: Domain, host: &mut impl Host) -> bool {
        let Reth { rkey, va, dma_len } = self.reth;
        !self.starts
            || dma_len == 0
            || host.check_remote(domain, rkey, va, dma_len.into(), RemoteAccess::Write).is_ok()
    }

    /// The packets of a WRITE must add up to the length its first one announced (C9-96).
    #[inline]
    pub fn adds_up(&self, payload: &[u8]) -> bool {
        let (len, left) = (payload.len() as u64, u64::from(self.reth.dma_len) - self.done);
        if self.ends { len == left } else { len < left }
    }

    /// Writes the payload; whether that was possible.
    #[inline]
    pub fn write(&self, domain: Domain, payload: &[u8], host: &mut impl Host) -> bool {
        let va = self.reth.va.wrapping_add(self.done);
        payload.is_empty() || host.write_remote(domain, self.reth.rkey, va, payload).is_ok()
    }

    /// What the message is after it.
    #[inline]
    pub fn rest<D>(&self, payload: &[u8], srqn: Option<Srqn>) -> Option<PartialMessage<D>> {
        let done = self.done + payload.len() as u64;
        (!self.ends).then_some(PartialMessage::Write { reth: self.reth, srqn, done })
    }

    /// The completion of the receive WQE that the immediate data has taken.
    pub fn completion<D>(&self, cx: &Context, wqe: &RecvWqe<D>, solicited: bool) -> Completion {
        Completion {
            opcode: WcOpcode::RecvRdmaWithImm,
            byte_len: self.reth.dma_len,
            imm: self.imm,
            ..receive_completion(cx, wqe, Status::Success, solicited)
        }
    }
}
