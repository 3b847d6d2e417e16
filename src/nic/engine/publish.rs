//! Completions become visible: after the step's packets have left, so that an application that exits on a
//! completion has acknowledged what it stands for.

use softrnic_wire::Time;

use super::Engine;
use super::objects::Event;

impl Engine {
    /// Publishes what was completed since the last call, and wakes who asked to be woken.
    pub(super) fn publish(&mut self, now: Time) -> usize {
        let count = self.shared.staged.len();
        let mut lost = Vec::new();
        for staged in self.shared.staged.drain() {
            let Some(cq) = self.cqs.get_mut(staged.cq) else { continue };
            if cq.ring.push(staged.cqe).is_err() {
                lost.push(staged.cqe.qpn);
                if !std::mem::replace(&mut cq.overrun, true) {
                    self.shared.events.push(Event::CqError(staged.cq));
                }
                continue;
            }
            if cq.armed.should_fire(staged.solicited)
                && let Some(notify) = &cq.notify
            {
                notify.completion();
            }
        }
        // A QP whose completion is lost cannot go on (IBTA 9.9.3, error class G).
        for qpn in lost {
            if let Some(&key) = self.by_number.get(&qpn) {
                self.with_qp(now, None, key, |qp, host| qp.abort(host));
            }
        }
        count
    }
}
