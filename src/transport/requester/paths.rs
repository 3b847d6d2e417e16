//! Many paths: which one a packet takes, and what is learnt of them from what comes (decision 42).

use softrnic_wire::{Psn, Time};

use super::Requester;
use crate::context::Context;
use crate::counters::Counter;
use crate::host::Host;
use crate::paths::{NO_PATH, Paths, Verdict};
use crate::planted::Fault;
use crate::tuning::{BUSY_BYTES, MAX_EARLY_RESENDS, MAX_LOSS_PROBES, PATH_PROBES};

impl<D> Requester<D> {
    /// The peer takes packets from many paths from now on. Returns whether that is new.
    #[cold]
    pub fn spread(&mut self, cx: &Context, now: Time) -> bool {
        if self.paths.is_some() {
            return false;
        }
        let mut paths = alloc::boxed::Box::new(Paths::new(cx.config.paths));
        // What is under way took the port of the connection.
        for at in 0..self.queue.cursor.distance_from(self.queue.una).max(0) as u32 {
            paths.note_sent(now, self.queue.una + at, 0);
        }
        self.forget_board();
        self.paths = Some(paths);
        true
    }

    /// The path of the next packet of an entry.
    #[cold]
    #[inline(never)]
    pub(super) fn choose_path(&mut self, now: Time, at: usize, from: Psn) -> u8 {
        let Some(paths) = &self.paths else { return 0 };
        if self.queue.entries[at].wants_response() || self.loss_probe || self.is_probing() {
            return paths.next_in_turn();
        }
        if !from.is_before(self.queue.end) {
            return paths.choose(now);
        }
        paths.choose_other_than(self.board.as_ref().map_or(NO_PATH, |board| board.path_of(from)))
    }

    /// Packets leave for the first time, or because everything is sent again.
    #[inline(always)]
    pub(super) fn note_first_sent(&mut self, now: Time, (from, to): (Psn, Psn), path: u8) {
        if self.board.is_some() || self.paths.is_some() {
            self.note_sent_by(now, self.queue.at, (from, to), path);
        }
    }

    /// Packets of the entry at `at` leave on a path.
    #[cold]
    pub(super) fn note_sent_by(&mut self, now: Time, at: usize, (from, to): (Psn, Psn), path: u8) {
        let mut judged_by = path;
        if let Some(paths) = &mut self.paths {
            if self.queue.entries[at].wants_response() {
                judged_by = NO_PATH;
                paths.note_unjudged(path);
            } else {
                paths.note_sent(now, from, path);
            }
        }
        self.board().note_sent(from, to, judged_by);
    }

    /// A packet is sent again: what was sent of it before is lost, unless this is only to hear of it.
    pub(super) fn note_sent_again<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        from: Psn,
        is_probe: bool,
        host: &mut H,
    ) {
        let (Some(board), Some(paths)) = (&self.board, &mut self.paths) else { return };
        let path = board.path_of(from);
        if is_probe || cx.config.has(Fault::KeepsPaths) {
            paths.forget_one(path);
        } else if paths.note_lost(now, path) == Verdict::Left {
            host.count(Counter::PathLeft);
        }
    }

    /// A packet that took this path has come.
    #[inline(always)]
    pub(super) fn note_arrived_by<H: Host<Data = D>>(&mut self, now: Time, psn: Psn, path: u8, host: &mut H) {
        if let Some(paths) = &mut self.paths
            && paths.note_arrived(now, psn, path)
        {
            host.count(Counter::PathUsedAgain);
        }
    }

    /// What is under way on paths that bring nothing, though others do, is lost.
    #[cold]
    pub(super) fn look_for_silence(&mut self, now: Time) {
        let patience = self.rtt.path_silence();
        let una = self.queue.una;
        let (Some(board), Some(paths)) = (&mut self.board, &mut self.paths) else { return };
        for path in paths.take_silent(now, patience) {
            board.note_silent(una, path);
        }
    }

    /// How often silence is asked about before everything is sent again. If there are many paths, until the local ACK timeout.
    pub(super) fn most_probes(&self) -> u32 {
        if self.paths.is_some() { u32::MAX } else { MAX_LOSS_PROBES }
    }

    /// Another packet asks about silence. Where many paths bring nothing, the next time others are tried.
    pub(super) fn note_probe(&mut self) {
        self.early_resends += 1;
        if let Some(paths) = &mut self.paths
            && self.early_resends.is_multiple_of(paths.count().into())
        {
            paths.take_other_ports();
        }
    }

    /// How often the time until the next question has doubled: not while other paths are tried.
    pub(super) fn doublings(&self) -> u32 {
        match self.paths {
            Some(_) => self.early_resends.saturating_sub(PATH_PROBES).min(MAX_EARLY_RESENDS - 1),
            None => self.early_resends,
        }
    }

    /// A round trip was measured. If much is under way, the peer may be asked for paths: at the first such round trip, the second,
    /// the fourth and so on, since questions may be lost.
    pub(super) fn note_round_trip<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        if cx.config.paths > 1
            && self.paths.is_none()
            && self.queue.in_flight >= BUSY_BYTES
            && self.busy_round_trips < u16::MAX
        {
            self.busy_round_trips += 1;
            if self.busy_round_trips.is_power_of_two() {
                host.ask_for_paths();
            }
        }
    }
}
