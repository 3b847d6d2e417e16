//! Decides whether a post leaves at once, or is gathered with those that follow it.
//!
//! An idle QP has nothing to gather with. While one of its requests is outstanding the application is going to poll,
//! and what it posts until then leaves in one send.

use super::tuning::{BATCH, BATCH_BYTES, FEW};

/// What has been posted to a QP since a post last left at once.
#[derive(Debug, Default)]
pub struct Gathered {
    posts: usize,
    bytes: u64,
}

impl Gathered {
    /// Requests with `bytes` to send were posted to a QP with `outstanding` others. Returns whether they leave at once.
    #[inline]
    pub fn leaves_now(&mut self, posts: usize, bytes: u64, outstanding: usize, answers: bool) -> bool {
        self.posts += posts;
        self.bytes += bytes;
        let few = if answers { FEW } else { 0 };
        let leaves = outstanding <= few || self.posts >= BATCH || self.bytes >= BATCH_BYTES;
        if leaves {
            *self = Gathered::default();
        }
        leaves
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_post_on_an_idle_qp_leaves() {
        let mut gathered = Gathered::default();
        assert!(gathered.leaves_now(1, 64, 0, false));
        assert!(!gathered.leaves_now(1, 64, 1, false));
    }

    #[test]
    fn an_answer_leaves_while_few_are_outstanding() {
        let mut gathered = Gathered::default();
        assert!(gathered.leaves_now(1, 64, FEW, true));
        assert!(!gathered.leaves_now(1, 64, FEW + 1, true));
    }

    #[test]
    fn a_batch_leaves_when_it_is_full() {
        for (posts, bytes) in [(1, BATCH_BYTES / BATCH as u64 - 1), (1, BATCH_BYTES / 2), (4, 0)] {
            let mut gathered = Gathered::default();
            for round in 0..3 {
                let (mut count, mut sum) = (posts, bytes);
                while !gathered.leaves_now(posts, bytes, 1, false) {
                    assert!(count < BATCH && sum < BATCH_BYTES, "round {round}");
                    count += posts;
                    sum += bytes;
                }
                assert!(count >= BATCH || sum >= BATCH_BYTES, "round {round}");
            }
        }
    }
}
