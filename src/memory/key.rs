use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustc_hash::{FxBuildHasher, FxHashMap};
use softrnic_wire::Rkey;

/// Local key: names a memory region in the work requests of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Lkey(pub u32);

impl fmt::Display for Lkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The two keys of a region. Both have the same value, except that a null region has no rkey (0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrKeys {
    /// For local work requests.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// Keys given out at a time: half of the indices, which have 24 bits, and of which 0 is never used. Up to there a free
/// one is found in two draws on average.
pub(crate) const MAX_KEYS: usize = 0x7F_FFFF;

/// The part of a key that finds the object; the low 8 bits are its tag, which applications may choose.
pub(crate) fn index_of(key: u32) -> u32 {
    key >> 8
}

/// Index of the table that holds a key. Indices are random, so any of their bits will do.
fn place_of(key: u32) -> usize {
    index_of(key) as usize % TABLES
}

/// `key` with another tag.
pub(crate) fn with_tag(key: u32, tag: u8) -> u32 {
    key & !0xff | u32::from(tag)
}

/// Objects by key. Indices and first tags come from a keyed stream, so that a peer cannot guess a key from others that
/// it has been given, and a key does not soon become valid again after its object is gone.
///
/// The objects are in many small tables that grow independently: growing one of a million entries takes tens of
/// milliseconds, during which the thread that holds the map keeps all others waiting.
pub(crate) struct KeyMap<T> {
    tables: Box<[FxHashMap<u32, T>; TABLES]>,
    len: usize,
    random: ChaCha20Rng,
}

/// With half of all keys given out, a table has 16,384 entries.
const TABLES: usize = 512;

impl<T> KeyMap<T> {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let tables = Box::new([const { FxHashMap::with_hasher(FxBuildHasher) }; TABLES]);
        Self { tables, len: 0, random: ChaCha20Rng::from_seed(seed) }
    }

    /// Adds the object that `make` builds for the key passed to it; `None` if half of all keys are in use, or there is
    /// no memory.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        if self.len >= MAX_KEYS {
            return None;
        }
        loop {
            let key = self.random.next_u32();
            let table = &mut self.tables[place_of(key)];
            if index_of(key) != 0 && !table.contains_key(&index_of(key)) {
                table.try_reserve(1).ok()?;
                table.insert(index_of(key), make(key));
                self.len += 1;
                return Some(key);
            }
        }
    }

    /// The object with this index, whatever its tag; the caller compares the full key.
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.tables[place_of(key)].get(&index_of(key))
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.tables[place_of(key)].get_mut(&index_of(key))
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let removed = self.tables[place_of(key)].remove(&index_of(key));
        self.len -= usize::from(removed.is_some());
        removed
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.tables.iter().flat_map(FxHashMap::values)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.tables.iter_mut().flat_map(FxHashMap::values_mut)
    }
}
