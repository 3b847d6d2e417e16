//! Ports: which identifiers have bound which, and which may share one (kernel: `cma_check_port`).

use std::collections::HashMap;
use std::net::IpAddr;

use rand_chacha::rand_core::RngCore;
use softrnic_wire::PortSpace;

use super::address::Address;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::id::IdState;
use super::names::{Family, is_privileged};
use super::state::{Entry, State};

/// Ports for callers that ask for any.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// How often another port is tried for an identifier that may have to be registered.
const TRIES: usize = 64;

/// Identifiers by port space and port.
#[derive(Default)]
pub(super) struct Ports(HashMap<(PortSpace, u16), Vec<u32>>);

impl Ports {
    pub fn owners(&self, space: PortSpace, port: u16) -> &[u32] {
        self.0.get(&(space, port)).map_or(&[], Vec::as_slice)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl State {
    /// Binds an identifier. `reserve` says that it may listen, so no other process may have its port.
    pub fn bind(&mut self, number: u32, address: &Address, reserve: bool) -> Result<(), Error> {
        let entry = self.entry(number)?;
        if entry.state != IdState::Idle {
            return Err(Error::Invalid);
        }
        let space = entry.kind.space;
        if space == PortSpace::IpoIb && !address.is_any() {
            return Err(Error::Invalid);
        }
        let device = match address.is_any() || self.is_for_all_devices(address.ip()) {
            true => None,
            false => Some(self.device_with(address)?),
        };
        let one_family = entry.one_family || matches!(address, Address::Ip(ip) if ip.is_ipv4());
        let local = device.map(|device_index| self.address_of(device_index, address.ip()));
        let route_local = local.transpose()?;
        let address = &self.known_to_others(address, route_local);
        let bound = self.take_port(number, address, one_family, reserve)?;
        let entry = self.entry_mut(number)?;
        entry.one_family = one_family;
        entry.state = IdState::Bound;
        entry.peer = Some(nowhere(&bound));
        entry.local = Some(bound);
        entry.device = device;
        entry.route = route_local.map(|local| softrnic_cm::Route { local, remote: unspecified(local) });
        self.ports.0.entry((space, bound.port())).or_default().push(number);
        Ok(())
    }

    /// On a host of a modelled network, the machine's other addresses are the host's. A program that asks for its address gives
    /// it to others, on whose hosts `localhost` is another one.
    fn known_to_others(&self, address: &Address, own: Option<IpAddr>) -> Address {
        match (self.registry.network, own, *address) {
            (Some(_), Some(own), Address::Ip(ip)) if own.is_ipv4() == ip.is_ipv4() => {
                Address::Ip((own, ip.port()).into())
            }
            _ => *address,
        }
    }

    /// As in the kernel, a loopback address stands for every device, unless a device has such an address: programs rely
    /// on seeing that at once.
    fn is_for_all_devices(&self, ip: IpAddr) -> bool {
        let on_loopback = |device_index| self.addresses(device_index).iter().any(IpAddr::is_loopback);
        ip.is_loopback() && !(0..self.devices.len()).any(on_loopback)
    }

    /// A listener may not share its port with another one.
    pub fn check_alone(&self, number: u32) -> Result<(), Error> {
        let entry = self.entry(number)?;
        let local = entry.local.ok_or(Error::Invalid)?;
        self.check_port(number, &local, entry.one_family, false)
    }

    /// Releases the port.
    pub fn release_port(&mut self, number: u32, entry: &Entry) {
        let Some(local) = entry.local else { return };
        let key = (entry.kind.space, local.port());
        let Some(owners) = self.ports.0.get_mut(&key) else { return };
        owners.retain(|owner| *owner != number);
        if owners.is_empty() {
            self.ports.0.remove(&key);
        }
        self.registry.release(number);
    }

    /// The families in which a bound identifier is registered.
    pub fn families(local: &Address, one_family: bool) -> &'static [Family] {
        match local {
            Address::Ib(_) => &[Family::Native],
            Address::Ip(ip) if ip.is_ipv4() => &[Family::V4],
            Address::Ip(ip) if ip.ip().is_unspecified() && !one_family => &[Family::V6, Family::V4],
            Address::Ip(_) => &[Family::V6],
        }
    }

    fn take_port(
        &mut self,
        number: u32,
        address: &Address,
        one_family: bool,
        reserve: bool,
    ) -> Result<Address, Error> {
        let entry = self.entry(number)?;
        let (space, reuse) = (entry.kind.space, entry.reuse);
        if address.port() != 0 {
            if is_privileged(address.port()) && !rustix::process::geteuid().is_root() {
                return Err(Error::Denied);
            }
            let bound = with_port(address, space, address.port());
            self.check_port(number, &bound, one_family, reuse)?;
            if reserve {
                self.reserve(number, &bound, one_family)?;
            }
            return Ok(bound);
        }
        for _ in 0..TRIES {
            let port = EPHEMERAL.start + (self.random.next_u32() % EPHEMERAL.len() as u32) as u16;
            if !self.ports.owners(space, port).is_empty() {
                continue;
            }
            let bound = with_port(address, space, port);
            if !reserve || self.reserve(number, &bound, one_family).is_ok() {
                return Ok(bound);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    /// Keeps other processes from the port. One that may be shared is taken when its identifier listens.
    fn reserve(&mut self, number: u32, bound: &Address, one_family: bool) -> Result<(), Error> {
        let entry = self.entry(number)?;
        let (space, reuse, families) = (entry.kind.space, entry.reuse, Self::families(bound, one_family));
        if reuse {
            self.registry.check_free(space, bound, families)
        } else {
            self.registry.claim(number, space, bound, families)
        }
    }

    fn check_port(&self, number: u32, address: &Address, one_family: bool, reuse: bool) -> Result<(), Error> {
        let space = self.entry(number)?.kind.space;
        for &owner in self.ports.owners(space, address.port()) {
            let Some(other) = self.ids.get(owner).filter(|_| owner != number) else { continue };
            let Some(taken) = other.local else { continue };
            let families_differ = is_ipv4(address) != is_ipv4(&taken);
            if reuse && other.reuse || one_family && other.one_family && families_differ {
                continue;
            }
            if is_wild(address) || is_wild(&taken) {
                return Err(Error::AddressNotAvailable);
            }
            if address.ip() == taken.ip() {
                return Err(Error::AddressInUse);
            }
        }
        Ok(())
    }

    /// Queues an event with the result of a resolution.
    pub fn tell_result(&mut self, number: u32, kinds: (EventKind, EventKind), result: Result<(), Error>) {
        let (kind, status) = match result {
            Ok(()) => (kinds.0, EventStatus::Done),
            Err(error) => (kinds.1, EventStatus::Failed(error)),
        };
        self.tell(number, kind, status, EventData::None);
    }
}

/// Loopback addresses count as wildcards, as in the kernel.
fn is_wild(address: &Address) -> bool {
    address.is_any() || address.ip().is_loopback()
}

fn is_ipv4(address: &Address) -> bool {
    matches!(address, Address::Ip(ip) if ip.is_ipv4())
}

fn with_port(address: &Address, space: PortSpace, port: u16) -> Address {
    match *address {
        Address::Ip(mut ip) => {
            ip.set_port(port);
            Address::Ip(ip)
        }
        Address::Ib(mut ib) => {
            ib.service = u64::from(space.number()) << 16 | u64::from(port);
            ib.mask = u64::MAX;
            Address::Ib(ib)
        }
    }
}

/// The zero address of the same family.
pub(super) fn nowhere(address: &Address) -> Address {
    match address {
        Address::Ip(ip) => Address::Ip((unspecified(ip.ip()), 0).into()),
        Address::Ib(_) => Address::Ib(super::address::IbAddress::default()),
    }
}

pub(super) fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}
