//! Which priority a port serves next.

use crate::config::Schedule;
use crate::frame::PRIORITIES;

/// Bytes that a weight of 1 is worth in each round: no less than a frame, so that a round serves one.
const QUANTUM: i64 = 9_254;

/// The state of deficit round robin.
#[derive(Clone, Debug, Default)]
pub struct Deficits {
    bytes: [i64; PRIORITIES],
    /// Whose turn it is.
    turn: usize,
}

impl Deficits {
    /// The only priority that has something is served. Alone, it earns no claim on later rounds.
    pub fn serve_alone(&mut self) {
        self.bytes = [0; PRIORITIES];
    }

    /// The priority to serve, of those whose first frame has `heads` bytes; `None` where nothing can leave.
    pub fn next(
        &mut self,
        schedule: &[Schedule; PRIORITIES],
        heads: [Option<u32>; PRIORITIES],
    ) -> Option<usize> {
        let strict = (0..PRIORITIES).rev().find(|&p| heads[p].is_some() && schedule[p] == Schedule::Strict);
        if strict.is_some() {
            return strict;
        }
        let mut ready = (0..PRIORITIES).filter(|&p| heads[p].is_some());
        let only = ready.next()?;
        if ready.next().is_none() {
            self.serve_alone();
            return Some(only);
        }
        loop {
            let priority = self.turn;
            if let (Some(bytes), Schedule::Weighted(weight)) = (heads[priority], schedule[priority]) {
                if self.bytes[priority] >= i64::from(bytes) {
                    self.bytes[priority] -= i64::from(bytes);
                    return Some(priority);
                }
                self.bytes[priority] += QUANTUM * i64::from(weight.max(1));
            } else {
                self.bytes[priority] = 0;
            }
            self.turn = (self.turn + 1) % PRIORITIES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_share_the_bytes() {
        let mut schedule = [Schedule::Weighted(1); PRIORITIES];
        schedule[5] = Schedule::Weighted(3);
        let mut deficits = Deficits::default();
        let mut heads = [None; PRIORITIES];
        heads[2] = Some(1500);
        heads[5] = Some(500);
        let mut bytes = [0_u64; PRIORITIES];
        for _ in 0..100_000 {
            let served = deficits.next(&schedule, heads).expect("something to serve");
            bytes[served] += u64::from(heads[served].expect("a head"));
        }
        let ratio = bytes[5] as f64 / bytes[2] as f64;
        assert!((ratio - 3.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn strict_goes_first_and_the_higher_of_two() {
        let mut schedule = [Schedule::Weighted(1); PRIORITIES];
        schedule[6] = Schedule::Strict;
        schedule[7] = Schedule::Strict;
        let mut heads = [Some(1000); PRIORITIES];
        let mut deficits = Deficits::default();
        assert_eq!(deficits.next(&schedule, heads), Some(7));
        heads[7] = None;
        assert_eq!(deficits.next(&schedule, heads), Some(6));
        heads[6] = None;
        assert!(deficits.next(&schedule, heads).is_some_and(|priority| priority < 6));
        assert_eq!(deficits.next(&schedule, [None; PRIORITIES]), None);
    }
}
