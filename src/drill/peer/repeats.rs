//! Requests that the peer repeats of its own accord, because an answer took too long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use softrnic_wire::{ICRC_LEN, Opcode};

use crate::wire::Seen;

/// A peer that repeats the same for ever does not do what is expected.
const MOST_IN_A_ROW: usize = 16;
/// The byte whose first bit asks for an acknowledgement.
const ACK_REQUEST: usize = 8;

#[derive(Default)]
pub struct Repeats {
    /// When each request was seen last.
    requests: HashMap<Vec<u8>, Instant>,
    in_a_row: usize,
}

impl Repeats {
    /// Whether a request was seen before, at least that long ago. Remembers it.
    pub fn is_late_repeat(&mut self, seen: &Seen, timeout: Option<Duration>) -> bool {
        let Seen { at, since, bytes, .. } = seen;
        let Some(opcode) = bytes.first().and_then(|&byte| Opcode::from_byte(byte)) else { return false };
        if !opcode.info().is_request {
            return false;
        }
        let mut covered = bytes[..bytes.len().saturating_sub(ICRC_LEN)].to_vec();
        // A repeat may ask for an acknowledgement though the first one did not.
        if let Some(byte) = covered.get_mut(ACK_REQUEST) {
            *byte &= 0x7F;
        }
        let before = self.requests.insert(covered, *since);
        matches!((before, timeout), (Some(before), Some(timeout)) if at.duration_since(before) >= timeout)
    }

    /// Whether there are too many of them, after one that is or is not one.
    pub fn too_many(&mut self, is_repeat: bool) -> bool {
        self.in_a_row = if is_repeat { self.in_a_row + 1 } else { 0 };
        self.in_a_row > MOST_IN_A_ROW
    }
}
