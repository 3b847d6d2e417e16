//! The rings between application threads and the NIC.
//!
//! Each ring has one producer and one consumer, neither of which ever waits. Application halves live behind the lock of
//! the object they belong to, NIC halves behind the NIC lock; no thread needs both. What one half did before publishing
//! an entry is visible to the other once it sees the entry.

use std::collections::VecDeque;

pub use super::ring::Full;
use super::ring::{Consumer, OutOfMemory, Producer, ring};
use crate::atomics::Arc;
use crate::atomics::atomic::{AtomicU64, Ordering};

/// The completion queue had no room for another completion, which is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqOverrun;

impl std::fmt::Display for CqOverrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("completion queue overrun")
    }
}

impl std::error::Error for CqOverrun {}

/// Creates a send queue with `capacity` entries.
///
/// # Errors
/// There is no memory for them.
pub fn send_ring<W>(capacity: usize) -> Result<(SendRing<W>, SendRingNic<W>), OutOfMemory> {
    let (producer, consumer) = ring(capacity)?;
    let retired = Arc::new(AtomicU64::new(0));
    let app = SendRing {
        producer,
        retired: retired.clone(),
        capacity: capacity as u64,
        posted: 0,
        known_retired: 0,
    };
    Ok((app, SendRingNic { consumer, retired, taken: 0, freed: 0, announced: None }))
}

/// Creates a send queue whose slots are free once the application has seen a completion that shows so.
///
/// # Errors
/// As [`send_ring`].
pub fn send_ring_freed_by_polling<W>(
    capacity: usize,
) -> Result<(SendRing<W>, SendRingNic<W>, SeenSlots), OutOfMemory> {
    let (app, mut nic) = send_ring(capacity)?;
    // Each completion that was not seen has a slot, so there is room for all.
    let (announced, consumer) = ring(capacity)?;
    nic.announced = Some(announced);
    let retired = nic.retired.clone();
    Ok((app, nic, SeenSlots { consumer, retired }))
}

/// Frees slots of a send queue as the application sees completions.
pub struct SeenSlots {
    /// For each completion, how many requests were complete with it.
    consumer: Consumer<u64>,
    retired: Arc<AtomicU64>,
}

impl SeenSlots {
    /// The application has seen the next completion of the send queue.
    pub fn see(&mut self) {
        if let Some(complete) = self.consumer.pop() {
            // After a reset the NIC may have freed more.
            self.retired.fetch_max(complete, Ordering::Release);
        }
    }

    /// The application will not see those that have come so far.
    pub fn forget(&mut self) {
        while self.consumer.pop().is_some() {}
    }
}

/// The application's half of a send queue.
///
/// A slot is in use from posting until the NIC retires the request, not only until the NIC takes it: the size of a send
/// queue limits what is outstanding.
pub struct SendRing<W> {
    producer: Producer<W>,
    retired: Arc<AtomicU64>,
    capacity: u64,
    posted: u64,
    known_retired: u64,
}

impl<W> SendRing<W> {
    /// Appends a request.
    ///
    /// # Errors
    /// As many requests are outstanding as the queue holds.
    pub fn push(&mut self, request: W) -> Result<(), Full> {
        self.push_with(|| request, |_| Ok(()))
    }

    /// Appends a request that `fill` completes in its place.
    ///
    /// # Errors
    /// As many requests are outstanding as the queue holds, or `fill` fails.
    #[inline]
    pub fn push_with<E: From<Full>>(
        &mut self,
        request: impl FnOnce() -> W,
        fill: impl FnOnce(&mut W) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.posted - self.known_retired >= self.capacity {
            // Acquire: what the NIC did before it retired a request (such as reading its buffers) has happened.
            self.known_retired = self.retired.load(Ordering::Acquire);
            if self.posted - self.known_retired >= self.capacity {
                return Err(Full.into());
            }
        }
        self.producer.push_with(request, fill)?;
        self.posted += 1;
        Ok(())
    }

    /// Number of outstanding requests: posted and not retired.
    pub fn outstanding(&self) -> usize {
        (self.posted - self.retired.load(Ordering::Acquire)) as usize
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }
}

/// The NIC's half of a send queue.
pub struct SendRingNic<W> {
    consumer: Consumer<W>,
    retired: Arc<AtomicU64>,
    taken: u64,
    freed: u64,
    /// To the application, if it frees the slots.
    announced: Option<Producer<u64>>,
}

impl<W> SendRingNic<W> {
    /// Takes the oldest request. Its slot stays in use until [retired](Self::retire).
    pub fn pop(&mut self) -> Option<W> {
        let request = self.consumer.pop()?;
        self.taken += 1;
        Some(request)
    }

    /// How many requests wait to be taken.
    pub fn len(&self) -> usize {
        self.consumer.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Frees the slots of `count` requests that were taken. Called before publishing the completion that tells the
    /// application, which may post again at once.
    ///
    /// Never frees more than was taken. Slots that the application was to free are free as well then.
    pub fn retire(&mut self, count: u32) {
        debug_assert!(u64::from(count) <= self.taken - self.freed, "retired what was never taken");
        self.freed = self.freed.saturating_add(count.into()).min(self.taken);
        self.retired.store(self.freed, Ordering::Release);
    }

    /// Whether slots are free only once the application has seen so.
    pub fn is_freed_by_polling(&self) -> bool {
        self.announced.is_some()
    }

    /// Like [`retire`](Self::retire), if the application frees the slots.
    pub fn retire_unseen(&mut self, count: u32) {
        self.freed = self.freed.saturating_add(count.into()).min(self.taken);
    }

    /// The next completion shows that all requests retired so far are complete. Called before publishing it.
    pub fn announce(&mut self) {
        if let Some(announced) = &mut self.announced {
            // Full only if completions were lost, and then the CQ is of no use any more.
            let _ = announced.push(self.freed);
        }
    }
}

/// Creates a receive queue with `capacity` entries.
///
/// # Errors
/// There is no memory for them.
pub fn recv_ring<W>(capacity: usize) -> Result<(RecvRing<W>, RecvRingNic<W>), OutOfMemory> {
    let (producer, consumer) = ring(capacity)?;
    Ok((RecvRing { producer, former: Vec::new() }, RecvRingNic(Successive::new(consumer))))
}

/// The application's half of a receive queue, shared or not. A slot is free again once the NIC has taken the request.
pub struct RecvRing<W> {
    producer: Producer<W>,
    /// Previous rings from which the NIC may still take. Their memory is freed on this side, since freeing much is
    /// slow.
    former: Vec<Producer<W>>,
}

impl<W> RecvRing<W> {
    /// Appends a request.
    ///
    /// # Errors
    /// The queue is full.
    pub fn push(&mut self, request: W) -> Result<(), Full> {
        self.producer.push(request)
    }

    /// Appends a request that `fill` completes in its place.
    ///
    /// # Errors
    /// The queue is full, or `fill` fails.
    #[inline]
    pub fn push_with<E: From<Full>>(
        &mut self,
        request: impl FnOnce() -> W,
        fill: impl FnOnce(&mut W) -> Result<(), E>,
    ) -> Result<(), E> {
        self.producer.push_with(request, fill)
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        self.producer.capacity()
    }

    /// Switches to a ring that the NIC switches to as well.
    pub fn replace(&mut self, new: RecvRing<W>) {
        self.former.push(std::mem::replace(&mut self.producer, new.producer));
        self.former.retain(|former| !former.is_abandoned());
    }
}

/// The NIC's half of a receive queue.
pub struct RecvRingNic<W>(Successive<W>);

impl<W> RecvRingNic<W> {
    /// Peeks at the oldest request.
    pub fn peek<R>(&mut self, look: impl FnOnce(&W) -> R) -> Option<R> {
        self.0.peek(look)
    }

    /// Takes the oldest request, and frees its slot.
    pub fn pop(&mut self) -> Option<W> {
        self.0.pop()
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Switches to another ring once this one is empty.
    pub fn replace(&mut self, new: RecvRingNic<W>) {
        self.0.append(new.0);
    }
}

/// Creates a completion queue with `capacity` entries.
///
/// # Errors
/// There is no memory for them.
pub fn completion_ring<C>(capacity: usize) -> Result<(CompletionRing<C>, CompletionRingNic<C>), OutOfMemory> {
    let (producer, consumer) = ring(capacity)?;
    Ok((CompletionRing(Successive::new(consumer)), CompletionRingNic(producer)))
}

/// The application's half of a completion queue.
pub struct CompletionRing<C>(Successive<C>);

impl<C> CompletionRing<C> {
    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Option<C> {
        self.0.pop()
    }

    /// Takes the oldest completion, after `look` has had it in its place.
    #[inline]
    pub fn pop_with<R>(&mut self, look: impl FnOnce(&C) -> R) -> Option<R>
    where
        C: Copy,
    {
        self.0.pop_with(look)
    }

    /// How many completions there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether any was ever taken.
    pub fn was_used(&self) -> bool {
        self.0.was_used || self.0.last.was_used()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        self.0.last.capacity()
    }

    /// Switches to a ring that the NIC has switched to, as soon as this one is empty.
    pub fn replace(&mut self, new: CompletionRing<C>) {
        self.0.append(new.0);
    }
}

impl<C: Copy> CompletionRing<C> {
    /// Removes the completions for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&C) -> bool) {
        self.0.older.iter_mut().for_each(|ring| ring.retain(&keep));
        self.0.last.retain(keep);
    }
}

/// The NIC's half of a completion queue.
pub struct CompletionRingNic<C>(Producer<C>);

impl<C> CompletionRingNic<C> {
    /// Publishes a completion.
    ///
    /// # Errors
    /// The queue is full: the completion is lost, and the queue has overrun.
    pub fn push(&mut self, completion: C) -> Result<(), CqOverrun> {
        self.0.push(completion).map_err(|_| CqOverrun)
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Completions that were not taken yet.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The consumer of a queue that can be resized: of its ring, and of earlier ones until they are empty. So nothing is
/// moved, which for a million entries would take longer than the NIC may be held.
struct Successive<T> {
    last: Consumer<T>,
    /// Consumers of earlier rings, the oldest first.
    older: VecDeque<Consumer<T>>,
    /// Something was taken from a ring before the last one.
    was_used: bool,
}

impl<T> Successive<T> {
    fn new(last: Consumer<T>) -> Successive<T> {
        Successive { last, older: VecDeque::new(), was_used: false }
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        if !self.older.is_empty()
            && let Some(entry) = self.pop_older()
        {
            return Some(entry);
        }
        self.last.pop()
    }

    #[inline]
    fn pop_with<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R>
    where
        T: Copy,
    {
        self.older.retain(|ring| !ring.is_empty());
        self.older.front_mut().unwrap_or(&mut self.last).pop_with(look)
    }

    fn peek<R>(&mut self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.older.retain(|ring| !ring.is_empty());
        self.older.front_mut().unwrap_or(&mut self.last).peek(look)
    }

    #[cold]
    fn pop_older(&mut self) -> Option<T> {
        while let Some(oldest) = self.older.front_mut() {
            if let Some(entry) = oldest.pop() {
                return Some(entry);
            }
            self.older.pop_front();
        }
        None
    }

    fn len(&self) -> usize {
        self.older.iter().map(Consumer::len).sum::<usize>() + self.last.len()
    }

    /// The producer has switched to `next`.
    fn append(&mut self, next: Successive<T>) {
        let before = std::mem::replace(&mut self.last, next.last);
        self.was_used |= before.was_used();
        if !before.is_empty() {
            self.older.push_back(before);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
