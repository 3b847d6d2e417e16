//! A memory reserve for verbs that are under way.
//!
//! Allocations whose size the application chooses are made by calls that can fail. The rest are small pieces of fixed
//! size, such as the object itself and its reference counts, for which Rust has no such calls: without memory they
//! would abort the application. Here they get a block that was set aside. A verb that creates something first asks
//! whether there is memory at all ([`check`]), so blocks are only used by verbs that were under way when it ran out.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use softrnic_mapping::Heap;

use crate::errno::Errno;

/// The allocator of the library: the heap of the NIC, with the reserve behind it.
pub(crate) struct WithReserve;

#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

/// The largest allocation that a block can stand in for.
pub(crate) const BLOCK: usize = 8192;
const BLOCKS: u32 = u64::BITS;

/// Verbs that may run at the same time, each of which may need a few blocks.
const ENOUGH: u32 = BLOCKS / 2;

/// The memory that must be available for a verb to start.
const PROBE: Layout = Layout::new::<[u8; 64 << 10]>();

#[repr(align(4096))]
struct Blocks(UnsafeCell<[[u8; BLOCK]; BLOCKS as usize]>);

// SAFETY: a block is only used by the caller that has set its bit in `TAKEN`.
unsafe impl Sync for Blocks {}

/// All zeros, so that it is only an address range until a block is used.
static RESERVE: Blocks = Blocks(UnsafeCell::new([[0; BLOCK]; BLOCKS as usize]));

/// A bit for each block in use.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether a verb that needs memory may start.
///
/// # Errors
/// ENOMEM.
pub(crate) fn check() -> Result<(), Errno> {
    // SAFETY: the layout has a size.
    let probe = unsafe { Heap.alloc(PROBE) };
    if probe.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: just allocated, with this layout.
    unsafe { Heap.dealloc(probe, PROBE) };
    check_blocks()
}

/// Like [`check`], for the data path: whether there is memory for a small piece.
///
/// # Errors
/// ENOMEM.
pub(crate) fn check_blocks() -> Result<(), Errno> {
    if TAKEN.load(Ordering::Relaxed).count_zeros() >= ENOUGH { Ok(()) } else { Err(Errno::NOMEM) }
}

/// A block, or null.
fn take(layout: Layout) -> *mut u8 {
    if layout.size() > BLOCK || layout.align() > BLOCK.min(4096) {
        return std::ptr::null_mut();
    }
    let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
    match TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free) {
        Ok(before) => RESERVE.0.get().cast::<u8>().wrapping_add(before.trailing_ones() as usize * BLOCK),
        Err(_) => std::ptr::null_mut(),
    }
}

/// The index of the block at this address, if it is one.
#[inline]
fn block_of(memory: *mut u8) -> Option<usize> {
    let offset = memory.addr().wrapping_sub(RESERVE.0.get().addr());
    (offset < BLOCKS as usize * BLOCK).then_some(offset / BLOCK)
}

fn give_back(block: usize) {
    TAKEN.fetch_and(!(1 << block), Ordering::Release);
}

// SAFETY: memory comes from the heap, which meets the contract, or is a block: aligned to 4096, of `BLOCK`
// bytes, and used by one caller at a time until it is freed.
unsafe impl GlobalAlloc for WithReserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is as `GlobalAlloc` requires of its caller.
        let memory = unsafe { Heap.alloc(layout) };
        if memory.is_null() { take(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is as `GlobalAlloc` requires of its caller.
        let memory = unsafe { Heap.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: a block that was just taken, which is at least as large as the layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match block_of(memory) {
            Some(block) => give_back(block),
            // SAFETY: if it is not a block, it came from the heap with this layout.
            None => unsafe { Heap.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if block_of(memory).is_none() {
            // SAFETY: if it is not a block, it came from the heap with this layout; the size is as `GlobalAlloc`
            // requires.
            let grown = unsafe { Heap.realloc(memory, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        } else if size <= BLOCK {
            return memory;
        }
        // SAFETY: `GlobalAlloc` requires of its caller that the size be valid for the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: `GlobalAlloc` requires of its caller that the size be not zero.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are as large as the smaller of the two sizes, and one of them is new.
            unsafe { moved.copy_from_nonoverlapping(memory, layout.size().min(size)) };
            // SAFETY: memory of this allocator with this layout, which is no longer used at its old address.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stand_in_until_they_run_out_and_come_back() {
        let layout = Layout::new::<[u8; 100]>();
        let all: Vec<_> = (0..BLOCKS).map(|_| take(layout)).collect();
        assert!(all.iter().all(|block| !block.is_null() && block.addr().is_multiple_of(4096)));
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "each is one caller's");
        assert!(take(layout).is_null());
        assert_eq!(check(), Err(Errno::NOMEM));
        for &block in &all {
            // SAFETY: a block of ours, with its layout.
            unsafe { WithReserve.dealloc(block, layout) };
        }
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
        assert_eq!(check(), Ok(()));
        assert!(take(Layout::new::<[u8; BLOCK + 1]>()).is_null(), "more than a block");
    }

    #[test]
    fn a_block_can_grow() {
        let small = Layout::new::<[u8; 4]>();
        let block = take(small);
        // SAFETY: a block of ours, written before it is read, and freed with the layout that it has then.
        unsafe {
            block.cast::<[u8; 4]>().write([1, 2, 3, 4]);
            assert_eq!(WithReserve.realloc(block, small, BLOCK), block);
            let large = WithReserve.realloc(block, Layout::new::<[u8; BLOCK]>(), 2 * BLOCK);
            assert!(block_of(large).is_none(), "the system has memory again");
            assert_eq!(large.cast::<[u8; 4]>().read(), [1, 2, 3, 4]);
            WithReserve.dealloc(large, Layout::new::<[u8; 2 * BLOCK]>());
        }
    }
}
