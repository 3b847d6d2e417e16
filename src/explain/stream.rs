//! The state of one direction of a reliable connection: the requests of one side and the answers of the
//! other, as far as packets tell.

use std::collections::VecDeque;

use softrnic_wire::{Operation, Psn};

use super::assemble::Assembler;
use super::event::{Event, Extra, Flow, Mark};
use super::finding::{Finding, Kind, Rule};
use super::injected::Injected;
use super::log::Log;
use super::msn::MsnCheck;
use super::recovery::Recovery;
use super::words;

/// Missing PSNs noted last, which may yet turn up.
const RECENTLY_LOST: usize = 64;
const LOST_KEPT: usize = 100_000;

/// What the analysis of a pair works on.
pub(crate) struct Context<'c> {
    pub events: &'c mut [Event],
    pub extras: &'c [Extra],
    pub injected: &'c Injected,
    /// Indices of the pair's events, in the order of time.
    pub order: &'c [u32],
    pub log: &'c mut Log,
    pub lost: &'c mut Vec<Lost>,
    pub pair: usize,
    /// What to call the two sides.
    pub names: [String; 2],
    /// Flow of each side's packets.
    pub flows: [Option<u32>; 2],
    pub all_flows: &'c [Flow],
    /// Bytes, if known.
    pub mtu: Option<u32>,
    /// Silence longer than this is a timeout.
    pub min_timeout_ns: u64,
    /// Silence shorter than this is not the local ACK timeout.
    pub ack_timeout_ns: u64,
    /// When the capture ends.
    pub end_ns: u64,
}

/// Packets that are not in the capture but must have existed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Index of the pair.
    pub pair: usize,
    /// Which side sent them: 0 or 1.
    pub from: usize,
    /// Whether they were requests, or answers to the other side's.
    pub requests: bool,
    /// The first PSN.
    pub first: Psn,
    /// The last PSN.
    pub last: Psn,
    /// Index of the event whose arrival shows that they are missing.
    pub(crate) before: u32,
}

impl Context<'_> {
    /// Tells something that `packets`, given by event index, show.
    pub fn report(
        &mut self,
        kind: Kind,
        rule: Option<Rule>,
        psns: (Psn, Psn),
        packets: &[u32],
        text: String,
    ) {
        let finding = self.finding(kind, rule, psns, packets, text);
        self.log.add(finding);
    }

    /// Tells something that needs nothing but `packets` to be true, even if its kind mostly does.
    pub fn report_seen(&mut self, kind: Kind, psns: (Psn, Psn), packets: &[u32], text: String) {
        let finding = self.finding(kind, None, psns, packets, text);
        self.log.add_seen(finding);
    }

    fn finding(
        &self,
        kind: Kind,
        rule: Option<Rule>,
        psns: (Psn, Psn),
        packets: &[u32],
        text: String,
    ) -> Finding {
        let time_ns = packets.first().map_or(0, |p| self.events[*p as usize].time_ns);
        let mut numbers: Vec<u32> = packets.iter().map(|p| self.events[*p as usize].number).collect();
        numbers.dedup();
        let pair = Some(self.pair);
        Finding { kind, pair, time_ns, psns: Some(psns), packets: numbers, rule, text }
    }

    pub fn event(&self, index: u32) -> Event {
        self.events[index as usize]
    }

    pub fn mark(&mut self, index: u32, mark: Mark) {
        self.events[index as usize].mark = mark;
    }

    /// PSNs turned out not to be missing after all. Only what was noted a short while ago can.
    pub fn found(&mut self, from: usize, first: Psn, last: Psn) {
        let recent = self.lost.len().saturating_sub(RECENTLY_LOST);
        let pair = self.pair;
        let found = |l: &Lost| (l.pair, l.from, l.first, l.last) == (pair, from, first, last);
        if let Some(at) = self.lost[recent..].iter().position(found) {
            self.lost.remove(recent + at);
        }
    }

    /// Notes PSNs that are missing.
    pub fn missing(&mut self, lost: Lost) {
        if self.lost.len() < LOST_KEPT {
            self.lost.push(lost);
        }
    }

    pub fn extra(&self, event: &Event) -> Option<Extra> {
        event.extra().and_then(|index| self.extras.get(index)).copied()
    }

    /// Bytes that a READ or WRITE announces.
    pub fn dma_len(&self, event: &Event) -> Option<u32> {
        match self.extra(event) {
            Some(Extra::Reth { len, .. }) => Some(len),
            _ => None,
        }
    }

    pub fn number(&self, index: u32) -> u32 {
        self.events[index as usize].number
    }
}

/// One direction.
pub(crate) struct Stream {
    /// Which side asks: 0 or 1.
    pub requester: usize,
    /// Acknowledged segments kept so that repeats of them are recognised.
    history: usize,
    pub started: bool,
    /// The PSN after the highest sent. PSNs are unwrapped here: they do not start anew after 2^24.
    pub next: i64,
    /// The oldest PSN that is not acknowledged.
    pub una: i64,
    /// PSNs before this have been acknowledged as far as a plain ACK can.
    acknowledged: i64,
    /// All PSNs from the oldest remembered up to `next`, in order and without holes.
    pub segments: VecDeque<Segment>,
    pub recovery: Option<Recovery>,
    /// The last recovery that succeeded; more answers may still belong to it.
    pub cooling: Option<Recovery>,
    pub rnr: Option<RnrWait>,
    /// The request that was last overtaken by others, and its event.
    pub late: Option<(i64, u32)>,
    /// Where a burst of repeats would go on, and whether it belongs to the recovery.
    pub rewind: Option<(i64, bool)>,
    /// Whether segments were dropped to save memory.
    pub forgotten: bool,
    /// The last request that was sent again, until what was sent behind it is acknowledged: before that, an ACK may answer it.
    pub repeated: Option<u32>,
    /// Whether the requester, which made the capture, has sent something again before its local ACK timeout.
    pub resends_early: bool,
    /// When answers last brought something new: the last time, and the one before.
    heard_ns: [u64; 2],
    /// When the requester last sent.
    pub sent_ns: u64,
    /// The last answer to a PSN before all that were sent.
    pub stray: Option<u32>,
    /// The last report of what has come out of order, if the responder makes such reports.
    pub selective: Option<u32>,
    /// Answers to PSNs that were not sent as far as is known.
    pub unsent: Vec<(i64, u32)>,
    /// Damaged packets by the PSN in them, their index, and whether they are requests.
    corrupt: VecDeque<(i64, u32, bool)>,
    pub fatal: Option<u32>,
    pub fatal_told: bool,
    pub msn: MsnCheck,
    pub assembler: Assembler,
}

/// Consecutive PSNs with one fate: a request packet, or a hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub first: i64,
    /// PSNs; more than one for a READ, whose responses take them, and for holes.
    pub count: u32,
    /// Whether the packet was seen.
    pub sent: bool,
    pub operation: Operation,
    pub first_event: u32,
    pub last_event: u32,
    pub sends: u32,
    /// Answers that carried the last PSN of the segment.
    pub answers: u32,
    pub last_answer: Option<u32>,
    pub acked: bool,
    pub answered_by: Option<u32>,
    pub retired: bool,
    /// READ responses that came in order.
    pub got: u32,
    /// One more than the highest READ response seen beyond a gap; 0 without a gap.
    pub beyond: u32,
    /// PSNs that a READ was last repeated from.
    pub restarts: [i64; RESTARTS],
    /// What an atomic returned.
    pub value: Option<u64>,
    pub replay_told: bool,
}

/// An RNR NAK and what came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RnrWait {
    pub at: i64,
    pub first: u32,
    pub last: u32,
    pub count: u32,
    /// The wait the last one asked for.
    pub delay_ns: u64,
    pub waited_ns: u64,
    /// Repeats of the request since the last RNR NAK.
    pub resent: bool,
    pub nak_told: bool,
}

/// Answers to a few repeats of a READ may be under way at once.
const RESTARTS: usize = 4;
/// Requests remembered without answers, in multiples of those remembered with answers.
const UNANSWERED: usize = 4;
const CORRUPT_KEPT: usize = 64;
const UNSENT_KEPT: usize = 64;

impl Segment {
    pub fn hole(first: i64, count: u32, event: u32) -> Segment {
        Segment { sent: false, sends: 0, ..Segment::packet(first, count, Operation::SendOnly, event) }
    }

    pub fn packet(first: i64, count: u32, operation: Operation, event: u32) -> Segment {
        Segment {
            first,
            count,
            sent: true,
            operation,
            first_event: event,
            last_event: event,
            sends: 1,
            answers: 0,
            last_answer: None,
            acked: false,
            answered_by: None,
            retired: false,
            got: 0,
            beyond: 0,
            restarts: [first; RESTARTS],
            value: None,
            replay_told: false,
        }
    }

    pub fn end(&self) -> i64 {
        self.first + i64::from(self.count)
    }

    pub fn last(&self) -> i64 {
        self.end() - 1
    }

    /// Takes note of a repeat that begins at `psn`.
    pub fn note_restart(&mut self, psn: i64) {
        if !self.restarts.contains(&psn) {
            self.restarts.rotate_right(1);
            self.restarts[0] = psn;
        }
    }

    /// Whether a plain ACK does not answer it.
    pub fn needs_own_answer(&self) -> bool {
        use Operation::*;
        self.sent && matches!(self.operation, ReadRequest | CompareSwap | FetchAdd | Flush | AtomicWrite)
    }
}

pub(crate) fn psn_of(unwrapped: i64) -> Psn {
    Psn::new((unwrapped & 0xFF_FFFF) as u32)
}

impl Stream {
    pub fn new(requester: usize, history: usize) -> Stream {
        Stream {
            requester,
            history,
            started: false,
            next: 0,
            una: 0,
            acknowledged: 0,
            segments: VecDeque::new(),
            recovery: None,
            cooling: None,
            rnr: None,
            late: None,
            rewind: None,
            forgotten: false,
            repeated: None,
            heard_ns: [0; 2],
            sent_ns: 0,
            stray: None,
            selective: None,
            unsent: Vec::new(),
            resends_early: false,
            corrupt: VecDeque::new(),
            fatal: None,
            fatal_told: false,
            msn: MsnCheck::default(),
            assembler: Assembler::default(),
        }
    }

    pub fn responder(&self) -> usize {
        1 - self.requester
    }

    /// The PSN nearest to the newest one that wraps to `psn`.
    pub fn unwrap(&self, psn: Psn) -> i64 {
        self.next + i64::from(psn.distance_from(psn_of(self.next)))
    }

    pub fn start(&mut self, psn: Psn) {
        // Far enough from zero that nothing remembered is negative.
        let first = i64::from(psn.get()) + (1 << 32);
        (self.next, self.una, self.started) = (first, first, true);
    }

    /// Takes note of an answer that brings something new.
    pub fn hear(&mut self, now_ns: u64) {
        if self.heard_ns[0] != now_ns {
            self.heard_ns = [now_ns, self.heard_ns[0]];
        }
    }

    /// When the responder was last heard of before. A NIC that captures gives all that it does at once the same time, and
    /// finds out what time it is before it reads.
    pub fn heard_before(&self, now_ns: u64) -> u64 {
        self.heard_ns[usize::from(self.heard_ns[0] == now_ns)]
    }

    /// The oldest PSN remembered.
    pub fn oldest(&self) -> i64 {
        self.segments.front().map_or(self.next, |s| s.first)
    }

    /// Index of the segment that holds a PSN between the oldest and `next`.
    pub fn find(&self, at: i64) -> Option<usize> {
        let after = self.segments.partition_point(|s| s.first <= at);
        let index = after.checked_sub(1)?;
        (at < self.segments[index].end()).then_some(index)
    }

    pub fn note_corrupt(&mut self, event: &Event, index: u32) {
        if self.corrupt.len() == CORRUPT_KEPT {
            self.corrupt.pop_front();
        }
        self.corrupt.push_back((self.unwrap(event.psn()), index, event.operation.is_request()));
    }

    /// The last damaged packet with this PSN, a request or an answer.
    pub fn corrupt_at(&self, at: i64, request: bool) -> Option<u32> {
        self.corrupt
            .iter()
            .rev()
            .find(|(psn, _, is)| *psn == at && *is == request)
            .map(|(_, index, _)| *index)
    }

    pub fn note_unsent(&mut self, at: i64, index: u32) {
        if self.unsent.len() < UNSENT_KEPT {
            self.unsent.push((at, index));
        }
    }

    /// Acknowledges everything before `end` that a plain ACK can, and returns the first request that
    /// needed an answer of its own and did not get it.
    pub fn acknowledge_before(&mut self, end: i64, by: u32) -> Option<usize> {
        self.split_hole(end);
        // What lies before was gone through by earlier answers.
        let done = self.una.max(self.acknowledged);
        let from = self.segments.partition_point(|s| s.end() <= done);
        for segment in self.segments.range_mut(from..).take_while(|s| s.first < end) {
            if !segment.acked && !segment.needs_own_answer() && segment.end() <= end {
                segment.acked = true;
                segment.answered_by = Some(by);
            }
        }
        self.acknowledged = self.acknowledged.max(end);
        let from = self.segments.partition_point(|s| s.end() <= self.una);
        let mut waiting = self.segments.range(from..).take_while(|s| s.first < end);
        waiting.position(|s| !s.acked).map(|at| from + at).filter(|at| self.segments[*at].needs_own_answer())
    }

    /// An answer in the middle of a hole tells only of the part before it.
    fn split_hole(&mut self, at: i64) {
        if let Some(place) = self.find(at)
            && let hole = self.segments[place]
            && !hole.sent
            && hole.first < at
        {
            self.segments[place].count = (at - hole.first) as u32;
            let rest = Segment { first: at, count: (hole.end() - at) as u32, ..hole };
            self.segments.insert(place + 1, rest);
        }
    }

    /// Moves the oldest unacknowledged PSN up and takes the messages before it as done.
    pub fn advance(&mut self, ctx: &mut Context<'_>) {
        let mut index = self.segments.partition_point(|s| s.end() <= self.una);
        while let Some(segment) = self.segments.get_mut(index)
            && segment.acked
        {
            self.una = segment.end();
            segment.retired = true;
            let segment = *segment;
            self.retire(ctx, &segment);
            index += 1;
        }
        while self.segments.len() > self.history && self.segments.front().is_some_and(|s| s.retired) {
            self.segments.pop_front();
            self.forgotten = true;
        }
    }

    /// Drops the oldest requests when no answers come: a capture may lack all answers.
    pub fn bound(&mut self, ctx: &mut Context<'_>) {
        let most = UNANSWERED * self.history + 2;
        if self.segments.len() < most {
            return;
        }
        for segment in self.segments.drain(..most / 2).collect::<Vec<_>>() {
            self.una = self.una.max(segment.end());
            if !segment.retired {
                if segment.sent {
                    self.assembler.take(ctx, self.requester, &segment);
                } else {
                    self.assembler.interrupt();
                }
            }
        }
        self.forgotten = true;
    }

    fn retire(&mut self, ctx: &mut Context<'_>, segment: &Segment) {
        if segment.sent {
            self.assembler.take(ctx, self.requester, segment);
            return;
        }
        self.assembler.interrupt();
        self.msn.forget();
        self.report_capture_gap(ctx, segment);
    }

    /// PSNs that were answered, so they were sent; this capture does not have them.
    pub fn report_capture_gap(&self, ctx: &mut Context<'_>, segment: &Segment) {
        let (first, last) = (psn_of(segment.first), psn_of(segment.last()));
        let by = segment.answered_by.unwrap_or(segment.first_event);
        let text = format!(
            "{} of {} are acknowledged by packet {} but are not in this capture: it is incomplete",
            words::psns(first, last),
            ctx.names[self.requester],
            ctx.number(by),
        );
        ctx.report(Kind::CaptureGap, None, (first, last), &[segment.first_event, by], text);
        ctx.log.note_incomplete(ctx.pair);
    }
}
