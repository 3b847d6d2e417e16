//! What a request packet is: new, repeated, late, or after a hole.

use std::cmp::Ordering;

use softrnic_wire::{Mtu, Operation};

use super::event::{Event, Extra, Mark};
use super::finding::{Kind, rules};
use super::recovery::{Cause, MIN_TIMEOUT_NS, Recovery, SHORTEST_TIMER_NS};
use super::stream::{Context, Lost, Segment, Stream, psn_of};
use super::words;

/// Events to look ahead to see whether a repeat is one of many.
const LOOK_AHEAD: usize = 512;
/// PSNs by which the start may move back.
const MAX_EARLIER: i64 = 256;
/// What its receiver captures may have waited as long as this until it was read.
const LONGEST_UNREAD_NS: u64 = 1_000_000_000;

impl Stream {
    /// Handles the event at position `at` of the pair's order, a request of this direction.
    pub fn request(&mut self, ctx: &mut Context<'_>, at: usize) {
        let index = ctx.order[at];
        let event = ctx.event(index);
        if !self.started {
            self.start(event.psn());
        }
        let psn = self.unwrap(event.psn());
        self.note_after_error(ctx, index, &event);
        match psn.cmp(&self.next) {
            Ordering::Equal => self.fresh(ctx, index, &event, psn),
            Ordering::Greater => {
                self.hole(ctx, index, psn);
                self.fresh(ctx, index, &event, psn);
            }
            Ordering::Less => self.again(ctx, at, &event, psn),
        }
        self.sent_ns = event.time_ns;
        self.bound(ctx);
        self.take_early_answers(ctx, &event);
    }

    /// A capture of several queues may show an answer a little before its request.
    fn take_early_answers(&mut self, ctx: &mut Context<'_>, request: &Event) {
        while let Some(place) = self.unsent.iter().position(|(psn, index)| {
            *psn < self.next && request.time_ns.saturating_sub(ctx.event(*index).time_ns) < ctx.min_timeout_ns
        }) {
            let (_, index) = self.unsent.remove(place);
            self.response(ctx, index);
        }
    }

    fn fresh(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        self.rewind = None;
        let count = psn_count(ctx, event);
        self.check_payload(ctx, index, event);
        self.segments.push_back(Segment::packet(psn, count, event.operation, index));
        self.next = psn + i64::from(count);
        if let Some(damaged) = self.corrupt_at(psn, true) {
            self.after_damage(ctx, index, event, psn, damaged);
        }
        self.msn.request(event.operation.starts_message(), event.operation.ends_message());
    }

    /// The first sound packet with this PSN is a repeat: the one before it was damaged.
    fn after_damage(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64, damaged: u32) {
        ctx.mark(index, Mark::Resent);
        self.rewind = Some((self.next, false));
        if self.recovery.is_some() {
            return;
        }
        self.cool(ctx);
        let silent_since = ctx.event(damaged).time_ns.max(self.heard_before(event.time_ns));
        let silence_ns = event.time_ns.saturating_sub(silent_since);
        let mut recovery = Recovery::new(Cause::Timeout { silence_ns }, psn, damaged);
        recovery.until = self.next;
        recovery.operation = Some(event.operation);
        recovery.corrupt = Some(damaged);
        (recovery.first_resend, recovery.last_resend) = (Some(index), Some(index));
        recovery.resends = 1;
        recovery.pending = false;
        if silence_ns >= ctx.min_timeout_ns {
            (recovery.timeouts, recovery.silence_ns) = (1, silence_ns);
        }
        self.recovery = Some(recovery);
    }

    fn hole(&mut self, ctx: &mut Context<'_>, index: u32, psn: i64) {
        let count = u32::try_from(psn - self.next).unwrap_or(u32::MAX);
        self.segments.push_back(Segment::hole(self.next, count, index));
        let (first, last) = (psn_of(self.next), psn_of(psn - 1));
        ctx.missing(Lost {
            pair: ctx.pair,
            from: self.requester,
            requests: true,
            first,
            last,
            before: index,
        });
        self.next = psn;
        self.msn.forget();
        // What answered these PSNs answered packets that this capture does not have.
        let answered = self.unsent.iter().copied().filter(|(at, _)| *at < psn).max();
        self.unsent.retain(|(at, _)| *at >= psn);
        if let Some((at, by)) = answered {
            self.acknowledge_before(at + 1, by);
            self.advance(ctx);
        }
    }

    fn again(&mut self, ctx: &mut Context<'_>, at: usize, event: &Event, psn: i64) {
        let index = ctx.order[at];
        self.repeated = Some(index);
        let oldest = self.oldest();
        if psn < oldest && self.begin_earlier(ctx, index, event, psn) {
            return;
        }
        let Some(place) = self.find(psn) else {
            ctx.mark(index, Mark::Duplicate);
            let text = format!(
                "{} sent {} again, which it had sent long before",
                ctx.names[self.requester],
                words::psns(event.psn(), event.psn())
            );
            ctx.report(Kind::Duplicate, None, (event.psn(), event.psn()), &[index], text);
            return;
        };
        let segment = self.segments[place];
        let cause = self.provocation(ctx, event, psn, &segment);
        let burst = self.is_followed_by_repeats(ctx, at, psn + 1);
        if !segment.sent {
            self.fill(ctx, index, event, psn, place, cause, burst);
            return;
        }
        self.check_same(ctx, index, event, psn, &segment);
        // What leaves is sent again by its requester, unless that had the answer already, or had no time to wait for it. What
        // comes in may have waited to be read, for as long as the requester waited before it sent it again; unless the capture
        // shows that it was sent but once.
        let before = ctx.event(segment.last_event);
        let apart_ns = event.time_ns.saturating_sub(before.time_ns);
        let doubled = match event.is_outbound() {
            true => apart_ns < if segment.acked { MIN_TIMEOUT_NS } else { SHORTEST_TIMER_NS },
            false => !event.is_inbound() || before.is_outbound(),
        };
        let identical = doubled
            && [segment.first_event, segment.last_event].iter().any(|e| ctx.event(*e).icrc == event.icrc);
        match cause {
            None if identical && !burst => {
                ctx.mark(index, Mark::Duplicate);
                let text = format!(
                    "the {} of {} with PSN {} is here twice, bit for bit, {} apart: the network duplicated it",
                    words::operation(event.operation),
                    ctx.names[self.requester],
                    event.psn(),
                    words::span(apart_ns),
                );
                ctx.report(
                    Kind::Duplicate,
                    None,
                    (event.psn(), event.psn()),
                    &[index, segment.last_event],
                    text,
                );
                self.segments[place].sends += 1;
            }
            cause => {
                self.resent(ctx, index, event, psn, &segment, cause.unwrap_or(Cause::Unprovoked));
                let segment = &mut self.segments[place];
                segment.sends += 1;
                segment.last_event = index;
                segment.note_restart(psn);
            }
        }
    }

    /// The first packets of a capture need not be in order: moves the beginning back.
    fn begin_earlier(&mut self, ctx: &Context<'_>, index: u32, event: &Event, psn: i64) -> bool {
        let oldest = self.oldest();
        if self.forgotten || oldest - psn > MAX_EARLIER {
            return false;
        }
        let count = psn_count(ctx, event);
        let end = psn + i64::from(count);
        if end > oldest {
            return false;
        }
        if end < oldest {
            self.segments.push_front(Segment::hole(end, (oldest - end) as u32, index));
        }
        let mut segment = Segment::packet(psn, count, event.operation, index);
        if self.una > oldest {
            segment.acked = true;
            segment.retired = true;
        } else {
            self.una = psn;
        }
        self.segments.push_front(segment);
        self.msn.forget();
        true
    }

    /// A packet that was missing: late, or sent again.
    #[allow(clippy::too_many_arguments, reason = "the facts were all just found")]
    fn fill(
        &mut self,
        ctx: &mut Context<'_>,
        index: u32,
        event: &Event,
        psn: i64,
        place: usize,
        cause: Option<Cause>,
        burst: bool,
    ) {
        let hole = self.segments[place];
        match cause {
            None if !burst && self.selective.is_none() => {
                ctx.mark(index, Mark::Late);
                let text = format!(
                    "the {} of {} with PSN {} was overtaken by later packets, {} behind the first of them",
                    words::operation(event.operation),
                    ctx.names[self.requester],
                    event.psn(),
                    words::span(event.time_ns.saturating_sub(ctx.event(hole.first_event).time_ns)),
                );
                ctx.report(
                    Kind::Reordered,
                    None,
                    (event.psn(), event.psn()),
                    &[index, hole.first_event],
                    text,
                );
                ctx.found(self.requester, event.psn(), event.psn());
                self.late = Some((psn, index));
            }
            cause => self.resent(ctx, index, event, psn, &hole, cause.unwrap_or(Cause::Unprovoked)),
        }
        let end = hole.end();
        let count = psn_count(ctx, event).min(u32::try_from(end - psn).unwrap_or(u32::MAX));
        let mut filled = Segment::packet(psn, count, event.operation, index);
        filled.acked = hole.acked;
        filled.answered_by = hole.answered_by;
        let after = filled.end();
        self.segments[place] = filled;
        if after < end {
            self.segments.insert(place + 1, Segment { first: after, count: (end - after) as u32, ..hole });
        }
        if hole.first < psn {
            self.segments.insert(place, Segment { count: (psn - hole.first) as u32, ..hole });
        }
        self.msn.request(event.operation.starts_message(), event.operation.ends_message());
        self.msn.forget();
        self.check_payload(ctx, index, event);
    }

    /// Why the requester sends this PSN again, if there is a reason.
    fn provocation(&self, ctx: &Context<'_>, event: &Event, psn: i64, segment: &Segment) -> Option<Cause> {
        // A requester that goes through its requests again leaves out what was acknowledged meanwhile.
        if self.rewind.is_some_and(|(next, _)| next == psn || next < psn && psn <= self.una) {
            return Some(Cause::Continued);
        }
        let now = event.time_ns;
        if let Some(rnr) = &self.rnr
            && rnr.at == psn
            && !rnr.resent
        {
            return Some(Cause::Rnr);
        }
        let asked = self.recovery.as_ref().filter(|r| r.pending);
        if let Some(Recovery { cause: Cause::Nak, at, nak: Some(nak), .. }) = asked
            && psn <= *at
            && (now.saturating_sub(ctx.event(*nak).time_ns) < ctx.min_timeout_ns
                // It may have come long before it was read.
                || event.is_inbound() && !self.was_dropped(ctx, self.responder(), psn_of(*at)))
        {
            return Some(Cause::Nak);
        }
        let silence_ns = self.silence_before(ctx, event, segment);
        if let Some(Recovery { cause: Cause::ResponseGap, at, .. }) = asked
            && psn <= *at
            && silence_ns < ctx.min_timeout_ns
        {
            return Some(Cause::ResponseGap);
        }
        if self.selective.is_some() && psn >= self.una && silence_ns < ctx.min_timeout_ns {
            return Some(Cause::Nak);
        }
        (silence_ns >= ctx.min_timeout_ns).then_some(Cause::Timeout { silence_ns })
    }

    /// How long before `event` the PSN was last sent, or the responder last heard.
    fn silence_before(&self, ctx: &Context<'_>, event: &Event, segment: &Segment) -> u64 {
        let last_send = if segment.sent { ctx.event(segment.last_event).time_ns } else { self.sent_ns };
        event.time_ns.saturating_sub(last_send.max(self.heard_before(event.time_ns)))
    }

    /// Whether the requester's next packet repeats too, from `psn` on.
    fn is_followed_by_repeats(&self, ctx: &Context<'_>, at: usize, psn: i64) -> bool {
        let flow = ctx.flows[self.requester];
        let next = ctx.order[at + 1..]
            .iter()
            .take(LOOK_AHEAD)
            .map(|i| ctx.event(*i))
            .find(|e| Some(e.flow) == flow && e.operation.is_request() && !e.bad_icrc());
        next.is_some_and(|next| {
            let follows = self.unwrap(next.psn());
            follows >= psn && follows < self.next && self.find(follows).is_some_and(|s| self.segments[s].sent)
        })
    }

    /// Records a repeat and why it happened.
    fn resent(
        &mut self,
        ctx: &mut Context<'_>,
        index: u32,
        event: &Event,
        psn: i64,
        segment: &Segment,
        cause: Cause,
    ) {
        ctx.mark(index, Mark::Resent);
        if let Some(report) = self.selective
            && !matches!(cause, Cause::Rnr | Cause::Timeout { .. })
        {
            return self.resent_alone(ctx, index, event, segment, report);
        }
        let next = psn + i64::from(psn_count(ctx, event));
        let counted = self.rewind.replace((next, cause != Cause::Rnr)).is_some_and(|(_, counted)| counted);
        match cause {
            Cause::Continued => {
                self.rewind = Some((next, counted));
                if counted && let Some(recovery) = self.recovery.as_mut().or(self.cooling.as_mut()) {
                    recovery.resends += 1;
                    recovery.last_resend = Some(index);
                }
                return;
            }
            Cause::Rnr => {
                self.after_rnr(ctx, index, event);
                return;
            }
            _ => {}
        }
        if self.recovery.as_ref().is_some_and(|r| r.at < psn && r.cause == Cause::Nak && r.pending) {
            // The requester goes on beyond what the responder asked for; the NAK stays open.
            if let Some(recovery) = &mut self.recovery {
                recovery.passed_over = true;
            }
            return;
        }
        let mut recovery = match self.recovery.take() {
            Some(recovery) => recovery,
            None => {
                self.cool(ctx);
                let mut recovery = Recovery::new(cause, psn, segment.first_event);
                recovery.answered_before = segment.answered_by.filter(|_| segment.acked);
                let within = event.operation == Operation::ReadRequest && segment.sent && psn > segment.first;
                recovery.taken_up =
                    within.then_some(segment.acked || psn < segment.first + i64::from(segment.got));
                recovery
            }
        };
        recovery.until = recovery.until.max(self.next);
        recovery.was_missing |= !segment.sent;
        recovery.operation.get_or_insert(event.operation);
        recovery.corrupt = recovery.corrupt.or(self.corrupt_at(psn, true));
        recovery.first_resend.get_or_insert(index);
        recovery.last_resend = Some(index);
        recovery.resends += 1;
        if recovery.resends == 1 {
            recovery.first_silence_ns = self.silence_before(ctx, event, segment);
        }
        if let Cause::Timeout { silence_ns } = cause {
            recovery.nak_ignored |= recovery.nak.is_some() && recovery.pending;
            recovery.timeouts += 1;
            recovery.silence_ns = recovery.silence_ns.max(silence_ns);
        }
        recovery.pending = false;
        self.recovery = Some(recovery);
    }

    /// A packet that the responder has reported missing is sent again, and nothing else.
    fn resent_alone(
        &mut self,
        ctx: &mut Context<'_>,
        index: u32,
        event: &Event,
        segment: &Segment,
        report: u32,
    ) {
        self.rewind = None;
        let psn = event.psn();
        let place = if segment.sent { "after this capture saw it" } else { "before it came to this capture" };
        let text = format!(
            "the {} of {} with PSN {psn} was lost {place}, or is late: {} reported in packet {} what had come instead, and {} sent only what was missing again, in packet {}",
            words::operation(event.operation),
            ctx.names[self.requester],
            ctx.names[1 - self.requester],
            ctx.number(report),
            ctx.names[self.requester],
            event.number,
        );
        ctx.report(Kind::RequestLost, None, (psn, psn), &[report, index], text);
    }

    fn after_rnr(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event) {
        let Some(rnr) = &mut self.rnr else { return };
        rnr.resent = true;
        let nak = ctx.event(rnr.last);
        let waited = event.time_ns.saturating_sub(nak.time_ns);
        rnr.waited_ns += waited;
        // Clocks of two machines are involved; two percent is no violation.
        if waited < rnr.delay_ns - rnr.delay_ns / 50 {
            let text = format!(
                "{} sent PSN {} again {} after the RNR NAK in packet {}, which told it to wait {}",
                ctx.names[self.requester],
                event.psn(),
                words::span(waited),
                nak.number,
                words::span(rnr.delay_ns),
            );
            let packets = [index, rnr.last];
            ctx.report(Kind::RnrTooSoon, Some(rules::RNR_WAIT), (event.psn(), event.psn()), &packets, text);
        }
    }

    fn note_after_error(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event) {
        let Some(fatal) = self.fatal else { return };
        let nak = ctx.event(fatal);
        let under_way_ns = if event.is_inbound() { LONGEST_UNREAD_NS } else { ctx.min_timeout_ns };
        if !self.fatal_told && event.time_ns.saturating_sub(nak.time_ns) > under_way_ns {
            self.fatal_told = true;
            let text = format!(
                "{} goes on sending requests {} after the error NAK in packet {}",
                ctx.names[self.requester],
                words::span(event.time_ns - nak.time_ns),
                nak.number
            );
            let psns = (event.psn(), event.psn());
            ctx.report(Kind::SentAfterError, Some(rules::ERROR_STATE), psns, &[index, fatal], text);
        }
    }

    /// A repeat must be the same request; of a READ, the rest of it.
    fn check_same(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64, segment: &Segment) {
        let original = ctx.event(segment.first_event);
        let skipped = (psn - segment.first) as u64 * u64::from(ctx.mtu.unwrap_or(0));
        let same = original.operation == event.operation
            && original.len == event.len
            && match (ctx.extra(&original), ctx.extra(event)) {
                (
                    Some(Extra::Reth { va, rkey, len }),
                    Some(Extra::Reth { va: va2, rkey: rkey2, len: len2 }),
                ) => {
                    // Where a READ is taken up again depends on the path MTU.
                    rkey == rkey2
                        && (psn == segment.first && va == va2 && len == len2
                            || psn > segment.first
                                && (ctx.mtu.is_none()
                                    || va.wrapping_add(skipped) == va2
                                        && u64::from(len) == u64::from(len2) + skipped))
                }
                (a, b) => a == b,
            };
        if !same {
            ctx.mark(index, Mark::Violation);
            let text = format!(
                "{} used PSN {} for a different request before: packet {} was {}, packet {} is {}",
                ctx.names[self.requester],
                event.psn(),
                original.number,
                words::operation(original.operation),
                event.number,
                words::operation(event.operation),
            );
            let packets = [index, segment.first_event];
            ctx.report(Kind::ResendDiffers, Some(rules::RESEND), (event.psn(), event.psn()), &packets, text);
        }
    }

    fn check_payload(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event) {
        use Operation::*;
        let len = u32::from(event.len);
        let name = words::operation(event.operation);
        let problem = match (event.operation, ctx.mtu) {
            (SendFirst | SendMiddle | WriteFirst | WriteMiddle, Some(mtu)) if len != mtu => {
                let kind = match Mtu::from_bytes(len) {
                    Some(_) => Kind::MtuMismatch,
                    None => Kind::PayloadLength,
                };
                Some((kind, format!("carries {len} bytes where the path MTU is {mtu}")))
            }
            (SendLast | SendLastImm | SendLastInv | WriteLast | WriteLastImm, _) if len == 0 => {
                Some((Kind::PayloadLength, "carries nothing".to_owned()))
            }
            (op, Some(mtu)) if (op.is_send() || op.is_write()) && len > mtu => {
                Some((Kind::PayloadLength, format!("carries {len} bytes, more than the path MTU of {mtu}")))
            }
            (AtomicWrite, _) if len != 8 => {
                Some((Kind::PayloadLength, format!("carries {len} bytes, not 8")))
            }
            (ReadRequest | CompareSwap | FetchAdd | Flush, _) if len != 0 => {
                Some((Kind::PayloadLength, format!("carries {len} bytes, but has no payload")))
            }
            _ => None,
        };
        let psns = (event.psn(), event.psn());
        if let Some((kind, what)) = problem {
            ctx.mark(index, Mark::Violation);
            let text = format!("the {name} of {} with PSN {} {what}", ctx.names[self.requester], event.psn());
            ctx.report(kind, Some(rules::PAYLOAD_LENGTH), psns, &[index], text);
        }
        if let Some(Extra::Atomic { va, .. }) = ctx.extra(event)
            && va % 8 != 0
        {
            ctx.mark(index, Mark::Violation);
            let text =
                format!("the {name} of {} addresses {va:#x}, no multiple of 8", ctx.names[self.requester]);
            ctx.report(Kind::Misaligned, Some(rules::ALIGNMENT), psns, &[index], text);
        }
    }
}

/// PSNs that a request takes: those of its responses for a READ, else one.
pub(crate) fn psn_count(ctx: &Context<'_>, event: &Event) -> u32 {
    match (event.operation, ctx.dma_len(event), ctx.mtu) {
        (Operation::ReadRequest, Some(len), Some(mtu)) => len.div_ceil(mtu).clamp(1, 1 << 22),
        _ => 1,
    }
}
