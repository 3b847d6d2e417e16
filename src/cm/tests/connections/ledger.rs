//! What both ends of a storm of connections saw, and what must hold of it in the end. The storm of whole NICs uses it as
//! well (`tests/sim/connections.rs`).

use std::collections::BTreeMap;

use softrnic_cm::{CommId, Usage};
use softrnic_wire::{Qpn, Time};

/// The end that asks, and the one that listens.
pub const ACTIVE: usize = 0;
pub const PASSIVE: usize = 1;

/// How a connection ended, as one end saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Asked,
    Established,
    Ended,
    Refused,
    Unreachable,
    /// Its process was killed.
    Forgotten,
}

#[derive(Default)]
pub struct Ledger {
    /// By end and number.
    fates: BTreeMap<(usize, u32), Fate>,
    /// Connections to be ended, and when.
    plans: BTreeMap<(Time, usize, u32), CommId>,
    /// The QP of the active side, by number of either side.
    asked_for: [BTreeMap<u32, Qpn>; 2],
    has_restarted: bool,
}

impl Ledger {
    pub fn asked(&mut self, end: usize, id: CommId, qpn: Qpn) {
        self.fates.insert((end, id.get()), Fate::Asked);
        self.asked_for[end].insert(id.get(), qpn);
    }

    pub fn established(&mut self, end: usize, id: CommId) {
        let before = self.fates.insert((end, id.get()), Fate::Established);
        assert_eq!(before, Some(Fate::Asked), "{end} {id:?}");
    }

    pub fn ended(&mut self, end: usize, id: CommId, fate: Fate) {
        let before = self.fates.insert((end, id.get()), fate);
        let was_open = matches!(before, Some(Fate::Asked | Fate::Established));
        assert!(was_open, "{end} {id:?}: {before:?}, then {fate:?}");
    }

    /// The number may be used again.
    pub fn timewait_is_over(&self, end: usize, id: CommId) {
        assert_ne!(self.fates[&(end, id.get())], Fate::Established);
    }

    /// The end's process was killed, and another one has taken its place.
    pub fn restarted(&mut self, end: usize) {
        self.plans.retain(|(_, of, _), _| *of != end);
        let gone = self.fates.iter_mut().filter(|((of, _), _)| *of == end);
        gone.for_each(|(_, fate)| *fate = Fate::Forgotten);
        self.has_restarted = true;
    }

    pub fn plan_end(&mut self, at: Time, end: usize, id: CommId) {
        self.plans.insert((at, end, id.get()), id);
    }

    /// When the next connection is to be ended.
    pub fn next_plan(&self) -> Option<Time> {
        self.plans.first_key_value().map(|(&(at, ..), _)| at)
    }

    /// A connection that is to be ended by now.
    pub fn take_due(&mut self, now: Time) -> Option<(usize, CommId)> {
        let due = self.plans.first_entry().filter(|plan| plan.key().0 <= now)?;
        let end = due.key().1;
        Some((end, due.remove()))
    }

    /// Ends and numbers of what is established.
    pub fn in_use(&self) -> Vec<(usize, u32)> {
        let in_use = self.fates.iter().filter(|(_, fate)| **fate == Fate::Established);
        in_use.map(|(&key, _)| key).collect()
    }

    /// Connections that came about and ended well, counted at each end.
    pub fn count_ended(&self) -> usize {
        self.fates.values().filter(|fate| **fate == Fate::Ended).count()
    }

    /// Both ends of each connection know that it is over, and neither is alone in having had one.
    pub fn check(&self) {
        for ((end, number), fate) in &self.fates {
            assert!(!matches!(fate, Fate::Asked | Fate::Established), "end {end}, {number:#x}: {fate:?}");
        }
        if self.has_restarted {
            return;
        }
        for (number, qpn) in &self.asked_for[ACTIVE] {
            let fate = self.fates[&(ACTIVE, *number)];
            // A late copy of a request that was refused is asked again, in vain.
            let passive = self.asked_for[PASSIVE].iter().filter(|(_, of)| *of == qpn);
            let ended = passive.filter(|(number, _)| self.fates[&(PASSIVE, **number)] == Fate::Ended).count();
            assert_eq!(ended, usize::from(fate == Fate::Ended), "{fate:?}: {number:#x}, QP {qpn}");
        }
    }
}

/// Nothing is left of any connection.
pub fn check_empty(end: usize, usage: Usage) {
    let left = (usage.connections, usage.pending, usage.timers, usage.index_entries, usage.outgoing);
    assert_eq!(left, (0, 0, 0, 0, 0), "end {end}");
}
