//! When an ACK leaves that is all that a QP has to send.
//!
//! An ACK in a send of its own costs both ends about what a short message costs. So it waits while a reply is likely
//! that it can leave with:
//! - Whoever polls has found it together with a completion, and is likely to post the reply in its next call.
//! - The application replies to what it finds in its memory, and has just been given something there. Where the
//!   progress thread has found it, the ACK waits for the next call as well. Where a caller has found it that polls for
//!   the end of a request of the QP's own, the ACK waits for [`REPLY_WAIT`]: that end may come at any moment, and
//!   the reply after it.
//!
//! Whether the application replies so is seen from what it posts. In any case the ACK leaves with whatever the QP
//! sends next, at its deadline, and for a caller that may end the QP.

use softrnic_wire::{Psn, Time};

use crate::hints::{Caller, Hints};
use crate::tuning::{NEXT_CALL_WAIT, REPLY_TIME, REPLY_WAIT};

/// The delayed ACK of one QP.
#[derive(Debug, Default)]
pub(crate) struct DelayedAck {
    waiting: Option<Waiting>,
    /// When an ACK left by itself that a reply in memory may follow.
    left_alone: Option<Time>,
    /// The application was seen to reply to what it finds in its memory, and not seen to fail to.
    replies: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    psn: Psn,
    deadline: Time,
    what_for: WhatFor,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WhatFor {
    /// The next call, whatever it brings.
    NextCall,
    /// A request of our own that leaves.
    Reply,
}

impl DelayedAck {
    /// Whether the ACK of `psn`, which is all that the QP has to send, waits. `has_outstanding`: the peer has yet to
    /// acknowledge something as well.
    pub fn waits(&mut self, now: Time, psn: Psn, hints: Hints, has_outstanding: bool) -> bool {
        let waited = self.waiting.take();
        match waited {
            Some(_) if hints.caller == Caller::Control => return false,
            Some(Waiting { what_for: WhatFor::Reply, psn: first, .. }) if psn == first => {
                self.waiting = waited;
                return true;
            }
            Some(Waiting { what_for: WhatFor::NextCall, .. }) => {
                if hints.caller == Caller::Thread {
                    self.replies = false;
                    self.left_alone = Some(now);
                }
                return false;
            }
            // The peer goes on: it does not wait for a reply.
            Some(_) => self.replies = false,
            None => {}
        }
        let wait = match hints.caller {
            Caller::Poll if hints.completes => Some((WhatFor::NextCall, NEXT_CALL_WAIT)),
            Caller::Poll if self.replies && has_outstanding => Some((WhatFor::Reply, REPLY_WAIT)),
            Caller::Thread if self.replies && !hints.completes => Some((WhatFor::NextCall, NEXT_CALL_WAIT)),
            _ => None,
        };
        self.waiting = wait.map(|(what_for, wait)| Waiting { psn, deadline: now + wait, what_for });
        let finds_in_memory = match hints.caller {
            Caller::Thread => true,
            Caller::Poll => has_outstanding,
            Caller::Post | Caller::Control => false,
        };
        if self.waiting.is_none() && finds_in_memory {
            self.left_alone = Some(now);
        }
        self.waiting.is_some()
    }

    /// The QP sends something, and the ACK with it if there is one.
    pub fn sending(&mut self, now: Time, posted: bool) {
        self.waiting = None;
        if posted && self.left_alone.take().is_some_and(|left| now.since(left) < REPLY_TIME) {
            self.replies = true;
        }
    }

    /// When it leaves if nothing else happens; never, if none waits.
    pub fn deadline(&self) -> Time {
        self.waiting.map_or(Time::NEVER, |waiting| waiting.deadline)
    }

    /// At its deadline, it is to leave with the call that finds that.
    pub fn on_timeout(&mut self, now: Time) {
        if let Some(waiting) = &mut self.waiting
            && waiting.deadline <= now
        {
            self.replies &= waiting.what_for != WhatFor::Reply;
            (waiting.what_for, waiting.deadline) = (WhatFor::NextCall, Time::NEVER);
        }
    }

    /// There is no ACK any more.
    pub fn cancel(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests;
