//! The four kinds of AF_XDP rings: single producer, single consumer, with the kernel on one side.
//!
//! Each side caches the other's index, reads it again only when the cached one leaves nothing to do, and publishes its
//! own index once per batch.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use softrnic_mapping::Mapping;

/// A descriptor of the receive and transmit rings (`struct xdp_desc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(super) struct Desc {
    /// Offset into the UMEM.
    pub(super) address: u64,
    /// Bytes.
    pub(super) len: u32,
    /// [`libc::XDP_PKT_CONTD`] when the packet continues in the next descriptor.
    pub(super) options: u32,
}

impl Desc {
    pub(super) fn continues(self) -> bool {
        self.options & libc::XDP_PKT_CONTD != 0
    }
}

/// Offsets of a ring's parts in its mapping, in bytes (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) entries: usize,
    /// `None` on kernels before 5.4, which have no need-wakeup flag.
    pub(super) flags: Option<usize>,
}

/// What both sides of a ring share.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    size: u32,
    _memory: Mapping,
}

// SAFETY: the pointers go into the mapping that the ring owns, which belongs to no thread; entries are `Send`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// A ring of `size` entries, a power of two, in `memory`.
    fn new(memory: Mapping, offsets: Offsets, size: u32) -> Ring<T> {
        assert!(size.is_power_of_two());
        Ring {
            producer: at(&memory, offsets.producer, 1),
            consumer: at(&memory, offsets.consumer, 1),
            flags: offsets.flags.map(|flags| at(&memory, flags, 1)),
            entries: at(&memory, offsets.entries, size as usize),
            size,
            _memory: memory,
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned and in the mapping, as `at` checked, which the ring keeps alive; both sides access it only as
        // an atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Whether the kernel must be woken with a system call.
    fn needs_wakeup(&self) -> bool {
        self.flags.is_some_and(|flags| {
            // SAFETY: as for `producer`.
            let flags = unsafe { flags.as_ref() };
            flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
        })
    }

    /// Entries between the indices, as far as published.
    fn len(&self) -> u32 {
        // The consumer index first: it never overtakes the producer's, so the difference is not negative.
        let consumer = self.consumer().load(Ordering::Acquire);
        self.producer().load(Ordering::Acquire).wrapping_sub(consumer)
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: masked to below `size`; `at` checked that `size` entries are in the mapping, which the ring keeps
        // alive.
        unsafe { self.entries.as_ptr().add((index & (self.size - 1)) as usize) }
    }
}

/// Our side of a ring that the kernel consumes: fill or transmit.
///
/// What an entry named may come back to us before the kernel publishes that it has consumed the entry; it publishes at
/// the latest when it has consumed all that it knew of. So a ring for `n` things must have `2 n` entries.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    next: u32,
    published: u32,
    consumer: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Producer<T> {
        Producer { ring: Ring::new(memory, offsets, size), next: 0, published: 0, consumer: 0 }
    }

    /// Whether `count` more entries fit.
    pub(super) fn has_room(&mut self, count: u32) -> bool {
        if self.room() < count {
            self.consumer = self.ring.consumer().load(Ordering::Acquire);
        }
        self.room() >= count
    }

    /// Free entries, as far as we know; none if the kernel claims to have consumed more than there was.
    fn room(&self) -> u32 {
        self.ring.size.saturating_sub(self.next.wrapping_sub(self.consumer))
    }

    /// Appends an entry, which the kernel does not see yet.
    ///
    /// # Panics
    /// If the ring is full.
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.try_push(entry), "ring is full");
    }

    /// Like `push`; false if the ring is full.
    pub(super) fn try_push(&mut self, entry: T) -> bool {
        if !self.has_room(1) {
            return false;
        }
        // SAFETY: the slot is in the mapping, as `entry` says, and not the kernel's: it is beyond what was published,
        // and `has_room` checked that the kernel has consumed the previous entry.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Makes the pushed entries visible to the kernel.
    pub(super) fn publish(&mut self) {
        if self.published != self.next {
            self.published = self.next;
            self.ring.producer().store(self.next, Ordering::Release);
        }
    }

    /// Entries pushed but not published.
    pub(super) fn unpublished(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Published entries that the kernel has not consumed.
    pub(super) fn outstanding(&self) -> u32 {
        self.ring.len()
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    /// Publishes an arbitrary index.
    #[cfg(feature = "fuzz")]
    pub(super) fn forge_index(&mut self, index: u32) {
        self.ring.producer().store(index, Ordering::Release);
    }

    /// Writes an entry, whichever side owns it.
    #[cfg(feature = "fuzz")]
    pub(super) fn forge_entry(&mut self, index: u32, entry: T) {
        // SAFETY: in the mapping, as `Ring::entry` says; one thread plays both sides.
        unsafe { self.ring.entry(index).write(entry) };
    }
}

/// Our side of a ring that the kernel produces: receive or completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
    released: u32,
    producer: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Consumer<T> {
        Consumer { ring: Ring::new(memory, offsets, size), next: 0, released: 0, producer: 0 }
    }

    /// The entry `ahead` positions after the next one, if the kernel has produced it.
    pub(super) fn peek(&mut self, ahead: u32) -> Option<T> {
        if self.producer.wrapping_sub(self.next) <= ahead {
            self.producer = self.ring.producer().load(Ordering::Acquire);
            if self.producer.wrapping_sub(self.next) <= ahead {
                return None;
            }
        }
        // SAFETY: in the mapping, as `entry` says. The kernel produced it before publishing the index that was
        // acquired, and does not write it again before it is released (af_xdp.rst).
        Some(unsafe { self.ring.entry(self.next.wrapping_add(ahead)).read() })
    }

    /// Steps over `count` peeked entries.
    pub(super) fn advance(&mut self, count: u32) {
        debug_assert!(self.producer.wrapping_sub(self.next) >= count);
        self.next = self.next.wrapping_add(count);
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.advance(1);
        Some(entry)
    }

    /// Returns the entries that were stepped over to the kernel.
    pub(super) fn release(&mut self) {
        if self.released != self.next {
            self.released = self.next;
            self.ring.consumer().store(self.next, Ordering::Release);
        }
    }

    /// Entries that we know of and have not stepped over.
    #[cfg(test)]
    pub(super) fn cached(&self) -> u32 {
        self.producer.wrapping_sub(self.next)
    }

    /// Publishes an arbitrary index.
    #[cfg(feature = "fuzz")]
    pub(super) fn forge_index(&mut self, index: u32) {
        self.ring.consumer().store(index, Ordering::Release);
    }

    /// Entries that the kernel has produced and we have not stepped over.
    pub(super) fn available(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }
}

/// A pointer to `count` values at `offset` of a mapping.
fn at<T>(memory: &Mapping, offset: usize, count: usize) -> NonNull<T> {
    let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
    assert!(end.is_some_and(|end| end <= memory.len()), "ring outside its mapping");
    // SAFETY: in the mapping, as just checked.
    let pointer = unsafe { memory.base().add(offset) }.cast::<T>();
    assert!(pointer.is_aligned(), "ring misaligned");
    pointer
}

#[cfg(test)]
mod tests;
