//! Sets of descriptors of this process.
//!
//! A child of vfork shares them with its parent and must leave them unchanged: a process that does not own them removes
//! nothing.

use std::ffi::{c_int, c_uint};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Descriptors from here on are never in a set: more than the kernel allows (`fs.nr_open`).
const LIMIT: usize = 1 << 20;

/// Descriptors.
pub struct DescriptorSet {
    /// A bit for each.
    bits: [AtomicU64; LIMIT / 64],
    count: AtomicU32,
}

/// The process that owns all sets.
static OWNER: AtomicI32 = AtomicI32::new(0);

impl DescriptorSet {
    pub const fn new() -> DescriptorSet {
        DescriptorSet { bits: [const { AtomicU64::new(0) }; LIMIT / 64], count: AtomicU32::new(0) }
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.bits.get(fd / 64)?, 1 << (fd % 64)))
    }

    #[inline]
    pub fn contains(&self, fd: c_int) -> bool {
        self.count.load(Ordering::Relaxed) > 0
            && self.bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Adds a new descriptor; false if it is beyond the limit.
    pub fn insert(&self, fd: c_int) -> bool {
        static FORKS: Once = Once::new();
        FORKS.call_once(|| {
            own();
            // SAFETY: a function that lives as long as the program: preloaded libraries are never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(own)) };
        });
        let Some((word, bit)) = self.bit(fd) else { return false };
        // Another may have had this number, and been closed without our seeing it.
        if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Removes a descriptor; false if it was not there, or the set is not this process's.
    #[inline]
    pub fn remove(&self, fd: c_int) -> bool {
        if !self.contains(fd) || !is_owner() {
            return false;
        }
        let Some((word, bit)) = self.bit(fd) else { return false };
        let was_there = word.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        if was_there {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        was_there
    }

    /// Removes all descriptors of a range, and calls `removed` for each.
    pub fn remove_all(&self, first: c_uint, last: c_uint, removed: impl Fn(c_int)) {
        if self.count.load(Ordering::Relaxed) == 0 || !is_owner() {
            return;
        }
        let last = (last as usize).min(LIMIT - 1);
        for fd in first as usize..=last {
            // Nearly all words are empty.
            if self.bits[fd / 64].load(Ordering::Relaxed) != 0 && self.remove(fd as c_int) {
                removed(fd as c_int);
            }
        }
    }
}

fn is_owner() -> bool {
    process() == OWNER.load(Ordering::Relaxed)
}

/// Asks the kernel: everything in memory is the parent's in a child of vfork.
fn process() -> c_int {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as c_int }
}

extern "C" fn own() {
    OWNER.store(process(), Ordering::Relaxed);
}
