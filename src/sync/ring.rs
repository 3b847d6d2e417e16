//! A ring between one producer and one consumer, neither of which ever waits.
//!
//! It is our own because creating one must be able to fail: applications choose its capacity.
//!
//! Each side counts what has passed through it. The slots from `head` up to `tail` hold entries and belong to the
//! consumer, all others are empty and belong to the producer. Advancing a count hands slots over: the store releases
//! what was done to them, and the other side's load acquires it.

use std::mem::MaybeUninit;

use crate::atomics::atomic::{AtomicUsize, Ordering};
use crate::atomics::{Arc, UnsafeCell};

/// There is no memory for this many entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no memory for a ring of this size")
    }
}

impl std::error::Error for OutOfMemory {}

/// The ring has no room for another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the queue is full")
    }
}

impl std::error::Error for Full {}

/// Creates a ring with `capacity` entries. Its memory costs nothing until it is used.
///
/// # Errors
/// There is no memory.
pub fn ring<T>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), OutOfMemory> {
    let count = capacity.max(1).checked_next_power_of_two().ok_or(OutOfMemory)?;
    let slots = slots(count)?;
    let (head, tail) = (Line(AtomicUsize::new(0)), Line(AtomicUsize::new(0)));
    let ring = Arc::new(Ring { slots, mask: count - 1, capacity, head, tail });
    let producer = Producer { ring: ring.clone(), tail: 0, known_head: 0 };
    Ok((producer, Consumer { ring, head: 0, known_tail: 0 }))
}

struct Ring<T> {
    slots: Slots<T>,
    mask: usize,
    capacity: usize,
    /// How many entries have been taken; written by the consumer.
    head: Line<AtomicUsize>,
    /// How many entries have been added; written by the producer.
    tail: Line<AtomicUsize>,
}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

#[cfg(not(any(loom, target_family = "wasm")))]
type Slots<T> = crate::slots::Slots<Slot<T>>;
#[cfg(any(loom, target_family = "wasm"))]
type Slots<T> = Vec<Slot<T>>;

/// Aligned so that the two counts are neither in one cache line, nor in two that are fetched together.
#[repr(align(128))]
struct Line<T>(T);

// SAFETY: there is one producer and one consumer, which share nothing but the counts: a slot is the consumer's from
// `head` up to `tail`, and the producer's otherwise. Entries change threads on their way, which `T: Send` allows.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: it owns its entries, which are `Send`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// # Safety
    /// The slot of `count` belongs to the calling half, and is empty.
    unsafe fn put(&self, count: usize, entry: T) {
        // SAFETY: masked, and there are `mask + 1` slots.
        let slot = unsafe { self.slots.get_unchecked(count & self.mask) };
        // SAFETY: an empty slot that belongs to the caller, as it promises.
        slot.with_mut(|slot| unsafe { (*slot).write(entry) });
    }

    /// # Safety
    /// As for [`put`](Self::put); the slot is empty still if `fill` fails.
    #[inline]
    unsafe fn put_with<E>(
        &self,
        count: usize,
        entry: impl FnOnce() -> T,
        fill: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<(), E> {
        // SAFETY: masked, and there are `mask + 1` slots.
        let slot = unsafe { self.slots.get_unchecked(count & self.mask) };
        slot.with_mut(|slot| {
            // SAFETY: an empty slot that belongs to the caller, as it promises.
            let slot = unsafe { &mut *slot };
            let filled = fill(slot.write(entry()));
            if filled.is_err() {
                // SAFETY: it has just been written.
                unsafe { slot.assume_init_drop() };
            }
            filled
        })
    }

    /// # Safety
    /// The slot of `count` belongs to the calling half, and holds an entry; it is empty afterwards.
    unsafe fn take(&self, count: usize) -> T {
        // SAFETY: masked, and there are `mask + 1` slots.
        let slot = unsafe { self.slots.get_unchecked(count & self.mask) };
        // SAFETY: a slot with an entry that belongs to the caller, as it promises, and that is empty from now on.
        slot.with(|slot| unsafe { (*slot).assume_init_read() })
    }

    /// # Safety
    /// The slot of `count` belongs to the calling half, and holds an entry.
    unsafe fn look<R>(&self, count: usize, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: masked, and there are `mask + 1` slots.
        let slot = unsafe { self.slots.get_unchecked(count & self.mask) };
        // SAFETY: a slot with an entry that belongs to the caller, as it promises.
        slot.with(|slot| look(unsafe { (*slot).assume_init_ref() }))
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: both halves are gone; the slots between the counts hold entries.
            drop(unsafe { self.take(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// The half that adds entries.
pub struct Producer<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    /// The last value read of `head`.
    known_head: usize,
}

impl<T> Producer<T> {
    /// Appends an entry.
    ///
    /// # Errors
    /// The ring is full; the entry is dropped. (Returning it would copy it once more each time.)
    pub fn push(&mut self, entry: T) -> Result<(), Full> {
        self.push_with(|| entry, |_| Ok(()))
    }

    /// Appends an entry that `fill` completes in its place. (One that was just made in pieces is slow to copy: that has to
    /// wait until the processor has stored all of them.)
    ///
    /// # Errors
    /// The ring is full, or `fill` fails; then nothing was appended.
    #[inline]
    pub fn push_with<E: From<Full>>(
        &mut self,
        entry: impl FnOnce() -> T,
        fill: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<(), E> {
        let ring = &*self.ring;
        if self.tail.wrapping_sub(self.known_head) >= ring.capacity {
            self.known_head = ring.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.known_head) >= ring.capacity {
                return Err(Full.into());
            }
        }
        // SAFETY: fewer than `capacity` slots are the consumer's, so this one is ours and empty.
        unsafe { ring.put_with(self.tail, entry, fill) }?;
        self.tail = self.tail.wrapping_add(1);
        ring.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        self.ring.capacity
    }

    /// Entries that were not taken yet.
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.ring.head.0.load(Ordering::Acquire))
    }

    /// Whether all were taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the other half has been dropped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.ring) == 1
    }
}

/// The half that takes entries.
pub struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// The last value read of `tail`.
    known_tail: usize,
}

impl<T> Consumer<T> {
    /// Takes the oldest entry.
    pub fn pop(&mut self) -> Option<T> {
        let ring = &*self.ring;
        if self.head == self.known_tail {
            self.known_tail = ring.tail.0.load(Ordering::Acquire);
            if self.head == self.known_tail {
                return None;
            }
        }
        // SAFETY: the slots from `head` up to `tail` are ours and hold entries; this one no longer does afterwards.
        let entry = unsafe { ring.take(self.head) };
        self.head = self.head.wrapping_add(1);
        ring.head.0.store(self.head, Ordering::Release);
        Some(entry)
    }

    /// Takes the oldest entry, after `look` has had it in its place. (It may just have been put there in pieces, and is slow
    /// to copy then: that has to wait until the processor has stored all of them.)
    #[inline]
    pub fn pop_with<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R>
    where
        T: Copy,
    {
        let looked = self.peek(look)?;
        self.head = self.head.wrapping_add(1);
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(looked)
    }

    /// Peeks at the oldest entry.
    #[inline]
    pub fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let ring = &*self.ring;
        if self.head == self.known_tail {
            self.known_tail = ring.tail.0.load(Ordering::Acquire);
            if self.head == self.known_tail {
                return None;
            }
        }
        // SAFETY: the slots from `head` up to `tail` are ours and hold entries; `self` is borrowed while `look` runs.
        Some(unsafe { ring.look(self.head, look) })
    }

    /// Number of entries in the ring.
    pub fn len(&self) -> usize {
        self.ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Whether any entry was ever taken.
    pub fn was_used(&self) -> bool {
        self.head != 0
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        self.ring.capacity
    }
}

impl<T: Copy> Consumer<T> {
    /// Removes those of the present entries for which `keep` is false. The producer only notices that more slots are
    /// free afterwards.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let ring = &*self.ring;
        self.known_tail = ring.tail.0.load(Ordering::Acquire);
        // From the newest to the oldest: kept entries move up to the tail, which is not ours to change.
        let (mut from, mut to) = (self.known_tail, self.known_tail);
        while from != self.head {
            from = from.wrapping_sub(1);
            // SAFETY: the slots from `head` up to `tail` are ours and hold entries, which are `Copy`.
            let entry = unsafe { ring.take(from) };
            if keep(&entry) {
                to = to.wrapping_sub(1);
                // SAFETY: the slots from `head` up to `tail` are ours; `to` is not below `from`, whose entry and those
                // after it have been taken.
                unsafe { ring.put(to, entry) };
            }
        }
        self.head = to;
        ring.head.0.store(to, Ordering::Release);
    }
}

#[cfg(not(any(loom, target_family = "wasm")))]
fn slots<T>(count: usize) -> Result<Slots<T>, OutOfMemory> {
    // SAFETY: `MaybeUninit` may have any bytes, and needs no drop.
    unsafe { crate::slots::Slots::new(count) }
}

#[cfg(any(loom, target_family = "wasm"))]
fn slots<T>(count: usize) -> Result<Slots<T>, OutOfMemory> {
    Ok((0..count).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect())
}
