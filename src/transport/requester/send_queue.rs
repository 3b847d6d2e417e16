//! The send queue of a QP: which work requests own which PSNs, what was sent and what was acknowledged.
//!
//! PSNs on a line: `una` (oldest unacknowledged) ≤ `cursor` (next to send) ≤ `end` (one past everything ever sent).
//! Going back moves `cursor` to `una`; entries keep their PSNs.

use alloc::collections::VecDeque;

use softrnic_wire::Psn;

use crate::failure::Reason;
use crate::wqe::{SendOp, SendWqe};

/// What a packet costs in the window besides its payload.
pub(crate) const PACKET_OVERHEAD: u64 = 64;

/// Work requests accepted at a time. Enough for any window, and few enough for the list to grow quickly, since it grows
/// with the NIC lock held.
const MOST: usize = 1024;

/// A work request in the send queue.
pub(crate) struct Entry<D> {
    pub wqe: SendWqe<D>,
    /// PSN of the first packet; meaningless until the entry is started.
    pub first: Psn,
    /// PSNs that it owns; 0 for local operations.
    pub packets: u32,
    /// How often it has been sent; counted for FLUSH only.
    pub sent: u32,
    /// It fails for this reason as soon as everything before it is complete.
    pub fault: Option<Reason>,
}

impl<D> Entry<D> {
    /// Whether it completes with a response of its own, not with an acknowledgement.
    pub fn wants_response(&self) -> bool {
        matches!(
            self.wqe.op,
            SendOp::Read { .. }
                | SendOp::CompareSwap { .. }
                | SendOp::FetchAdd { .. }
                | SendOp::AtomicWrite { .. }
                | SendOp::Flush { .. }
        )
    }

    pub fn is_read(&self) -> bool {
        matches!(self.wqe.op, SendOp::Read { .. })
    }

    /// Whether `psn` is one of its PSNs.
    pub fn owns(&self, psn: Psn) -> bool {
        let place = psn.distance_from(self.first);
        place >= 0 && (place as u32) < self.packets
    }

    /// What the packets (for READ: the response packets) in `from..to` cost in the window.
    pub fn cost(&self, from: Psn, to: Psn, mtu: u32) -> u64 {
        let count = (to.distance_from(from)).max(0) as u64;
        let carries_data = self.is_read() || matches!(self.wqe.op, SendOp::Send(_) | SendOp::Write { .. });
        if count == 0 || !carries_data {
            return count * PACKET_OVERHEAD;
        }
        let full = count * (mtu as u64 + PACKET_OVERHEAD);
        let reaches_end = to == self.first + self.packets;
        let missing = self.packets as u64 * mtu as u64 - self.wqe.length as u64;
        if reaches_end { full - missing } else { full }
    }
}

pub(crate) struct SendQueue<D> {
    pub entries: VecDeque<Entry<D>>,
    /// `entries[..started]` have been given their PSNs.
    pub started: usize,
    /// The entry that `cursor` is in, at most `started`.
    pub at: usize,
    pub una: Psn,
    pub cursor: Psn,
    pub end: Psn,
    /// READ, atomic, FLUSH and ATOMIC WRITE requests that are outstanding: first and last PSN of each.
    pub awaited: VecDeque<(Psn, Psn)>,
    /// Window cost of `una..cursor`.
    pub in_flight: u64,
}

impl<D> SendQueue<D> {
    pub fn new(first: Psn) -> SendQueue<D> {
        SendQueue {
            entries: VecDeque::new(),
            started: 0,
            at: 0,
            una: first,
            cursor: first,
            end: first,
            awaited: VecDeque::new(),
            in_flight: 0,
        }
    }

    pub fn restart_at(&mut self, psn: Psn) {
        debug_assert_eq!(self.started, 0);
        (self.una, self.cursor, self.end) = (psn, psn, psn);
    }

    /// Whether another work request can be accepted. An empty queue always accepts one.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.entries.len() < self.entries.capacity() || self.grow()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        self.entries.len() < MOST && self.entries.try_reserve(1).is_ok()
    }

    #[inline]
    pub fn push(&mut self, wqe: SendWqe<D>) {
        self.entries.push_back(Entry { wqe, first: self.end, packets: 0, sent: 0, fault: None });
    }

    /// Whether something has been sent that is not acknowledged.
    pub fn is_outstanding(&self) -> bool {
        self.una != self.cursor
    }

    /// Whether everything that has been started is complete.
    pub fn is_drained(&self) -> bool {
        self.started == 0
    }

    /// Gives the entry at `at` its PSNs.
    pub fn start(&mut self, packets: u32) {
        debug_assert_eq!(self.at, self.started);
        let entry = &mut self.entries[self.at];
        entry.first = self.end;
        entry.packets = packets;
        self.started += 1;
        if packets == 0 {
            self.at += 1;
        }
    }

    /// The window cost of sending the PSNs from the cursor up to `to`.
    pub fn cost_to(&self, to: Psn, mtu: u32) -> u64 {
        self.entries[self.at].cost(self.cursor, to, mtu)
    }

    /// The packets from the cursor up to `to`, at `cost`, have been sent.
    pub fn advance(&mut self, to: Psn, cost: u64) {
        self.in_flight += cost;
        self.cursor = to;
        if to.is_after(self.end) {
            self.end = to;
        }
        if to == self.entries[self.at].first + self.entries[self.at].packets {
            self.skip_sent();
        }
    }

    /// Moves `at` past the entry that has been sent.
    fn skip_sent(&mut self) {
        self.at += 1;
        self.skip_done();
    }

    /// Moves `at` past completed local operations. One that has failed stays: nothing behind it may ever be sent.
    fn skip_done(&mut self) {
        let done = |entry: &Entry<D>| entry.packets == 0 && entry.fault.is_none();
        while self.at < self.started && done(&self.entries[self.at]) {
            self.at += 1;
        }
    }

    /// Moves `una` to `to` inside the front entry (or to its end) and returns the cost that this frees.
    /// What of it is no longer in flight costs `landed`.
    pub fn acknowledge_to(&mut self, to: Psn, mtu: u32, landed: u64) -> u64 {
        let sent = if to.is_after(self.cursor) { self.cursor } else { to };
        let freed = (self.entries[0].cost(self.una, sent, mtu) - landed).min(self.in_flight);
        self.in_flight -= freed;
        while self.awaited.front().is_some_and(|(_, last)| last.is_before(to)) {
            self.awaited.pop_front();
        }
        self.una = to;
        if self.cursor.is_before(to) {
            self.cursor = to;
        }
        freed
    }

    /// The packet `psn` of an entry is no longer in flight, although others before it are. Returns its cost.
    pub fn land(&mut self, at: usize, psn: Psn, mtu: u32) -> u64 {
        let freed = self.entries[at].cost(psn, psn + 1, mtu).min(self.in_flight);
        self.in_flight -= freed;
        freed
    }

    /// The started entry that has this PSN.
    pub fn entry_of(&self, psn: Psn) -> Option<usize> {
        let (mut low, mut high) = (0, self.started);
        while low < high {
            let middle = low.midpoint(high);
            if psn.is_before(self.entries[middle].first) { high = middle } else { low = middle + 1 }
        }
        low.checked_sub(1).filter(|&at| self.entries[at].owns(psn))
    }

    /// Removes the front entry, which is complete.
    pub fn pop(&mut self) {
        self.entries.pop_front();
        self.started = self.started.saturating_sub(1);
        self.at = self.at.saturating_sub(1);
    }

    /// Goes back to `una`: nothing is in flight any longer.
    pub fn rewind(&mut self) {
        self.cursor = self.una;
        self.at = 0;
        self.skip_done();
        self.awaited.clear();
        self.in_flight = 0;
    }
}

#[cfg(test)]
mod tests;
