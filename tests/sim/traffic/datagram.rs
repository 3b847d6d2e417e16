//! The unreliable services: what arrives must have been sent, whole, though not all arrives.

use softrnic_nic::engine::Cqe;
use softrnic_transport::WcOpcode;
use softrnic_transport::{QpType, Status};

use super::Traffic;
use super::complete::extra;
use super::endpoint::{Effect, Endpoint, Message, Receive};
use super::operation::Draft;
use crate::rng::pattern;

/// What precedes a datagram in its buffer.
const GRH_LEN: usize = 40;

impl Traffic {
    /// A datagram; long enough to be told from others.
    pub(super) fn datagram(&mut self, index: usize, side: usize, end: &Endpoint) -> Option<Draft> {
        let longest = self.connections[index].plan.longest_send;
        let len = self.length(4096, longest).max(16);
        let (local, id) = self.source(end.node, len)?;
        let imm = self.rng.chance(0.3).then(|| self.imm());
        let op = self.datagram_op(index, side, imm);
        let mut draft = Draft::new(op, local, len, Effect::None);
        draft.message = Some(Message { id, len, written: None, imm, invalidates: None });
        Some(draft)
    }

    /// Finds the message that a receive has taken. Where nothing overtakes and nothing is doubled, it is a
    /// later one than the last.
    pub(super) fn unreliable_receive(&mut self, end: &mut Endpoint, receive: &Receive, cqe: Cqe) {
        let datagram = end.service == QpType::Ud;
        let header = if datagram { GRH_LEN } else { 0 };
        assert_eq!(cqe.grh, datagram, "{cqe:?}");
        let buffer = self.contents(end.node, &receive.buffer);
        let len = (cqe.byte_len as usize).checked_sub(header).expect("the header counts");
        let found = end.incoming.iter().position(|message| {
            let written = cqe.opcode == WcOpcode::RecvRdmaWithImm;
            if message.len != len || cqe.extra != extra(message) || message.written.is_some() != written {
                return false;
            }
            let bytes = pattern(message.id, len);
            match message.written {
                Some(target) => self.world.nodes[end.node].arena.read(target) == bytes,
                None => buffer[header..header + len] == bytes,
            }
        });
        let found = found.unwrap_or_else(|| {
            panic!(
                "another message than any that was sent: {cqe:?}, expected one of {:?}, {:?}",
                end.incoming,
                &buffer[..80]
            )
        });
        if self.ordered {
            end.incoming.drain(..=found);
        }
        assert_eq!(cqe.status, Status::Success);
    }
}
