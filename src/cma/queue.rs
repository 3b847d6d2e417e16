//! The queued events of a channel, and their count in its descriptor.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use softrnic_cm::Ece;

use super::event::{EventData, EventKind, EventStatus};
use softrnic_sync::tokens::Tokens;

/// An event that has not been reported yet.
pub(super) struct Queued {
    /// The identifier that it counts for; for a connect request the listener.
    pub owner: u32,
    /// The group that it counts for too.
    pub group: Option<u32>,
    /// The new identifier of a connect request.
    pub request: Option<u32>,
    pub kind: EventKind,
    pub status: EventStatus,
    pub context: u64,
    pub data: EventData,
    pub ece: Ece,
}

/// The events of a channel. Each has a token in the descriptor, or with a reader that is about to take an event.
pub(super) struct Queue {
    tokens: Tokens,
    events: VecDeque<Queued>,
    /// Tokens that readers hold for events that have been removed. The next readers consume them: a reader that took
    /// another event instead would leave its token behind, and the descriptor readable without an event.
    void: usize,
}

impl Queue {
    pub fn new() -> io::Result<Queue> {
        Ok(Queue { tokens: Tokens::new()?, events: VecDeque::new(), void: 0 })
    }

    pub fn descriptor(&self) -> RawFd {
        self.tokens.descriptor()
    }

    pub fn push(&mut self, event: Queued) {
        self.events.push_back(event);
        self.tokens.add_one();
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event, for a reader with a token.
    pub fn take(&mut self) -> Option<Queued> {
        if self.void > 0 {
            self.void -= 1;
            return None;
        }
        self.events.pop_front()
    }

    /// Removes the events that match.
    pub fn remove(&mut self, mut matches: impl FnMut(&Queued) -> bool) -> Vec<Queued> {
        let mut removed = Vec::new();
        for _ in 0..self.events.len() {
            match self.events.pop_front() {
                Some(event) if matches(&event) => removed.push(event),
                Some(event) => self.events.push_back(event),
                None => break,
            }
        }
        // A token that is not in the descriptor is with a reader.
        self.void += removed.iter().filter(|_| !self.tokens.try_take()).count();
        removed
    }
}
