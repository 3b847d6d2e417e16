//! Sending: every QP that has something to do, in turn.

use softrnic_link::Link;
use softrnic_transport::Stop;
use softrnic_wire::Time;

use super::{Engine, Step};

/// Packets that one QP sends before it is another's turn: what one segmented send carries at 4 KiB.
const QUANTUM: usize = 16;

impl Engine {
    /// Lets active QPs send until nothing is left, the budget is used up, or the link is full.
    pub(super) fn transmit(&mut self, now: Time, link: &mut dyn Link, budget: usize, step: &mut Step) {
        while let Some(&key) = self.active.front() {
            if step.sent >= budget {
                step.more = true;
                return;
            }
            let quantum = QUANTUM.min(budget - step.sent);
            let progress =
                self.with_qp(now, Some(&mut *link), key, |qp, host| qp.poll_transmit(now, host, quantum));
            let Some(progress) = progress else {
                self.active.pop_front();
                continue;
            };
            step.sent += progress.sent;
            match progress.stop {
                Stop::LinkFull => {
                    link.flush(now);
                    if link.is_blocked() {
                        step.blocked = true;
                        return;
                    }
                    self.active.rotate_left(1);
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
}
