//! ACKs that wait for company.
//!
//! An ACK by itself costs both sides about what a short message costs. So it waits where something is likely to come
//! that it can leave with:
//! - found by a polling caller together with a completion, until the next call, which is likely to post the answer;
//! - found by the progress thread, likewise, if the application has answered so before (it spins on its memory);
//! - found by a caller who polls for the end of a request of his own, until the answer, if he has answered so before
//!   (where each packet arrives by itself, the peer's WRITE comes a moment before the ACK that is polled for).
//!
//! All but the first are guesses. One that was wrong costs the peer a delay, so after it the guess is not made for a
//! while.

use std::collections::VecDeque;
use std::time::Duration;

use softrnic_wire::{Psn, Time};

use super::objects::QpKey;
use super::{Caller, Engine};

/// How long it waits for an answer: several times what the ACK takes that comes behind a WRITE.
const BEHIND: Duration = Duration::from_micros(10);

/// A post so soon after an ACK that went alone is an answer, which the ACK could have left with.
const ANSWER: Duration = Duration::from_micros(20);

/// What is known of the ACKs of one QP.
#[derive(Default)]
pub struct AckHold {
    /// The ACK has waited for one call already.
    held: bool,
    /// The ACK that waits for something that comes.
    kept: Option<Kept>,
    /// When an ACK went alone for which no answer was in sight.
    alone_at: Option<Time>,
    /// The application answers what it finds in its memory.
    answers: bool,
}

impl AckHold {
    /// Whether an ACK that is all that the QP has to send waits.
    pub fn decide(&mut self, now: Time, caller: Caller, ack: LoneAck) -> Hold {
        if let Some(kept) = self.kept {
            if kept.psn == ack.psn {
                return Hold::Kept;
            }
            // The peer goes on: it does not wait for an answer.
            self.kept = None;
            self.answers = false;
        }
        let waited = std::mem::take(&mut self.held);
        let hold = match caller {
            _ if waited => Hold::No,
            Caller::Poll if ack.completes => Hold::UntilNextCall,
            Caller::Poll if self.answers && ack.awaits => Hold::Until(now + BEHIND),
            Caller::Thread if self.answers && !ack.completes => Hold::UntilNextCall,
            _ => Hold::No,
        };
        match hold {
            Hold::UntilNextCall => self.held = true,
            Hold::Until(until) => self.kept = Some(Kept { psn: ack.psn, until }),
            Hold::No if caller == Caller::Thread => {
                self.answers &= !waited;
                self.alone_at = Some(now);
            }
            Hold::No if caller == Caller::Poll && ack.awaits && !waited => self.alone_at = Some(now),
            Hold::No | Hold::Kept => {}
        }
        hold
    }

    /// The QP is about to send.
    pub fn sending(&mut self, now: Time, caller: Caller) {
        self.held = false;
        if caller == Caller::Post && self.alone_at.take().is_some_and(|at| now.since(at) < ANSWER) {
            self.answers = true;
        }
    }

    /// The QP has sent; `owed` is what it still has to acknowledge.
    pub fn sent(&mut self, owed: Option<Psn>) {
        if owed.is_none() {
            self.kept = None;
        }
    }

    fn is_kept_until(&self, until: Time) -> bool {
        self.kept.is_some_and(|kept| kept.until == until)
    }

    /// What was kept until `until` is to be sent, unless it has left already. `late`: since nothing has come.
    fn release(&mut self, until: Time, late: bool) -> bool {
        if self.kept.take_if(|kept| kept.until == until).is_none() {
            return false;
        }
        self.held = true;
        self.answers &= !late;
        true
    }
}

/// An ACK that is kept, and until when.
#[derive(Clone, Copy)]
struct Kept {
    psn: Psn,
    until: Time,
}

/// An ACK that is all that a QP has to send.
#[derive(Clone, Copy)]
pub struct LoneAck {
    pub psn: Psn,
    /// Completions are published now.
    pub completes: bool,
    /// A request of the QP is to be acknowledged by the peer.
    pub awaits: bool,
}

/// Whether a QP that has nothing else to send sends its ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    No,
    UntilNextCall,
    Until(Time),
    /// It waits already.
    Kept,
}

/// ACKs that wait, of all QPs.
#[derive(Default)]
pub struct HeldAcks {
    /// Until the next step.
    pub until_next_call: Vec<QpKey>,
    /// Until something comes, or until then, by time. Those that have left may still be here.
    kept: VecDeque<(Time, QpKey)>,
}

impl HeldAcks {
    /// When the first has been kept for long enough.
    pub fn next(&self) -> Option<Time> {
        self.kept.front().map(|&(until, _)| until)
    }
}

impl Engine {
    /// Keeps the ACK of a QP. Those in front that have left meanwhile are forgotten: nobody needs to wake for them.
    pub(super) fn keep_ack(&mut self, until: Time, key: QpKey) {
        let kept = &mut self.held_acks.kept;
        while let Some(&(until, key)) = kept.front()
            && !self.qps.get(key).is_some_and(|slot| slot.io.ack.is_kept_until(until))
        {
            kept.pop_front();
        }
        match kept.back() {
            Some(&(last, _)) if last > until => {
                let place = kept.partition_point(|&(other, _)| other <= until);
                kept.insert(place, (until, key));
            }
            _ => kept.push_back((until, key)),
        }
    }

    /// ACKs that were kept for long enough leave in this step; all of them for a caller who may end what owes them.
    pub(super) fn release_kept_acks(&mut self, now: Time, caller: Caller) {
        while let Some(&(until, key)) = self.held_acks.kept.front() {
            let late = until <= now;
            if !late && caller != Caller::Control {
                return;
            }
            self.held_acks.kept.pop_front();
            if self.qps.get_mut(key).is_some_and(|slot| slot.io.ack.release(until, late)) {
                self.activate(key);
            }
        }
    }
}
