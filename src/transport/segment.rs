//! Cutting messages into packets.

use softrnic_wire::Psn;

use crate::wqe::SendOp;

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

/// Whether the SE bit has a meaning on the last packet of a request (IBTA 9.2.3): it completes a receive.
pub(crate) fn may_be_solicited(op: &SendOp) -> bool {
    matches!(op, SendOp::Send(_) | SendOp::Datagram { .. } | SendOp::Write { imm: Some(_), .. })
}

/// One past the last response PSN of the READ request sent for packet `index` of a READ: a long READ is split into
/// chunks, and a chunk that was begun is finished first.
pub(crate) fn read_chunk_end(first: Psn, packets: u32, index: u32, chunk: u32) -> Psn {
    first + ((index / chunk + 1) * chunk).min(packets)
}

#[cfg(test)]
mod tests;
