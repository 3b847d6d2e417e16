//! Completions become visible before the ACKs of their messages arrive: a sender that has seen its completion knows that
//! the receiver's CQ has the other one. Where the peer reads our memory, the ACK has been written by then, and is shown
//! in the same breath: a process that ends on a completion, by whatever means, has acknowledged it. Elsewhere the ACK
//! leaves later in the step, or waits for a reply.

use std::sync::Arc;

use slotmap::SlotMap;
use softrnic_diagnosis::Warning;
use softrnic_link::Link;
use softrnic_sync::notify::Notify;
use softrnic_wire::Time;

use super::Engine;
use super::diagnoses::Diagnoses;
use super::host::Staged;
use super::objects::{Cq, CqKey, Event, QpKey};
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
        if self.shared.staged.is_empty() && self.shared.shown == 0 {
            return 0;
        }
        self.shared.show();
        // A QP that has lost a completion cannot continue (IBTA 9.9.3, error class G).
        for key in std::mem::take(&mut self.shared.overrun) {
            self.with_qp(now, None, key, |qp, host| qp.abort(host));
        }
        std::mem::take(&mut self.shared.shown)
    }

    /// Notifies who waits for completions that have become visible. Whoever that is may want this processor, so the
    /// packets have left.
    #[inline(always)]
    pub(super) fn notify(&mut self) {
        // Not `for_each`, whose body becomes a function of its own where this is called twice.
        for notify in self.shared.fired.drain(..) {
            notify.completion();
        }
    }
}

impl Shared {
    /// A completion becomes visible when all that came has been seen. It and those before it do so at once if memory is refused.
    #[inline]
    pub fn stage(&mut self, completion: Staged) {
        if !self.staged.push(&completion) {
            self.show_early(&completion);
        }
    }

    #[cold]
    #[inline(never)]
    fn show_early(&mut self, completion: &Staged) {
        self.show();
        // There is room for it now, unless there never was any.
        if !self.staged.push(completion) {
            let Shared { cqs, shown, fired, overrun, events, diagnoses, .. } = self;
            Showing { cqs, shown, fired, overrun, events, diagnoses }.show(std::slice::from_ref(completion));
        }
    }

    fn show(&mut self) {
        let Shared { staged, cqs, shown, fired, overrun, events, diagnoses, .. } = self;
        let mut showing = Showing { cqs, shown, fired, overrun, events, diagnoses };
        for run in staged.runs() {
            showing.show(run);
        }
        staged.clear();
    }
}

/// Where completions go, and what comes of it.
struct Showing<'a> {
    cqs: &'a mut SlotMap<CqKey, Cq>,
    shown: &'a mut usize,
    fired: &'a mut Vec<Arc<dyn Notify>>,
    overrun: &'a mut Vec<QpKey>,
    events: &'a mut Vec<Event>,
    diagnoses: &'a mut Diagnoses,
}

impl Showing<'_> {
    /// Writes completions for one CQ to it.
    fn show(&mut self, run: &[Staged]) {
        *self.shown += run.len();
        let Some(cq) = self.cqs.get_mut(run[0].cq) else { return };
        let mut solicited = None;
        for staged in run {
            if cq.ring.push(staged.cqe).is_ok() {
                solicited = solicited.max(Some(staged.solicited));
                continue;
            }
            if self.overrun.last() != Some(&staged.qp) {
                self.overrun.push(staged.qp);
            }
            if !std::mem::replace(&mut cq.overrun, true) {
                self.events.push(Event::CqError(staged.cq));
                let overrun = Warning::CqOverrun { entries: cq.ring.capacity() as u32 };
                self.diagnoses.warn(&overrun, Some(staged.cq));
            }
        }
        if let Some(notify) = &cq.notify
            && solicited.is_some_and(|solicited| cq.armed.should_fire(solicited))
        {
            self.fired.push(notify.clone());
        }
    }
}
