//! Completions become visible before the ACKs of their messages arrive: a sender that has seen its completion knows that
//! the receiver's CQ has the other one. Where the peer reads our memory, the ACK has been written by then, and is shown
//! in the same breath: a process that ends on a completion, by whatever means, has acknowledged it. Elsewhere the ACK
//! leaves later in the step, or waits for a reply.

use softrnic_diagnosis::Warning;
use softrnic_link::Link;
use softrnic_wire::Time;

use super::Engine;
use super::objects::Event;
use super::shared::Shared;

impl Engine {
    /// Makes visible what was completed, and shows the ACKs that belong to it. Returns how many completions there were, and
    /// how many ACKs.
    pub(super) fn complete(&mut self, now: Time, link: &mut dyn Link) -> (usize, usize) {
        let acknowledged = self.acknowledge(now, link);
        let completed = self.publish(now);
        if acknowledged > 0 {
            link.show();
        }
        (completed, acknowledged)
    }

    /// Writes ACKs of messages whose completions are not visible yet, where the peer reads our memory. The peer does not see
    /// them yet.
    fn acknowledge(&mut self, now: Time, link: &mut dyn Link) -> usize {
        if !link.capabilities().shared_memory {
            return 0;
        }
        let (mut count, mut last) = (0, None);
        for place in 0..self.shared.staged.receives().len() {
            let key = self.shared.staged.receives()[place].qp;
            if last.replace(key) == Some(key) {
                continue;
            }
            let written = self.with_qp(now, Some(&mut *link), key, |qp, host| {
                qp.has_lone_ack() && host.sends_in_memory(qp.attr()) && qp.transmit_ack(now, host)
            });
            count += usize::from(written == Some(true));
        }
        count
    }

    /// Makes visible what was completed since the last call. Armed CQs are [notified](Self::notify) later.
    pub(super) fn publish(&mut self, now: Time) -> usize {
        let count = self.shared.staged.len();
        if count == 0 {
            return 0;
        }
        let mut lost = Vec::new();
        let Shared { staged, events, diagnoses, .. } = &mut self.shared;
        for run in staged.runs() {
            let Some(cq) = self.cqs.get_mut(run[0].cq) else { continue };
            let mut solicited = None;
            for staged in run {
                if cq.ring.push(staged.cqe).is_ok() {
                    solicited = solicited.max(Some(staged.solicited));
                    continue;
                }
                if lost.last() != Some(&staged.qp) {
                    lost.push(staged.qp);
                }
                if !std::mem::replace(&mut cq.overrun, true) {
                    events.push(Event::CqError(staged.cq));
                    diagnoses
                        .warn(&Warning::CqOverrun { entries: cq.ring.capacity() as u32 }, Some(staged.cq));
                }
            }
            if let Some(notify) = &cq.notify
                && solicited.is_some_and(|solicited| cq.armed.should_fire(solicited))
            {
                self.fired.push(notify.clone());
            }
        }
        staged.clear();
        // A QP that has lost a completion cannot continue (IBTA 9.9.3, error class G).
        for key in lost {
            self.with_qp(now, None, key, |qp, host| qp.abort(host));
        }
        count
    }

    /// Notifies who waits for completions that have become visible. Whoever that is may want this processor, so the
    /// packets have left.
    #[inline(always)]
    pub(super) fn notify(&mut self) {
        // Not `for_each`, whose body becomes a function of its own where this is called twice.
        for notify in self.fired.drain(..) {
            notify.completion();
        }
    }
}
