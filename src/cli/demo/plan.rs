//! The steps of the demo.

use super::DEPTH;
use super::step::{Operation, Step};
use crate::pattern;

/// All operations that move a payload of any size.
const TRANSFERS: [Operation; 5] =
    [Operation::Send, Operation::SendImm, Operation::Write, Operation::WriteImm, Operation::Read];

/// Scatter/gather elements of the steps with lists.
const LIST: usize = 5;

/// A row of the table: one operation at one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub operation: Operation,
    pub size: usize,
    pub pieces: usize,
}

impl Row {
    /// Messages of this row posted together, enough of them to measure a bandwidth.
    pub fn together(&self, seed: u64) -> Step {
        const VOLUME: usize = 4 << 20;
        self.step((VOLUME / self.size.max(1)).clamp(4, DEPTH), seed)
    }

    /// Messages one by one.
    pub fn one_by_one(&self, seed: u64) -> Step {
        self.step(if self.size > 64 << 10 { 4 } else { 32 }, seed)
    }

    /// A few messages, to be checked and captured.
    pub fn few(&self, seed: u64) -> Step {
        self.step(if self.size > 64 << 10 { 2 } else { 4 }, seed)
    }

    fn step(&self, count: usize, seed: u64) -> Step {
        let Row { operation, size, pieces } = *self;
        let seed = pattern::mix(&[seed, operation as u64, size as u64, pieces as u64, count as u64]);
        Step { operation, size, pieces, count, seed }
    }
}

/// What is checked once: every operation at the sizes where bugs hide, and lists.
pub fn checks(mtu: usize) -> Vec<Row> {
    let sizes = [0, 1, 13, mtu - 1, mtu, mtu + 1, 2 * mtu, 64 << 10, (1 << 20) + 5];
    rows(&sizes, &[mtu + 1, 100_003])
}

/// Whether tshark considers such packets broken: it parses the payload of each SEND as RPC-over-RDMA, reading eight
/// bytes without checking that they exist. These are checked like all others, but not captured.
pub fn misleads_tshark(row: &Row, mtu: usize) -> bool {
    let last = match row.size % mtu {
        0 if row.size > 0 => mtu,
        rest => rest,
    };
    row.operation == Operation::Send && last < 8
}

/// What is measured, one row of the table each.
pub fn measured(mtu: usize) -> Vec<Row> {
    rows(&[13, mtu, 64 << 10, 1 << 20], &[64 << 10])
}

fn rows(sizes: &[usize], list_sizes: &[usize]) -> Vec<Row> {
    let mut rows = Vec::new();
    for operation in TRANSFERS {
        rows.extend(sizes.iter().map(|&size| Row { operation, size, pieces: 1 }));
        let lists = matches!(operation, Operation::Send | Operation::Write | Operation::Read);
        let list_sizes = if lists { list_sizes } else { &[] };
        rows.extend(list_sizes.iter().map(|&size| Row { operation, size, pieces: LIST }));
    }
    rows.extend([Operation::CompareSwap, Operation::FetchAdd].map(|operation| Row {
        operation,
        size: 8,
        pieces: 1,
    }));
    rows
}

/// Memory needed by the largest of all steps.
pub fn memory(mtu: usize) -> usize {
    let steps = checks(mtu).into_iter().map(|row| row.few(0));
    let more = measured(mtu).into_iter().flat_map(|row| [row.together(0), row.one_by_one(0)]);
    steps.chain(more).map(|step| step.region()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::step::Side;
    use super::*;

    #[test]
    fn every_operation_meets_every_edge() {
        let checks = checks(1024);
        for operation in TRANSFERS {
            for size in [0, 1, 1023, 1024, 1025, (1 << 20) + 5] {
                assert!(checks.contains(&Row { operation, size, pieces: 1 }), "{operation:?} {size}");
            }
        }
        for operation in [Operation::CompareSwap, Operation::FetchAdd] {
            assert!(checks.contains(&Row { operation, size: 8, pieces: 1 }));
        }
        assert!(checks.iter().any(|row| row.pieces > 1));
    }

    #[test]
    fn steps_fit_the_queue_and_the_region() {
        for row in measured(4096).into_iter().chain(checks(4096)) {
            for step in [row.together(1), row.one_by_one(1), row.few(1)] {
                assert!(step.count <= DEPTH);
                assert!(step.region() <= memory(4096));
                let (at, length) = step.pieces(Side::Server, step.count - 1)[0];
                assert!(at + length <= step.region());
            }
        }
    }
}
