//! The state of a manager, which its lock protects.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use softrnic_cm::{CmTransport, CommId, Ece, ListenerId, Route};
use softrnic_transport::QpType;
use softrnic_wire::{Psn, Qkey, ServiceId, Time};

use super::address::Address;
use super::devices::DeviceIdentity;
use super::error::Error;
use super::event::{EventData, EventKind, EventStatus};
use super::id::IdState;
use super::lookup::Lookups;
use super::multicast::Group;
use super::params::{ConnParams, IdKind, PathRecord};
use super::ports::Ports;
use super::queue::{Queue, Queued};
use super::registry::{PeerDevice, Registry};
use super::table::Table;
use softrnic_engine::Management;
use softrnic_nic::device::Clock;
use softrnic_nic::verbs::Context;

/// The Q_Key of all datagram services (kernel: `RDMA_UDP_QKEY`).
pub(super) const UDP_QKEY: Qkey = Qkey(0x0123_4567);

pub(super) struct State {
    pub clock: Clock,
    pub devices: Vec<Option<Device>>,
    pub ids: Table<Entry>,
    pub groups: Table<Group>,
    pub channels: HashMap<u64, Queue>,
    pub ports: Ports,
    /// Connections by device and communication id.
    pub connections: HashMap<(usize, CommId), u32>,
    pub listeners: HashMap<(usize, ServiceId), Listener>,
    pub registry: Registry,
    pub lookups: Lookups,
    pub random: ChaCha20Rng,
    next: u64,
}

/// A device that is open.
pub(super) struct Device {
    pub identity: DeviceIdentity,
    pub context: Context,
}

/// A service on a device, and the identifiers that share it: they differ in address or family.
pub(super) struct Listener {
    pub id: ListenerId,
    pub transport: Option<CmTransport>,
    pub ids: Vec<u32>,
}

/// An identifier.
pub(super) struct Entry {
    pub generation: u64,
    pub channel: u64,
    pub context: u64,
    /// Whether the application knows about it, having created or accepted it. Until then it gets no events.
    pub known: bool,
    pub kind: IdKind,
    pub state: IdState,
    pub local: Option<Address>,
    pub peer: Option<Address>,
    pub device: Option<usize>,
    /// Source and destination device.
    pub route: Option<Route>,
    /// Where the listener was found.
    pub home: Option<PeerDevice>,
    /// The destination is an address of this machine: its listener is found by port.
    pub on_machine: bool,
    pub tos: u8,
    pub reuse: bool,
    pub one_family: bool,
    pub ack_timeout: Option<u8>,
    pub path: Option<PathRecord>,
    pub comm: Option<CommId>,
    pub connected: bool,
    /// What this side has said, and what the other has said, as far as it is meant for this side.
    pub said: ConnParams,
    pub heard: Option<(u8, u8)>,
    /// The first PSN that its QP receives.
    pub psn: Psn,
    pub reported: u32,
    pub groups: Vec<u32>,
    pub backlog: usize,
    /// The listener whose request it is, until that is reported.
    pub request_of: Option<u32>,
}

impl Entry {
    pub fn transport(&self) -> Option<CmTransport> {
        match self.kind.service {
            QpType::Rc => Some(CmTransport::Rc),
            QpType::Uc => Some(CmTransport::Uc),
            QpType::XrcInitiator | QpType::XrcTarget => Some(CmTransport::Xrc),
            QpType::Ud | QpType::Srd => None,
        }
    }

    pub fn has_ack_timeout(&self) -> bool {
        matches!(self.kind.service, QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget)
    }

    pub fn is_datagram(&self) -> bool {
        self.kind.service == QpType::Ud
    }

    /// The service id of an address of this identifier.
    pub fn service(&self, address: &Address) -> ServiceId {
        match address {
            Address::Ip(ip) => ServiceId::of_port(self.kind.space, ip.port()),
            Address::Ib(ib) => ServiceId(ib.service),
        }
    }

    /// Whether its private data begins with the addresses.
    pub fn has_header(&self) -> bool {
        !matches!(self.local, Some(Address::Ib(_)))
    }
}

impl State {
    pub fn new() -> State {
        let mut seed = [0; 32];
        // Without random numbers no device can be opened either.
        let _ = getrandom::fill(&mut seed);
        State {
            clock: Clock::start(),
            devices: Vec::new(),
            ids: Table::default(),
            groups: Table::default(),
            channels: HashMap::new(),
            ports: Ports::default(),
            connections: HashMap::new(),
            listeners: HashMap::new(),
            registry: Registry::default(),
            lookups: Lookups::default(),
            random: ChaCha20Rng::from_seed(seed),
            next: 1,
        }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A number that is used only once.
    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The state of a child: numbers continue, so that handles of the parent name nothing.
    pub fn restart(&mut self) -> State {
        State { next: self.next, ..State::new() }
    }

    pub fn entry(&self, number: u32) -> Result<&Entry, Error> {
        self.ids.get(number).ok_or(Error::UnknownId)
    }

    pub fn entry_mut(&mut self, number: u32) -> Result<&mut Entry, Error> {
        self.ids.get_mut(number).ok_or(Error::UnknownId)
    }

    pub fn add_channel(&mut self) -> Result<(u64, RawFd), Error> {
        let queue = Queue::new().map_err(|_| Error::NoDescriptor)?;
        let (key, descriptor) = (self.fresh(), queue.descriptor());
        self.channels.insert(key, queue);
        Ok((key, descriptor))
    }

    pub fn add_id(&mut self, channel: u64, kind: IdKind, context: u64) -> Result<(u32, u64), Error> {
        if !self.channels.contains_key(&channel) {
            return Err(Error::Gone);
        }
        let generation = self.fresh();
        let psn = Psn::new(self.random.next_u32());
        let entry = Entry {
            generation,
            channel,
            context,
            known: true,
            kind,
            state: IdState::Idle,
            local: None,
            peer: None,
            device: None,
            route: None,
            home: None,
            on_machine: false,
            tos: 0,
            reuse: false,
            one_family: false,
            ack_timeout: None,
            path: None,
            comm: None,
            connected: false,
            said: ConnParams::default(),
            heard: None,
            psn,
            reported: 0,
            groups: Vec::new(),
            backlog: 0,
            request_of: None,
        };
        let number = self.ids.insert(entry).ok_or(Error::NoMemory)?;
        Ok((number, generation))
    }

    pub fn device(&self, device_index: usize) -> Result<&Device, Error> {
        self.devices.get(device_index).and_then(Option::as_ref).ok_or(Error::NoDevice)
    }

    /// Calls the connection manager of a device.
    pub fn with_cm<T>(
        &self,
        device_index: usize,
        operate: impl FnOnce(&mut Management, Time) -> T,
    ) -> Result<T, Error> {
        let nic = self.device(device_index)?.context.nic();
        let done = nic.control(|core, now| core.engine.management().map(|cm| operate(cm, now)));
        done.ok().flatten().ok_or(Error::Gone)
    }

    /// The addresses of a device.
    pub fn addresses(&self, device_index: usize) -> Vec<IpAddr> {
        let Ok(device) = self.device(device_index) else { return Vec::new() };
        let nic = device.context.nic();
        nic.control(|core, _| core.engine.gids().addresses().collect()).unwrap_or_default()
    }

    /// Queues an event of an identifier that the application knows about.
    pub fn tell(&mut self, number: u32, kind: EventKind, status: EventStatus, data: EventData) {
        self.tell_with(number, kind, status, data, Ece::default());
    }

    pub fn tell_with(
        &mut self,
        number: u32,
        kind: EventKind,
        status: EventStatus,
        data: EventData,
        ece: Ece,
    ) {
        let Some(entry) = self.ids.get(number).filter(|entry| entry.known) else { return };
        let (channel, context) = (entry.channel, entry.context);
        let event = Queued { owner: number, group: None, request: None, kind, status, context, data, ece };
        self.push(channel, event);
    }

    pub fn push(&mut self, channel: u64, event: Queued) {
        if let Some(queue) = self.channels.get_mut(&channel) {
            queue.push(event);
        }
    }

    /// Destroys an identifier. Returns how many of its events were reported.
    pub fn destroy(&mut self, number: u32) -> Result<u32, Error> {
        let entry = self.ids.remove(number).ok_or(Error::UnknownId)?;
        self.lookups.forget(number);
        self.end_listening(number, &entry);
        self.release_port(number, &entry);
        for group in &entry.groups {
            self.groups.remove(*group);
        }
        if let (Some(device_index), Some(comm)) = (entry.device, entry.comm) {
            self.connections.remove(&(device_index, comm));
            let _gone = self.with_cm(device_index, |management, now| management.cm().destroy(now, comm));
        }
        let queue = self.channels.get_mut(&entry.channel);
        let removed = queue.map(|queue| queue.remove(|event| event.owner == number)).unwrap_or_default();
        for request in removed.into_iter().filter_map(|event| event.request) {
            let _gone = self.destroy(request);
        }
        Ok(entry.reported)
    }

    /// Destroys a channel's identifiers, and the channel.
    pub fn shut(&mut self, channel: u64) {
        let of_channel = |entry: &Entry| entry.channel == channel;
        let ids: Vec<u32> =
            self.ids.iter().filter(|(_, entry)| of_channel(entry)).map(|(number, _)| number).collect();
        for number in ids {
            // A request may have gone with its listener.
            let _gone = self.destroy(number);
        }
        self.channels.remove(&channel);
    }

    /// Destroys everything, and releases the devices.
    pub fn shut_all(&mut self) {
        let channels: Vec<u64> = self.channels.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.shut(channel));
        for device in self.devices.drain(..).flatten() {
            let _failed = device.context.nic().control(|core, _| core.connections = None);
        }
    }

    /// Whether a channel has events.
    pub fn has_events(&self, channel: u64) -> bool {
        self.channels.get(&channel).is_some_and(Queue::has_events)
    }

    /// The next event of a channel, for a reader with a token.
    pub fn take(&mut self, channel: u64) -> Option<Queued> {
        let event = self.channels.get_mut(&channel)?.take()?;
        if let Some(owner) = self.ids.get_mut(event.owner) {
            owner.reported += 1;
        }
        if let Some(group) = event.group.and_then(|group| self.groups.get_mut(group)) {
            group.reported += 1;
        }
        if let Some(request) = event.request
            && let Some(entry) = self.ids.get_mut(request)
        {
            entry.request_of = None;
            if let (Some(device_index), Some(comm)) = (entry.device, entry.comm) {
                let _gone = self.with_cm(device_index, |management, _| management.cm().note_seen(comm));
            }
        }
        Some(event)
    }

    /// Moves an identifier and its events to another channel.
    pub fn migrate(&mut self, number: u32, to: u64) -> Result<u32, Error> {
        if !self.channels.contains_key(&to) {
            return Err(Error::Gone);
        }
        let entry = self.entry_mut(number)?;
        let (from, reported) = (std::mem::replace(&mut entry.channel, to), entry.reported);
        if from == to {
            return Ok(reported);
        }
        let queue = self.channels.get_mut(&from);
        let moved = queue.map(|queue| queue.remove(|event| event.owner == number)).unwrap_or_default();
        for event in moved {
            if let Some(request) = event.request.and_then(|request| self.ids.get_mut(request)) {
                request.channel = to;
            }
            self.push(to, event);
        }
        Ok(reported)
    }
}
