//! The link of a NIC that has lost its own.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use softrnic_link::{Capabilities, Datagram, Flow, Link, LinkCounters, Overrun, TxError, TxSlot};
use softrnic_wire::Time;

/// Sends nothing and receives nothing.
pub(super) struct NullLink {
    capabilities: Capabilities,
}

impl Default for NullLink {
    fn default() -> Self {
        NullLink { capabilities: Capabilities::none("gone") }
    }
}

impl Link for NullLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, _now: Time, _flow: &Flow, _len: usize) -> Result<TxSlot<'_>, TxError> {
        Err(TxError::Unreachable)
    }

    fn reserved(&self) -> &[u8] {
        &[]
    }

    fn commit(&mut self, _now: Time) {}

    fn flush(&mut self, _now: Time) {}

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive(&mut self, _now: Time, _budget: usize, _sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        Overrun::Drained
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }
}
