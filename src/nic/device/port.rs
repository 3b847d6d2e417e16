//! The port: its state, its MTU and its addresses, taken from the interface below, and what is commanded of it.
//!
//! The GID table of a device on an interface is laid out as in rxe: index 0 is the default GID, made from the hardware
//! address, whether or not the interface has that address. Then comes one entry for each address, in the order in which
//! they were added. A device on one address has that address at indices 0 and 1, and no other.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use softrnic_link::fault::PortChange;
use softrnic_netdev::{Host, HostEvent, LinkState};
use softrnic_wire::{Gid, Mtu};

use super::PortSpeed;
use softrnic_engine::{Engine, Event};

/// What a device is attached to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// One address and nothing else.
    Address(IpAddr),
    /// An interface, with all its addresses.
    Interface(String),
}

/// The state of the port.
pub struct Port {
    /// That of the interface.
    below: LinkState,
    /// It is down on command.
    held_down: bool,
    /// Bits per second that it may send, if that was limited.
    speed: Option<u64>,
    /// Bits per second that it says otherwise, if that was given.
    nominal: Option<u64>,
    downs: u64,
    /// What was not announced.
    events: Vec<Event>,
    /// The MTU of the IP layer below, and how much of it the link can carry.
    ip_mtu: usize,
    link_mtu: usize,
    follow: Option<Follow>,
    /// Its interface has gone for good, and that has not been reported.
    removed: bool,
    /// The addresses of its interface have changed, and that has not been reported.
    readdressed: bool,
}

/// What others see of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShownPort {
    /// Whether datagrams can pass.
    pub state: LinkState,
    /// Bits per second that it sends at most, if that is known.
    pub speed: Option<u64>,
}

/// Whether packets pass, and if not, why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// The interface is switched off or gone.
    Disabled,
    /// The interface is up and has no carrier.
    Polling,
    /// Packets pass.
    Active,
}

impl From<LinkState> for PortState {
    fn from(state: LinkState) -> PortState {
        match state {
            LinkState::Up => PortState::Active,
            LinkState::NoCarrier => PortState::Polling,
            LinkState::AdminDown => PortState::Disabled,
        }
    }
}

impl PortState {
    /// The logical state, as in verbs and in sysfs.
    pub fn logical(self) -> (u32, &'static str) {
        match self {
            PortState::Active => (4, "ACTIVE"),
            PortState::Polling | PortState::Disabled => (1, "DOWN"),
        }
    }

    /// The physical state, likewise.
    pub fn physical(self) -> (u32, &'static str) {
        match self {
            PortState::Active => (5, "LinkUp"),
            PortState::Polling => (2, "Polling"),
            PortState::Disabled => (3, "Disabled"),
        }
    }
}

/// Learns of changes of a port before their events are raised. Called with the port, but not the NIC, held.
pub trait PortObserver: Send + Sync {
    /// It is like this from now on.
    fn changed(&self, port: ShownPort);
}

/// An interface whose changes are followed.
struct Follow {
    host: Host,
    ifindex: u32,
    attachment: Attachment,
}

impl Port {
    /// A port that never changes: a loopback address.
    pub fn fixed(ip_mtu: usize) -> Port {
        Port {
            below: LinkState::Up,
            held_down: false,
            speed: None,
            nominal: None,
            downs: 0,
            events: Vec::new(),
            ip_mtu,
            link_mtu: ip_mtu,
            follow: None,
            removed: false,
            readdressed: false,
        }
    }

    /// The port of a device with this attachment, with its GID table filled in; `ip_mtu` is what the link can carry, in
    /// bytes. If the interface does not exist, the port is down. An address that is local only by a route has no
    /// interface to follow.
    ///
    /// # Errors
    /// Those of netlink sockets.
    pub fn follow(attachment: Attachment, ip_mtu: usize, engine: &mut Engine) -> io::Result<Port> {
        let host = Host::open()?;
        let found = match &attachment {
            Attachment::Address(address) => host.owner(*address).and_then(|index| host.interface(index)),
            Attachment::Interface(name) => host.interface_by_name(name),
        };
        let below = match attachment {
            Attachment::Address(_) => LinkState::Up,
            Attachment::Interface(_) => LinkState::AdminDown,
        };
        let mut port = Port { below, ..Port::fixed(ip_mtu) };
        if let Some(interface) = found {
            port.below = interface.state;
            port.ip_mtu = ip_mtu.min(interface.mtu as usize);
            let ifindex = interface.index;
            if attachment != Attachment::Interface(interface.name.clone()) {
                engine.gids().set_only(host.addresses().iter().map(|a| a.ip).find(|ip| attachment.is(*ip)));
            } else {
                // Those that the link was opened with may have changed meanwhile.
                port.readdressed = true;
                engine.gids().set(0, Some(Gid::link_local(interface.mac).to_ip()));
                addresses_of(&host, ifindex).into_iter().for_each(|address| add_gid(engine, address));
            }
            port.follow = Some(Follow { host, ifindex, attachment });
        }
        engine.set_active_mtu(port.active_mtu());
        Ok(port)
    }

    /// The interface that has an address of the device, if the port follows interfaces.
    pub fn interface_of(&self, address: IpAddr) -> Option<u32> {
        self.follow.as_ref().map(|follow| follow.host.owner(address).unwrap_or(follow.ifindex))
    }

    /// Whether datagrams can pass.
    pub fn state(&self) -> LinkState {
        if self.held_down { LinkState::AdminDown } else { self.below }
    }

    /// What others see of it.
    pub fn shown(&self) -> ShownPort {
        ShownPort { state: self.state(), speed: self.speed.or(self.nominal) }
    }

    /// How often it went down.
    pub fn downs(&self) -> u64 {
        self.downs
    }

    /// The largest IP packet that passes, in bytes: the interface's MTU, or what the link was opened for if that is
    /// less.
    pub fn ip_mtu(&self) -> usize {
        self.ip_mtu
    }

    /// The largest path MTU that fits.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_netdev_mtu(u32::try_from(self.ip_mtu).unwrap_or(u32::MAX))
    }

    /// Readable when [`Port::refresh`] has something to do.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.follow.as_ref().map(|follow| follow.host.as_raw_fd())
    }

    /// Whether the interface has gone for good since this was last asked.
    pub fn take_removal(&mut self) -> bool {
        std::mem::take(&mut self.removed)
    }

    /// The addresses of the interface if they have changed since this was last asked.
    pub fn take_addresses(&mut self) -> Option<Vec<IpAddr>> {
        if !std::mem::take(&mut self.readdressed) {
            return None;
        }
        let follow = self.follow.as_ref()?;
        Some(addresses_of(&follow.host, follow.ifindex))
    }

    /// Raises the events of what has changed.
    pub(super) fn announce(&mut self, engine: &mut Engine) {
        self.events.drain(..).for_each(|event| engine.raise(event));
    }

    /// Does as it was told.
    pub(super) fn obey(&mut self, change: PortChange) {
        match change {
            PortChange::Down => self.become_with(|port| port.held_down = true),
            PortChange::Up { .. } => self.become_with(|port| port.held_down = false),
            PortChange::Speed(speed) => {
                let before = PortSpeed::of(self.shown().speed);
                self.speed = speed;
                if PortSpeed::of(self.shown().speed) != before {
                    self.events.push(Event::SpeedChange);
                }
            }
            // The event is that of the device.
            PortChange::Fatal => self.held_down = true,
            // That of connections.
            PortChange::Readdressed => {}
        }
    }

    /// Reads what has changed.
    pub fn refresh(&mut self, engine: &mut Engine) {
        let Some(follow) = &mut self.follow else { return };
        let mut events = Vec::new();
        if let Err(error) = follow.host.poll(&mut |event| events.push(event)) {
            tracing::warn!(%error, "cannot follow the changes of the interface any more");
            self.follow = None;
            return;
        }
        for event in events {
            self.take(event, engine);
        }
    }

    /// It is this fast as long as nothing slower is commanded.
    pub fn be_as_fast_as(&mut self, speed: Option<u64>) {
        self.nominal = speed;
    }

    /// The cable of the link is not up from the start.
    pub fn begin_without_carrier(&mut self) {
        self.below = LinkState::NoCarrier;
    }

    /// The link says whether its cable is up.
    pub fn carry(&mut self, is_up: bool) {
        self.become_with(|port| port.below = if is_up { LinkState::Up } else { LinkState::NoCarrier });
    }

    fn take(&mut self, event: HostEvent, engine: &mut Engine) {
        let Some(Follow { ifindex: ours, attachment, host }) = &self.follow else { return };
        let whole_interface = matches!(attachment, Attachment::Interface(_));
        match event {
            HostEvent::LinkUp { ifindex } if ifindex == *ours => {
                self.become_with(|port| port.below = LinkState::Up)
            }
            HostEvent::LinkDown { ifindex } if ifindex == *ours => {
                self.become_with(|port| port.below = LinkState::NoCarrier)
            }
            HostEvent::LinkRemoved { ifindex } if ifindex == *ours => {
                self.removed |= whole_interface;
                self.become_with(|port| port.below = LinkState::AdminDown);
            }
            HostEvent::AdminDown { ifindex } if ifindex == *ours => {
                self.become_with(|port| port.below = LinkState::AdminDown)
            }
            HostEvent::MtuChanged { ifindex, mtu } if ifindex == *ours => {
                self.ip_mtu = self.link_mtu.min(mtu as usize);
                engine.set_active_mtu(self.active_mtu());
            }
            HostEvent::MacChanged { ifindex } if ifindex == *ours && whole_interface => {
                let mac = host.interface(ifindex).map(|interface| interface.mac);
                engine.gids().set(0, mac.map(|mac| Gid::link_local(mac).to_ip()));
                self.events.push(Event::GidChange);
            }
            HostEvent::AddressAdded { ip, ifindex } => {
                let whole = whole_interface && host.is_stacked(ifindex, *ours);
                if whole {
                    self.readdressed = true;
                    add_gid(engine, ip);
                } else if attachment.is(ip) {
                    engine.gids().set_only(Some(ip));
                }
                if whole || attachment.is(ip) {
                    self.events.push(Event::GidChange);
                }
            }
            HostEvent::AddressRemoved { ip, .. } => {
                // The default GID keeps its index whether or not the interface has that address.
                let first = usize::from(whole_interface);
                // Another interface may have had the same address, and two that are stacked may share it.
                let kept = match whole_interface {
                    true => host.stacked_addresses(*ours).any(|address| address.ip == ip),
                    false => host.owner(ip).is_some(),
                };
                if !kept && let Some(index) = engine.gids().find(ip).filter(|index| *index >= first) {
                    match whole_interface {
                        true => {
                            self.readdressed = true;
                            engine.gids().set(index, None);
                        }
                        false => engine.gids().set_only(None),
                    }
                    self.events.push(Event::GidChange);
                }
            }
            _ => {}
        }
    }

    fn become_with(&mut self, change: impl FnOnce(&mut Port)) {
        let was_up = self.state() == LinkState::Up;
        change(self);
        let is_up = self.state() == LinkState::Up;
        self.downs += u64::from(was_up && !is_up);
        if was_up != is_up {
            self.events.push(if is_up { Event::PortActive } else { Event::PortError });
        }
    }
}

/// The addresses of an interface, and of the VLANs on top of it.
pub(super) fn addresses_of(host: &Host, ifindex: u32) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for address in host.stacked_addresses(ifindex) {
        if !addresses.contains(&address.ip) {
            addresses.push(address.ip);
        }
    }
    addresses
}

impl Attachment {
    fn is(&self, ip: IpAddr) -> bool {
        matches!(self, Attachment::Address(address) if *address == ip)
    }
}

/// Puts an address at the first free index after the default GID.
fn add_gid(engine: &mut Engine, address: IpAddr) {
    let gids = engine.gids();
    if gids.find(address).is_some() {
        return;
    }
    let free = (1..gids.len()).find(|&index| gids.get(index).is_none()).unwrap_or(gids.len().max(1));
    gids.set(free, Some(address));
}

#[cfg(test)]
mod tests;
