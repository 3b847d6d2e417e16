//! Decides whether a post leaves at once, or is gathered with those that follow it.
//!
//! An idle QP has nothing to gather with. While one of its requests is outstanding the application is going to poll,
//! and what it posts until then leaves in one send.

use super::tuning::{BATCH, BATCH_BYTES, FEW};

/// What has been posted to a QP since a post last left at once.
#[derive(Debug, Default)]
pub struct PendingPosts {
    posts: usize,
    bytes: u64,
    /// The last request does not report its success.
    unsignaled: bool,
    /// One that does has followed one that does not.
    awaited: bool,
}

impl PendingPosts {
    /// A request with `bytes` to send was posted; `signaled` if it reports its success.
    #[inline]
    pub fn add(&mut self, bytes: u64, signaled: bool) {
        self.posts += 1;
        self.bytes += bytes;
        self.awaited |= signaled && self.unsignaled;
        self.unsignaled = !signaled;
    }

    /// The doorbell is rung, where `outstanding` other requests were outstanding. Returns whether what has been gathered
    /// leaves at once.
    ///
    /// An application that asks for one report of many posts until its queue is full, and then waits for that one.
    #[inline]
    pub fn leaves_now(&mut self, outstanding: usize, answers: bool) -> bool {
        let few = if answers { FEW } else { 0 };
        let leaves = outstanding <= few || self.awaited || self.posts >= BATCH || self.bytes >= BATCH_BYTES;
        if leaves {
            *self = PendingPosts { unsignaled: self.unsignaled, ..PendingPosts::default() };
        }
        leaves
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Posts signaled requests with one doorbell.
    fn post(
        gathered: &mut PendingPosts,
        posts: usize,
        bytes: u64,
        outstanding: usize,
        answers: bool,
    ) -> bool {
        (0..posts).for_each(|_| gathered.add(bytes / posts as u64, true));
        gathered.leaves_now(outstanding, answers)
    }

    #[test]
    fn the_first_post_on_an_idle_qp_leaves() {
        let mut gathered = PendingPosts::default();
        assert!(post(&mut gathered, 1, 64, 0, false));
        assert!(!post(&mut gathered, 1, 64, 1, false));
    }

    #[test]
    fn an_answer_leaves_while_few_are_outstanding() {
        let mut gathered = PendingPosts::default();
        assert!(post(&mut gathered, 1, 64, FEW, true));
        assert!(!post(&mut gathered, 1, 64, FEW + 1, true));
    }

    #[test]
    fn a_batch_leaves_when_it_is_full() {
        for (posts, bytes) in [(1, BATCH_BYTES / BATCH as u64 - 1), (1, BATCH_BYTES / 2), (4, 0)] {
            let mut gathered = PendingPosts::default();
            for round in 0..3 {
                let (mut count, mut sum) = (posts, bytes);
                while !post(&mut gathered, posts, bytes, 1, false) {
                    assert!(count < BATCH && sum < BATCH_BYTES, "round {round}");
                    count += posts;
                    sum += bytes;
                }
                assert!(count >= BATCH || sum >= BATCH_BYTES, "round {round}");
            }
        }
    }

    #[test]
    fn a_signaled_request_leaves_with_the_unsignaled_ones_before_it() {
        let mut gathered = PendingPosts::default();
        for _ in 0..3 {
            for signaled in [false, false, true] {
                gathered.add(64, signaled);
                assert_eq!(gathered.leaves_now(1, false), signaled);
            }
            // Those of an application that wants all reports are gathered.
            gathered.add(64, true);
            assert!(!gathered.leaves_now(1, false));
        }
        // With one doorbell for several.
        [false, true, true].into_iter().for_each(|signaled| gathered.add(64, signaled));
        assert!(gathered.leaves_now(1, false));
    }

    #[test]
    fn requests_that_left_in_between_do_not_matter() {
        let mut gathered = PendingPosts::default();
        let left = (0..BATCH).filter(|_| {
            gathered.add(64, false);
            gathered.leaves_now(1, false)
        });
        assert_eq!(left.count(), 1);
        gathered.add(64, true);
        assert!(gathered.leaves_now(1, false));
    }
}
