//! How a process shares the addresses of its link with others.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use softrnic_wire::ServiceId;

use crate::ProcessSlot;

/// This process among those that share the addresses of a link.
pub trait Sharing {
    /// The numbers of the processes that share an address, this one's included.
    fn processes(&mut self) -> Vec<u32>;

    /// The name of the lifelines of the process that has a slot of an address, if it is one of these.
    fn lifelines(&mut self, address: IpAddr, slot: ProcessSlot) -> Option<u64>;

    /// Becomes readable when there is something to [`attend`](Sharing::attend) to.
    fn descriptor(&self) -> RawFd;

    /// Takes out those that have ended. Returns the names at which others may wait: whoever drives the link accepts there,
    /// without the NIC's lock, and then lets them in.
    #[must_use]
    fn attend(&mut self) -> Vec<Arc<dyn Backlog>>;

    /// Lets in those that were accepted.
    fn let_in(&mut self);

    /// Requests for a service come to this process from now on: those to one address, or to all.
    ///
    /// # Errors
    /// Another process has the service, there are too many, or a table is being changed: try again.
    fn serve(&mut self, service: ServiceId, at: Option<IpAddr>) -> Result<(), ServeError>;

    /// They do not come to this process any more.
    ///
    /// # Errors
    /// A table is being changed: try again.
    fn stop_serving(&mut self, service: ServiceId) -> Result<(), ServeError>;

    /// Gives the slot back, so that what asks for its services finds others.
    fn end_sharing(&mut self);
}

/// Where other processes connect. Any user can, without end, so nobody waits for the thread that accepts.
pub trait Backlog: Send + Sync {
    /// Accepts some of those that have connected, and keeps the processes of this user.
    fn accept_some(&self);
}

/// The most services that the processes of an address listen for.
pub const MAX_SERVICES: usize = 256;

/// Why a service is not listened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process changes the table.
    Busy,
    /// Another process listens for the service.
    Taken,
    /// There are as many as the table holds.
    TooMany,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Busy => f.write_str("another process of the address is changing what it listens for"),
            ServeError::Taken => f.write_str("another process of the address listens for the service"),
            ServeError::TooMany => write!(
                f,
                "the processes of the address already listen for {MAX_SERVICES} services, which is the maximum"
            ),
        }
    }
}

impl std::error::Error for ServeError {}
