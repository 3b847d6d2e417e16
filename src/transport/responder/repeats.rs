//! Limits how much is sent again to a peer that makes no progress.
//!
//! A peer that lost responses repeats its READ (IBTA 9.7.5.1.3), and each repeat, a packet of some forty bytes, draws
//! up to 2 GiB. A responder may drop what it cannot serve, since the peer asks again. So repeats are answered from a
//! credit that grows when the peer makes progress: with new READs, and with repeats that begin further on than any
//! before. Once the credit is used up, a repeat draws one packet: a peer that receives it makes progress, and its
//! credit grows again.

use softrnic_wire::Psn;

/// Packets that may be sent again for each packet of progress: as many as a requester with the largest retry count asks
/// for.
const PER_PACKET: u32 = 7;

/// The largest credit, in packets.
const MOST: u32 = 4096;

/// A repeat more than a quarter of the PSN space ago says nothing.
const OLDEST: i32 = 1 << 22;

/// Packets of READ responses that may be sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RepeatCredit {
    packets: u32,
    /// Where the furthest repeat began: the peer has received everything before it.
    reached: Option<Psn>,
}

impl RepeatCredit {
    /// A new READ was accepted.
    pub fn note_read(&mut self, first: Psn, packets: u32) {
        self.earn(packets);
        if self.reached.is_none_or(|reached| first.distance_from(reached) > OLDEST) {
            self.reached = Some(first);
        }
    }

    /// A READ is repeated from `psn` on.
    pub fn note_repeat(&mut self, psn: Psn) {
        if let Some(reached) = self.reached.filter(|&reached| psn.is_after(reached)) {
            self.earn(psn.distance_from(reached) as u32);
            self.reached = Some(psn);
        }
    }

    /// Takes all of `packets`, or nothing.
    pub fn take_all(&mut self, packets: u32) -> bool {
        let enough = packets <= self.packets;
        if enough {
            self.packets -= packets;
        }
        enough
    }

    /// Takes `packets`, or as many as there are, but at least one.
    pub fn take(&mut self, packets: u32) -> u32 {
        let taken = packets.min(self.packets);
        self.packets -= taken;
        taken.max(1)
    }

    fn earn(&mut self, packets: u32) {
        self.packets = packets.saturating_mul(PER_PACKET).saturating_add(self.packets).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_grows_only_with_progress() {
        let mut credit = RepeatCredit::default();
        credit.note_read(Psn::new(100), 10);
        assert_eq!(credit.take(100), 70);
        credit.note_repeat(Psn::new(100));
        assert_eq!(credit.take(100), 1, "nothing was gained, and one packet goes all the same");
        credit.note_repeat(Psn::new(102));
        credit.note_repeat(Psn::new(101));
        assert!(!credit.take_all(15));
        assert!(credit.take_all(14));
    }

    #[test]
    fn credit_is_bounded() {
        let mut credit = RepeatCredit::default();
        credit.note_read(Psn::ZERO, 1 << 23);
        assert_eq!(credit.take(u32::MAX), MOST);
    }

    #[test]
    fn old_repeats_do_not_count() {
        let mut credit = RepeatCredit::default();
        credit.note_read(Psn::ZERO, 1);
        credit.note_read(Psn::new((1 << 22) + 1), 1);
        credit.take(14);
        credit.note_repeat(Psn::new((1 << 22) + 2));
        assert!(!credit.take_all(8), "one packet further than the READ before");
        assert!(credit.take_all(7));
    }

    #[test]
    fn a_later_read_keeps_the_progress_of_the_one_before() {
        for first in [110, 100 + (1 << 22)] {
            let mut credit = RepeatCredit::default();
            credit.note_read(Psn::new(100), 10);
            credit.note_read(Psn::new(first), 10);
            credit.take(u32::MAX);
            credit.note_repeat(Psn::new(105));
            assert_eq!(credit.take(u32::MAX), 5 * PER_PACKET, "the repeat of the one before gets on");
        }
    }

    #[test]
    fn spent_credit_is_gone() {
        let mut credit = RepeatCredit::default();
        credit.note_read(Psn::ZERO, 3);
        assert!(credit.take_all(20));
        assert!(!credit.take_all(2));
        assert!(credit.take_all(1));
    }
}
