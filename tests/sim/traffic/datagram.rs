//! The unreliable services: what arrives must have been sent, and be whole, though not everything arrives.

use std::net::IpAddr;

use softrnic_engine::Cqe;
use softrnic_transport::WcOpcode;
use softrnic_transport::{QpType, Status};
use softrnic_wire::ipv4_checksum;

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

    /// The 40 bytes before a datagram: an IPv6 header, or an IPv4 header in the latter half.
    fn check_header(&self, node: usize, header: &[u8]) {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let (own, nodes) = (self.world.nodes[node].address, &self.world.nodes);
        let half = octets(own).len();
        let (source, destination) = header[GRH_LEN - 2 * half..].split_at(half);
        assert_eq!(destination, octets(own), "{header:x?}");
        assert!(nodes.iter().any(|node| octets(node.address) == source), "{header:x?}");
        let start = if own.is_ipv4() { [0x45, header[20]] } else { [0x60, header[0] & 0xF0] };
        assert_eq!(start[0], start[1], "{header:x?}");
        if own.is_ipv4() {
            assert_eq!(header[..20], [0; 20]);
            assert_eq!(ipv4_checksum(header[20..].try_into().expect("a header")), 0);
        }
    }

    /// Finds the message that a receive has taken. Without reordering and duplication, it is later than the last one.
    pub(super) fn unreliable_receive(&mut self, end: &mut Endpoint, receive: &Receive, cqe: Cqe) {
        let datagram = end.service == QpType::Ud;
        let header = if datagram { GRH_LEN } else { 0 };
        assert_eq!(cqe.grh, datagram, "{cqe:?}");
        let buffer = self.contents(end.node, &receive.buffer);
        if datagram {
            self.check_header(end.node, &buffer[..GRH_LEN]);
        }
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
