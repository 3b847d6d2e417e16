//! The machine's interfaces, addresses, routes and neighbours, and how they change.
//!
//! [`Host`] reads them over netlink once, follows the kernel's notifications afterwards, and never blocks. It changes
//! nothing. The only thing it sends is an empty datagram to the discard port of a peer whose hardware address is
//! wanted, which makes the kernel resolve it and needs no privilege. A link consults it now and then while its caller
//! posts or polls; during that time the calling thread cannot be cancelled. Start reading with [`Host::resolve`].

mod ethtool;
mod event;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod interface;
mod netlink;
mod resolve;
mod tables;

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use softrnic_sys::Uncancelled;
use softrnic_wire::Time;

pub use event::HostEvent;
pub use interface::{Address, Interface, LinkState, Queues, Vlan};
use netlink::{Drained, Notifications, Requests};
use resolve::Resolver;
pub use resolve::{Neighbour, NoRoute, Query, Resolution};
use tables::Tables;

/// The network configuration of the network namespace in which it was opened.
pub struct Host {
    requests: Requests,
    notifications: Notifications,
    tables: Tables,
    resolver: Resolver,
    generation: u64,
}

impl Host {
    /// Reads the current state and starts to follow changes.
    ///
    /// # Errors
    /// Those of the netlink sockets.
    pub fn open() -> io::Result<Host> {
        // Subscribe first, so that nothing can change unseen between the two.
        let notifications = Notifications::open()?;
        let mut requests = Requests::open()?;
        let tables = read_tables(&mut requests)?;
        Ok(Host { requests, notifications, tables, resolver: Resolver::default(), generation: 0 })
    }

    /// Reads what has changed since the last call and reports it to `sink`, in order.
    ///
    /// # Errors
    /// Those of the netlink sockets; what was read before stays valid.
    pub fn poll(&mut self, sink: &mut dyn FnMut(HostEvent)) -> io::Result<()> {
        let _uncancelled = Uncancelled::new();
        let Host { requests, notifications, tables, resolver, generation } = self;
        let mut note = |event| {
            *generation += 1;
            match event {
                HostEvent::NeighbourChanged { ip, ifindex } => resolver.forget_question((ifindex, ip)),
                _ => resolver.forget_routes(),
            }
            sink(event);
        };
        if notifications.drain(&mut |message| tables.apply(message, &mut note))? == Drained::Lost {
            let old = mem::replace(tables, read_tables(requests)?);
            tables.changes_since(&old, &mut note);
        }
        Ok(())
    }

    /// Changes with every event: anything resolved before must then be resolved again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All interfaces, by index.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.tables.links.values()
    }

    /// The interface with this index.
    pub fn interface(&self, ifindex: u32) -> Option<&Interface> {
        self.tables.links.get(&ifindex)
    }

    /// The interface with this name.
    pub fn interface_by_name(&self, name: &str) -> Option<&Interface> {
        self.interfaces().find(|interface| interface.name == name)
    }

    /// All usable addresses, in the order in which the kernel reported them.
    pub fn addresses(&self) -> &[Address] {
        &self.tables.addresses
    }

    /// The addresses of an interface and of the VLAN interfaces on top of it.
    pub fn stacked_addresses(&self, ifindex: u32) -> impl Iterator<Item = &Address> {
        self.addresses().iter().filter(move |address| self.is_stacked(address.ifindex, ifindex))
    }

    /// The interface that has an address.
    pub fn owner(&self, ip: IpAddr) -> Option<u32> {
        self.addresses().iter().find(|address| address.ip == ip).map(|address| address.ifindex)
    }

    /// Whether `ifindex` is `lower` or a VLAN interface on top of it.
    pub fn is_stacked(&self, ifindex: u32, lower: u32) -> bool {
        self.tables.is_stacked(ifindex, lower)
    }

    /// The route to a destination as of the last [`Host::poll`].
    ///
    /// While the neighbour is pending or unreachable, or known but not recently confirmed, the kernel is asked to
    /// resolve it, at most four times a second unless it forgets what it knew. The answer comes as a
    /// [`HostEvent::NeighbourChanged`].
    ///
    /// # Errors
    /// See [`NoRoute`].
    pub fn resolve(&mut self, now: Time, query: &Query) -> Result<Resolution, NoRoute> {
        let _uncancelled = Uncancelled::new();
        self.resolver.resolve(now, query, &self.tables, &mut self.requests)
    }
}

/// The descriptor becomes readable when [`Host::poll`] has something to do.
impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

impl AsRawFd for Host {
    fn as_raw_fd(&self) -> RawFd {
        self.notifications.as_raw_fd()
    }
}

fn read_tables(requests: &mut Requests) -> io::Result<Tables> {
    let mut tables = Tables::default();
    for question in [
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
    ] {
        requests.dump(question, &mut |message| tables.apply(message, &mut |_| {}))?;
    }
    Ok(tables)
}
