//! Listeners: which identifier receives the requests that arrive at which device.

use std::net::IpAddr;
use std::time::Duration;

use softrnic_cm::{Listen, ListenerId};
use softrnic_link::ServeError;
use softrnic_link::Sharing;
use softrnic_wire::ServiceId;

use super::address::Address;
use super::error::Error;
use super::id::IdState;
use super::names::{Family, Name};
use super::state::{Entry, Listener, State};

/// The largest backlog, and the default.
const MAX_BACKLOG: usize = 1024;

/// Another process of the address takes microseconds to change what it listens for: how often to look, and when.
const TRIES: usize = 200;
const PAUSE: Duration = Duration::from_millis(1);

impl State {
    /// Accepts requests from now on.
    pub fn listen(&mut self, number: u32, backlog: i32) -> Result<(), Error> {
        if self.entry(number)?.state == IdState::Idle {
            self.bind(number, &Address::Ip((std::net::Ipv4Addr::UNSPECIFIED, 0).into()), true)?;
        }
        let entry = self.entry(number)?;
        if entry.state != IdState::Bound {
            return Err(Error::Invalid);
        }
        // A listener shares its port with nobody, whatever was asked for (kernel: `rdma_listen`).
        if entry.reuse {
            self.check_alone(number)?;
            self.entry_mut(number)?.reuse = false;
        }
        let entry = self.entry(number)?;
        let local = entry.local.ok_or(Error::Invalid)?;
        let (space, one_family) = (entry.kind.space, entry.one_family);
        if !self.registry.has(number) {
            self.registry.claim(number, space, &local, State::families(&local, one_family))?;
        }
        let entry = self.entry_mut(number)?;
        let asked = usize::try_from(backlog).unwrap_or(0);
        entry.backlog = if asked == 0 || asked > MAX_BACKLOG { MAX_BACKLOG } else { asked };
        entry.state = IdState::Listen;
        let service = entry.service(&local);
        let places: Vec<usize> = match entry.device {
            Some(device_index) => vec![device_index],
            None => {
                (0..self.devices.len()).filter(|&device_index| self.device(device_index).is_ok()).collect()
            }
        };
        let listening =
            places.into_iter().try_for_each(|device_index| self.listen_on(number, device_index, service));
        let listening = listening.and_then(|()| self.registry.listen(number));
        if listening.is_err() {
            self.stop_listening(number);
            self.entry_mut(number)?.state = IdState::Bound;
        }
        listening
    }

    fn listen_on(&mut self, number: u32, device_index: usize, service: ServiceId) -> Result<(), Error> {
        let entry = self.entry(number)?;
        let (transport, backlog) = (entry.transport(), entry.backlog);
        let at = match entry.local {
            Some(Address::Ip(local)) if !local.ip().is_unspecified() => Some(local.ip()),
            _ => None,
        };
        if let Some(listener) = self.listeners.get_mut(&(device_index, service)) {
            if listener.transport != transport {
                return Err(Error::AddressInUse);
            }
            listener.ids.push(number);
            self.tell_sharers(device_index, |sharing| sharing.serve(service, at))?;
            return self.share_backlog(device_index, service);
        }
        let listen = Listen { service, transport, backlog };
        self.tell_sharers(device_index, |sharing| sharing.serve(service, at))?;
        let id = self.with_cm(device_index, |management, now| management.listen(now, listen))?;
        let id = id.map_err(|_| Error::AddressInUse)?;
        // Requests that waited for this listener are reported shortly, once it is known.
        self.listeners.insert((device_index, service), Listener { id, transport, ids: vec![number] });
        Ok(())
    }

    /// Listeners that share a service share one backlog.
    fn share_backlog(&mut self, device_index: usize, service: ServiceId) -> Result<(), Error> {
        let Some(listener) = self.listeners.get(&(device_index, service)) else { return Ok(()) };
        let backlogs = listener.ids.iter().filter_map(|id| self.ids.get(*id)).map(|entry| entry.backlog);
        let (id, backlog) = (listener.id, backlogs.sum());
        self.with_cm(device_index, |management, _| management.cm().set_backlog(id, backlog))?
            .map_err(|_| Error::Gone)
    }

    /// Cleans up after a listener that is destroyed.
    pub fn end_listening(&mut self, number: u32, entry: &Entry) {
        if entry.state == IdState::Listen {
            self.stop_listening(number);
        }
    }

    fn stop_listening(&mut self, number: u32) {
        let shared: Vec<(usize, ServiceId)> = self
            .listeners
            .iter()
            .filter(|(_, listener)| listener.ids.contains(&number))
            .map(|(key, _)| *key)
            .collect();
        for key in shared {
            let Some(listener) = self.listeners.get_mut(&key) else { continue };
            listener.ids.retain(|id| *id != number);
            if !listener.ids.is_empty() {
                let _kept = self.share_backlog(key.0, key.1);
                continue;
            }
            let id = listener.id;
            self.listeners.remove(&key);
            let _gone = self.with_cm(key.0, |management, now| management.cm().unlisten(now, id));
            let _gone = self.tell_sharers(key.0, |sharing| sharing.stop_serving(key.1));
        }
    }

    /// Tells those that share a device's address, if any may, which services are this process's.
    fn tell_sharers(
        &self,
        device_index: usize,
        tell: impl Fn(&mut dyn Sharing) -> Result<(), ServeError>,
    ) -> Result<(), Error> {
        let nic = self.device(device_index)?.context.nic();
        for _ in 0..TRIES {
            let told = nic.control(|core, _| core.link.sharing().map_or(Ok(()), &tell));
            match told.map_err(|_| Error::Gone)? {
                Ok(()) => return Ok(()),
                Err(ServeError::Busy) => std::thread::sleep(PAUSE),
                Err(ServeError::Taken) => return Err(Error::AddressInUse),
                Err(error) => {
                    tracing::warn!("{error}");
                    return Err(Error::NoMemory);
                }
            }
        }
        Err(Error::NoMemory)
    }

    /// The identifier that a request is for, given the destination that the request names. `None` stands for `AF_IB`.
    pub fn listener_of(
        &self,
        device_index: usize,
        id: ListenerId,
        destination: Option<IpAddr>,
    ) -> Option<u32> {
        let listener =
            self.listeners.iter().find(|((at, _), known)| *at == device_index && known.id == id)?.1;
        let takes = |number: &u32| {
            let entry = self.ids.get(*number);
            entry.is_some_and(|entry| match destination {
                Some(destination) => takes(entry, destination),
                None => matches!(entry.local, Some(Address::Ib(_))),
            })
        };
        listener.ids.iter().copied().find(takes)
    }

    /// The listening identifier of this process for a name and destination.
    pub fn listener_for(&self, name: &Name, destination: IpAddr) -> Option<u32> {
        let owners = self.ports.owners(name.space, name.port).iter().copied();
        owners.into_iter().find(|number| {
            self.ids.get(*number).is_some_and(|entry| {
                entry.state == IdState::Listen
                    && match (name.family, entry.local) {
                        (Family::Native, Some(Address::Ib(_))) => true,
                        (Family::V4 | Family::V6, Some(Address::Ip(_))) => takes(entry, destination),
                        _ => false,
                    }
            })
        })
    }
}

/// Whether a listener accepts a destination. One on a loopback address accepts all of its family, as in the kernel.
fn takes(entry: &Entry, destination: IpAddr) -> bool {
    match entry.local {
        Some(Address::Ip(local)) if local.ip().is_loopback() => local.is_ipv4() == destination.is_ipv4(),
        Some(Address::Ip(local)) if local.ip().is_unspecified() => {
            local.is_ipv4() == destination.is_ipv4() || !local.is_ipv4() && !entry.one_family
        }
        Some(Address::Ip(local)) => local.ip() == destination,
        Some(Address::Ib(_)) => true,
        None => false,
    }
}
