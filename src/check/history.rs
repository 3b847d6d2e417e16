//! The objects that are alive, and those that were destroyed last.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::Trace;
use crate::object::{Facts, Object, ObjectKind};

/// Destroyed objects that are remembered.
const MOST: usize = 4096;

/// An object that was destroyed.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    pub object: Object,
    pub destroyed: Trace,
}

/// An object, dead or alive.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    Alive(&'a Object),
    Dead(&'a Dead),
}

#[derive(Default)]
pub(crate) struct History {
    alive: FxHashMap<usize, Object>,
    /// Oldest first.
    dead: VecDeque<Dead>,
    /// Addresses of QPs by number.
    qps: FxHashMap<u32, usize>,
    /// Addresses of regions and windows by key.
    keys: FxHashMap<u32, usize>,
}

impl History {
    pub fn add(&mut self, object: Object) {
        self.index(&object.facts, object.address);
        self.alive.insert(object.address, object);
    }

    pub fn remove(&mut self, address: usize, destroyed: Trace) -> Option<&Object> {
        let object = self.alive.remove(&address)?;
        if let Some((index, number)) = self.index_of(&object.facts)
            && index.get(&number) == Some(&address)
        {
            index.remove(&number);
        }
        if self.dead.len() == MOST {
            self.dead.pop_front();
        }
        self.dead.push_back(Dead { object, destroyed });
        self.dead.back().map(|dead| &dead.object)
    }

    pub fn at(&self, address: usize) -> Option<&Object> {
        self.alive.get(&address)
    }

    /// An object has other keys or bytes now.
    pub fn change(&mut self, address: usize, facts: Facts) {
        if self.alive.contains_key(&address) {
            self.index(&facts, address);
        }
        if let Some(object) = self.alive.get_mut(&address) {
            object.facts = facts;
        }
    }

    fn index(&mut self, facts: &Facts, address: usize) {
        if let Some((index, number)) = self.index_of(facts) {
            index.insert(number, address);
        }
    }

    fn index_of(&mut self, facts: &Facts) -> Option<(&mut FxHashMap<u32, usize>, u32)> {
        match facts {
            Facts::Qp { qpn, .. } => Some((&mut self.qps, *qpn)),
            Facts::Region { key, .. } | Facts::Window { key } => Some((&mut self.keys, *key)),
            Facts::None | Facts::Cq { .. } => None,
        }
    }

    /// The live region or window with a key.
    pub fn live_key(&self, key: u32) -> Option<&Object> {
        self.alive.get(self.keys.get(&key)?).filter(|object| has(object, key))
    }

    pub fn alive(&self) -> impl Iterator<Item = &Object> {
        self.alive.values()
    }

    /// The live QP with a number.
    pub fn qp(&self, qpn: u32) -> Option<&Object> {
        self.alive.get(self.qps.get(&qpn)?)
    }

    /// The QP with a number, or the last one that had it.
    pub fn qp_ever(&self, qpn: u32) -> Option<Known<'_>> {
        let was = |dead: &&Dead| matches!(dead.object.facts, Facts::Qp { qpn: number, .. } if number == qpn);
        let alive = self.qp(qpn).map(Known::Alive);
        alive.or_else(|| self.dead.iter().rev().find(was).map(Known::Dead))
    }

    /// The region or window with a key, or the last one that had it.
    pub fn key(&self, key: u32) -> Option<Known<'_>> {
        let alive = self.live_key(key).map(Known::Alive);
        alive.or_else(|| self.dead.iter().rev().find(|dead| has(&dead.object, key)).map(Known::Dead))
    }

    /// Who uses an object.
    pub fn users(&self, address: usize) -> Vec<&Object> {
        let mut users: Vec<_> = self.alive.values().filter(|object| object.uses.contains(&address)).collect();
        users.sort_by_key(|object| (object.kind, object.made));
        users
    }

    /// What is left, in the order in which it would have to be destroyed.
    pub fn left(&self) -> Vec<&Object> {
        let mut left: Vec<_> =
            self.alive.values().filter(|object| object.kind != ObjectKind::Other).collect();
        left.sort_by_key(|object| (object.kind, object.made));
        left
    }
}

fn has(object: &Object, key: u32) -> bool {
    matches!(object.facts, Facts::Region { key: its, .. } | Facts::Window { key: its } if its == key)
}
