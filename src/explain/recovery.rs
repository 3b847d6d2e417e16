//! Losses and their repair: from the first sign to the answer that completes it.

use softrnic_wire::{Operation, Psn};

use super::event::{Event, Mark};
use super::finding::{Kind, rules};
use super::stream::{Context, RnrWait, Stream, psn_of};
use super::words;

/// Whoever repeats after less than this has not waited for an answer.
pub(crate) const MIN_TIMEOUT_NS: u64 = 500_000;

/// The shortest local ACK timeout (IBTA 9.7.6.1.3: 4.096 us × 2^1).
pub(crate) const SHORTEST_TIMER_NS: u64 = 8_192;

/// By how many thousandths a timer may be late that is taken for one.
const TIMER_TOLERANCE: u64 = 1;

/// How often a requester resends early, as far as is known, before it waits for its timer.
const EARLY_RESENDS: u32 = 8;

/// Why a request is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The responder asked for it.
    Nak,
    /// The receiver was not ready.
    Rnr,
    /// READ responses or the answer to an atomic are missing.
    ResponseGap,
    /// Nothing was heard for this long.
    Timeout { silence_ns: u64 },
    /// The packet before it was sent again.
    Continued,
    /// No reason is visible.
    Unprovoked,
}

/// One loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub cause: Cause,
    /// The PSN that was missing.
    pub at: i64,
    /// The PSN after those that were outstanding.
    pub until: i64,
    /// Event that first showed it.
    pub shown_by: u32,
    pub nak: Option<u32>,
    /// Whether what provokes a repeat has not led to one yet.
    pub pending: bool,
    /// Sequence NAKs although nothing has been repeated since the last one.
    pub naks_repeated: u32,
    /// The capture did not have the request either.
    pub was_missing: bool,
    pub operation: Option<Operation>,
    /// The packet that the responder reports missing.
    pub original: Option<u32>,
    pub corrupt: Option<u32>,
    /// The answer that had been seen before the request was repeated.
    pub answered_before: Option<u32>,
    pub resends: u32,
    pub first_resend: Option<u32>,
    pub last_resend: Option<u32>,
    pub timeouts: u32,
    pub silence_ns: u64,
    /// How long the requester had waited when it repeated for the first time.
    pub first_silence_ns: u64,
    pub nak_ignored: bool,
    /// The requester repeated later PSNs instead.
    pub passed_over: bool,
    /// Missing responses, by PSN.
    pub responses: Option<(i64, i64)>,
    pub corrupt_response: Option<u32>,
    /// A READ was taken up again behind its beginning; whether the response that it was taken up from is here.
    pub taken_up: Option<bool>,
    /// The request came before this PSN, which was sent earlier.
    pub overtook: Option<i64>,
    pub solved_by: Option<u32>,
    pub extra_answers: u32,
}

impl Recovery {
    pub fn new(cause: Cause, at: i64, shown_by: u32) -> Recovery {
        Recovery {
            cause,
            at,
            until: at + 1,
            shown_by,
            nak: None,
            pending: true,
            naks_repeated: 0,
            was_missing: false,
            operation: None,
            original: None,
            corrupt: None,
            answered_before: None,
            resends: 0,
            first_resend: None,
            last_resend: None,
            timeouts: 0,
            silence_ns: 0,
            first_silence_ns: 0,
            nak_ignored: false,
            passed_over: false,
            responses: None,
            corrupt_response: None,
            taken_up: None,
            overtook: None,
            solved_by: None,
            extra_answers: 0,
        }
    }

    /// Whether an answer with this PSN belongs to it.
    pub fn covers(&self, psn: i64) -> bool {
        (self.at..self.until).contains(&psn)
    }
}

impl Stream {
    /// Everything before `end` is answered.
    pub fn progress(&mut self, ctx: &mut Context<'_>, end: i64, by: u32) {
        if let Some(rnr) = self.rnr
            && rnr.at < end
        {
            self.rnr = None;
            self.report_rnr(ctx, &rnr, Some(by));
        }
        if self.recovery.as_ref().is_some_and(|r| r.at < end)
            && let Some(mut recovery) = self.recovery.take()
        {
            recovery.solved_by = Some(by);
            self.cool(ctx);
            self.cooling = Some(recovery);
        }
    }

    /// Reports the last recovery, which is complete.
    pub fn cool(&mut self, ctx: &mut Context<'_>) {
        if let Some(recovery) = self.cooling.take() {
            self.report_recovery(ctx, &recovery);
        }
    }

    fn report_recovery(&mut self, ctx: &mut Context<'_>, r: &Recovery) {
        let psn = psn_of(r.at);
        let requester = ctx.names[self.requester].clone();
        let responder = ctx.names[self.responder()].clone();
        let what = r.operation.map_or("request", words::operation);
        let resent = self.resent_words(ctx, r);
        let mut packets = vec![r.shown_by];
        packets
            .extend([r.nak, r.corrupt, r.answered_before, r.first_resend, r.solved_by].into_iter().flatten());
        packets.sort_unstable();
        packets.dedup();
        let where_lost = if r.was_missing {
            "was lost before it came to this capture"
        } else {
            "was lost after this capture saw it"
        };
        let nak = match r.nak {
            Some(nak) => {
                format!("; {responder} asked for it with a sequence NAK in packet {}", ctx.number(nak))
            }
            None => String::new(),
        };
        let (kind, text) = if let Some(corrupt) = r.corrupt {
            let at = ctx.number(corrupt);
            (
                Kind::RequestCorrupted,
                format!(
                    "the {what} of {requester} with PSN {psn} arrived damaged in packet {at}{nak}{resent}"
                ),
            )
        } else if r.nak_ignored {
            (
                Kind::NakLost,
                format!(
                    "the {what} of {requester} with PSN {psn} {where_lost}{nak}, but that did not make {requester} resend: the NAK was lost, or came too late{resent}"
                ),
            )
        } else if r.cause == Cause::Nak {
            match (r.resends, r.overtook) {
                (1.., Some(overtaken)) => (
                    Kind::SequenceNak,
                    format!(
                        "the {what} of {requester} with PSN {psn} came ahead of PSN {}, and a responder takes requests only in order{nak}{resent}",
                        psn_of(overtaken)
                    ),
                ),
                (0, _) => (
                    Kind::SequenceNak,
                    format!(
                        "{responder} missed PSN {psn} of {requester}{nak}; it came late and was not sent again"
                    ),
                ),
                _ => (
                    Kind::RequestLost,
                    format!("the {what} of {requester} with PSN {psn} {where_lost}{nak}{resent}"),
                ),
            }
        } else if let Some((first, last)) = r.responses {
            let psns = words::psns(psn_of(first), psn_of(last));
            let damaged = match r.corrupt_response {
                Some(index) => format!(" (packet {} arrived damaged)", ctx.number(index)),
                None => String::new(),
            };
            (
                Kind::ResponseLost,
                format!(
                    "the answer of {responder} with {psns} was lost before it came to this capture{damaged}{resent}"
                ),
            )
        } else {
            self.name_timeout(ctx, r, what, &requester, &responder, &resent)
        };
        self.resends_early |=
            kind == Kind::EarlyResend && r.first_resend.is_some_and(|first| ctx.event(first).is_outbound());
        match r.nak {
            Some(_) if kind == Kind::RequestLost => ctx.report_seen(kind, (psn, psn), &packets, text),
            _ => ctx.report(kind, None, (psn, psn), &packets, text),
        }
        if let (Kind::RequestLost | Kind::NakLost, Some(original)) = (kind, r.original)
            && ctx.event(original).mark == Mark::Plain
        {
            ctx.mark(original, Mark::LostLater);
        }
        if r.was_missing && r.nak.is_none() && r.timeouts > 0 {
            let text = format!(
                "PSN {psn} of {requester} was missing and later packets were sent, but no sequence NAK from {responder} is here: it was lost, or those packets were lost too"
            );
            ctx.report(Kind::NakLost, None, (psn, psn), &packets, text);
        }
        if r.naks_repeated > 0 {
            let text = format!(
                "{responder} sent {} for PSN {psn} before {requester} had sent it again",
                words::count(u64::from(r.naks_repeated) + 1, "sequence NAK")
            );
            ctx.report(Kind::NakRepeated, Some(rules::NAK_SILENCE), (psn, psn), &packets, text);
        }
    }

    /// Classifies a loss that only silence reveals.
    fn name_timeout(
        &self,
        ctx: &Context<'_>,
        r: &Recovery,
        what: &str,
        requester: &str,
        responder: &str,
        resent: &str,
    ) -> (Kind, String) {
        let psn = psn_of(r.at);
        let own_answer = matches!(
            r.operation,
            Some(
                Operation::ReadRequest
                    | Operation::CompareSwap
                    | Operation::FetchAdd
                    | Operation::Flush
                    | Operation::AtomicWrite
            )
        );
        let early = self.is_early(ctx, r);
        match r.cause {
            _ if r.was_missing => (
                Kind::RequestLost,
                format!(
                    "the {what} of {requester} with PSN {psn} was lost before it came to this capture{resent}"
                ),
            ),
            // A fault's comment shows it.
            _ if self.was_dropped(ctx, self.requester, psn) => (
                Kind::RequestLost,
                format!(
                    "the {what} of {requester} with PSN {psn} was lost after this capture saw it{resent}"
                ),
            ),
            _ if self.was_dropped(ctx, self.responder(), psn) => (
                if own_answer { Kind::ResponseLost } else { Kind::AckLost },
                format!("the answer of {responder} to PSN {psn} was lost after this capture saw it{resent}"),
            ),
            // What its own side has in the capture, the requester has had.
            _ if early && !self.was_answered_here(ctx, r) => (
                Kind::EarlyResend,
                format!(
                    "{requester} sent the {what} with PSN {psn} again earlier than the local ACK timeout; the answer was late, or it or the request was lost, and no packet shows which{resent}"
                ),
            ),
            Cause::Timeout { .. } if r.extra_answers > 0 && r.answered_before.is_none() => (
                Kind::AckDelayed,
                format!(
                    "the answer of {responder} to PSN {psn} took longer than {requester} waited{resent}; both were answered"
                ),
            ),
            _ if let Some(is_here) = r.taken_up => {
                let place =
                    if is_here { "after this capture saw it" } else { "before it came to this capture" };
                (
                    Kind::ResponseLost,
                    format!(
                        "{requester} took up a READ again from PSN {psn} on: the response of {responder} with that PSN was lost {place}{resent}"
                    ),
                )
            }
            Cause::Timeout { .. } => match r.answered_before {
                Some(answer) => (
                    if own_answer { Kind::ResponseLost } else { Kind::AckLost },
                    format!(
                        "the answer of {responder} to PSN {psn}, packet {}, was lost after this capture saw it{resent}",
                        ctx.number(answer)
                    ),
                ),
                None => (
                    Kind::Timeout,
                    format!(
                        "the {what} of {requester} with PSN {psn} went unanswered: it, or the answer to it, was lost beyond this capture{resent}"
                    ),
                ),
            },
            _ => (
                Kind::Unprovoked,
                format!(
                    "{requester} repeated PSN {psn}, though no NAK asked for it, no answer was missing, and {} had passed since it was sent or the last answer came{resent}",
                    words::span(r.first_silence_ns),
                ),
            ),
        }
    }

    /// Whether the requester repeated without its local ACK timeout, but not at once.
    ///
    /// What a NIC captures has the times at which its process ran. A repeat that comes in may have waited until the process
    /// had a processor again, and so may the answer to one that goes out; there, only a silence exactly as long as a timer
    /// is one. A requester that repeats early does so before it waits for its timer: its first silences are as long as a
    /// timer only by chance.
    fn is_early(&self, ctx: &Context<'_>, r: &Recovery) -> bool {
        let Some(first) = r.first_resend.map(|index| ctx.event(index)) else { return false };
        if first.is_inbound() {
            return true;
        }
        if first.is_outbound() {
            let as_early_before = self.resends_early && r.timeouts <= EARLY_RESENDS;
            return as_early_before || timer_exponent(r.first_silence_ns, TIMER_TOLERANCE).is_none();
        }
        (MIN_TIMEOUT_NS..ctx.ack_timeout_ns).contains(&r.first_silence_ns)
    }

    /// Whether the requester need not have used its local ACK timeout until the capture ends.
    fn may_be_early_yet(&self, ctx: &Context<'_>, r: &Recovery) -> bool {
        let by_a_nic = r.first_resend.is_some_and(|index| {
            let first = ctx.event(index);
            first.is_inbound() || first.is_outbound()
        });
        let few = if by_a_nic { r.timeouts <= EARLY_RESENDS } else { r.silence_ns < ctx.ack_timeout_ns };
        few && self.is_early(ctx, r)
    }

    /// Whether a fault dropped a packet of a side with this PSN.
    pub fn was_dropped(&self, ctx: &Context<'_>, side: usize, psn: Psn) -> bool {
        ctx.flows[side].is_some_and(|flow| ctx.injected.dropped(flow, psn.get()).is_some())
    }

    /// Whether the requester repeated what it had received an answer to: its own side captured both.
    fn was_answered_here(&self, ctx: &Context<'_>, r: &Recovery) -> bool {
        let is = |index: Option<u32>, what: fn(&Event) -> bool| index.is_some_and(|i| what(&ctx.event(i)));
        is(r.first_resend, Event::is_outbound) && is(r.answered_before, Event::is_inbound)
    }

    /// What the requester did about it.
    fn resent_words(&self, ctx: &Context<'_>, r: &Recovery) -> String {
        let Some(first) = r.first_resend else { return String::new() };
        let mut text = format!("; the request was sent again as packet {}", ctx.number(first));
        if r.resends > 1 {
            text += &format!(", {} in all", words::count(r.resends.into(), "packet"));
        }
        if r.timeouts > 0 {
            text += &format!(" after {} of silence", words::span(r.silence_ns));
            text += &timeout_exponent(r.silence_ns);
            if r.timeouts > 1 {
                text += &format!(", {} times", r.timeouts);
            }
        } else if let Some(nak) = r.nak {
            let after = ctx.event(first).time_ns.saturating_sub(ctx.event(nak).time_ns);
            text += &format!(", {} after the NAK", words::span(after));
        }
        if let Some(by) = r.solved_by {
            text += &format!(", and answered by packet {}", ctx.number(by));
        }
        text
    }

    /// The end of a time of RNR NAKs: an answer, or the end of the capture.
    pub fn report_rnr(&mut self, ctx: &mut Context<'_>, rnr: &RnrWait, by: Option<u32>) {
        let psn = psn_of(rnr.at);
        let requester = &ctx.names[self.requester];
        let begin = format!(
            "{} had no receive work request for PSN {psn} and sent {} (wait {})",
            ctx.names[self.responder()],
            words::count(rnr.count.into(), "RNR NAK"),
            words::span(rnr.delay_ns)
        );
        let last_ns = ctx.event(rnr.last).time_ns;
        let over_early = ctx.end_ns < last_ns + rnr.delay_ns + rnr.delay_ns / 2 && rnr.count == 1;
        let (kind, text) = match by {
            Some(by) => {
                let answer = ctx.event(by);
                let after = words::span(answer.time_ns.saturating_sub(ctx.event(rnr.first).time_ns));
                (
                    Kind::RnrNak,
                    format!("{begin}; {after} after the first, packet {} answered it", answer.number),
                )
            }
            None if rnr.resent => (
                Kind::RnrNak,
                format!("{begin}; {requester} tried again and the capture ends before an answer"),
            ),
            None if over_early => {
                (Kind::RnrNak, format!("{begin}; the capture ends before the wait is over"))
            }
            None => (
                Kind::RnrRetryExhausted,
                format!("{begin}; {requester} did not try again: its RNR retries are exhausted"),
            ),
        };
        let mut packets = vec![rnr.first, rnr.last];
        packets.extend(by);
        packets.dedup();
        ctx.report(kind, None, (psn, psn), &packets, text);
    }

    /// What is still unresolved when the capture ends.
    pub fn report_unsolved(&mut self, ctx: &mut Context<'_>) {
        self.cool(ctx);
        if let Some(rnr) = self.rnr.take() {
            self.report_rnr(ctx, &rnr, None);
        }
        let Some(r) = self.recovery.take() else { return };
        let psn = psn_of(r.at);
        let requester = ctx.names[self.requester].clone();
        let responder = ctx.names[self.responder()].clone();
        let mut packets = vec![r.shown_by];
        packets.extend([r.nak, r.first_resend, r.last_resend].into_iter().flatten());
        packets.sort_unstable();
        packets.dedup();
        let (kind, text) = if let Some((psns, numbers)) = self.answered_elsewhere(ctx, &r) {
            packets = numbers;
            (
                Kind::StartingPsn,
                format!(
                    "{requester} begins with PSN {psn}, but {responder} answers with {psns}: the one's sq_psn is not the other's rq_psn"
                ),
            )
        } else if self.may_be_early_yet(ctx, &r) {
            (
                Kind::Unanswered,
                format!(
                    "{requester} sent PSN {psn} {}, earlier than the local ACK timeout, and the capture ends before an answer",
                    words::count(u64::from(r.resends) + 1, "time")
                ),
            )
        } else if r.timeouts > 0 || r.resends > 0 {
            let sends = self.find(r.at).map_or(r.timeouts + 1, |s| self.segments[s].sends);
            (
                Kind::RetryExhausted,
                format!(
                    "{requester} sent PSN {psn} {}{} and got no answer from {responder} to the end of the capture: retries are exhausted, or soon will be",
                    words::count(sends.into(), "time"),
                    if r.silence_ns > 0 {
                        format!(", waiting up to {}", words::span(r.silence_ns))
                    } else {
                        String::new()
                    },
                ),
            )
        } else if r.passed_over || r.cause != Cause::Nak {
            return;
        } else {
            (
                Kind::SequenceNak,
                format!(
                    "{responder} asked for PSN {psn} of {requester}, which was not sent again before the capture ends"
                ),
            )
        };
        ctx.report(kind, None, (psn, psn), &packets, text);
    }
}

impl Stream {
    /// The PSNs of answers that fit nothing that was sent, and the packets that show it, if the responder answered only
    /// with such.
    fn answered_elsewhere(&mut self, ctx: &Context<'_>, r: &Recovery) -> Option<(String, Vec<u32>)> {
        let first = self.segments.front().filter(|s| s.first == self.una && s.sent)?.first_event;
        let again = r.first_resend.filter(|_| !self.forgotten)?;
        let beyond = self.unsent.last().map(|(_, index)| *index);
        let stray = self.stray.max(beyond).filter(|stray| *stray > again)?;
        self.unsent.clear();
        let psn = ctx.event(stray).psn();
        Some((words::psns(psn, psn), vec![first, stray]))
    }
}

/// The attribute that would make a timer run for about this long: 4.096 µs times two to the t, as Linux
/// peers time it (IBTA allows up to four times as much).
fn timeout_exponent(ns: u64) -> String {
    match timer_exponent(ns, 300) {
        Some(t) => format!(" (as with timeout {t})"),
        None => String::new(),
    }
}

/// The same as a number, if the timer was late by so many thousandths at most.
fn timer_exponent(ns: u64, late: u64) -> Option<u32> {
    (12..=25u32).find(|t| (4096u64 << t..(4096u64 << t) * (1000 + late) / 1000).contains(&ns))
}
