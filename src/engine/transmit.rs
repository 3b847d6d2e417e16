//! Sending: every QP that has work, in turn.

use softrnic_link::Link;
use softrnic_transport::{Hints, Stop};
use softrnic_wire::Time;

use super::{Budget, Engine, Step};

/// Packets that one QP sends before the next one's turn: what one segmented send carries at 4 KiB.
const QUANTUM: usize = 16;

impl Engine {
    /// Lets active QPs send until nothing is left, the budget is used up, or the link is full.
    pub(super) fn transmit(&mut self, now: Time, link: &mut dyn Link, budget: Budget, step: &mut Step) {
        if self.active.is_empty() {
            return;
        }
        let Budget { transmit: budget, caller, .. } = budget;
        let completes = step.completed > 0;
        let hints = Hints { caller, completes, segments: link.capabilities().segments > 1 };
        // QPs in a row that could not send. If there is one more than there are QPs, it is not the queue that is full
        // but their receivers, and the link says when to try again.
        let mut stuck = 0;
        while let Some(&key) = self.active.front() {
            if step.sent >= budget {
                step.more = true;
                return;
            }
            let quantum = (QUANTUM - self.turn).min(budget - step.sent);
            let progress = self.with_qp(now, Some(&mut *link), key, |qp, host| {
                let progress = qp.poll_transmit(now, host, hints, quantum);
                host.io.active = matches!(progress.stop, Stop::LinkFull | Stop::Budget | Stop::DelayedAck);
                if progress.stop == Stop::Window && !host.io.waiting {
                    host.io.waiting = true;
                    host.peers.wait(host.io.peer, key);
                }
                progress
            });
            let turn = std::mem::take(&mut self.turn);
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
                        // Its turn goes on, and ends: a QP that fills the link each time must not keep the others from it.
                        self.turn = turn + progress.sent;
                        if self.turn >= QUANTUM {
                            self.turn = 0;
                            self.active.rotate_left(1);
                        }
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
                Stop::DelayedAck => {
                    self.active.pop_front();
                    self.delayed_acks.push(key);
                }
            }
        }
    }
}
