//! A log of what has used memory: to tell what the program has changed from what the NIC has.

use std::collections::VecDeque;

use crate::request::Piece;

/// Ranges that are remembered.
const MOST: usize = 1 << 14;

/// The last ranges that the NIC has written, or that the program has given it to read, each with a number.
#[derive(Default)]
pub(crate) struct Uses {
    /// First addresses, and those behind the end.
    ranges: VecDeque<(u64, u64)>,
    /// The number of the next one.
    next: u64,
    /// Somebody has asked for that since the last one came: it must not grow.
    was_asked: bool,
}

impl Uses {
    /// The number of the next one, for [`Uses::meet_since`].
    pub fn now(&mut self) -> u64 {
        self.was_asked = true;
        self.next
    }

    /// These bytes are used.
    pub fn add(&mut self, addr: u64, length: u64) {
        let end = addr.saturating_add(length);
        if let Some(last) = self.ranges.back_mut().filter(|last| !self.was_asked && last.1 == addr) {
            last.1 = end;
            return;
        }
        if self.ranges.len() == MOST {
            self.ranges.pop_front();
        }
        self.ranges.push_back((addr, end));
        self.next += 1;
        self.was_asked = false;
    }

    /// Bytes are used, nobody knows which.
    pub fn add_any(&mut self) {
        self.add(0, u64::MAX);
    }

    /// Whether any of these bytes were used since then. So they were if that is no longer known.
    pub fn meet_since(&self, since: u64, pieces: &[Piece]) -> bool {
        let count = usize::try_from(self.next - since).unwrap_or(usize::MAX);
        let meets = |(from, to): &(u64, u64)| {
            pieces
                .iter()
                .any(|piece| piece.addr < *to && *from < piece.addr.saturating_add(piece.length.into()))
        };
        count > self.ranges.len() || self.ranges.iter().rev().take(count).any(meets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(addr: u64, length: u32) -> [Piece; 1] {
        [Piece { addr, length, lkey: 0 }]
    }

    #[test]
    fn what_was_used_before_does_not_count() {
        let mut uses = Uses::default();
        uses.add(100, 10);
        let since = uses.now();
        assert!(!uses.meet_since(since, &piece(100, 10)));
        uses.add(110, 10);
        assert!(!uses.meet_since(since, &piece(100, 10)), "it begins where the other ends");
        assert!(uses.meet_since(since, &piece(119, 1)));
        uses.add(120, 10);
        assert!(uses.meet_since(since, &piece(129, 1)), "they have become one");
        assert!(!uses.meet_since(since, &piece(130, 1)));
    }

    #[test]
    fn what_is_not_known_any_longer_counts() {
        let mut uses = Uses::default();
        let since = uses.now();
        for at in 0..=MOST as u64 {
            uses.add(1000 + 2 * at, 1);
        }
        assert!(uses.meet_since(since, &piece(0, 1)));
        assert!(!uses.meet_since(since + 1, &piece(0, 1)));
        uses.add_any();
        assert!(uses.meet_since(since + 1, &piece(0, 1)));
    }
}
