//! Requests that the peer repeats because an answer was lost or late.

use softrnic_wire::Op;

use super::paths::Repeated;
use super::resources::Saved;
use super::responses::Response;
use super::{Request, Responder};
use crate::context::Context;
use crate::counters::Counter;
use crate::host::Host;
use crate::planted::Fault;

impl<D> Responder<D> {
    /// A request behind the expected PSN: answered again, never executed again (IBTA 9.7.5.1.1 to .4).
    pub(super) fn on_duplicate<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        request: &Request<'_>,
        host: &mut H,
    ) {
        host.count(Counter::DuplicateRequest);
        let response = match request.op {
            Op::ReadRequest(reth) => {
                let packets = reth.dma_len.div_ceil(cx.config.mtu).max(1);
                self.repeated = Repeated::Read { first: request.psn, packets };
                return match self.resources.find_read(request.psn, reth, cx.config.mtu) {
                    Some(saved) => self.repeat_read(cx, saved, host),
                    None => host.count(Counter::DropDuplicateUnmatched),
                };
            }
            Op::CompareSwap(_) | Op::FetchAdd(_) | Op::AtomicWrite(_) | Op::Flush(..) => {
                match self.resources.find(request.psn) {
                    Some(saved) => Response::saved(saved, true),
                    None => return host.count(Counter::DropDuplicateUnmatched),
                }
            }
            _ if cx.config.has(Fault::SilentAtDuplicates) => return,
            _ if !self.reorder.is_empty() && !self.nak_sent => return self.report_gaps(cx),
            // Sends an ACK for the newest PSN, but never beyond a READ or atomic whose answer may be lost too.
            _ => {
                let newest = self.resources.first_after(request.psn).unwrap_or(self.epsn) - 1;
                Response::ack(newest, self.msn)
            }
        };
        if !self.responses.repeat(response) {
            host.count(Counter::DropDuplicateWaiting);
        }
    }

    /// Answers a repeated READ, or part of it. If the answer is still being sent, it goes back to where the repeat
    /// begins. So there is never more than one, in PSN order.
    fn repeat_read<H: Host<Data = D>>(&mut self, cx: &Context, again: Saved, host: &mut H) {
        let Responder { repeat_credit: credit, responses, .. } = self;
        credit.note_repeat(again.first);
        if let Some(sent_again) = responses.sent_from(again.first) {
            let sent_again = sent_again.min(again.packets);
            if cx.selective && sent_again > 0 && credit.take_all(again.packets) {
                // What is behind the missing packets goes on as if they had come.
                let again = Response::Read { saved: again, sent: 0, end: again.packets, repeated: true };
                if !responses.repeat(again) {
                    host.count(Counter::DropDuplicateWaiting);
                }
                return;
            }
            if sent_again == 0 || !credit.take_all(sent_again) {
                return host.count(Counter::DropDuplicateWaiting);
            }
            return responses.send_again(again);
        }
        let granted = credit.take(again.packets);
        if granted < again.packets {
            host.count(Counter::DuplicateReadCut);
        }
        if !responses.repeat(Response::Read { saved: again, sent: 0, end: granted, repeated: true }) {
            host.count(Counter::DropDuplicateWaiting);
        }
    }
}
