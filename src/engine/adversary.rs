//! Uses every freedom that the specification gives a NIC, as an adversary of the program would: by seed.
//!
//! What comes for a QP is held for a while, and decided upon here, in each step of the engine:
//! - *Payload* reaches memory in pieces, in any order, and as late as may be: before the QP answers its peer or completes
//!   anything, before an atomic or an invalidation of the same QP, and before other payload for the same bytes
//!   (`pieces.rs`; IBTA 9.5).
//! - *Completions* become visible late and together. Those of one work queue keep their order, and no others do.
//! - *Slots* of unsignaled requests are free again with the next completion.
//! - A request that needs a receive is sometimes answered with RNR NAK although there is one, never twice in a row: other
//!   resources may be missing (IBTA 9.7.5.2.8).
//!
//! The rest needs nothing: numbers and keys are not used again before all others were, and a retransmission reads the buffer
//! again. Requests that are held for longer than the peer waits are retransmitted.

mod pieces;

use std::time::Duration;

use rustc_hash::FxHashMap;
use softrnic_link::Rng;
use softrnic_sync::queue::SendRingNic;
use softrnic_transport::QpAttr;
use softrnic_wire::Time;

use super::Engine;
use super::data::SendRequest;
use super::host::Staged;
use super::objects::QpKey;
use super::shared::StagedCompletions;
use pieces::Pieces;

/// With more bytes than this, nothing is held.
const MOST_BYTES: usize = 4 << 20;

/// A peer that is asked to wait for longer is not asked without need.
const LONGEST_RNR: Duration = Duration::from_millis(5);

/// One request in this many that needs a receive finds none.
const NOT_READY: u64 = 48;

/// See the [module](self).
pub struct Adversary {
    /// Draws a generator for each QP, in their order.
    rng: Rng,
    /// Draws which QP comes first.
    turns: Rng,
    qps: FxHashMap<QpKey, Held>,
    /// QPs of which something is held.
    busy: Vec<QpKey>,
}

/// What is held of a QP.
struct Held {
    rng: Rng,
    pieces: Pieces,
    /// When all payload is in memory; until then the QP sends nothing.
    placed_at: Time,
    is_blocked: bool,
    sends: Lane,
    receives: Lane,
    /// Requests that are complete and still have their slot.
    owed: u32,
    /// The last request that needed a receive was told that there is none.
    refused: bool,
    may_refuse: bool,
    is_busy: bool,
}

/// Completions of one work queue, in their order.
struct Lane {
    waiting: Vec<Staged>,
    /// Never, if there are none.
    shown_at: Time,
}

impl Adversary {
    /// Whose decisions follow from a seed.
    pub fn new(seed: u64) -> Adversary {
        let mut rng = Rng::new(seed);
        Adversary { turns: rng.fork(), rng, qps: FxHashMap::default(), busy: Vec::new() }
    }

    /// A QP's; each has decisions of its own, so that they do not depend on what the others do.
    fn held(&mut self, key: QpKey) -> &mut Held {
        let rng = &mut self.rng;
        let held = self.qps.entry(key).or_insert_with(|| Held::new(rng.fork()));
        if !std::mem::replace(&mut held.is_busy, true) {
            self.busy.push(key);
        }
        held
    }

    /// Slots of completed requests are freed later.
    #[cold]
    #[inline(never)]
    pub fn owe(&mut self, key: QpKey, count: u32) {
        self.held(key).owed += count;
    }

    /// Slots that are still to be freed, of a QP that has no requests any more.
    #[cold]
    #[inline(never)]
    pub fn take_owed(&mut self, key: QpKey) -> u32 {
        self.qps.get_mut(&key).map_or(0, |held| std::mem::take(&mut held.owed))
    }

    /// Whether a request is told to come again.
    #[cold]
    #[inline(never)]
    pub fn lacks_resources(&mut self, key: QpKey) -> bool {
        let Some(held) = self.qps.get_mut(&key).filter(|held| held.may_refuse) else { return false };
        held.refused = !held.refused && held.rng.below(NOT_READY) == 0;
        held.refused
    }

    /// A QP has new attributes.
    #[cold]
    #[inline(never)]
    pub fn modified(&mut self, key: QpKey, attr: &QpAttr) {
        self.held(key).may_refuse = attr.min_rnr_timer.delay() <= LONGEST_RNR;
    }

    /// Takes what has been completed.
    fn take(&mut self, staged: &mut StagedCompletions) {
        for staged in staged.take() {
            let held = self.held(staged.qp);
            match staged.cqe.opcode.is_receive() {
                true => held.receives.waiting.push(staged),
                false => held.sends.waiting.push(staged),
            }
        }
    }
}

impl Held {
    fn new(rng: Rng) -> Held {
        Held {
            rng,
            pieces: Pieces::default(),
            placed_at: Time::NEVER,
            is_blocked: false,
            sends: Lane { waiting: Vec::new(), shown_at: Time::NEVER },
            receives: Lane { waiting: Vec::new(), shown_at: Time::NEVER },
            owed: 0,
            refused: false,
            may_refuse: false,
            is_busy: false,
        }
    }

    /// Decides when what is new is placed and shown.
    fn decide(&mut self, now: Time) {
        let Held { rng, pieces, placed_at, sends, receives, .. } = self;
        if pieces.is_empty() {
            *placed_at = Time::NEVER;
        } else if *placed_at == Time::NEVER {
            *placed_at = now + delay(rng);
        }
        if pieces.len() > MOST_BYTES {
            *placed_at = now;
        }
        for lane in [sends, receives] {
            if lane.shown_at == Time::NEVER && !lane.waiting.is_empty() {
                lane.shown_at = now + delay(rng);
            }
        }
    }

    /// Frees the slots that it owes. It owes none if polling frees them.
    fn pay(&mut self, sends: &mut SendRingNic<SendRequest>) {
        if self.owed > 0 {
            sends.retire(std::mem::take(&mut self.owed));
        }
    }

    /// When something is due next.
    fn due(&self) -> Time {
        self.placed_at.min(self.sends.shown_at).min(self.receives.shown_at)
    }
}

impl Lane {
    /// Its completions, if they are due.
    fn take_due(&mut self, now: Time) -> Vec<Staged> {
        if self.shown_at > now {
            return Vec::new();
        }
        self.shown_at = Time::NEVER;
        std::mem::take(&mut self.waiting)
    }
}

/// How long something is held: often not at all, seldom for so long that the peer sends it again.
fn delay(rng: &mut Rng) -> Duration {
    let most = match rng.below(32) {
        0..=9 => return Duration::ZERO,
        10..=25 => 60_000,
        26..=30 => 300_000,
        _ => 2_000_000,
    };
    Duration::from_nanos(rng.below(most))
}

impl Engine {
    /// Holds what has come, and lets go of what is due.
    #[cold]
    #[inline(never)]
    pub(super) fn contend(&mut self, now: Time) {
        let Some(mut adversary) = self.shared.adversary.take() else { return };
        adversary.take(&mut self.shared.staged);
        let mut busy = std::mem::take(&mut adversary.busy);
        shuffle(&mut adversary.turns, &mut busy);
        let mut blocks = false;
        busy.retain(|&key| {
            let Some(held) = adversary.qps.get_mut(&key) else { return false };
            self.let_go(now, key, held);
            blocks |= held.is_blocked;
            held.is_busy = held.due() != Time::NEVER;
            held.is_busy
        });
        adversary.busy = busy;
        if blocks {
            let is_blocked = |key: &QpKey| adversary.qps.get(key).is_some_and(|held| held.is_blocked);
            self.active.retain(|key| !is_blocked(key));
            self.turn = 0;
        }
        self.shared.adversary = Some(adversary);
    }

    /// A QP is reset or destroyed: nothing of it is held any longer.
    #[cold]
    #[inline(never)]
    pub(super) fn let_all_go(&mut self, now: Time, key: QpKey) {
        let Some(mut adversary) = self.shared.adversary.take() else { return };
        adversary.take(&mut self.shared.staged);
        adversary.busy.retain(|&busy| busy != key);
        if let (Some(mut held), Some(slot)) = (adversary.qps.remove(&key), self.qps.get_mut(key)) {
            held.pieces.place(&mut held.rng, &self.memory);
            held.pay(&mut slot.io.sends);
            for staged in held.sends.waiting.into_iter().chain(held.receives.waiting) {
                self.shared.stage(staged);
            }
            self.publish(now);
            self.notify();
        }
        self.shared.adversary = Some(adversary);
    }

    fn let_go(&mut self, now: Time, key: QpKey, held: &mut Held) {
        let Some(slot) = self.qps.get_mut(key) else { return };
        let io = &mut slot.io;
        held.pieces.place_some(&mut held.rng, &self.memory);
        held.decide(now);
        let sends = held.sends.take_due(now);
        let receives = held.receives.take_due(now);
        if held.placed_at <= now || !sends.is_empty() || !receives.is_empty() {
            held.pieces.place(&mut held.rng, &self.memory);
            held.placed_at = Time::NEVER;
        }
        if !sends.is_empty() {
            held.pay(&mut io.sends);
        }
        for staged in sends.into_iter().chain(receives) {
            self.shared.stage(staged);
        }
        let was_blocked = std::mem::replace(&mut held.is_blocked, !held.pieces.is_empty());
        if was_blocked && !held.is_blocked && io.active {
            self.active.push_back(key);
        }
        let due = held.due();
        if due < io.timer {
            self.timers.set(std::mem::replace(&mut io.timer, due), due, key);
        }
    }
}

fn shuffle<T>(rng: &mut Rng, list: &mut [T]) {
    for last in (1..list.len()).rev() {
        list.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
