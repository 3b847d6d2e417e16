//! What an answer is: progress, a refusal, a repeat, or an error.
//!
//! Over 600 lines: one function for each kind of answer, and each looks at the same state of a stream.

use softrnic_wire::{NakCode, Operation, RnrTimer, Syndrome};

use super::event::{Event, Extra, Mark};
use super::finding::{Kind, Rule, rules};
use super::recovery::{Cause, Recovery};
use super::stream::{Context, Lost, RnrWait, Segment, Stream, psn_of};
use super::words;
use softrnic_inspect::decode::nak_name;

/// PSNs acknowledged beyond a READ that show that the requester does not wait for it.
const MOVED_ON: i64 = 512;

impl Stream {
    /// Handles the event, an answer to requests of this direction.
    pub fn response(&mut self, ctx: &mut Context<'_>, index: u32) {
        let event = ctx.event(index);
        if !self.started {
            return;
        }
        let psn = self.unwrap(event.psn());
        if event.operation == Operation::SelectiveAcknowledge {
            return self.selective_ack(ctx, index, &event, psn);
        }
        if psn >= self.next {
            self.note_unsent(psn, index);
            return;
        }
        if psn < self.oldest() {
            self.stray = Some(index);
            return;
        }
        let reached = self.reached();
        match (event.operation, event.syndrome()) {
            (_, Some(Syndrome::Reserved(byte))) => {
                let what = format!("the reserved syndrome {byte:#04x}");
                self.wrong(ctx, index, Kind::ReservedSyndrome, rules::SYNDROME, &what);
            }
            (Operation::Acknowledge, Some(Syndrome::Ack(_))) => self.ack(ctx, index, &event, psn),
            (Operation::Acknowledge, Some(Syndrome::RnrNak(timer))) => self.rnr_nak(ctx, index, psn, timer),
            (Operation::Acknowledge, Some(Syndrome::Nak(NakCode::PsnSequence))) => {
                self.sequence_nak(ctx, index, psn);
            }
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => self.error_nak(ctx, index, psn, code),
            (Operation::AtomicAcknowledge, _) => self.atomic_answer(ctx, index, &event, psn),
            _ => self.read_response(ctx, index, &event, psn),
        }
        let refused = matches!(event.syndrome(), Some(Syndrome::Nak(_) | Syndrome::RnrNak(_)));
        if refused || self.reached() > reached {
            self.hear(event.time_ns);
        }
    }

    /// Everything before a PSN has come, and the responder tells which of the packets behind it have.
    fn selective_ack(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        self.selective = Some(index);
        // Nobody goes back to what was lost.
        self.recovery = None;
        if (self.una + 1..=self.next).contains(&psn) {
            self.accept(ctx, index, psn);
        }
        self.hear(event.time_ns);
    }

    /// The first PSN that is neither acknowledged nor answered.
    fn reached(&self) -> i64 {
        self.find(self.una).map_or(self.una, |place| segment_progress(&self.segments[place]))
    }

    fn ack(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        let Some(place) = self.find(psn) else { return };
        let segment = self.segments[place];
        if segment.needs_own_answer() && !segment.acked {
            let what = format!("a plain ACK for the {}", words::operation(segment.operation));
            self.wrong(ctx, index, Kind::WrongAnswer, rules::ANSWER_KIND, &what);
            self.segments[place].acked = true;
            self.segments[place].answered_by = Some(index);
        }
        if psn == segment.last() {
            self.segments[place].answers += 1;
            self.segments[place].last_answer = Some(index);
        }
        if psn < self.una {
            self.old_ack(ctx, index, event, psn, &segment);
            return;
        }
        self.check_msn(ctx, index, event, psn);
        self.repeated = self.repeated.filter(|repeat| *repeat > segment.first_event);
        self.accept(ctx, index, psn + 1);
    }

    /// Everything before `end` is acknowledged; READs and atomics before it without an answer were lost.
    fn accept(&mut self, ctx: &mut Context<'_>, index: u32, end: i64) {
        if let Some(place) = self.acknowledge_before(end, index)
            && self.segments[place].end() < end
        {
            self.response_gap(ctx, index, place, end);
            self.pass_over_uncaptured(ctx, index, place, end);
        }
        self.advance(ctx);
        let settled = self.settled_before(end);
        self.progress(ctx, settled, index);
    }

    /// A requester that continues for long without asking for a READ's answers again has received them: only this
    /// capture lacks them.
    fn pass_over_uncaptured(&mut self, ctx: &mut Context<'_>, index: u32, place: usize, end: i64) {
        let segment = self.segments[place];
        let quiet = self.recovery.as_ref().is_some_and(|r| {
            r.responses.is_some() && r.resends == 0 && (segment.first..segment.end()).contains(&r.at)
        });
        if !quiet || end - segment.end() < MOVED_ON {
            return;
        }
        self.recovery = None;
        let segment = &mut self.segments[place];
        segment.acked = true;
        segment.answered_by = Some(index);
        let gap = Segment::hole(segment.first + i64::from(segment.got), segment.count - segment.got, index);
        self.report_uncaptured_answer(ctx, &gap);
    }

    fn report_uncaptured_answer(&self, ctx: &mut Context<'_>, gap: &Segment) {
        let (first, last) = (psn_of(gap.first), psn_of(gap.last()));
        let text = format!(
            "the answers of {} with {} are not in this capture, though {} must have had them: it is incomplete",
            ctx.names[self.responder()],
            words::psns(first, last),
            ctx.names[self.requester],
        );
        ctx.report(Kind::CaptureGap, None, (first, last), &[gap.first_event], text);
        ctx.log.note_incomplete(ctx.pair);
    }

    /// How far everything is settled once all before `end` is acknowledged: a READ without an answer holds everything
    /// up.
    fn settled_before(&self, end: i64) -> i64 {
        match self.find(self.una) {
            Some(place) if self.una < end => self.segments[place].first + i64::from(self.segments[place].got),
            _ => end,
        }
    }

    /// An answer to something that was answered before settles a recovery that had set in all the same,
    /// or is a second answer within the one that just ended.
    fn settle_again(&mut self, ctx: &mut Context<'_>, psn: i64, index: u32) -> bool {
        if self.recovery.as_ref().is_some_and(|r| r.covers(psn))
            && let Some(mut recovery) = self.recovery.take()
        {
            recovery.solved_by = Some(index);
            self.cool(ctx);
            self.cooling = Some(recovery);
            return true;
        }
        match &mut self.cooling {
            Some(recovery) if recovery.covers(psn) => {
                recovery.extra_answers += 1;
                true
            }
            _ => false,
        }
    }

    fn old_ack(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64, segment: &Segment) {
        if self.settle_again(ctx, psn, index) {
            ctx.mark(index, Mark::Replay);
            return;
        }
        let earlier = segment.last_answer.map(|earlier| (earlier, ctx.event(earlier)));
        let psns = (event.psn(), event.psn());
        match earlier {
            Some((earlier, before))
                if before.icrc == event.icrc
                    && segment.answers >= segment.sends
                    && self.repeated.is_none() =>
            {
                ctx.mark(index, Mark::Duplicate);
                let text = format!(
                    "the ACK of {} with PSN {} is here twice, bit for bit: the network duplicated it",
                    ctx.names[self.responder()],
                    event.psn()
                );
                ctx.report(Kind::Duplicate, None, psns, &[index, earlier], text);
            }
            None if segment.sends == 1 && psn == segment.last() => {
                ctx.mark(index, Mark::Late);
                let by = segment.answered_by.unwrap_or(index);
                let text = format!(
                    "the ACK of {} with PSN {} was overtaken by packet {}",
                    ctx.names[self.responder()],
                    event.psn(),
                    ctx.number(by)
                );
                ctx.report(Kind::Reordered, None, psns, &[index, by], text);
            }
            _ => ctx.mark(index, Mark::Replay),
        }
    }

    fn check_msn(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        if psn + 1 != self.next || self.recovery.is_some() || self.rnr.is_some() {
            return;
        }
        let Some(msn) = event.msn() else { return };
        if let Err(expected) = self.msn.answer_to_newest(msn) {
            let what = format!("MSN {msn}, though {expected} messages are complete,");
            self.wrong(ctx, index, Kind::WrongMsn, rules::MSN, &what);
        }
    }

    fn rnr_nak(&mut self, ctx: &mut Context<'_>, index: u32, psn: i64, timer: RnrTimer) {
        if psn < self.una {
            return;
        }
        self.accept(ctx, index, psn);
        let delay_ns = u64::from(timer.delay_us()) * 1000;
        match &mut self.rnr {
            Some(rnr)
                if rnr.at == psn && !rnr.resent && ctx.event(rnr.last).icrc == ctx.event(index).icrc =>
            {
                let earlier = Some(rnr.last);
                self.duplicate_nak(ctx, index, earlier);
            }
            Some(rnr) if rnr.at == psn => {
                rnr.last = index;
                rnr.count += 1;
                rnr.delay_ns = delay_ns;
                rnr.resent = false;
                rnr.nak_told = false;
            }
            _ => {
                self.rnr = Some(RnrWait {
                    at: psn,
                    first: index,
                    last: index,
                    count: 1,
                    delay_ns,
                    waited_ns: 0,
                    resent: false,
                    nak_told: false,
                });
            }
        }
    }

    fn sequence_nak(&mut self, ctx: &mut Context<'_>, index: u32, psn: i64) {
        let Some(place) = self.find(psn) else { return };
        if psn < self.una {
            ctx.mark(index, Mark::Late);
            return;
        }
        let segment = self.segments[place];
        self.accept(ctx, index, psn);
        if let Some(rnr) = &mut self.rnr
            && rnr.at == psn
            && !rnr.resent
        {
            if !rnr.nak_told {
                rnr.nak_told = true;
                let rnr_index = rnr.last;
                let text = format!(
                    "{} sent a sequence NAK for PSN {} on top of the RNR NAK in packet {}; Linux rxe does so, and the wait still holds",
                    ctx.names[self.responder()],
                    psn_of(psn),
                    ctx.number(rnr_index),
                );
                let psns = (psn_of(psn), psn_of(psn));
                ctx.report(Kind::NakAfterRnr, Some(rules::NAK_SILENCE), psns, &[index, rnr_index], text);
            }
            return;
        }
        match &mut self.recovery {
            Some(recovery)
                if recovery.at == psn
                    && recovery.pending
                    && recovery.nak.is_some_and(|nak| ctx.event(nak).icrc == ctx.event(index).icrc) =>
            {
                let earlier = recovery.nak;
                self.duplicate_nak(ctx, index, earlier);
            }
            Some(recovery) if recovery.at == psn => {
                recovery.naks_repeated += u32::from(recovery.nak.is_some() && recovery.pending);
                recovery.nak = Some(index);
                recovery.pending = true;
                if recovery.resends == 0 {
                    recovery.cause = Cause::Nak;
                }
            }
            other => {
                let previous = other.take();
                let mut recovery = Recovery::new(Cause::Nak, psn, index);
                recovery.until = self.next;
                recovery.was_missing = !segment.sent;
                recovery.operation = segment.sent.then_some(segment.operation);
                recovery.original = segment.sent.then_some(segment.first_event);
                recovery.corrupt = self.corrupt_at(psn, true);
                recovery.nak = Some(index);
                let came_before = |late: u32| segment.sent && segment.first_event < late;
                recovery.overtook =
                    self.late.filter(|(at, late)| *at < psn && came_before(*late)).map(|(at, _)| at);
                self.recovery = Some(recovery);
                if let Some(mut previous) = previous {
                    // The responder asks for something else now, so it has that.
                    previous.solved_by = Some(index);
                    self.cool(ctx);
                    self.cooling = Some(previous);
                }
            }
        }
    }

    /// The same NAK again, bit for bit, before the requester did anything.
    fn duplicate_nak(&mut self, ctx: &mut Context<'_>, index: u32, earlier: Option<u32>) {
        ctx.mark(index, Mark::Duplicate);
        let psn = ctx.event(index).psn();
        let text = format!(
            "the NAK of {} with PSN {psn} is here twice, bit for bit: the network duplicated it",
            ctx.names[self.responder()]
        );
        let packets: Vec<u32> = [Some(index), earlier].into_iter().flatten().collect();
        ctx.report(Kind::Duplicate, None, (psn, psn), &packets, text);
    }

    fn error_nak(&mut self, ctx: &mut Context<'_>, index: u32, psn: i64, code: NakCode) {
        if psn < self.una {
            ctx.mark(index, Mark::Late);
            return;
        }
        self.accept(ctx, index, psn);
        let (kind, status) = match code {
            NakCode::InvalidRequest => (Kind::InvalidRequest, "REM_INV_REQ_ERR"),
            NakCode::RemoteAccess => (Kind::RemoteAccess, "REM_ACCESS_ERR"),
            NakCode::RemoteOperational => (Kind::RemoteOperational, "REM_OP_ERR"),
            _ => {
                let what =
                    format!("a NAK with the code {}, which reliable connections do not have,", code.code());
                self.wrong(ctx, index, Kind::ReservedSyndrome, rules::SYNDROME, &what);
                return;
            }
        };
        let Some(place) = self.find(psn) else { return };
        let segment = self.segments[place];
        let request = ctx.event(segment.last_event);
        let target = match ctx.extra(&request) {
            Some(Extra::Reth { va, rkey, len }) => format!(" ({len} bytes at {va:#x}, rkey {rkey})"),
            Some(Extra::Atomic { va, rkey, .. }) => format!(" (8 bytes at {va:#x}, rkey {rkey})"),
            _ => String::new(),
        };
        let text = format!(
            "{} refused the {} of {} with PSN {}{target}: NAK {}; the work request fails with {status} and both QPs go to the error state",
            ctx.names[self.responder()],
            if segment.sent { words::operation(segment.operation) } else { "request" },
            ctx.names[self.requester],
            psn_of(psn),
            nak_name(code),
        );
        let psns = (psn_of(psn), psn_of(psn));
        ctx.report(kind, None, psns, &[index, segment.last_event], text);
        if self.fatal.is_none() {
            self.fatal = Some(index);
        }
    }

    fn atomic_answer(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        let Some(place) = self.find(psn) else { return };
        let segment = self.segments[place];
        if !segment.sent {
            return;
        }
        if !segment.operation.is_atomic() {
            let what = format!("an ATOMIC Acknowledge for the {}", words::operation(segment.operation));
            self.wrong(ctx, index, Kind::WrongAnswer, rules::ANSWER_KIND, &what);
            return;
        }
        let Some(Extra::Original(value)) = ctx.extra(event) else { return };
        let psns = (event.psn(), event.psn());
        let first = segment.last_answer;
        let segment = &mut self.segments[place];
        segment.answers += 1;
        segment.last_answer = Some(index);
        match segment.value {
            None => {
                segment.value = Some(value);
                segment.acked = true;
                segment.answered_by = Some(index);
                self.check_msn(ctx, index, event, psn);
                self.accept(ctx, index, psn + 1);
            }
            Some(known) if known != value => {
                let what = format!("{value:#x} for the repeated atomic, after {known:#x} for the first,");
                self.wrong(ctx, index, Kind::AtomicReexecuted, rules::REPLAY, &what);
            }
            Some(_) if segment.sends > 1 => {
                ctx.mark(index, Mark::Replay);
                self.settle_again(ctx, psn, index);
                let text = format!(
                    "{} answered the repeated atomic with PSN {} from memory, {value:#x} again, without executing it",
                    ctx.names[self.responder()],
                    event.psn()
                );
                let packets: Vec<u32> = [Some(index), first].into_iter().flatten().collect();
                ctx.report(Kind::AtomicReplay, Some(rules::REPLAY), psns, &packets, text);
            }
            Some(_) => self.duplicate_response(ctx, index, event, first),
        }
    }

    fn read_response(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64) {
        let Some(place) = self.find(psn) else { return };
        let segment = self.segments[place];
        if !segment.sent {
            return;
        }
        let answers_read = segment.operation == Operation::ReadRequest;
        let answers_other = matches!(segment.operation, Operation::Flush | Operation::AtomicWrite)
            && event.operation == Operation::ReadResponseOnly;
        if !answers_read && !answers_other {
            let what = format!(
                "{} for the {}",
                words::operation(event.operation),
                words::operation(segment.operation)
            );
            self.wrong(ctx, index, Kind::WrongAnswer, rules::ANSWER_KIND, &what);
            return;
        }
        let offset = (psn - segment.first) as u32;
        if answers_read && !self.check_response(ctx, index, event, &segment, offset) {
            return;
        }
        let segment = &mut self.segments[place];
        if offset < segment.got {
            self.repeated_response(ctx, index, event, psn, place);
            return;
        }
        if offset > segment.got {
            segment.beyond = segment.beyond.max(offset + 1);
            match &mut self.recovery {
                Some(recovery) if recovery.responses.is_some() => recovery.pending |= segment.sends > 1,
                _ => self.response_gap(ctx, index, place, psn),
            }
            return;
        }
        let late = segment.beyond > 0 && segment.sends == 1;
        segment.got += 1;
        if late {
            self.late_response(ctx, index, event, psn, place);
        }
        let segment = &mut self.segments[place];
        if psn == segment.last() || segment.got == segment.count {
            segment.answers += 1;
            segment.last_answer = Some(index);
            segment.acked = true;
            segment.answered_by = Some(index);
            segment.beyond = 0;
            self.check_msn(ctx, index, event, psn);
        }
        let (first, done) = (self.segments[place].first, segment_progress(&self.segments[place]));
        self.accept(ctx, index, first);
        if self.una >= first {
            self.progress(ctx, done, index);
        }
    }

    /// Whether the response's opcode and length fit its place; tells if not.
    fn check_response(
        &mut self,
        ctx: &mut Context<'_>,
        index: u32,
        event: &Event,
        segment: &Segment,
        offset: u32,
    ) -> bool {
        let Some(mtu) = ctx.mtu else { return true };
        let request = ctx.event(segment.first_event);
        let total = ctx.dma_len(&request).unwrap_or(0);
        let last = segment.count - 1;
        let begins = offset == 0 || segment.restarts.contains(&(segment.first + i64::from(offset)));
        // Linux rxe continues a READ that is taken up again with Middle and Last.
        let fits = match event.operation {
            Operation::ReadResponseFirst => begins && offset < last,
            Operation::ReadResponseMiddle => offset > 0 && offset < last,
            Operation::ReadResponseLast => offset > 0 && offset == last,
            _ => begins && offset == last,
        };
        if !fits {
            let what = format!(
                "{} where response {} of {} of a READ belongs,",
                words::operation(event.operation),
                offset + 1,
                segment.count
            );
            self.wrong(ctx, index, Kind::WrongAnswer, rules::ANSWER_KIND, &what);
            return false;
        }
        let expected = if offset < last { mtu } else { total - (u64::from(offset) * u64::from(mtu)) as u32 };
        if u32::from(event.len) != expected {
            let kind = if offset < last { Kind::MtuMismatch } else { Kind::MessageLength };
            let what = format!("{} bytes where {expected} belong", event.len);
            self.wrong(ctx, index, kind, rules::READ_LENGTH, &what);
        }
        true
    }

    fn repeated_response(
        &mut self,
        ctx: &mut Context<'_>,
        index: u32,
        event: &Event,
        psn: i64,
        place: usize,
    ) {
        let segment = self.segments[place];
        if segment.sends == 1 {
            self.duplicate_response(ctx, index, event, segment.last_answer);
            return;
        }
        ctx.mark(index, Mark::Replay);
        if psn == segment.last() {
            self.settle_again(ctx, psn, index);
        }
        if !segment.replay_told {
            self.segments[place].replay_told = true;
            let text = format!(
                "{} answered the repeated {} with PSN {} again",
                ctx.names[self.responder()],
                words::operation(segment.operation),
                psn_of(segment.first)
            );
            let psns = (psn_of(segment.first), psn_of(segment.last()));
            ctx.report(Kind::ReadReplay, None, psns, &[index, segment.last_event], text);
        }
    }

    fn duplicate_response(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, earlier: Option<u32>) {
        ctx.mark(index, Mark::Duplicate);
        let text = format!(
            "the {} of {} with PSN {} is here twice, though the request is not: the network duplicated it",
            words::operation(event.operation),
            ctx.names[self.responder()],
            event.psn()
        );
        let packets: Vec<u32> = [Some(index), earlier].into_iter().flatten().collect();
        ctx.report(Kind::Duplicate, None, (event.psn(), event.psn()), &packets, text);
    }

    /// A response that was missing arrives without having been asked for again: it was only late.
    fn late_response(&mut self, ctx: &mut Context<'_>, index: u32, event: &Event, psn: i64, place: usize) {
        ctx.mark(index, Mark::Late);
        let text = format!(
            "the {} of {} with PSN {} was overtaken by later packets",
            words::operation(event.operation),
            ctx.names[self.responder()],
            event.psn()
        );
        ctx.report(Kind::Reordered, None, (event.psn(), event.psn()), &[index], text);
        let Some(recovery) = &mut self.recovery else { return };
        let Some((first, last)) = recovery.responses else { return };
        if psn >= last {
            let segment = &mut self.segments[place];
            segment.got = segment.got.max(segment.beyond);
            segment.beyond = 0;
            let (first, last) = (psn_of(first), psn_of(last));
            ctx.found(self.responder(), first, last);
            self.recovery = None;
        } else {
            recovery.at = psn + 1;
        }
    }

    /// Answers before `seen` that a request needs are missing.
    fn response_gap(&mut self, ctx: &mut Context<'_>, index: u32, place: usize, seen: i64) {
        let segment = self.segments[place];
        let first = segment.first + i64::from(segment.got);
        let last = (seen - 1).min(segment.last());
        if self.recovery.as_ref().is_some_and(|r| r.at <= first) || last < first {
            return;
        }
        ctx.missing(Lost {
            pair: ctx.pair,
            from: self.responder(),
            requests: false,
            first: psn_of(first),
            last: psn_of(last),
            before: index,
        });
        let mut recovery = Recovery::new(Cause::ResponseGap, first, index);
        recovery.until = segment.end();
        recovery.operation = Some(segment.operation);
        recovery.responses = Some((first, last));
        recovery.corrupt_response = self.corrupt_at(first, false);
        self.cool(ctx);
        self.recovery = Some(recovery);
    }

    /// An answer that breaks a rule.
    fn wrong(&mut self, ctx: &mut Context<'_>, index: u32, kind: Kind, rule: Rule, what: &str) {
        ctx.mark(index, Mark::Violation);
        let event = ctx.event(index);
        let text = format!(
            "{} sent {} with PSN {}",
            ctx.names[self.responder()],
            what.trim_end_matches(','),
            event.psn()
        );
        ctx.report(kind, Some(rule), (event.psn(), event.psn()), &[index], text);
    }

    /// Answers to PSNs that were never sent.
    pub fn report_unsent(&mut self, ctx: &mut Context<'_>) {
        for (psn, index) in std::mem::take(&mut self.unsent) {
            ctx.mark(index, Mark::Violation);
            let text = format!(
                "{} answered PSN {}, but {} sent nothing beyond PSN {}",
                ctx.names[self.responder()],
                psn_of(psn),
                ctx.names[self.requester],
                psn_of(self.next - 1)
            );
            let psns = (psn_of(psn), psn_of(psn));
            ctx.report(Kind::AnswerNeverSent, Some(rules::ANSWER_SENT), psns, &[index], text);
        }
    }
}

/// The PSN after what a READ has been answered up to.
fn segment_progress(segment: &Segment) -> i64 {
    segment.first + i64::from(segment.got)
}
