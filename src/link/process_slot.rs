//! The slots of an address: each process behind it owns one.

use std::fmt;
use std::ops::RangeInclusive;

use softrnic_wire::Qpn;

/// A slot of an address. It is in the highest bits of every number by which peers name something of a process: of its
/// queue pairs, and of its ends of connections. So a packet shows which process it is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessSlot(u8);

const BITS: u32 = 6;
/// Of a queue pair number that the process chooses.
const QPN_BITS: u32 = 24 - BITS;
/// Likewise of a communication id.
const COMM_ID_BITS: u32 = 32 - BITS;

impl ProcessSlot {
    /// How many there are: the most processes of an address.
    pub const COUNT: usize = 1 << BITS;

    /// The most queue pairs of a slot: in the first slot 0 and 1 are special, in the last one 0xFFFFFF.
    pub const MAX_QPS: usize = (1 << QPN_BITS) - 2;

    /// The slot with this number.
    pub const fn new(number: usize) -> Option<ProcessSlot> {
        if number < ProcessSlot::COUNT { Some(ProcessSlot(number as u8)) } else { None }
    }

    /// All of them in the order in which they are given out: from the one with this number on, or from any if it is random,
    /// and last those with queue pair numbers that kernel rxe has too.
    pub fn in_turn(from: u32) -> impl Iterator<Item = ProcessSlot> {
        let first = ProcessSlot::of(Qpn::LAST_OF_RXE).0;
        let others = ProcessSlot::COUNT as u32 - u32::from(first);
        let from = (from % others + others - u32::from(first)) % others;
        let high = (0..others).map(move |step| ProcessSlot(first + ((from + step) % others) as u8));
        high.chain((0..first).map(ProcessSlot))
    }

    /// The slot of a queue pair.
    #[inline]
    pub const fn of(qpn: Qpn) -> ProcessSlot {
        ProcessSlot((qpn.get() >> QPN_BITS) as u8)
    }

    /// The slot of a communication id.
    pub const fn of_comm_id(id: u32) -> ProcessSlot {
        ProcessSlot((id >> COMM_ID_BITS) as u8)
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// The numbers of its queue pairs.
    pub const fn qpns(self) -> RangeInclusive<u32> {
        let first = (self.0 as u32) << QPN_BITS;
        first..=first | ((1 << QPN_BITS) - 1)
    }

    /// A communication id of this slot with random other bits.
    pub const fn comm_id(self, random: u32) -> u32 {
        (self.0 as u32) << COMM_ID_BITS | random & ((1 << COMM_ID_BITS) - 1)
    }
}

impl fmt::Display for ProcessSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_number_is_in_one_slot() {
        for number in [0, 1, ProcessSlot::COUNT - 1] {
            let slot = ProcessSlot::new(number).expect("a slot");
            for qpn in [*slot.qpns().start(), *slot.qpns().end()] {
                assert_eq!(ProcessSlot::of(Qpn::new(qpn)), slot);
            }
            for random in [0, u32::MAX] {
                assert_eq!(ProcessSlot::of_comm_id(slot.comm_id(random)), slot);
            }
        }
        assert_eq!(ProcessSlot::new(ProcessSlot::COUNT), None);
        assert_eq!(ProcessSlot::new(ProcessSlot::COUNT - 1).map(|last| *last.qpns().end()), Some(0xFF_FFFF));
    }

    #[test]
    fn slots_of_low_numbers_come_last() {
        for random in [0, 1, 59, 60, u32::MAX] {
            let slots: Vec<ProcessSlot> = ProcessSlot::in_turn(random).collect();
            assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), ProcessSlot::COUNT);
            let is_high = |slot: &ProcessSlot| *slot.qpns().end() > Qpn::LAST_OF_RXE.get();
            assert_eq!(slots.iter().take_while(|slot| is_high(slot)).count(), 60);
        }
        assert_eq!(ProcessSlot::in_turn(63).next(), ProcessSlot::new(63));
        assert_eq!(ProcessSlot::in_turn(64).next(), ProcessSlot::new(4));
        let first: BTreeSet<_> = (0..60).map(|random| ProcessSlot::in_turn(random).next()).collect();
        assert_eq!(first.len(), 60, "any may be the first");
    }
}
