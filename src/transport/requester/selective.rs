//! Selective recovery: what the peer has of what is outstanding, and what is sent again (decision 41).
//!
//! Going back to the oldest missing packet stays what happens when this does not help: after a timeout, an RNR NAK or a NAK
//! for a sequence error, everything from there on is sent again, and the scoreboard is forgotten.

use alloc::boxed::Box;

use softrnic_wire::{Psn, REORDER_WINDOW, Time};

use super::completer::Answer;
use super::request::Packet;
use super::{Halt, Requester};
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::host::Host;
use crate::paths::NO_PATH;
use crate::planted::Fault;
use crate::qp::Progress;
use crate::segment;
use crate::tuning::{LATENESS_DECAY, LATENESS_STEPS};
use crate::window_bits::WindowBits;

const WINDOW: i32 = REORDER_WINDOW as i32;

/// The paths, and what stands for none of them.
const JUDGES: usize = NO_PATH as usize + 1;

/// What is known of the packets from the oldest unacknowledged one on. It exists while something behind that has been seen.
pub(super) struct Scoreboard {
    /// What needs nothing more: the peer has the packet, or its response has come. It is no longer in flight.
    done: WindowBits,
    /// The READs and atomics that the peer has and will execute when it is their turn.
    kept: WindowBits,
    /// The peer has executed everything before it.
    executed: Psn,
    /// One past the last PSN that the peer has reported.
    reported: Psn,
    /// The responses before it have been sent.
    answered: Psn,
    /// Nothing before it is to be sent again, as far as is known now.
    next: Psn,
    /// The number of the transmission that last carried each packet, by the lowest bits of its PSN; 0 from before there was a
    /// scoreboard.
    sent: [u32; REORDER_WINDOW],
    /// The path that it took.
    path: [u8; REORDER_WINDOW],
    /// The number of the last transmission.
    transmissions: u32,
    /// The newest transmission of which something has arrived, and the last packet of it, on each path. What was sent there
    /// before and has not arrived is lost. What is not judged by its path is judged by the newest of all.
    newest: [Transmission; JUDGES],
    /// The newest transmission of a READ or an atomic that the peer has but has not executed, so that nothing of it can arrive.
    newest_kept: Transmission,
    /// Packets take different paths.
    spreads: bool,
    /// How far the peer had reported a while ago: what is missing behind it may only be late.
    ripe: Psn,
    /// What becomes ripe next, and since when that waits.
    ripens: (Psn, Time),
}

/// The number of a transmission, and a packet of it. The packets of one follow each other.
#[derive(Clone, Copy)]
struct Transmission(u32, Psn);

impl Transmission {
    fn is_after(self, other: Transmission) -> bool {
        self.0 > other.0 || self.0 == other.0 && self.1.is_after(other.1)
    }
}

/// Packets to be sent again.
struct Lost {
    /// The entry that they belong to.
    at: usize,
    from: Psn,
    to: Psn,
}

impl Scoreboard {
    fn new(una: Psn, spreads: bool) -> Scoreboard {
        Scoreboard {
            done: WindowBits::default(),
            kept: WindowBits::default(),
            executed: una,
            reported: una,
            answered: una,
            next: una,
            sent: [0; REORDER_WINDOW],
            path: [0; REORDER_WINDOW],
            transmissions: 0,
            newest: [Transmission(0, una); JUDGES],
            newest_kept: Transmission(0, una),
            spreads,
            ripe: una,
            ripens: (una, Time::ZERO),
        }
    }

    /// Packets leave, again or for the first time.
    pub(super) fn note_sent(&mut self, from: Psn, to: Psn, path: u8) {
        self.transmissions += 1;
        for at in 0..to.distance_from(from).clamp(0, WINDOW) as u32 {
            let slot = slot(from + at);
            (self.sent[slot], self.path[slot]) = (self.transmissions, path);
        }
    }

    /// A packet has arrived, or its response. Returns its path.
    fn note_seen(&mut self, una: Psn, psn: Psn) -> u8 {
        let (seen, path) = (self.carried(psn), self.path_of(psn));
        let by_all = if self.spreads { NO_PATH } else { path };
        for judge in [path, by_all] {
            let newest = &mut self.newest[usize::from(judge)];
            if seen.is_after(*newest) {
                *newest = seen;
                self.next = una;
            }
        }
        path
    }

    /// The peer keeps a request, whose responses come when it is its turn. Returns whether that is new.
    fn note_kept(&mut self, una: Psn, psn: Psn) -> bool {
        let seen = self.carried(psn);
        if seen.is_after(self.newest_kept) {
            self.newest_kept = seen;
            self.next = una;
        }
        self.kept.set(psn.distance_from(una) as u32)
    }

    /// What last carried a packet.
    fn carried(&self, psn: Psn) -> Transmission {
        Transmission(self.sent[slot(psn)], psn)
    }

    /// Whether a packet that is missing although others have been seen was lost, and not only sent again just now.
    fn is_lost(&self, una: Psn, psn: Psn, cx: &Context) -> bool {
        let carried = self.carried(psn);
        let is_overtaken = self.newest[usize::from(self.path_of(psn))].is_after(carried)
            || self.lacks_request(una, psn) && self.newest_kept.is_after(carried);
        carried.0 == 0 && !self.spreads || is_overtaken && !cx.config.has(Fault::NoSecondPass)
    }

    /// Whether the peer has reported packets behind this one, but does not have it, if it is a request with responses.
    fn lacks_request(&self, una: Psn, psn: Psn) -> bool {
        psn.is_before(self.reported)
            && !psn.is_before(self.executed)
            && !self.kept.has(psn.distance_from(una) as u32)
    }

    /// What is under way on a path is lost.
    pub(super) fn note_silent(&mut self, una: Psn, path: u8) {
        self.transmissions += 1;
        self.newest[usize::from(path)] = Transmission(self.transmissions, una);
        self.next = una;
    }

    /// The path that a packet took.
    pub(super) fn path_of(&self, psn: Psn) -> u8 {
        self.path[slot(psn)]
    }

    /// Lets what has been reported become ripe after `wait` nanoseconds.
    fn ripen(&mut self, now: Time, wait: u64) {
        let horizon = self.horizon();
        if wait == 0 {
            self.ripe = horizon;
        } else if now >= self.ripens.1.after_nanos(wait) {
            self.ripe = later(self.ripe, self.ripens.0);
            self.ripens = (horizon, now);
        }
    }

    /// One past the last PSN of which anything is known.
    fn horizon(&self) -> Psn {
        later(self.reported, self.answered)
    }

    /// Everything before `psn` has been executed and answered.
    fn note_executed(&mut self, psn: Psn) {
        self.executed = later(self.executed, psn);
        self.answered = later(self.answered, psn);
    }

    /// `count` packets at the front need nothing more.
    fn shift(&mut self, count: u32) {
        self.done.shift(count);
        self.kept.shift(count);
    }
}

/// Where a PSN has its place.
fn slot(psn: Psn) -> usize {
    psn.get() as usize % REORDER_WINDOW
}

fn later(one: Psn, other: Psn) -> Psn {
    if other.is_after(one) { other } else { one }
}

impl<D> Requester<D> {
    /// Whether what comes out of order is looked at: not while going back, unless there are many paths, one of which may lose all
    /// that is sent again.
    pub(super) fn is_selective(&self, cx: &Context) -> bool {
        let goes_back = self.queue.cursor != self.queue.end && self.paths.is_none();
        cx.selective && !goes_back && !self.rnr_wait
    }

    /// Whether something may have to be sent again.
    pub(super) fn may_have_lost(&self) -> bool {
        self.loss_probe || self.board.as_ref().is_some_and(|board| board.next.is_before(board.ripe))
    }

    /// Whether a packet that ends before `to` is within what the peer can keep.
    pub(super) fn fits_reorder_window(&self, cx: &Context, to: Psn) -> bool {
        !cx.selective || to.distance_from(self.queue.una) <= WINDOW || !self.queue.is_outstanding()
    }

    pub(super) fn board(&mut self) -> &mut Scoreboard {
        let (una, spreads) = (self.queue.una, self.paths.is_some());
        self.board.get_or_insert_with(|| Box::new(Scoreboard::new(una, spreads)))
    }

    /// The peer has executed everything before `psn`, and something before it has not been answered.
    pub(super) fn note_executed<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        psn: Psn,
        host: &mut H,
    ) -> Outcome {
        self.board().note_executed(psn);
        self.settle(cx, now, host)
    }

    /// A selective acknowledgement: everything before `expected` was executed, and what the bits say has come.
    pub fn on_selective_ack<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        expected: Psn,
        bits: &[u8],
        host: &mut H,
    ) -> Outcome {
        let (una, end) = (self.queue.una, self.queue.end);
        if expected.is_before(una) || expected.is_after(end) {
            self.note_stale(cx);
            host.count(Counter::DropGhostResponse);
            return Outcome::Continue;
        }
        host.count(Counter::RcvdSelectiveAck);
        if !self.is_selective(cx) {
            return if expected == una {
                Outcome::Continue
            } else {
                self.on_ack(cx, now, expected - 1, host)
            };
        }
        self.board().note_executed(expected);
        let bits = WindowBits::from_bytes(bits);
        let mut news = 0;
        let mut at = bits.next_set(0);
        while at < REORDER_WINDOW as u32 {
            let psn = expected + at;
            if !psn.is_before(self.queue.cursor) {
                break;
            }
            news += u32::from(self.note_arrived(cx, now, psn, host));
            at = bits.next_set(at + 1);
        }
        if news > 0 {
            // The peer answers: its silence begins anew.
            self.early_resends = 0;
            self.timers.early = Time::NEVER;
        }
        let outcome = self.settle(cx, now, host);
        if outcome == Outcome::Continue {
            self.arm_retransmission(cx, now);
        }
        outcome
    }

    /// The peer has the packet `psn`. Returns whether that is new.
    fn note_arrived<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, psn: Psn, host: &mut H) -> bool {
        let place = psn.distance_from(self.queue.una);
        if place < 0 {
            return false;
        }
        let Some(at) = self.queue.entry_of(psn) else { return false };
        let wants_response = self.queue.entries[at].wants_response();
        let una = self.queue.una;
        let board = self.board();
        board.reported = later(board.reported, psn + 1);
        if wants_response {
            return board.note_kept(una, psn);
        }
        let is_new = board.done.set(place as u32);
        if is_new {
            self.note_done(cx, now, at, psn, host);
        }
        is_new
    }

    /// A packet or a response ahead of its turn needs nothing more.
    fn note_done<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, at: usize, psn: Psn, host: &mut H) {
        let freed = self.queue.land(at, psn, cx.config.mtu);
        let una = self.queue.una;
        let path = self.board().note_seen(una, psn);
        self.note_arrived_by(now, psn, path, host);
        self.rtt.arrived(psn, now);
        self.note_answer(now, freed, host);
    }

    /// An answer ahead of its turn. One that does not fit its request is dropped: when its turn comes, it is judged.
    pub(super) fn on_answer_ahead<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        psn: Psn,
        answer: Answer<'_>,
        host: &mut H,
    ) -> Outcome {
        let place = psn.distance_from(self.queue.una);
        let at = self.queue.entry_of(psn).filter(|&at| self.queue.entries[at].wants_response());
        let is_sent = psn.is_before(self.queue.cursor);
        let board = self.board();
        let is_new = (0..WINDOW).contains(&place) && !board.done.has(place as u32) && is_sent;
        let (Some(at), true) = (at, is_new) else {
            self.note_late(cx);
            host.count(Counter::DropGhostResponse);
            return Outcome::Continue;
        };
        if self.place_answer(cx, at, psn, answer, host).is_err() {
            host.count(Counter::DropGhostResponse);
            return Outcome::Continue;
        }
        host.count(Counter::AnsweredOutOfOrder);
        let board = self.board();
        board.done.set(place as u32);
        board.answered = later(board.answered, psn + 1);
        self.note_done(cx, now, at, psn, host);
        self.early_resends = 0;
        self.timers.early = Time::NEVER;
        let outcome = self.settle(cx, now, host);
        if outcome == Outcome::Continue {
            self.arm_retransmission(cx, now);
        }
        outcome
    }

    /// Completes what has become the front, and begins another pass over what is missing when it should have come.
    #[cold]
    #[inline(never)]
    pub(super) fn settle<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, host: &mut H) -> Outcome {
        let una = self.queue.una;
        while let (Some(board), Some(front)) = (&self.board, self.queue.entries.front()) {
            let (from, end) = (self.queue.una, front.first + front.packets);
            let reached = match front.wants_response() {
                true => from + board.done.next_unset(0),
                false => later(from, board.executed),
            };
            if reached == from || self.queue.started == 0 {
                break;
            }
            let to = if reached.is_before(end) { reached } else { end };
            self.advance_una(cx, now, to, host);
            if let Err(reason) = self.complete_ready(cx, host) {
                return Outcome::Fatal(reason);
            }
        }
        if self.paths.is_some() {
            self.look_for_silence(now);
        }
        let (reached, wait) = (self.queue.una, u64::from(self.lateness));
        if let Some(board) = &mut self.board {
            if reached.is_before(board.horizon()) || board.spreads {
                board.ripen(now, wait);
            } else {
                self.board = None;
            }
        }
        // Afterwards: how long the timer waits depends on what is ripe.
        if reached != una {
            self.note_progress(cx, now, host);
        }
        Outcome::Continue
    }

    /// Something came twice, or later than what was sent after it: what is missing may be late, and is waited for.
    #[cold]
    pub(super) fn note_late(&mut self, cx: &Context) {
        if cx.selective
            && let Some(srtt) = self.rtt.smoothed()
        {
            let longer = u64::from(self.lateness) + srtt / LATENESS_STEPS;
            self.lateness = longer.min(srtt).min(u32::MAX.into()) as u32;
        }
    }

    /// An acknowledgement has come after a later one. On many paths, that says nothing of requests.
    #[cold]
    pub(super) fn note_stale(&mut self, cx: &Context) {
        if self.paths.is_none() {
            self.note_late(cx);
        }
    }

    /// Sends the next packet that is missing, if one is. Returns whether it did.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_lost<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        host: &mut H,
        progress: &mut Progress,
    ) -> Result<bool, Halt> {
        let is_probe = self.loss_probe;
        let Some(Lost { at, from, to }) = self.next_lost(cx) else { return Ok(false) };
        self.check_pace(now)?;
        let entry = &self.queue.entries[at];
        let ends = to == entry.first + entry.packets;
        let packet = Packet { index: (from - entry.first) as u32, to, ack_req: true, ends };
        let path = self.emit(cx, now, at, from, &packet, host)?;
        progress.sent += 1;
        host.count(Counter::RetransmittedPacket);
        self.rtt.sent_again(from, to);
        // Losses do not come twice: what was late once is not waited for for ever.
        self.lateness -= self.lateness / LATENESS_DECAY;
        let cost = self.queue.entries[at].cost(from, to, cx.config.mtu);
        if !is_probe {
            host.count(Counter::SelectiveResend);
            host.peer().window.on_gap(now, cost);
        }
        if let Some(rate) = &mut self.rate {
            rate.sent(now, cost);
        }
        let entry = &mut self.queue.entries[at];
        entry.sent = entry.sent.saturating_add(1);
        self.loss_probe = false;
        if self.paths.is_some() {
            self.note_sent_again(cx, now, from, is_probe, host);
        }
        self.note_sent_by(now, at, (from, to), path);
        if let Some(board) = &mut self.board {
            board.next = if is_probe { board.next } else { to };
        }
        self.arm_retransmission(cx, now);
        Ok(true)
    }

    /// What is to be sent again next; everything before it is not missing, or under way.
    fn next_lost(&mut self, cx: &Context) -> Option<Lost> {
        let (una, end) = (self.queue.una, self.queue.cursor);
        if self.loss_probe {
            let lost = (una != end).then(|| self.missing_from(cx, self.probe())).flatten();
            self.loss_probe = lost.is_some();
            return lost;
        }
        loop {
            let board = self.board.as_ref()?;
            let horizon = board.ripe;
            let from = una + board.done.next_unset(board.next.distance_from(una).max(0) as u32);
            if !from.is_before(horizon) || !from.is_before(end) || from.distance_from(una) >= WINDOW {
                self.board.as_mut()?.next = horizon;
                return None;
            }
            if !board.is_lost(una, from, cx) {
                self.board.as_mut()?.next = from + 1;
                continue;
            }
            let lost = self.missing_from(cx, from)?;
            let board = self.board.as_mut()?;
            if !self.queue.entries[lost.at].wants_response() {
                return Some(lost);
            }
            // Responses that others have overtaken, or a request that has not come.
            if board.lacks_request(una, from) {
                return Some(lost);
            }
            if from.is_before(board.answered) {
                let to = if board.answered.is_before(lost.to) { board.answered } else { lost.to };
                return Some(Lost { to, ..lost });
            }
            board.next = lost.to;
        }
    }

    /// The packet to send again when nothing is heard: the last one, since the answer to that tells of all before it. But the
    /// oldest, if it is known to be missing, and after a probe without an answer: the peer may have sent a NAK that was lost, and
    /// wait in silence for that packet.
    fn probe(&self) -> Psn {
        let una = self.queue.una;
        let has_gap = self.board.as_deref().is_some_and(|board| una.is_before(board.horizon()));
        if has_gap || self.early_resends > 1 { una } else { self.queue.cursor - 1 }
    }

    /// The packet `from`, or the rest of its READ request as far as its responses are missing.
    fn missing_from(&self, cx: &Context, from: Psn) -> Option<Lost> {
        let at = self.queue.entry_of(from)?;
        let entry = &self.queue.entries[at];
        if entry.fault.is_some() {
            return None;
        }
        if !entry.is_read() {
            return Some(Lost { at, from, to: from + 1 });
        }
        let index = (from - entry.first) as u32;
        let chunk =
            segment::read_chunk_end(entry.first, entry.packets, index, cx.config.read_chunk_packets());
        let una = self.queue.una;
        let place = from.distance_from(una).max(0);
        let to = match &self.board {
            Some(board) if place < WINDOW => una + board.done.next_set(place as u32),
            // The last packet of a READ longer than the window.
            _ => chunk,
        };
        Some(Lost { at, from, to: if to.is_before(chunk) { to } else { chunk } })
    }

    /// What packets before `to` cost that are no longer in flight. They leave the scoreboard.
    #[inline(always)]
    pub(super) fn landed_before<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        to: Psn,
        host: &mut H,
    ) -> u64 {
        if self.board.is_some() { self.take_landed(cx, now, to, host) } else { 0 }
    }

    #[cold]
    fn take_landed<H: Host<Data = D>>(&mut self, cx: &Context, now: Time, to: Psn, host: &mut H) -> u64 {
        let una = self.queue.una;
        let count = to.distance_from(una).max(0) as u32;
        for at in 0..count.min(REORDER_WINDOW as u32) {
            let Some(board) = &mut self.board else { return 0 };
            if !board.done.has(at) {
                let path = board.note_seen(to, una + at);
                self.note_arrived_by(now, una + at, path, host);
            }
        }
        let Some(board) = &mut self.board else { return 0 };
        let entry = &self.queue.entries[0];
        let mut landed = 0;
        let mut at = board.done.next_set(0);
        while at < count.min(REORDER_WINDOW as u32) {
            landed += entry.cost(una + at, una + at + 1, cx.config.mtu);
            at = board.done.next_set(at + 1);
        }
        board.shift(count);
        landed
    }

    /// What is known of transmissions counts no longer.
    pub(super) fn forget_board(&mut self) {
        self.board = None;
    }

    /// Everything is sent again, or nothing more.
    pub(super) fn forget_arrivals(&mut self) {
        self.board = None;
        self.loss_probe = false;
        if let Some(paths) = &mut self.paths {
            paths.forget_flight();
        }
    }

    /// How long to wait before doing something about silence, in nanoseconds: what may only be late is waited for less.
    pub(super) fn probe_wait(&self) -> u64 {
        match &self.board {
            Some(board) if board.ripe.is_before(board.horizon()) => u64::from(self.lateness),
            _ => self.rtt.loss_probe(),
        }
    }

    /// What is missing and may only have been late has been waited for, and nothing else has come. `false` if there is no such
    /// thing.
    pub(super) fn give_up_waiting(&mut self) -> bool {
        match &mut self.board {
            Some(board) if board.ripe.is_before(board.horizon()) => {
                board.ripe = board.horizon();
                true
            }
            _ => false,
        }
    }

    /// Nothing has been heard for a while: sends the oldest packet again instead of everything. `false` if that was tried
    /// often enough.
    pub(super) fn probe_for_loss(&mut self, cx: &Context) -> bool {
        let probes =
            self.is_selective(cx) && self.early_resends < self.most_probes() && self.queue.is_outstanding();
        self.loss_probe |= probes;
        probes
    }
}
