//! Changes of the machine's network configuration.

use std::net::IpAddr;

/// A change of an interface, an address, a route or a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HostEvent {
    /// The interface is up and has a carrier.
    LinkUp {
        /// The interface.
        ifindex: u32,
    },
    /// The interface is set up but lost its carrier.
    LinkDown {
        /// The interface.
        ifindex: u32,
    },
    /// The interface was switched off.
    AdminDown {
        /// The interface.
        ifindex: u32,
    },
    /// The interface no longer exists, or has left the network namespace.
    LinkRemoved {
        /// The interface.
        ifindex: u32,
    },
    /// The IP MTU changed.
    MtuChanged {
        /// The interface.
        ifindex: u32,
        /// The new MTU in bytes.
        mtu: u32,
    },
    /// The hardware address changed.
    MacChanged {
        /// The interface.
        ifindex: u32,
    },
    /// An address can be used from now on: a new one, or one that has passed duplicate address detection.
    AddressAdded {
        /// The address.
        ip: IpAddr,
        /// The interface that has it.
        ifindex: u32,
    },
    /// An address is gone.
    AddressRemoved {
        /// The address.
        ip: IpAddr,
        /// The interface that had it.
        ifindex: u32,
    },
    /// A neighbour's hardware address became known, changed, or is no longer known.
    NeighbourChanged {
        /// The neighbour.
        ip: IpAddr,
        /// The interface it is reached by.
        ifindex: u32,
    },
    /// Routes or rules changed.
    RoutesChanged,
}
