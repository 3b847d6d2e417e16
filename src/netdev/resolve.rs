//! Resolves a destination address to the bytes of an Ethernet header.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use softrnic_wire::{Gid, MacAddr, Time};

use super::interface::{Interface, Vlan, is_link_local};
use super::netlink::Requests;
use super::tables::{NeighbourEntry, NeighbourKey, Tables};

/// How often the kernel is asked to resolve the same neighbour; its own retries are a second apart.
const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// Beyond this many remembered routes or requests all are forgotten; they are cheap to get again.
const REMEMBERED: usize = 4096;
/// The port of the datagram that makes the kernel resolve a neighbour (RFC 863, discard).
const DISCARD_PORT: u16 = 9;
/// IEEE 802.1Q allows more, but the XDP program steers frames with at most two tags.
const MAX_TAGS: usize = 2;

/// What is to be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// The peer, or a multicast group.
    pub dst: IpAddr,
    /// The source address, if given; otherwise the kernel chooses.
    pub src: Option<IpAddr>,
    /// The interface to leave by, if given. Needed for link-local and multicast addresses.
    pub oif: Option<u32>,
}

/// The route to a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolution {
    /// The interface of the route; a VLAN interface if the frames are tagged.
    pub ifindex: u32,
    /// The interface below all VLANs, where the frames leave.
    pub lower: u32,
    /// Source address.
    pub src: IpAddr,
    /// The destination itself, or the gateway to it.
    pub next_hop: IpAddr,
    /// Whether the destination is an address of this machine.
    pub local: bool,
    /// Hardware address of the next hop.
    pub neighbour: Neighbour,
    /// Hardware address of `ifindex`.
    pub src_mac: MacAddr,
    /// Tags that frames must carry, the one nearest the payload first.
    pub vlans: Vec<Vlan>,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
}

/// What is known about the next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// Its hardware address.
    Known(MacAddr),
    /// Not known yet; the kernel is resolving it.
    Pending,
    /// It did not answer; the kernel is asked again from time to time.
    Unreachable,
}

/// Why there is no route to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoRoute {
    /// The routing tables have no route, or one that forbids it.
    Unroutable,
    /// The route's interface is unknown, or stacks more than two VLANs.
    UnusableInterface,
}

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoRoute::Unroutable => "no route to the destination",
            NoRoute::UnusableInterface => "the route leaves by an interface that cannot be used",
        })
    }
}

impl std::error::Error for NoRoute {}

/// A route as the kernel would choose it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    ifindex: u32,
    gateway: Option<IpAddr>,
    src: Option<IpAddr>,
    local: bool,
    mtu: Option<u32>,
}

/// Remembers routes and requests; neighbours are in the tables.
#[derive(Default)]
pub(super) struct Resolver {
    routes: HashMap<Query, Result<Route, NoRoute>>,
    asked: HashMap<NeighbourKey, Time>,
}

impl Resolver {
    /// Forgets all routes, because links, addresses, routes or rules have changed.
    pub(super) fn forget_routes(&mut self) {
        self.routes.clear();
    }

    /// A neighbour has changed: if it is no longer known, the kernel may be asked at once.
    pub(super) fn forget_question(&mut self, neighbour: NeighbourKey) {
        self.asked.remove(&neighbour);
    }

    pub(super) fn resolve(
        &mut self,
        now: Time,
        query: &Query,
        tables: &Tables,
        requests: &mut Requests,
    ) -> Result<Resolution, NoRoute> {
        let route = self.route(query, tables, requests)?;
        let interface = tables.links.get(&route.ifindex).ok_or(NoRoute::UnusableInterface)?;
        let (lower, vlans) = unstack(interface, tables)?;
        let src = query.src.or(route.src).ok_or(NoRoute::Unroutable)?;
        let next_hop = route.gateway.unwrap_or(query.dst);
        let neighbour = match Gid::from(query.dst).multicast_mac() {
            Some(mac) => Neighbour::Known(mac),
            None if route.local || interface.no_arp => Neighbour::Known(MacAddr::default()),
            None => {
                let key = (route.ifindex, next_hop);
                let entry = tables.neighbours.get(&key).copied();
                if matches!(entry, None | Some(NeighbourEntry::Stale(_) | NeighbourEntry::Failed)) {
                    self.ask(now, key, query.dst, src, interface);
                }
                match entry {
                    Some(NeighbourEntry::Fresh(mac) | NeighbourEntry::Stale(mac)) => Neighbour::Known(mac),
                    Some(NeighbourEntry::Failed) => Neighbour::Unreachable,
                    Some(NeighbourEntry::Incomplete) | None => Neighbour::Pending,
                }
            }
        };
        Ok(Resolution {
            ifindex: route.ifindex,
            lower,
            src,
            next_hop,
            local: route.local,
            neighbour,
            src_mac: interface.mac,
            vlans,
            mtu: route.mtu.unwrap_or(u32::MAX).min(interface.mtu),
        })
    }

    fn route(&mut self, query: &Query, tables: &Tables, requests: &mut Requests) -> Result<Route, NoRoute> {
        if query.dst.is_multicast() {
            // The kernel's multicast routes are for forwarding; a sender names its interface.
            let owner = || tables.addresses.iter().find(|address| Some(address.ip) == query.src);
            let ifindex = query.oif.or_else(|| owner().map(|address| address.ifindex));
            let ifindex = ifindex.ok_or(NoRoute::Unroutable)?;
            return Ok(Route { ifindex, gateway: None, src: query.src, local: false, mtu: None });
        }
        if let Some(route) = self.routes.get(query) {
            return *route;
        }
        let route = ask_route(query, requests);
        if self.routes.len() >= REMEMBERED {
            self.routes.clear();
        }
        self.routes.insert(*query, route);
        route
    }

    /// Makes the kernel resolve or confirm a neighbour by sending an empty datagram by the same route. Unlike an
    /// explicit request, that needs no privilege.
    fn ask(&mut self, now: Time, key: NeighbourKey, dst: IpAddr, src: IpAddr, interface: &Interface) {
        if self.asked.get(&key).is_some_and(|asked| now.since(*asked) < ASK_INTERVAL) {
            return;
        }
        if self.asked.len() >= REMEMBERED {
            self.asked.clear();
        }
        self.asked.insert(key, now);
        // If it cannot be sent, the neighbour stays unknown, which the caller sees.
        let _unsent = send_empty(dst, src, interface);
    }
}

fn ask_route(query: &Query, requests: &mut Requests) -> Result<Route, NoRoute> {
    let (family, prefix) = match query.dst {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family,
        destination_prefix_length: prefix,
        source_prefix_length: if query.src.is_some() { prefix } else { 0 },
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Destination(query.dst.into()));
    message.attributes.extend(query.src.map(|src| RouteAttribute::Source(src.into())));
    message.attributes.extend(query.oif.map(RouteAttribute::Oif));
    let answer = requests.get(RouteNetlinkMessage::GetRoute(message)).map_err(|_| NoRoute::Unroutable)?;
    route_of(answer)
}

/// The route in an answer.
pub(super) fn route_of(answer: RouteNetlinkMessage) -> Result<Route, NoRoute> {
    let RouteNetlinkMessage::NewRoute(answer) = answer else {
        return Err(NoRoute::Unroutable);
    };
    let local = match answer.header.kind {
        RouteType::Unicast => false,
        RouteType::Local => true,
        _ => return Err(NoRoute::Unroutable),
    };
    let mut route = Route { ifindex: 0, gateway: None, src: None, local, mtu: None };
    for attribute in &answer.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.ifindex = *index,
            RouteAttribute::Gateway(address) => route.gateway = address_of(address),
            RouteAttribute::Via(RouteVia::Inet(v4)) => route.gateway = Some((*v4).into()),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => route.gateway = Some((*v6).into()),
            RouteAttribute::PrefSource(address) => route.src = address_of(address),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Ok(route)
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

/// The interface below all VLANs, and the tags on the way down, the one nearest the payload first.
pub(super) fn unstack(interface: &Interface, tables: &Tables) -> Result<(u32, Vec<Vlan>), NoRoute> {
    let mut vlans = Vec::new();
    let mut interface = interface;
    while let Some(vlan) = &interface.vlan {
        vlans.push(vlan.clone());
        interface = tables.links.get(&vlan.lower).ok_or(NoRoute::UnusableInterface)?;
        if vlans.len() > MAX_TAGS {
            return Err(NoRoute::UnusableInterface);
        }
    }
    Ok((interface.index, vlans))
}

fn send_empty(dst: IpAddr, src: IpAddr, interface: &Interface) -> io::Result<()> {
    let socket = UdpSocket::bind(scoped(src, 0, interface.index))?;
    socket.set_nonblocking(true)?;
    // SAFETY: the name has the given length, and lives through the call, which reads it.
    let bound = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            interface.name.as_ptr().cast(),
            interface.name.len() as libc::socklen_t,
        )
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    socket.send_to(&[], scoped(dst, DISCARD_PORT, interface.index)).map(drop)
}

/// A socket address that names the interface where the IP address alone is ambiguous.
fn scoped(ip: IpAddr, port: u16, ifindex: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if is_link_local(v6) => SocketAddrV6::new(v6, port, 0, ifindex).into(),
        ip => SocketAddr::new(ip, port),
    }
}
