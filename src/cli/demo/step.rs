//! What one step of the demo moves, and what memory must contain at both ends before and after it.

use serde::{Deserialize, Serialize};

use crate::endpoint::MAX_SGE;
use crate::pattern;
use crate::units;

/// An operation, as the client posts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Operation {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "SEND",
            Operation::SendImm => "SEND with immediate",
            Operation::Write => "RDMA WRITE",
            Operation::WriteImm => "RDMA WRITE with imm.",
            Operation::Read => "RDMA READ",
            Operation::CompareSwap => "COMPARE & SWAP",
            Operation::FetchAdd => "FETCH & ADD",
        }
    }

    pub fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Whether the server needs a receive for it.
    pub fn consumes_receive(self) -> bool {
        matches!(self, Operation::Send | Operation::SendImm | Operation::WriteImm)
    }

    pub fn carries_immediate(self) -> bool {
        matches!(self, Operation::SendImm | Operation::WriteImm)
    }

    /// Whether the payload goes where a receive says.
    fn is_send(self) -> bool {
        matches!(self, Operation::Send | Operation::SendImm)
    }

    /// The side that has the bytes at first.
    fn source(self) -> Side {
        match self {
            Operation::Read => Side::Server,
            _ => Side::Client,
        }
    }
}

/// An end of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Client,
    Server,
}

/// The time of an image of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Before,
    After,
}

/// Some messages of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    /// Scatter/gather elements of a message at the client.
    pub pieces: usize,
    /// Messages.
    pub count: usize,
    /// The seed of the bytes.
    pub seed: u64,
}

/// Untouched bytes before the first message, and at least this many between messages.
const GUARD: usize = 64;
/// Untouched bytes between the pieces of a message.
const PIECE_GAP: usize = 24;
/// Offset of the word that atomics work on.
pub const WORD: usize = GUARD;
/// tshark dissects a payload that begins like an EtherType and zeros. One byte and its padding may look like that, so
/// the first byte of each packet is one with which no EtherType begins.
const NO_ETHERTYPE: u8 = 0x50;
const SMALLEST_MTU: usize = 256;
/// Messages start at odd offsets.
const SKEW: usize = 7;

/// An atomic, and the value it must find.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Atomic {
    pub original: u64,
    /// The value to compare with and the one to swap, or the number to add.
    pub compare: u64,
    pub operand: u64,
}

impl Step {
    /// For humans.
    pub fn describe(&self) -> String {
        let lists = if self.pieces > 1 { format!(", {} SGEs", self.pieces) } else { String::new() };
        format!("{} {}{lists}", self.operation.name(), units::size(self.size as u64))
    }

    /// Bytes of memory needed at each end.
    pub fn region(&self) -> usize {
        GUARD + self.count * self.stride() + GUARD
    }

    fn stride(&self) -> usize {
        (self.size + MAX_SGE * PIECE_GAP + GUARD + SKEW).next_multiple_of(8)
    }

    /// Offsets and lengths of a message's pieces at one end.
    pub fn pieces(&self, side: Side, message: usize) -> Vec<(usize, usize)> {
        let pieces = match side {
            Side::Client => self.pieces,
            // Different boundaries from the sender's, so that packets straddle both.
            Side::Server if self.operation.is_send() => (self.pieces - 1).max(1),
            Side::Server => 1,
        };
        let skew = if self.operation.is_atomic() { 0 } else { message % SKEW };
        let mut at = GUARD + message * self.stride() + skew;
        let mut left = self.size;
        let weights = pieces * (pieces + 1) / 2;
        (1..=pieces)
            .map(|piece| {
                let length = if piece == pieces { left } else { self.size * piece / weights };
                let place = (at, length);
                at += length + PIECE_GAP;
                left -= length;
                place
            })
            .collect()
    }

    /// The immediate data of a message.
    pub fn immediate(&self, message: usize) -> u32 {
        pattern::mix(&[self.seed, 0x1111, message as u64]) as u32
    }

    /// The atomics of the step in order, and the word at the end.
    pub fn atomics(&self) -> (Vec<Atomic>, u64) {
        let mut word = self.initial_word();
        let atomics = (0..self.count as u64)
            .map(|message| {
                let operand = pattern::mix(&[self.seed, 0x2222, message]);
                // Every third comparison fails, and must change nothing.
                let compare = if message % 3 == 2 { !word } else { word };
                let original = word;
                word = match self.operation {
                    Operation::FetchAdd => word.wrapping_add(operand),
                    _ if compare == word => operand,
                    _ => word,
                };
                Atomic { original, compare, operand }
            })
            .collect();
        (atomics, word)
    }

    fn initial_word(&self) -> u64 {
        pattern::mix(&[self.seed, 0x3333])
    }

    /// The whole region at one end.
    pub fn image(&self, side: Side, when: When) -> Vec<u8> {
        let mut image = vec![0; self.region()];
        pattern::fill(pattern::mix(&[self.seed, 0x4444, side as u64]), &mut image);
        if self.operation.is_atomic() {
            self.draw_atomics(&mut image, side, when);
        } else if when == When::After || side == self.operation.source() {
            self.draw_messages(&mut image, side);
        }
        image
    }

    fn draw_messages(&self, image: &mut [u8], side: Side) {
        let mut bytes = vec![0; self.size];
        for message in 0..self.count {
            pattern::fill(pattern::mix(&[self.seed, 0x5555, message as u64]), &mut bytes);
            bytes.iter_mut().step_by(SMALLEST_MTU).for_each(|byte| *byte = NO_ETHERTYPE | *byte & 0x0F);
            let mut rest = bytes.as_slice();
            for (at, length) in self.pieces(side, message) {
                let (piece, others) = rest.split_at(length);
                image[at..at + length].copy_from_slice(piece);
                rest = others;
            }
        }
    }

    fn draw_atomics(&self, image: &mut [u8], side: Side, when: When) {
        let mut put = |at: usize, word: u64| image[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        match (side, when) {
            (Side::Client, When::Before) => {}
            (Side::Client, When::After) => {
                for (message, atomic) in self.atomics().0.iter().enumerate() {
                    put(self.pieces(side, message)[0].0, atomic.original);
                }
            }
            (Side::Server, When::Before) => put(WORD, self.initial_word()),
            (Side::Server, When::After) => put(WORD, self.atomics().1),
        }
    }

    /// Compares memory with what it must contain after the step; returns where it is wrong.
    pub fn check(&self, side: Side, memory: &[u8]) -> Result<(), String> {
        let expected = self.image(side, When::After);
        let Some(at) = pattern::difference(&expected, memory) else { return Ok(()) };
        let message = at.saturating_sub(GUARD) / self.stride();
        let place = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        Err(format!(
            "{}: memory of the {place} is wrong in or after message {message} of {}: byte {at} is {:#04x}, not {:#04x} \
             (data seed {:#x})",
            self.describe(),
            self.count,
            memory.get(at).copied().unwrap_or(0),
            expected.get(at).copied().unwrap_or(0),
            self.seed,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(operation: Operation, size: usize, pieces: usize) -> Step {
        Step { operation, size, pieces, count: 5, seed: 99 }
    }

    #[test]
    fn pieces_hold_the_message_and_do_not_overlap() {
        for (size, pieces) in [(0, 1), (1, 4), (4097, 3), (1000, MAX_SGE)] {
            let step = step(Operation::Send, size, pieces);
            for side in [Side::Client, Side::Server] {
                let mut end = 0;
                for message in 0..step.count {
                    let places = step.pieces(side, message);
                    assert_eq!(places.iter().map(|(_, length)| length).sum::<usize>(), size);
                    for (at, length) in places {
                        assert!(at > end, "a guard lies between");
                        end = at + length;
                    }
                }
                assert!(end < step.region());
            }
        }
    }

    #[test]
    fn only_the_sink_changes() {
        let write = step(Operation::Write, 100, 1);
        assert_eq!(write.image(Side::Client, When::Before), write.image(Side::Client, When::After));
        assert_ne!(write.image(Side::Server, When::Before), write.image(Side::Server, When::After));
        let read = step(Operation::Read, 100, 2);
        assert_eq!(read.image(Side::Server, When::Before), read.image(Side::Server, When::After));
        assert_ne!(read.image(Side::Client, When::Before), read.image(Side::Client, When::After));
    }

    #[test]
    fn a_single_wrong_byte_is_found_between_the_messages_too() {
        let step = step(Operation::Write, 100, 1);
        let good = step.image(Side::Server, When::After);
        assert_eq!(step.check(Side::Server, &good), Ok(()));
        for at in [0, GUARD, GUARD + 100, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let problem = step.check(Side::Server, &bad).expect_err("a wrong byte");
            assert!(problem.contains(&format!("byte {at} is")), "{problem}");
        }
    }

    #[test]
    fn a_failed_compare_and_swap_leaves_the_word() {
        let (atomics, last) = step(Operation::CompareSwap, 8, 1).atomics();
        assert_eq!(atomics[1].original, atomics[0].operand);
        assert_ne!(atomics[2].compare, atomics[2].original);
        assert_eq!(atomics[3].original, atomics[2].original);
        assert_eq!(last, atomics[4].operand);
        let (atomics, last) = step(Operation::FetchAdd, 8, 1).atomics();
        assert_eq!(last, atomics[4].original.wrapping_add(atomics[4].operand));
    }
}
