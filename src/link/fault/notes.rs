//! What a fault does to a datagram, told to a capture.

use std::sync::{Arc, Mutex, PoisonError};

use super::port::Blocked;
use super::{Action, Rule};

/// Passes what a [`FaultLink`](super::FaultLink) does to the datagram at hand to a capture below it, which makes it the
/// comment of the packet. Both belong to one link, so there is one datagram at a time.
#[derive(Clone, Default, Debug)]
pub struct FaultNotes(Arc<Mutex<Option<Arc<str>>>>);

impl FaultNotes {
    /// Takes the note about the datagram at hand, if a fault was injected.
    pub fn take(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn put(&self, note: &Arc<str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(note));
    }

    /// The datagram does not pass the port.
    pub(super) fn put_blocked(&self, blocked: Blocked) {
        self.put(&blocked.note().into());
    }
}

/// The note about a datagram that the rule with this number, from 1, applies to. `softrnic explain` reads it
/// (`inspect/capture/fault.rs`).
pub(super) fn text(number: usize, rule: &Rule) -> Arc<str> {
    let done = match rule.action {
        Action::Drop => "dropped",
        Action::Duplicate => "duplicated",
        Action::Corrupt => "corrupted",
        Action::Reorder(_) => "reordered",
        Action::Delay(_) => "delayed",
    };
    format!("fault: {done} by rule {number}, {rule}").into()
}
