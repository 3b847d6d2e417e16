//! The memory of a ring's slots, which costs nothing until it is used.
//!
//! A block of the heap has a header in its first page, and one of the next block in its last, so that two pages are there
//! although no slot was ever used: most of what an idle queue pair takes. Here blocks of one size lie side by side in a
//! mapping, with nothing between them. A block that is given back loses its pages, and a mapping goes with its last block.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use softrnic_mapping::Mapping;

use crate::ring::OutOfMemory;

/// Of each mapping.
const BLOCKS: u32 = 32;
/// Alignment and granularity of blocks.
const PAGE: usize = 4096;
/// Smaller ones share pages on the heap.
const SMALLEST: usize = PAGE / 2;
/// Larger ones are mappings of their own on the heap.
const MOST_PAGES: usize = 32;

/// A fixed number of values that are never dropped.
pub(crate) struct Slots<T> {
    base: NonNull<T>,
    count: usize,
    #[expect(dead_code, reason = "held to be dropped")]
    home: Home<T>,
}

/// Where slots are.
enum Home<T> {
    Heap(#[expect(dead_code, reason = "held to be dropped")] Vec<T>),
    Slab(#[expect(dead_code, reason = "held to be dropped")] Block),
}

// SAFETY: owns its values, as a vector does: a block is nobody else's.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: a shared reference gives shared references to the values alone.
unsafe impl<T: Sync> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// # Safety
    /// A value of this type may have any bytes, and needs no drop.
    ///
    /// # Errors
    /// There is no memory.
    pub unsafe fn new(count: usize) -> Result<Slots<T>, OutOfMemory> {
        let len = count.checked_mul(size_of::<T>()).ok_or(OutOfMemory)?;
        if len >= SMALLEST
            && align_of::<T>() <= PAGE
            && let Some(block) = Block::take(len)
        {
            return Ok(Slots { base: block.base().cast(), count, home: Home::Slab(block) });
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        let base = NonNull::new(slots.as_mut_ptr()).ok_or(OutOfMemory)?;
        Ok(Slots { base, count, home: Home::Heap(slots) })
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: memory for so many, which lives as long as this; what is in it is a value whatever it is, as the caller of
        // `new` says.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

/// A block of a slab, given back when dropped.
struct Block {
    slab: Arc<Slab>,
    number: u32,
}

/// A mapping of blocks with one length.
struct Slab {
    mapping: Mapping,
    len: usize,
    /// One bit for each block.
    taken: AtomicU32,
}

/// The slabs whose blocks have one page, two pages and so on.
static SLABS: [Mutex<Vec<Weak<Slab>>>; MOST_PAGES] = [const { Mutex::new(Vec::new()) }; MOST_PAGES];

impl Block {
    /// One of at least `len` bytes; `None` if there is none of that size, or no memory.
    fn take(len: usize) -> Option<Block> {
        let pages = len.div_ceil(PAGE);
        // Not `lock`: another thread of the parent may have held it at a fork, and then holds it here for ever.
        let mut slabs = SLABS.get(pages - 1)?.try_lock().ok()?;
        if let Some(block) = slabs.last().and_then(Slab::take_from) {
            return Some(block);
        }
        // Once for all blocks of a slab: those that are gone are forgotten, and what others have given back is used again.
        slabs.retain(|slab| slab.strong_count() > 0);
        let found = slabs.iter().enumerate().find_map(|(at, slab)| Some((at, Slab::take_from(slab)?)));
        if let Some((at, block)) = found {
            let slab = slabs.swap_remove(at);
            slabs.push(slab);
            return Some(block);
        }
        slabs.try_reserve(1).ok()?;
        let slab = Arc::new(Slab::new(pages * PAGE)?);
        slabs.push(Arc::downgrade(&slab));
        slab.take().map(|number| Block { slab, number })
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: inside of the mapping, which has all blocks.
        unsafe { self.slab.mapping.base().add(self.number as usize * self.slab.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: pages of this block, which nothing refers to any more. If it fails, they stay.
        unsafe { libc::madvise(self.base().as_ptr().cast(), self.slab.len, libc::MADV_DONTNEED) };
        self.slab.taken.fetch_and(!(1 << self.number), Ordering::Release);
    }
}

impl Slab {
    fn new(len: usize) -> Option<Slab> {
        let mapping = Mapping::anonymous(len * BLOCKS as usize).ok()?;
        // One slot would take two megabytes. SAFETY: advice on a mapping of ours.
        unsafe { libc::madvise(mapping.base().as_ptr().cast(), mapping.len(), libc::MADV_NOHUGEPAGE) };
        Some(Slab { mapping, len, taken: AtomicU32::new(0) })
    }

    fn take_from(slab: &Weak<Slab>) -> Option<Block> {
        let slab = slab.upgrade()?;
        slab.take().map(|number| Block { slab, number })
    }

    /// A block that nobody has.
    fn take(&self) -> Option<u32> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let number = taken.trailing_ones();
            if number == BLOCKS {
                return None;
            }
            let with = taken | 1 << number;
            // Acquire: whoever had it has left it.
            match self.taken.compare_exchange_weak(taken, with, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(number),
                Err(now) => taken = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;

    use super::*;

    type Slot = UnsafeCell<MaybeUninit<[u64; 3]>>;

    fn slots(count: usize) -> Slots<Slot> {
        // SAFETY: may be uninitialised.
        unsafe { Slots::new(count) }.expect("memory")
    }

    fn range(slots: &Slots<Slot>) -> std::ops::Range<usize> {
        let start = slots.as_ptr().addr();
        start..start + size_of_val::<[Slot]>(slots)
    }

    /// Whether the pages of an address range are in memory.
    fn resident(range: std::ops::Range<usize>) -> usize {
        let (start, end) = (range.start / PAGE * PAGE, range.end.next_multiple_of(PAGE));
        let mut found = vec![0_u8; (end - start) / PAGE];
        // SAFETY: a byte for each page.
        let asked = unsafe { libc::mincore(start as *mut libc::c_void, end - start, found.as_mut_ptr()) };
        assert_eq!(asked, 0);
        found.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn slots_of_all_sizes_are_apart() {
        let all: Vec<_> = (0..400).map(|i| slots([1, 5, 90, 171, 500, 3000, 9000][i % 7])).collect();
        let mut ranges: Vec<_> = all.iter().map(range).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "two have the same bytes");
        for (number, slots) in all.iter().enumerate() {
            for slot in slots.iter() {
                // SAFETY: ours alone.
                unsafe { (*slot.get()).write([number as u64; 3]) };
            }
        }
        for (number, slots) in all.iter().enumerate() {
            // SAFETY: written above.
            let found = slots.iter().map(|slot| unsafe { (*slot.get()).assume_init_read() });
            assert!(found.into_iter().all(|found| found == [number as u64; 3]));
        }
    }

    #[test]
    fn slots_take_pages_only_while_they_are_used() {
        // A size of this test's own.
        let all: Vec<_> = (0..100).map(|_| slots(1200)).collect();
        assert_eq!(all.iter().map(|slots| resident(range(slots))).sum::<usize>(), 0);
        let used = range(&all[7]);
        // SAFETY: ours alone.
        unsafe { (*all[7][0].get()).write([1; 3]) };
        assert_eq!(resident(used.clone()), 1);
        let mut all = all;
        // Others of its mapping stay.
        drop(all.swap_remove(7));
        assert_eq!(resident(used), 0);
    }

    #[test]
    fn blocks_that_were_given_back_are_used_again() {
        let mut all: Vec<_> = (0..64).map(|_| slots(1700)).collect();
        let mut before: Vec<_> = all.iter().map(|slots| range(slots).start).collect();
        let given: Vec<_> = (0..20).map(|_| range(&all.remove(3)).start).collect();
        let again: Vec<_> = (0..20).map(|_| slots(1700)).collect();
        assert!(again.iter().all(|slots| given.contains(&range(slots).start)));
        drop(all);
        drop(again);
        // And the mappings are gone with the last of them.
        before.truncate(1);
        let mut page = [0_u8];
        // SAFETY: a byte for the page.
        let asked = unsafe { libc::mincore(before[0] as *mut libc::c_void, PAGE, page.as_mut_ptr()) };
        assert!(asked != 0 || page[0] & 1 == 0);
    }
}
