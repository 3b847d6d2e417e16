//! The rings between application threads and the NIC.
//!
//! Each ring has one producer and one consumer, neither of which ever waits. Application halves live behind
//! the lock of the object they belong to, NIC halves behind the NIC lock; nobody needs both. What a half
//! publishes is visible to the other half as soon as that sees the entry.

use rtrb::{Consumer, Producer, RingBuffer};

use super::sync::Arc;
use super::sync::atomic::{AtomicU64, Ordering};

/// The ring is full; the entry comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full<W>(pub W);

impl<W> std::fmt::Display for Full<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the queue is full")
    }
}

impl<W: std::fmt::Debug> std::error::Error for Full<W> {}

/// The completion queue had no place for another completion, which is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun;

impl std::fmt::Display for Overrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("completion queue overrun")
    }
}

impl std::error::Error for Overrun {}

/// Makes a send queue with `capacity` places.
pub fn send_ring<W>(capacity: usize) -> (SendRing<W>, SendRingNic<W>) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let retired = Arc::new(AtomicU64::new(0));
    (
        SendRing {
            producer,
            retired: retired.clone(),
            capacity: capacity as u64,
            posted: 0,
            known_retired: 0,
        },
        SendRingNic { consumer, retired, taken: 0, freed: 0 },
    )
}

/// The application's half of a send queue.
///
/// A place is taken from posting until the NIC retires the request, not only until the NIC takes it: the size of
/// a send queue bounds what is outstanding.
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
    /// As many requests as the queue has places are outstanding.
    pub fn push(&mut self, request: W) -> Result<(), Full<W>> {
        if self.posted - self.known_retired >= self.capacity {
            // Acquire: what the NIC did before it retired a request (such as reading its buffers) is over.
            self.known_retired = self.retired.load(Ordering::Acquire);
            if self.posted - self.known_retired >= self.capacity {
                return Err(Full(request));
            }
        }
        self.producer.push(request).map_err(|rtrb::PushError::Full(request)| Full(request))?;
        self.posted += 1;
        Ok(())
    }

    /// How many requests are outstanding: posted and not retired.
    pub fn outstanding(&self) -> usize {
        (self.posted - self.retired.load(Ordering::Acquire)) as usize
    }

    /// How many places there are.
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
}

impl<W> SendRingNic<W> {
    /// Takes the oldest request. Its place stays occupied until [retired](Self::retire).
    pub fn pop(&mut self) -> Option<W> {
        let request = self.consumer.pop().ok()?;
        self.taken += 1;
        Some(request)
    }

    /// How many requests wait to be taken.
    pub fn len(&self) -> usize {
        self.consumer.slots()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Frees the places of `count` requests that were taken. Call before publishing the completion that tells
    /// the application so, which may post again at once.
    ///
    /// Never frees more than was taken.
    pub fn retire(&mut self, count: u32) {
        debug_assert!(u64::from(count) <= self.taken - self.freed, "retired what was never taken");
        self.freed = self.freed.saturating_add(count.into()).min(self.taken);
        self.retired.store(self.freed, Ordering::Release);
    }
}

/// Makes a receive queue with `capacity` places.
pub fn recv_ring<W>(capacity: usize) -> (RecvRing<W>, RecvRingNic<W>) {
    let (producer, consumer) = RingBuffer::new(capacity);
    (RecvRing(producer), RecvRingNic(consumer))
}

/// The application's half of a receive queue, shared or not. A place is free again when the NIC has taken the
/// request.
pub struct RecvRing<W>(Producer<W>);

impl<W> RecvRing<W> {
    /// Appends a request.
    ///
    /// # Errors
    /// No place is free.
    pub fn push(&mut self, request: W) -> Result<(), Full<W>> {
        self.0.push(request).map_err(|rtrb::PushError::Full(request)| Full(request))
    }

    /// How many places there are.
    pub fn capacity(&self) -> usize {
        self.0.buffer().capacity()
    }
}

/// The NIC's half of a receive queue.
pub struct RecvRingNic<W>(Consumer<W>);

impl<W> RecvRingNic<W> {
    /// Takes the oldest request, and frees its place.
    pub fn pop(&mut self) -> Option<W> {
        self.0.pop().ok()
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Makes a completion queue with `capacity` places.
pub fn completion_ring<C>(capacity: usize) -> (CompletionRing<C>, CompletionRingNic<C>) {
    let (producer, consumer) = RingBuffer::new(capacity);
    (CompletionRing(consumer), CompletionRingNic(producer))
}

/// The application's half of a completion queue.
pub struct CompletionRing<C>(Consumer<C>);

impl<C> CompletionRing<C> {
    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Option<C> {
        self.0.pop().ok()
    }

    /// How many completions there are.
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many places there are.
    pub fn capacity(&self) -> usize {
        self.0.buffer().capacity()
    }
}

/// The NIC's half of a completion queue.
pub struct CompletionRingNic<C>(Producer<C>);

impl<C> CompletionRingNic<C> {
    /// Publishes a completion.
    ///
    /// # Errors
    /// The queue is full: the completion is lost and the queue overrun.
    pub fn push(&mut self, completion: C) -> Result<(), Overrun> {
        self.0.push(completion).map_err(|_| Overrun)
    }
}
