//! Links, addresses and neighbours as the kernel reported them, and the events that follow from changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as Nud,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use softrnic_wire::MacAddr;

use super::HostEvent;
use super::interface::{Address, Interface, LinkState};

/// What is known about a neighbour's hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NeighbourEntry {
    /// Usable.
    Fresh(MacAddr),
    /// Usable, but not confirmed for a while: the kernel should be asked to confirm it.
    Stale(MacAddr),
    /// The kernel is resolving it.
    Incomplete,
    /// It did not answer.
    Failed,
}

impl NeighbourEntry {
    pub(super) fn mac(self) -> Option<MacAddr> {
        match self {
            NeighbourEntry::Fresh(mac) | NeighbourEntry::Stale(mac) => Some(mac),
            NeighbourEntry::Incomplete | NeighbourEntry::Failed => None,
        }
    }
}

/// A neighbour: the interface it is on, and its address.
pub(super) type NeighbourKey = (u32, IpAddr);

/// The state of the machine. Addresses keep the kernel's order, which the GID table follows.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) links: BTreeMap<u32, Interface>,
    pub(super) addresses: Vec<Address>,
    pub(super) neighbours: HashMap<NeighbourKey, NeighbourEntry>,
}

impl Tables {
    /// Applies one message and reports what it changed.
    pub(super) fn apply(&mut self, message: RouteNetlinkMessage, sink: &mut dyn FnMut(HostEvent)) {
        match message {
            // Bridges report their ports under an address family of their own, with other attributes.
            RouteNetlinkMessage::NewLink(message) if is_plain(&message) => {
                let interface = Interface::from_message(&message);
                let old = self.links.insert(interface.index, interface.clone());
                link_events(old.as_ref(), Some(&interface), sink);
            }
            RouteNetlinkMessage::DelLink(message) if is_plain(&message) => {
                let ifindex = message.header.index;
                link_events(self.links.remove(&ifindex).as_ref(), None, sink);
                self.neighbours.retain(|(index, _), _| *index != ifindex);
            }
            RouteNetlinkMessage::NewAddress(message) => match Address::from_message(&message) {
                Some(address) => self.add_address(address, sink),
                None => self.remove_address(Address::key(&message), sink),
            },
            RouteNetlinkMessage::DelAddress(message) => self.remove_address(Address::key(&message), sink),
            RouteNetlinkMessage::NewNeighbour(message) => {
                if let Some((key, entry)) = neighbour(&message) {
                    self.set_neighbour(key, entry, sink);
                }
            }
            RouteNetlinkMessage::DelNeighbour(message) => {
                if let Some((key, _)) = neighbour(&message) {
                    self.set_neighbour(key, None, sink);
                }
            }
            RouteNetlinkMessage::NewRoute(_)
            | RouteNetlinkMessage::DelRoute(_)
            | RouteNetlinkMessage::NewRule(_)
            | RouteNetlinkMessage::DelRule(_) => sink(HostEvent::RoutesChanged),
            _ => {}
        }
    }

    /// Reports how `self` differs from `old`, after notifications were lost.
    pub(super) fn changes_since(&self, old: &Tables, sink: &mut dyn FnMut(HostEvent)) {
        sink(HostEvent::RoutesChanged);
        for address in old.addresses.iter().filter(|address| !self.addresses.contains(address)) {
            sink(HostEvent::AddressRemoved { ip: address.ip, ifindex: address.ifindex });
        }
        for index in old.links.keys().filter(|index| !self.links.contains_key(index)) {
            sink(HostEvent::LinkRemoved { ifindex: *index });
        }
        for (index, interface) in &self.links {
            link_events(old.links.get(index), Some(interface), sink);
        }
        for address in self.addresses.iter().filter(|address| !old.addresses.contains(address)) {
            sink(HostEvent::AddressAdded { ip: address.ip, ifindex: address.ifindex });
        }
        let neighbours: HashSet<_> = self.neighbours.keys().chain(old.neighbours.keys()).copied().collect();
        for (ifindex, ip) in neighbours {
            let mac = |tables: &Tables| tables.neighbours.get(&(ifindex, ip)).and_then(|entry| entry.mac());
            if mac(self) != mac(old) {
                sink(HostEvent::NeighbourChanged { ip, ifindex });
            }
        }
    }

    /// Whether `ifindex` is `lower` or a VLAN interface on top of it.
    pub(super) fn is_stacked(&self, mut ifindex: u32, lower: u32) -> bool {
        // Stacks of VLANs are shallow, but wrong data must not make this loop endless.
        for _ in 0..8 {
            if ifindex == lower {
                return true;
            }
            match self.links.get(&ifindex).and_then(|interface| interface.vlan.as_ref()) {
                Some(vlan) => ifindex = vlan.lower,
                None => return false,
            }
        }
        false
    }

    fn add_address(&mut self, address: Address, sink: &mut dyn FnMut(HostEvent)) {
        let same = |known: &&mut Address| (known.ifindex, known.ip) == (address.ifindex, address.ip);
        if let Some(known) = self.addresses.iter_mut().find(same) {
            *known = address;
        } else {
            self.addresses.push(address);
            sink(HostEvent::AddressAdded { ip: address.ip, ifindex: address.ifindex });
        }
    }

    fn remove_address(&mut self, key: Option<(u32, IpAddr)>, sink: &mut dyn FnMut(HostEvent)) {
        let place = self.addresses.iter().position(|known| Some((known.ifindex, known.ip)) == key);
        if let Some(place) = place {
            let address = self.addresses.remove(place);
            sink(HostEvent::AddressRemoved { ip: address.ip, ifindex: address.ifindex });
        }
    }

    fn set_neighbour(
        &mut self,
        key: NeighbourKey,
        entry: Option<NeighbourEntry>,
        sink: &mut dyn FnMut(HostEvent),
    ) {
        let old = match entry {
            Some(entry) => self.neighbours.insert(key, entry),
            None => self.neighbours.remove(&key),
        };
        if old.and_then(NeighbourEntry::mac) != entry.and_then(NeighbourEntry::mac) {
            sink(HostEvent::NeighbourChanged { ip: key.1, ifindex: key.0 });
        }
    }
}

fn is_plain(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

fn link_events(old: Option<&Interface>, new: Option<&Interface>, sink: &mut dyn FnMut(HostEvent)) {
    let Some(new) = new else {
        if let Some(old) = old {
            sink(HostEvent::LinkRemoved { ifindex: old.index });
        }
        return;
    };
    let ifindex = new.index;
    if let Some(old) = old {
        if old.mtu != new.mtu {
            sink(HostEvent::MtuChanged { ifindex, mtu: new.mtu });
        }
        if old.mac != new.mac {
            sink(HostEvent::MacChanged { ifindex });
        }
    }
    if old.map(|old| old.state) != Some(new.state) {
        sink(match new.state {
            LinkState::Up => HostEvent::LinkUp { ifindex },
            LinkState::NoCarrier => HostEvent::LinkDown { ifindex },
            LinkState::AdminDown => HostEvent::AdminDown { ifindex },
        });
    }
}

/// The neighbour of a message; without an entry if the kernel's entry says nothing.
fn neighbour(message: &NeighbourMessage) -> Option<(NeighbourKey, Option<NeighbourEntry>)> {
    let mut ip = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = bytes.as_slice().try_into().ok().map(MacAddr)
            }
            _ => {}
        }
    }
    let entry = match (message.header.state, mac) {
        (Nud::Reachable | Nud::Delay | Nud::Probe | Nud::Permanent | Nud::Noarp, Some(mac)) => {
            Some(NeighbourEntry::Fresh(mac))
        }
        (Nud::Stale, Some(mac)) => Some(NeighbourEntry::Stale(mac)),
        (Nud::Incomplete, _) => Some(NeighbourEntry::Incomplete),
        (Nud::Failed, _) => Some(NeighbourEntry::Failed),
        _ => None,
    };
    Some(((message.header.ifindex, ip?), entry))
}
