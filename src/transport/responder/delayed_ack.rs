//! Decides when an ACK leaves that is all that a QP has to send.
//!
//! An ACK sent on its own costs both ends about as much as a short message. So it waits while a reply that it can leave
//! with is likely:
//! - The application has polled and found a completion. It is likely to post the reply in its next call. (Where the peer
//!   reads our memory, the engine has sent the ACK before: it costs no send there.)
//! - The application replies to what it finds in its memory, and a WRITE has just arrived there. If the progress thread
//!   received it, the ACK waits for the next call too. If a caller received it that polls for the completion of a
//!   request of this QP, the ACK waits for [`REPLY_WAIT`]: the completion may come at any moment, and the reply after
//!   it.
//!
//! What the application posts shows whether it replies in this way. An ACK that replaces another one does not wait: a peer
//! that goes on does not wait for a reply, but may well wait for the room that the ACK makes. In any case the ACK leaves with
//! whatever the QP sends next, at its deadline, and in a call that may end the QP.

use softrnic_wire::{Psn, Time};

use super::responses::LoneAck;
use crate::hints::{Caller, Hints};
use crate::tuning::{NEXT_CALL_WAIT, REPLY_TIME, REPLY_WAIT};

/// The delayed ACK of one QP.
#[derive(Debug, Default)]
pub(crate) struct DelayedAck {
    waiting: Option<Waiting>,
    /// When an ACK that a reply in memory may follow last left by itself.
    left_alone: Option<Time>,
    /// The application has been seen to reply to what it finds in its memory, and not seen to fail to.
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
    /// The next call, whatever it does.
    NextCall,
    /// A request of our own.
    Reply,
}

impl DelayedAck {
    /// Whether an ACK, which is all that the QP has to send, waits. `has_outstanding`: the peer has yet to acknowledge
    /// something too.
    pub fn waits(&mut self, now: Time, ack: LoneAck, hints: Hints, has_outstanding: bool) -> bool {
        let LoneAck { psn, replaces } = ack;
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
            None if replaces => return false,
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

    /// The QP sends something, and the ACK, if there is one, with it.
    pub fn sending(&mut self, now: Time, posted: bool) {
        self.waiting = None;
        if posted && self.left_alone.take().is_some_and(|left| now.since(left) < REPLY_TIME) {
            self.replies = true;
        }
    }

    /// When the ACK leaves if nothing else happens; never, if none waits.
    pub fn deadline(&self) -> Time {
        self.waiting.map_or(Time::NEVER, |waiting| waiting.deadline)
    }

    /// Once the deadline has passed, the ACK leaves in the next call.
    pub fn on_timeout(&mut self, now: Time) {
        if let Some(waiting) = &mut self.waiting
            && waiting.deadline <= now
        {
            self.replies &= waiting.what_for != WhatFor::Reply;
            (waiting.what_for, waiting.deadline) = (WhatFor::NextCall, Time::NEVER);
        }
    }

    /// There is no ACK any longer.
    pub fn cancel(&mut self) {
        self.waiting = None;
    }
}

#[cfg(test)]
mod tests;
