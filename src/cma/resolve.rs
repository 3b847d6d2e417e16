//! Resolves addresses to devices and paths.

use std::net::IpAddr;

use softrnic_cm::Route;
use softrnic_link::ProcessSlot;
use softrnic_wire::{Gid, Mtu, PortSpace};

use super::address::Address;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::host;
use super::id::IdState;
use super::lookup::{Found, Purpose};
use super::names::Name;
use super::params::PathRecord;
use super::ports::{nowhere, unspecified};
use super::registry::PeerDevice;
use super::state::State;

/// Hop limit of all paths, the same as for unicast packets.
pub(super) const HOPS: u8 = 64;

/// Exponent: how long packets live on a path (kernel: `CMA_IBOE_PACKET_LIFETIME`).
const PACKET_LIFE: u8 = 16;

const DEFAULT_PKEY: u16 = 0xFFFF;

const ADDRESS: (EventKind, EventKind) = (EventKind::AddressResolved, EventKind::AddressError);

impl State {
    /// The device for an address of ours: the one that has it, or the first, for other addresses of the machine.
    pub fn device_with(&self, address: &Address) -> Result<usize, Error> {
        let ip = address.ip();
        if let Some(device_index) =
            (0..self.devices.len()).find(|&device_index| self.addresses(device_index).contains(&ip))
        {
            return Ok(device_index);
        }
        let is_local = match self.registry.network {
            // The machine's own addresses are those of this host, as far as the network has no other host there.
            Some(network) => network.host_at(ip) == network.home,
            None => host::is_local(address.on_interface()),
        };
        if is_local { self.first_device(ip) } else { Err(Error::AddressNotAvailable) }
    }

    /// The first device that can reach addresses of a family.
    fn first_device(&self, ip: IpAddr) -> Result<usize, Error> {
        let talks = |device_index: &usize| {
            self.addresses(*device_index).iter().any(|own| own.is_ipv4() == ip.is_ipv4())
        };
        let mut open = (0..self.devices.len()).filter(|&device_index| self.device(device_index).is_ok());
        let first = open.clone().find(talks).or_else(|| open.next());
        first.ok_or(Error::NoDevice)
    }

    /// The address of a device for packets that have `wanted` as their local end: `wanted` itself, or the device's main
    /// address.
    pub fn address_of(&self, device_index: usize, wanted: IpAddr) -> Result<IpAddr, Error> {
        let addresses = self.addresses(device_index);
        if addresses.contains(&wanted) {
            return Ok(wanted);
        }
        let same = addresses.iter().copied().filter(|own| own.is_ipv4() == wanted.is_ipv4());
        let known = softrnic_nic::verbs::Running::known_by(same);
        known
            .or_else(|| self.device(device_index).ok().map(|device| device.context.address()))
            .ok_or(Error::NoDevice)
    }

    /// Finds our device, and the peer's if it is on this machine.
    pub fn resolve_addr(
        &mut self,
        number: u32,
        source: Option<&Address>,
        destination: &Address,
    ) -> Result<(), Error> {
        let entry = self.entry(number)?;
        if entry.kind.space == PortSpace::IpoIb {
            // There are no such addresses on Ethernet.
            return Err(Error::Invalid);
        }
        match entry.state {
            IdState::Idle => {
                let any = nowhere(destination);
                self.bind(number, source.unwrap_or(&any), false)?;
            }
            IdState::Bound => {}
            _ => return Err(Error::Invalid),
        }
        let entry = self.entry_mut(number)?;
        let local = entry.local.ok_or(Error::Invalid)?;
        let families = (&local, destination);
        let fits = match families {
            (Address::Ip(own), Address::Ip(other)) => own.is_ipv4() == other.is_ipv4(),
            (Address::Ib(_), Address::Ib(_)) => true,
            _ => false,
        };
        if !fits {
            return Err(Error::Invalid);
        }
        // The unspecified address means this machine.
        let destination = if destination.is_any() { loopback(destination) } else { *destination };
        entry.peer = Some(destination);
        entry.state = IdState::AddressQuery;
        match self.find_way(number, local, destination) {
            Ok(true) => self.look_up(number, Purpose::Resolve),
            found => self.on_resolved(number, found.map(|_| ())),
        }
        Ok(())
    }

    /// Finds the device. Returns whether the destination is on this machine.
    fn find_way(&mut self, number: u32, local: Address, destination: Address) -> Result<bool, Error> {
        let ip = destination.ip();
        let entry = self.entry(number)?;
        let bound = entry.device;
        if ip.is_multicast() {
            let device_index = bound.map_or_else(|| self.first_device(ip), Ok)?;
            let route = Route { local: self.address_of(device_index, local.ip())?, remote: ip };
            self.take_way(number, device_index, route, None, false)?;
            return Ok(false);
        }
        let is_ours = (0..self.devices.len()).any(|device_index| self.addresses(device_index).contains(&ip));
        let network = self.registry.network;
        if is_ours || network.is_some() || host::is_local(destination.on_interface()) {
            let device_index = match (bound, network) {
                (Some(device_index), _) => device_index,
                (None, Some(_)) => self.first_device(ip)?,
                (None, None) => self.device_with(&destination)?,
            };
            let own = self.address_of(device_index, local.ip())?;
            // The lookup shows which device is there; until then it is ours.
            let route = Route { local: own, remote: self.address_of(device_index, ip)? };
            let source = network.map_or(ip, |_| own);
            self.take_way(number, device_index, route, Some(source), true)?;
            return Ok(true);
        }
        let source = host::source_for(destination.on_interface())?;
        let device_index = match bound {
            Some(device_index) => device_index,
            None => self.device_to(ip, source).inspect_err(|_| advise(ip, source))?,
        };
        let own = self.address_of(device_index, if local.is_any() { source } else { local.ip() })?;
        if own.is_loopback() || own.is_ipv4() != ip.is_ipv4() {
            advise(ip, source);
            return Err(Error::NetworkUnreachable);
        }
        self.take_way(number, device_index, Route { local: own, remote: ip }, Some(own), false)?;
        Ok(false)
    }

    /// The device for a destination on another machine: the one with the address that packets leave from, or the first
    /// that is not on a loopback address.
    fn device_to(&self, ip: IpAddr, source: IpAddr) -> Result<usize, Error> {
        let reaches = |device_index: &usize| {
            let addresses = self.addresses(*device_index);
            addresses.contains(&source)
                || addresses.iter().any(|own| own.is_ipv4() == ip.is_ipv4() && !own.is_loopback())
        };
        let exact =
            (0..self.devices.len()).find(|&device_index| self.addresses(device_index).contains(&source));
        exact.or_else(|| (0..self.devices.len()).find(reaches)).ok_or(Error::NetworkUnreachable)
    }

    fn take_way(
        &mut self,
        number: u32,
        device_index: usize,
        route: Route,
        source: Option<IpAddr>,
        on_machine: bool,
    ) -> Result<(), Error> {
        let entry = self.entry_mut(number)?;
        entry.device = Some(device_index);
        entry.route = Some(route);
        entry.on_machine = on_machine;
        match (&mut entry.local, source) {
            (Some(Address::Ip(own)), Some(source)) if own.ip().is_unspecified() => own.set_ip(source),
            (Some(Address::Ib(own)), _) => own.gid = route.local.into(),
            _ => {}
        }
        Ok(())
    }

    fn on_resolved(&mut self, number: u32, result: Result<(), Error>) {
        let Ok(entry) = self.entry_mut(number) else { return };
        entry.state = if result.is_ok() { IdState::AddressResolved } else { IdState::Bound };
        self.tell_result(number, ADDRESS, result);
    }

    /// The listener was found, or not.
    pub fn on_found(&mut self, number: u32, purpose: Purpose, found: Found) {
        if let (Found::Device(home), Ok(entry)) = (found, self.entry_mut(number))
            && let Some(route) = &mut entry.route
        {
            route.remote = home.device;
            entry.home = Some(home);
            if let Some(path) = &mut entry.path {
                path.dgid = home.device.into();
            }
        }
        match purpose {
            // Without a listener the address is resolved all the same.
            Purpose::Resolve => self.on_resolved(number, Ok(())),
            Purpose::Connect => self.on_listener(number, found),
        }
    }

    /// Finds the path, of which there is only one.
    pub fn resolve_route(&mut self, number: u32) -> Result<(), Error> {
        let entry = self.entry(number)?;
        if entry.state != IdState::AddressResolved {
            return Err(Error::Invalid);
        }
        let path = self.path_of(number)?;
        self.take_path(number, path)
    }

    /// Sets the path.
    pub fn take_path(&mut self, number: u32, path: PathRecord) -> Result<(), Error> {
        let entry = self.entry_mut(number)?;
        entry.path = Some(path);
        entry.state = IdState::RouteResolved;
        self.tell(number, EventKind::RouteResolved, EventStatus::Done, EventData::None);
        Ok(())
    }

    fn path_of(&self, number: u32) -> Result<PathRecord, Error> {
        let entry = self.entry(number)?;
        let (device_index, route) = entry.device.zip(entry.route).ok_or(Error::Invalid)?;
        let (local, peer) = entry.local.zip(entry.peer).ok_or(Error::Invalid)?;
        // Kernel: rdma_calc_flow_label over the ports that applications see.
        let label = (u32::from(local.port()) * 31 + u32::from(peer.port())) & 0xF_FFFF;
        Ok(PathRecord {
            dgid: route.remote.into(),
            sgid: route.local.into(),
            flow_label: label,
            hop_limit: HOPS,
            traffic_class: entry.tos,
            pkey: DEFAULT_PKEY,
            sl: 0,
            mtu: self.mtu(device_index)?,
            packet_life: entry.ack_timeout.map_or(PACKET_LIFE, |timeout| timeout.saturating_sub(1)),
        })
    }

    pub fn mtu(&self, device_index: usize) -> Result<Mtu, Error> {
        Ok(self.device(device_index)?.context.port()?.active_mtu)
    }

    /// The device in this process that listens for a name and destination, by its address of `asker`'s family.
    pub fn device_for(&self, name: &Name, destination: IpAddr, asker: IpAddr) -> Option<PeerDevice> {
        if self.registry.network.is_some_and(|network| network.host_at(destination) != network.home) {
            return None;
        }
        let listener = self.listener_for(name, destination)?;
        let entry = self.ids.get(listener)?;
        let device_index = match entry.device {
            Some(device_index) => device_index,
            None => {
                let has = |device_index: &usize| self.addresses(*device_index).contains(&destination);
                (0..self.devices.len()).find(has).or_else(|| self.first_device(asker).ok())?
            }
        };
        let wanted = if self.addresses(device_index).contains(&destination) {
            destination
        } else {
            unspecified(asker)
        };
        let device = self.address_of(device_index, wanted).ok()?;
        Some(PeerDevice { device, slot: self.slot(device_index) })
    }

    /// The device of ours that has this address.
    pub fn home_of(&self, device: IpAddr) -> PeerDevice {
        let device_index =
            (0..self.devices.len()).find(|&device_index| self.addresses(device_index).contains(&device));
        PeerDevice { device, slot: device_index.and_then(|device_index| self.slot(device_index)) }
    }

    /// The slot of its address that is this process's.
    fn slot(&self, device_index: usize) -> Option<ProcessSlot> {
        self.device(device_index).ok()?.context.device().slot()
    }

    /// The index of a local address in the GID table.
    pub fn gid_index(&self, device_index: usize, local: IpAddr) -> Result<usize, Error> {
        let nic = self.device(device_index)?.context.nic();
        let found = nic.control(|core, _| core.engine.gids().shown_at(local));
        found.ok().flatten().ok_or(Error::NoDevice)
    }
}

impl From<Address> for Gid {
    fn from(address: Address) -> Gid {
        Gid::from(address.ip())
    }
}

fn loopback(address: &Address) -> Address {
    match *address {
        Address::Ip(mut ip) => {
            ip.set_ip(match ip.ip() {
                IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
            Address::Ip(ip)
        }
        Address::Ib(mut ib) => {
            ib.gid = IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
            Address::Ib(ib)
        }
    }
}

fn advise(destination: IpAddr, source: IpAddr) {
    tracing::warn!(
        %destination,
        "no device of this process reaches it; run with --device udp:{source} for one that does"
    );
}
