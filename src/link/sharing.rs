//! How a process shares the addresses of its link with others.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::RawFd;

use softrnic_wire::ServiceId;

use crate::Part;

/// This process among those that share the addresses of a link.
pub trait Sharing {
    /// The numbers of the processes that share an address, this one's included.
    fn processes(&mut self) -> Vec<u32>;

    /// The name of the lifelines of the process that has a part of an address, if it is one of these.
    fn lifelines(&mut self, address: IpAddr, part: Part) -> Option<u64>;

    /// Becomes readable when there is something to [`attend`](Sharing::attend) to.
    fn descriptor(&self) -> RawFd;

    /// Lets in those that want to join, and takes out those that have ended.
    fn attend(&mut self);

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

    /// Gives the part back, so that what asks for its services finds others.
    fn end_sharing(&mut self);
}

/// The most services that the processes of an address listen for.
pub const MAX_SERVICES: usize = 256;

/// Why a service is not listened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
