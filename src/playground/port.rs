//! The link of a NIC.

use softrnic_link::sim::SimLink;
use softrnic_link::{Flow, Link, TxError, TxSlot, delegate_link};
use softrnic_wire::Time;

/// A link into the network in memory. With a switch, it takes a packet only while the NIC's port has room, so that the NIC decides
/// late what it sends next.
pub struct Port {
    inner: SimLink,
    /// Whether there is a port that can be full.
    is_limited: bool,
    has_room: bool,
    is_full: bool,
}

impl Port {
    /// One that always has room, or one that has room when [`offer`](Port::offer) says so.
    pub fn new(inner: SimLink, is_limited: bool) -> Port {
        Port { inner, is_limited, has_room: !is_limited, is_full: false }
    }

    /// Says whether the port has room.
    pub fn offer(&mut self, has_room: bool) {
        self.has_room = has_room || !self.is_limited;
        self.is_full &= !self.has_room;
    }

    /// Whether the NIC waits for room.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

impl Link for Port {
    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        if !self.has_room {
            self.is_full = true;
            return Err(TxError::Full);
        }
        self.inner.reserve(now, flow, len)
    }

    fn commit(&mut self, now: Time) {
        self.inner.commit(now);
        self.has_room = !self.is_limited;
    }

    fn is_blocked(&self) -> bool {
        self.is_full || self.inner.is_blocked()
    }

    delegate_link!(self => self.inner;
        capabilities reserved flush receive poll_timeout descriptor join leave counters);
}
