//! Finds the listener on a port of this machine: first in this process, then by asking in the registry.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use softrnic_nic::device::Network;
use softrnic_sys::{Credentials, is_stopped};
use softrnic_wire::{Gid, Time};

use super::address::Address;
use super::names::{Family, Name, listeners};
use super::reach::{Reached, reach};
use super::registry::{Message, PeerDevice};
use super::state::State;
use super::watch::Watch;

/// A process that listens and does not answer for this long is considered stuck.
const SILENCE: Duration = Duration::from_secs(1);

/// A connecting client waits this long for a process that a signal or a debugger has stopped, as it does for an answer to
/// its request: 16 times 4.3 s.
const STOPPED_WAIT: Duration = Duration::from_secs(69);

/// A server that serves one client after the other listens anew in between. A connecting client waits this long for a
/// listener, and looks this often.
const LISTENER_WAIT: Duration = Duration::from_millis(200);
const LISTENER_POLL: Duration = Duration::from_millis(10);

/// What a lookup is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Resolve,
    Connect,
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The listener's device.
    Device(PeerDevice),
    /// There is no listener.
    Nobody,
    /// There is one, but it does not answer.
    Silent,
}

/// The pending lookups.
#[derive(Default)]
pub(super) struct Lookups {
    open: Vec<Lookup>,
    pub watch: Watch,
}

struct Lookup {
    id: u32,
    purpose: Purpose,
    name: Name,
    destination: IpAddr,
    /// The address of our device.
    device: IpAddr,
    socket: Option<OwnedFd>,
    /// When to try again without a socket, and until when.
    next: Time,
    give_up_at: Time,
    /// When an answer is overdue, also from a process that is stopped.
    silence: Time,
    stopped: Time,
}

enum Progress {
    Waits,
    Is(Found),
}

impl Lookups {
    pub fn forget(&mut self, id: u32) {
        self.open.retain(|lookup| lookup.id != id);
    }

    /// When the next lookup is due.
    pub fn next_timer(&self) -> Option<Time> {
        let due = |lookup: &Lookup| if lookup.socket.is_some() { lookup.silence } else { lookup.next };
        self.open.iter().map(due).min()
    }
}

impl State {
    /// Looks for the listener of an identifier's peer. Finishes at once if possible; otherwise the worker continues.
    pub fn look_up(&mut self, number: u32, purpose: Purpose) {
        let now = self.now();
        let Ok(entry) = self.entry(number) else { return };
        let (Some(peer), Some(route)) = (entry.peer, entry.route) else { return };
        let family = match peer {
            Address::Ib(_) => Family::Native,
            Address::Ip(ip) if ip.is_ipv4() => Family::V4,
            Address::Ip(_) => Family::V6,
        };
        let (name, _) =
            Name::both(self.registry.network.as_ref(), entry.kind.space, peer.port(), family, peer.ip());
        let mut lookup = Lookup {
            id: number,
            purpose,
            name,
            destination: peer.ip(),
            device: route.local,
            socket: None,
            next: now,
            give_up_at: now + LISTENER_WAIT,
            silence: now + SILENCE,
            stopped: now + STOPPED_WAIT,
        };
        match self.advance(&mut lookup, now) {
            Progress::Waits => self.lookups.open.push(lookup),
            Progress::Is(found) => self.end_lookup(lookup, found),
        }
    }

    /// Advances every lookup as far as possible.
    pub fn run_lookups(&mut self, now: Time) {
        let open = std::mem::take(&mut self.lookups.open);
        for mut lookup in open {
            match self.advance(&mut lookup, now) {
                Progress::Waits => self.lookups.open.push(lookup),
                Progress::Is(found) => self.end_lookup(lookup, found),
            }
        }
    }

    fn advance(&self, lookup: &mut Lookup, now: Time) -> Progress {
        let Lookup { name, destination, device, .. } = *lookup;
        if lookup.socket.is_none() && lookup.next <= now {
            if let Some(home) = self.device_for(&name, destination, device) {
                return Progress::Is(Found::Device(home));
            }
            match ask(self.registry.network.as_ref(), &name, destination, self.home_of(device)) {
                Ok(socket) => {
                    self.lookups.watch.add(&socket);
                    lookup.silence = now + SILENCE;
                    lookup.socket = Some(socket);
                }
                // Its backlog is full. It may have stopped.
                Err(Errno::AGAIN) if lookup.silence <= now => return Progress::Is(Found::Silent),
                Err(Errno::AGAIN) => lookup.next = now + LISTENER_POLL,
                Err(_) => return nobody(lookup, now),
            }
        }
        let Some(socket) = &lookup.socket else { return Progress::Waits };
        let mut bytes = [0; Message::LEN + 1];
        match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) if lookup.silence > now => Progress::Waits,
            Err(Errno::AGAIN | Errno::INTR)
                if lookup.purpose == Purpose::Connect
                    && lookup.stopped > now
                    && is_listener_stopped(socket) =>
            {
                lookup.silence = now + SILENCE;
                Progress::Waits
            }
            Err(Errno::AGAIN | Errno::INTR) => Progress::Is(Found::Silent),
            Err(_) => nobody(lookup, now),
            Ok((_, len)) => match Message::read(&bytes[..len.min(bytes.len())]) {
                Some(answer) if answer.found => Progress::Is(Found::Device(answer.home)),
                _ => nobody(lookup, now),
            },
        }
    }

    /// The stream to a process about to be connected to is kept as a lifeline.
    fn end_lookup(&mut self, lookup: Lookup, found: Found) {
        let Lookup { id, purpose, socket, name, destination, .. } = lookup;
        if found == Found::Nobody && purpose == Purpose::Connect && tracing::enabled!(tracing::Level::DEBUG) {
            let wanted = Name { address: Some(destination), ..name };
            tracing::debug!("no listener for {wanted}; there are: {}", listeners());
        }
        if let (Found::Device(home), Some(socket), Purpose::Connect) = (found, socket, purpose) {
            // The process that had this device before may have ended.
            self.lose_ended_peers();
            self.registry.lifelines.keep_to(socket, home);
        }
        self.on_found(id, purpose, found);
    }
}

fn is_listener_stopped(socket: &OwnedFd) -> bool {
    Credentials::of_peer(socket).is_ok_and(|listener| is_stopped(listener.pid))
}

/// There is no listener: for a connection, looks again later.
fn nobody(lookup: &mut Lookup, now: Time) -> Progress {
    lookup.socket = None;
    if lookup.purpose == Purpose::Resolve || now >= lookup.give_up_at {
        return Progress::Is(Found::Nobody);
    }
    lookup.next = now + LISTENER_POLL;
    Progress::Waits
}

fn ask(
    network: Option<&Network>,
    name: &Name,
    destination: IpAddr,
    home: PeerDevice,
) -> Result<OwnedFd, Errno> {
    let socket = match reach(network, name, destination) {
        Reached::Listener(socket) => socket,
        Reached::Busy => return Err(Errno::AGAIN),
        Reached::Nobody => return Err(Errno::CONNREFUSED),
    };
    let question = Message { found: false, destination: Gid::from(destination), home };
    send(&socket, &question.to_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(socket)
}
