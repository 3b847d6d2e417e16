//! The parts of an address: each process behind it owns one.

use std::fmt;
use std::ops::RangeInclusive;

use softrnic_wire::Qpn;

/// A part of an address. It is in the highest bits of every number by which peers name something of a process: of its
/// queue pairs, and of its ends of connections. So a packet shows which process it is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Part(u8);

const BITS: u32 = 6;
/// Of a queue pair number that the process chooses.
const QPN_BITS: u32 = 24 - BITS;
/// Likewise of a communication id.
const COMM_ID_BITS: u32 = 32 - BITS;

impl Part {
    /// How many there are: the most processes of an address.
    pub const COUNT: usize = 1 << BITS;

    /// The most queue pairs of a part: in the first part 0 and 1 are special, in the last one 0xFFFFFF.
    pub const MAX_QPS: usize = (1 << QPN_BITS) - 2;

    /// The part with this number.
    pub const fn new(number: usize) -> Option<Part> {
        if number < Part::COUNT { Some(Part(number as u8)) } else { None }
    }

    /// One of them, given a random number.
    pub const fn of_random(random: u8) -> Part {
        Part(random & ((1 << BITS) - 1))
    }

    /// The part of a queue pair.
    #[inline]
    pub const fn of(qpn: Qpn) -> Part {
        Part((qpn.get() >> QPN_BITS) as u8)
    }

    /// The part of a communication id.
    pub const fn of_comm_id(id: u32) -> Part {
        Part((id >> COMM_ID_BITS) as u8)
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

    /// A communication id of this part with random other bits.
    pub const fn comm_id(self, random: u32) -> u32 {
        (self.0 as u32) << COMM_ID_BITS | random & ((1 << COMM_ID_BITS) - 1)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_one_part() {
        for number in [0, 1, Part::COUNT - 1] {
            let part = Part::new(number).expect("a part");
            for qpn in [*part.qpns().start(), *part.qpns().end()] {
                assert_eq!(Part::of(Qpn::new(qpn)), part);
            }
            for random in [0, u32::MAX] {
                assert_eq!(Part::of_comm_id(part.comm_id(random)), part);
            }
        }
        assert_eq!(Part::new(Part::COUNT), None);
        assert_eq!(Part::new(Part::COUNT - 1).map(|last| *last.qpns().end()), Some(0xFF_FFFF));
    }
}
