//! Sending: every QP that has something to do, in turn.

use softrnic_link::Link;
use softrnic_transport::Stop;
use softrnic_wire::Time;

use super::held_acks::{Hold, LoneAck};
use super::objects::QpKey;
use super::{Budget, Caller, Engine, Step};

/// Packets that one QP sends before it is another's turn: what one segmented send carries at 4 KiB.
const QUANTUM: usize = 16;

impl Engine {
    /// Lets active QPs send until nothing is left, the budget is used up, or the link is full.
    pub(super) fn transmit(&mut self, now: Time, link: &mut dyn Link, budget: Budget, step: &mut Step) {
        let completes = !self.shared.staged.is_empty();
        let Budget { transmit: budget, caller, .. } = budget;
        // QPs in a row that could not send. After one more than there are, the queue is not what is full but
        // their receivers, and the link says when to try again.
        let mut stuck = 0;
        while let Some(&key) = self.active.front() {
            match self.hold_ack(now, caller, key, completes) {
                Hold::No => {}
                Hold::UntilNextCall => {
                    self.active.pop_front();
                    self.held_acks.until_next_call.push(key);
                    continue;
                }
                Hold::Kept => {
                    self.deactivate();
                    continue;
                }
                Hold::Until(until) => {
                    self.deactivate();
                    self.keep_ack(until, key);
                    continue;
                }
            }
            if step.sent >= budget {
                step.more = true;
                return;
            }
            let quantum = QUANTUM.min(budget - step.sent);
            let progress = self.with_qp(now, Some(&mut *link), key, |qp, host| {
                host.io.ack.sending(now, caller);
                let progress = qp.poll_transmit(now, host, quantum);
                host.io.active = matches!(progress.stop, Stop::LinkFull | Stop::Budget);
                if progress.stop == Stop::Window && !host.io.waiting {
                    host.io.waiting = true;
                    host.peers.wait(host.io.peer, key);
                }
                host.io.ack.sent(qp.owed_ack());
                progress
            });
            let Some(progress) = progress else {
                self.active.pop_front();
                continue;
            };
            step.sent += progress.sent;
            stuck = if progress.sent == 0 && progress.stop == Stop::LinkFull { stuck + 1 } else { 0 };
            match progress.stop {
                Stop::LinkFull => {
                    link.flush(now);
                    if link.is_blocked() {
                        step.blocked = true;
                        return;
                    }
                    self.active.rotate_left(1);
                    if stuck > self.active.len() {
                        return;
                    }
                }
                Stop::Budget => self.active.rotate_left(1),
                Stop::Idle | Stop::Window => {
                    self.active.pop_front();
                }
            }
        }
    }

    /// Whether an ACK that is all that the QP has to send can wait.
    fn hold_ack(&mut self, now: Time, caller: Caller, key: QpKey, completes: bool) -> Hold {
        let Some(slot) = self.qps.get_mut(key) else { return Hold::No };
        match slot.qp.owed_ack() {
            Some(psn) if !slot.qp.has_more_than_an_ack() => {
                let awaits = slot.qp.awaits_ack();
                slot.io.ack.decide(now, caller, LoneAck { psn, completes, awaits })
            }
            _ => Hold::No,
        }
    }

    /// The first of the active QPs has nothing to do.
    fn deactivate(&mut self) {
        if let Some(slot) = self.active.pop_front().and_then(|key| self.qps.get_mut(key)) {
            slot.io.active = false;
        }
    }
}
