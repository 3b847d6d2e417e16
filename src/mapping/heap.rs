//! The C library's heap, except for large blocks where memory is registered: the C library maps those wherever there is room.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};

use crate::mapping::Mapping;
use crate::registered::length_within;

/// The C library's heap, with mappings instead of large blocks that would be where memory is registered.
pub struct Heap;

/// From this size on the C library maps blocks (`M_MMAP_THRESHOLD`, unless it has learned to keep larger ones).
const LARGE: usize = 128 << 10;
/// Mappings begin at a multiple of it.
const PAGE: usize = 4096;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() < PAGE
}

/// A block of the C library, unless that would be where memory is registered, or could be taken for a mapping: these begin
/// at a page boundary, and the C library's seldom do.
fn large(layout: Layout) -> *mut u8 {
    // SAFETY: a large layout has a size.
    let block = unsafe { System.alloc_zeroed(layout) };
    let range = block.addr()..block.addr() + layout.size();
    if block.is_null() || !is_mapping(block) && length_within(range).is_none() {
        return block;
    }
    // SAFETY: just allocated with this layout.
    unsafe { System.dealloc(block, layout) };
    Mapping::anonymous(layout.size()).map_or(ptr::null_mut(), |mapping| mapping.leak().as_ptr())
}

fn is_mapping(block: *mut u8) -> bool {
    block.addr().is_multiple_of(PAGE)
}

// SAFETY: a large block at a page boundary is a mapping, which is zeroed and nobody else's; it is unmapped once, by
// `dealloc`. All others are of `System`. The layout and the address tell which, and are the same when a block is freed.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return large(layout);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return large(layout);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(base) = NonNull::new(block)
            && is_large(layout)
            && is_mapping(block)
        {
            // SAFETY: leaked by `large` with this size, and given up by the caller.
            drop(unsafe { Mapping::from_leaked(base, layout.size()) });
            return;
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size, rounded up to the alignment, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(new) {
            // SAFETY: as the caller promises.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: as the caller promises; both blocks have the bytes that are copied.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests;
