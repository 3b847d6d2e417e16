//! What happens when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::picos::Picos;

/// Events in the order of their time; those of one time in the order in which they were added.
#[derive(Clone)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

#[derive(Clone)]
struct Entry<E> {
    at: Picos,
    sequence: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub fn new() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub fn push(&mut self, at: Picos, event: E) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Entry { at, sequence, event });
    }

    pub fn next_at(&self) -> Option<Picos> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub fn pop(&mut self) -> Option<(Picos, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.sequence == other.sequence
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The earliest is the greatest, since the heap gives that first.
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}
