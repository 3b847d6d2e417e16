//! Cutting messages into packets.

use softrnic_wire::{Imm, Op, Psn, Reth, SendTail};

/// Where a packet stands in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    /// The place of packet number `index` of `count`.
    pub fn of(index: u32, count: u32) -> Place {
        match (index == 0, index + 1 == count) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, false) => Place::Middle,
            (false, true) => Place::Last,
        }
    }
}

pub(crate) fn send_op(place: Place, tail: SendTail) -> Op {
    match place {
        Place::First => Op::SendFirst,
        Place::Middle => Op::SendMiddle,
        Place::Last => Op::SendLast(tail),
        Place::Only => Op::SendOnly(tail),
    }
}

pub(crate) fn write_op(place: Place, reth: Reth, imm: Option<Imm>) -> Op {
    match place {
        Place::First => Op::WriteFirst(reth),
        Place::Middle => Op::WriteMiddle,
        Place::Last => Op::WriteLast(imm),
        Place::Only => Op::WriteOnly(reth, imm),
    }
}

/// Whether the SE bit means something on this packet (IBTA 9.2.3).
pub(crate) fn may_be_solicited(op: &Op) -> bool {
    matches!(op, Op::SendLast(_) | Op::SendOnly(_) | Op::WriteLast(Some(_)) | Op::WriteOnly(_, Some(_)))
}

/// One past the last response PSN of the READ request that is sent for packet `place` of a READ:
/// a long READ is asked for in chunks, and a chunk that was begun is finished first.
pub(crate) fn read_chunk_end(first: Psn, packets: u32, place: u32, chunk: u32) -> Psn {
    first + ((place / chunk + 1) * chunk).min(packets)
}

#[cfg(test)]
mod tests;
