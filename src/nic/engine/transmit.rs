//! Sending: every QP that has something to do, in turn.

use softrnic_link::Link;
use softrnic_transport::Stop;
use softrnic_wire::Time;

use super::objects::QpKey;
use super::{Budget, Engine, Step};

/// Packets that one QP sends before it is another's turn: what one segmented send carries at 4 KiB.
const QUANTUM: usize = 16;

impl Engine {
    /// Lets active QPs send until nothing is left, the budget is used up, or the link is full.
    pub(super) fn transmit(&mut self, now: Time, link: &mut dyn Link, budget: Budget, step: &mut Step) {
        let may_hold = budget.hold_acks && !self.shared.staged.is_empty();
        let budget = budget.transmit;
        // QPs in a row that could not send. After one more than there are, the queue is not what is full but
        // their receivers, and the link says when to try again.
        let mut stuck = 0;
        while let Some(&key) = self.active.front() {
            if may_hold && self.hold_ack(key) {
                self.active.pop_front();
                self.held.push(key);
                continue;
            }
            if step.sent >= budget {
                step.more = true;
                return;
            }
            let quantum = QUANTUM.min(budget - step.sent);
            let progress = self.with_qp(now, Some(&mut *link), key, |qp, host| {
                host.io.held_ack = false;
                qp.poll_transmit(now, host, quantum)
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
                    let Some(slot) = self.qps.get_mut(key) else { continue };
                    slot.io.active = false;
                    if progress.stop == Stop::Window && !slot.io.waiting {
                        slot.io.waiting = true;
                        self.peers.wait(slot.io.peer, key);
                    }
                }
            }
        }
    }

    /// Whether the QP's ACK can wait: it has nothing else to send, and the ACK has not waited before.
    fn hold_ack(&mut self, key: QpKey) -> bool {
        let Some(slot) = self.qps.get_mut(key) else { return false };
        let hold = !slot.io.held_ack && slot.qp.owes_only_an_ack();
        slot.io.held_ack = hold;
        hold
    }
}
