//! Cutting messages into packets.

use softrnic_wire::{Imm, Op, Psn, Reth, SendTail};

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    /// The position of packet number `index` of `count`.
    pub fn of(index: u32, count: u32) -> Position {
        match (index == 0, index + 1 == count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        }
    }
}

pub(crate) fn send_op(position: Position, tail: SendTail) -> Op {
    match position {
        Position::First => Op::SendFirst,
        Position::Middle => Op::SendMiddle,
        Position::Last => Op::SendLast(tail),
        Position::Only => Op::SendOnly(tail),
    }
}

pub(crate) fn write_op(position: Position, reth: Reth, imm: Option<Imm>) -> Op {
    match position {
        Position::First => Op::WriteFirst(reth),
        Position::Middle => Op::WriteMiddle,
        Position::Last => Op::WriteLast(imm),
        Position::Only => Op::WriteOnly(reth, imm),
    }
}

/// Whether the SE bit has a meaning on this packet (IBTA 9.2.3).
pub(crate) fn may_be_solicited(op: &Op) -> bool {
    matches!(op, Op::SendLast(_) | Op::SendOnly(_) | Op::WriteLast(Some(_)) | Op::WriteOnly(_, Some(_)))
}

/// One past the last response PSN of the READ request sent for packet `index` of a READ: a long READ is split into
/// chunks, and a chunk that was begun is finished first.
pub(crate) fn read_chunk_end(first: Psn, packets: u32, index: u32, chunk: u32) -> Psn {
    first + ((index / chunk + 1) * chunk).min(packets)
}

#[cfg(test)]
mod tests;
