//! The set of queue pairs that have been posted to.
//!
//! A bitmap with summaries above it: a set bit in a summary says that the word below has set bits. Ringing goes up,
//! from the index's own bit to the root; draining goes down. Ringing does not stop at a word that is not empty: its
//! bits may come from another poster that has not yet continued upwards, and the caller relies on its own bit being
//! found. With a read-modify-write at every level, whatever the order of ringing and draining at each word, either the
//! drain comes later and acquires what the poster did, or the bits stay for the next drain.

use crate::atomics::atomic::{AtomicU64, Ordering};

/// A set of small dense numbers that any thread adds to and the holder of the NIC empties. It is wait-free, never
/// allocates after creation, and only accesses the memory for the numbers in use.
pub struct DoorbellSet {
    /// The bits themselves first, the root last.
    levels: Vec<Box<[AtomicU64]>>,
    capacity: usize,
}

impl DoorbellSet {
    /// An empty set for the numbers below `capacity`, at most 2^20.
    ///
    /// # Panics
    /// `capacity` exceeds that.
    pub fn new(capacity: usize) -> DoorbellSet {
        DoorbellSet::with_root(capacity, ROOT_WORDS)
    }

    /// Like [`new`](Self::new), with summaries until at most `root_words` words are left.
    pub(crate) fn with_root(capacity: usize, root_words: usize) -> DoorbellSet {
        assert!(capacity <= MAX_CAPACITY, "a doorbell set holds numbers below 2^20");
        let mut levels = Vec::new();
        let mut bits = capacity.max(1);
        loop {
            let words = bits.div_ceil(64);
            levels.push(zeroed(words));
            if words <= root_words {
                return DoorbellSet { levels, capacity };
            }
            bits = words;
        }
    }

    /// Adds `index`. What the caller did before is visible to the drain that returns it. The caller notifies the holder
    /// of the NIC afterwards.
    ///
    /// # Panics
    /// `index` is not below the capacity.
    pub fn ring(&self, index: usize) {
        assert!(index < self.capacity, "no such doorbell");
        self.levels[0][index / 64].fetch_or(1 << (index % 64), Ordering::AcqRel);
        self.summarize(index);
    }

    /// Sets the bits above that of `index`.
    fn summarize(&self, index: usize) {
        let mut at = index / 64;
        for level in &self.levels[1..] {
            level[at / 64].fetch_or(1 << (at % 64), Ordering::AcqRel);
            at /= 64;
        }
    }

    /// Adds `index` for a caller that leaves it to whoever added it before, if that was not drained yet. Then false is
    /// returned, and there is nobody to notify: the other one does so when it has added the number completely, and the
    /// drain that it causes, or an earlier one, also makes visible what this caller did before.
    ///
    /// # Panics
    /// `index` is not below the capacity.
    pub fn join(&self, index: usize) -> bool {
        assert!(index < self.capacity, "no such doorbell");
        let bit = 1 << (index % 64);
        let first = self.levels[0][index / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if first {
            self.summarize(index);
        }
        first
    }

    /// Whether a [drain](Self::drain) would find nothing now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.levels[self.levels.len() - 1].iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Removes every number that was added before, and perhaps some being added, and passes each to `visit`, lowest
    /// first.
    pub fn drain(&self, mut visit: impl FnMut(usize)) {
        let root = self.levels.len() - 1;
        for word in 0..self.levels[root].len() {
            // If the poster's call to the holder has been seen, its ringing happened before, so this load sees its bit.
            if self.levels[root][word].load(Ordering::Relaxed) != 0 {
                self.drain_word(root, word, &mut visit);
            }
        }
    }

    fn drain_word(&self, level: usize, word: usize, visit: &mut impl FnMut(usize)) {
        let mut bits = self.levels[level][word].swap(0, Ordering::AcqRel);
        while bits != 0 {
            let at = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            match level {
                0 => visit(at),
                _ => self.drain_word(level - 1, at, visit),
            }
        }
    }
}

/// One cache line.
const ROOT_WORDS: usize = 8;
const MAX_CAPACITY: usize = 1 << 20;

#[cfg(not(loom))]
fn zeroed(words: usize) -> Box<[AtomicU64]> {
    // SAFETY: zero is valid for an atomic integer. (Zeroed memory costs nothing until it is touched.)
    unsafe { Box::new_zeroed_slice(words).assume_init() }
}

#[cfg(loom)]
fn zeroed(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
