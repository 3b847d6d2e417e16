//! Many paths (decision 42): a queue pair whose peer takes packets in any order sends them from several UDP source ports, among
//! which the network chooses its links. Each port is a path, which is judged by what comes of the packets sent on it.

use core::time::Duration;

use softrnic_wire::{MAX_PATHS, Psn, REORDER_WINDOW, Time};

use crate::path::Path;
use crate::tuning::{
    FULL_SHARE, LEAST_SHARE, LOSSES_TO_LEAVE, MAX_PATH_REST, MIN_PATH_REST, REPEATS_REMEMBERED,
    REPEATS_TO_LEAVE, SHARE_STEP,
};

const COUNT: usize = MAX_PATHS as usize;

/// What is not judged by its path: READ and atomic requests, whose answers come by the paths of the peer.
pub(crate) const NO_PATH: u8 = MAX_PATHS;

/// Ports of RoCEv2 are those from 0xC000 on.
const PORT_BITS: u16 = 0x3FFF;

/// The paths of one queue pair.
pub(crate) struct Paths {
    paths: [State; COUNT],
    count: u8,
    /// Where the next search begins.
    turn: u8,
    /// When the packet was sent that was sent last of those that have come.
    newest: Time,
    /// When packets were sent, by the lowest bits of their PSNs.
    sent: [Time; REORDER_WINDOW],
    /// Paths that were marked since the rate was last lowered.
    marked: u16,
    /// The paths that responses to READs took, by the lowest bits of their PSNs.
    responses: [u8; REORDER_WINDOW],
}

/// One path.
#[derive(Clone, Copy)]
struct State {
    /// In which bits its port differs from that of the connection. The lowest four are its number.
    port: u16,
    /// Packets under way that are judged by it.
    in_flight: u16,
    /// Its part of all that is sent, in [`FULL_SHARE`]s.
    share: u16,
    /// Packets lost since one has come.
    losses: u8,
    /// READ responses that the peer has asked for again.
    repeats: u8,
    /// Something is or was under way on it, and nothing has come since then.
    waits_since: Time,
    /// It has lost too much, and is not used until then.
    left_until: Time,
    /// How long it is left for the next time.
    rest: Duration,
}

/// What a loss has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The path goes on.
    Kept,
    /// It is left.
    Left,
}

impl State {
    const NEW: State = State {
        port: 0,
        in_flight: 0,
        share: FULL_SHARE,
        losses: 0,
        repeats: 0,
        waits_since: Time::ZERO,
        left_until: Time::ZERO,
        rest: MIN_PATH_REST,
    };

    fn is_left(&self) -> bool {
        self.left_until > Time::ZERO
    }

    /// Whether it was left, and may be tried by one packet now.
    fn may_be_tried(&self, now: Time) -> bool {
        self.is_left() && now >= self.left_until && self.in_flight == 0
    }

    fn leave(&mut self, now: Time) {
        self.left_until = now + self.rest;
        self.rest = (self.rest * 2).min(MAX_PATH_REST);
        (self.losses, self.repeats) = (0, 0);
        self.take_other_port();
    }

    /// The network may choose other links for another port.
    fn take_other_port(&mut self) {
        self.port = (self.port + u16::from(MAX_PATHS)) & PORT_BITS;
    }
}

impl Paths {
    pub fn new(count: u8) -> Paths {
        let mut number = 0;
        let paths = [State::NEW; COUNT].map(|state| {
            number += 1;
            State { port: number - 1, ..state }
        });
        Paths {
            paths,
            count: count.clamp(1, MAX_PATHS),
            turn: 0,
            responses: [0; REORDER_WINDOW],
            newest: Time::ZERO,
            sent: [Time::ZERO; REORDER_WINDOW],
            marked: 0,
        }
    }

    fn all(&self) -> &[State] {
        &self.paths[..usize::from(self.count)]
    }

    fn get(&mut self, path: u8) -> Option<&mut State> {
        self.paths[..usize::from(self.count)].get_mut(usize::from(path))
    }

    /// The path for a new packet: one that was left and may work again, or else the one with the least under way for its share.
    pub fn choose(&self, now: Time) -> u8 {
        let is_busy = self.all().iter().any(|state| !state.is_left() && state.in_flight > 0);
        let trial = |at: &u8| is_busy && self.paths[usize::from(*at)].may_be_tried(now);
        self.in_turn().find(trial).unwrap_or_else(|| self.choose_other_than(NO_PATH))
    }

    /// The path in use with the least under way for its share; not the one that has lost the packet before, unless there is no
    /// other.
    pub fn choose_other_than(&self, lost_on: u8) -> u8 {
        let load = |at: &u8| {
            let state = &self.paths[usize::from(*at)];
            (u32::from(state.in_flight) + 1) * u32::from(FULL_SHARE) / u32::from(state.share)
        };
        let usable = |at: &u8| *at != lost_on && !self.paths[usize::from(*at)].is_left();
        self.in_turn().filter(usable).min_by_key(load).unwrap_or(self.turn)
    }

    /// All paths, from the one whose turn it is.
    fn in_turn(&self) -> impl Iterator<Item = u8> + use<> {
        let (turn, count) = (self.turn, self.count);
        (0..count).map(move |step| (turn + step) % count)
    }

    /// The path in use whose turn it is: for packets that are not judged by what comes of them, and for those that ask whether
    /// anything comes at all.
    pub fn next_in_turn(&self) -> u8 {
        let used = |at: &u8| !self.paths[usize::from(*at)].is_left();
        self.in_turn().find(used).unwrap_or(self.turn)
    }

    /// A packet leaves.
    pub fn note_sent(&mut self, now: Time, psn: Psn, path: u8) {
        self.sent[slot(psn)] = now;
        self.turn = (path + 1) % self.count;
        if let Some(state) = self.get(path) {
            if state.in_flight == 0 {
                state.waits_since = now;
            }
            state.in_flight += 1;
        }
    }

    /// The turn goes on after a packet that is not judged.
    pub fn note_unjudged(&mut self, path: u8) {
        self.turn = (path + 1) % self.count;
    }

    /// A packet has come. Returns whether the path had been left.
    pub fn note_arrived(&mut self, now: Time, psn: Psn, path: u8) -> bool {
        self.newest = self.newest.max(self.sent[slot(psn)]);
        let Some(state) = self.get(path) else { return false };
        state.in_flight = state.in_flight.saturating_sub(1);
        state.losses = 0;
        state.waits_since = now;
        state.share = (state.share + SHARE_STEP).min(FULL_SHARE);
        let was_left = state.is_left();
        if was_left {
            state.left_until = Time::ZERO;
        } else {
            state.rest = MIN_PATH_REST;
        }
        was_left
    }

    /// A packet was lost.
    pub fn note_lost(&mut self, now: Time, path: u8) -> Verdict {
        let others = self.others_than(path);
        let Some(state) = self.get(path) else { return Verdict::Kept };
        state.in_flight = state.in_flight.saturating_sub(1);
        state.losses = state.losses.saturating_add(1);
        state.share = (state.share - state.share / 8).max(LEAST_SHARE);
        if state.is_left() {
            if now >= state.left_until {
                state.leave(now);
            }
        } else if state.losses >= LOSSES_TO_LEAVE && others > 0 {
            state.leave(now);
            return Verdict::Left;
        }
        Verdict::Kept
    }

    /// Other paths that are in use.
    fn others_than(&self, path: u8) -> usize {
        let used = self.all().iter().enumerate();
        used.filter(|(at, state)| *at != usize::from(path) && !state.is_left()).count()
    }

    /// The paths on which nothing has come although what was sent `patience` nanoseconds later on others has. Their wait begins
    /// anew.
    pub fn take_silent(&mut self, now: Time, patience: u64) -> impl Iterator<Item = u8> + use<> {
        let mut silent = 0_u16;
        for (at, state) in self.paths[..usize::from(self.count)].iter_mut().enumerate() {
            if state.in_flight > 0 && self.newest >= state.waits_since.after_nanos(patience) {
                state.waits_since = now;
                silent |= 1 << at;
            }
        }
        (0..MAX_PATHS).filter(move |at| silent >> at & 1 != 0)
    }

    /// Nothing comes on any path: others are tried in turn.
    pub fn take_other_ports(&mut self) {
        self.paths.iter_mut().for_each(State::take_other_port);
    }

    /// How many there are.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// The addresses and ports of a path.
    pub fn of(&self, path: &Path, number: u8) -> Path {
        on_port(path, self.paths[usize::from(number) % COUNT].port)
    }

    /// One packet less is judged by a path, whatever becomes of it.
    pub fn forget_one(&mut self, path: u8) {
        if let Some(state) = self.get(path) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
    }

    /// Nothing is under way any longer. What was tried has not worked.
    pub fn forget_flight(&mut self) {
        for state in &mut self.paths {
            if state.is_left() && state.in_flight > 0 {
                state.leave(state.left_until);
            }
            state.in_flight = 0;
        }
    }

    /// A mark came on the packet that was sent from this port. Returns whether most paths have been marked since it last said so:
    /// then there is too much on all of them.
    pub fn note_marked(&mut self, base: u16, port: u16) -> bool {
        let path = (base ^ port) as u8 % MAX_PATHS;
        let Some(state) = self.get(path).filter(|state| state.port == base ^ port) else { return true };
        state.share = (state.share - state.share / 4).max(LEAST_SHARE);
        self.marked |= 1 << path;
        let used = self.all().iter().filter(|state| !state.is_left()).count() as u32;
        let is_everywhere = 2 * self.marked.count_ones() > used;
        if is_everywhere {
            self.marked = 0;
        }
        is_everywhere
    }

    /// The path for the response to a READ with this PSN.
    pub fn for_response(&mut self, now: Time, psn: Psn) -> u8 {
        for state in &mut self.paths {
            if state.is_left() && now >= state.left_until {
                state.left_until = Time::ZERO;
            }
        }
        let path = self.next_in_turn();
        self.note_unjudged(path);
        self.responses[slot(psn)] = path;
        path
    }

    /// The peer asks again for the response with this PSN. A path of which more responses are missing than of the others is left.
    pub fn note_repeated(&mut self, now: Time, psn: Psn) -> Verdict {
        let path = self.responses[slot(psn)];
        let used = self.all().iter().filter(|state| !state.is_left()).count() as u32;
        let repeats = self.all().iter().map(|state| u32::from(state.repeats)).sum::<u32>();
        let Some(state) = self.get(path) else { return Verdict::Kept };
        if state.is_left() {
            return Verdict::Kept;
        }
        state.repeats += 1;
        let own = u32::from(state.repeats);
        // So many of the only path are never more than its average.
        if state.repeats >= REPEATS_TO_LEAVE && 2 * own * used > 3 * repeats {
            state.leave(now);
            return Verdict::Left;
        }
        if repeats >= REPEATS_REMEMBERED {
            self.paths.iter_mut().for_each(|state| state.repeats /= 2);
        }
        Verdict::Kept
    }
}

/// A path from another port, which differs in these bits.
pub(crate) fn on_port(path: &Path, bits: u16) -> Path {
    Path { sport: path.sport ^ bits & PORT_BITS, ..*path }
}

/// Where a PSN has its place.
fn slot(psn: Psn) -> usize {
    psn.get() as usize % REORDER_WINDOW
}

#[cfg(test)]
mod tests;
