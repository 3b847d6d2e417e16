//! Completions become visible after the step's packets have left. So when an application exits on a completion, what it
//! stands for has been acknowledged.

use softrnic_wire::Time;

use super::Engine;
use super::objects::Event;
use super::shared::Shared;

impl Engine {
    /// Publishes what was completed since the last call, and notifies armed CQs.
    pub(super) fn publish(&mut self, now: Time) -> usize {
        let count = self.shared.staged.len();
        let mut lost = Vec::new();
        let Shared { staged, events, .. } = &mut self.shared;
        for run in staged.runs() {
            let Some(cq) = self.cqs.get_mut(run[0].cq) else { continue };
            let mut solicited = None;
            for staged in run {
                if cq.ring.push(staged.cqe).is_ok() {
                    solicited = solicited.max(Some(staged.solicited));
                    continue;
                }
                if lost.last() != Some(&staged.cqe.qpn) {
                    lost.push(staged.cqe.qpn);
                }
                if !std::mem::replace(&mut cq.overrun, true) {
                    events.push(Event::CqError(staged.cq));
                }
            }
            if let Some(notify) = &cq.notify
                && solicited.is_some_and(|solicited| cq.armed.should_fire(solicited))
            {
                notify.completion();
            }
        }
        staged.clear();
        // A QP that has lost a completion cannot continue (IBTA 9.9.3, error class G).
        for qpn in lost {
            if let Some(&key) = self.by_number.get(&qpn) {
                self.with_qp(now, None, key, |qp, host| qp.abort(host));
            }
        }
        count
    }
}
