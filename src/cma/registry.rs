//! The listeners on the ports of this machine: this process's names (`names.rs`), and the clients that ask it.
//!
//! A name with an address and one without are taken independently; a process that has taken one then looks for the
//! other kind in the table of all sockets, and releases its own if there is one. A client asks there which device to
//! connect to (`lookup.rs`); any user may. What clients send is checked, and what they keep open is bounded.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, accept_with, bind, listen, recv, send};
use softrnic_link::ProcessSlot;
use softrnic_nic::device::Network;
use softrnic_wire::{Gid, PortSpace, Time};

use super::address::Address;
use super::error::Error;
use super::lifeline::{self, Lifelines};
use super::names::{Family, Name, Taken, is_privileged, taken};
use super::reach::{is_kept_by, is_roots, stream};
use super::watch::Watch;

/// Clients that have not asked yet, or have asked and may keep the stream; beyond this many the oldest is dropped.
const MAX_CLIENTS: usize = 128;

/// How long a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Clients that one name serves in a round.
const ROUND: usize = 64;

/// A question or an answer: both are one message.
pub(super) struct Message {
    /// In an answer: there is a listener.
    pub found: bool,
    /// The requested destination.
    pub destination: Gid,
    /// The sender's device.
    pub home: PeerDevice,
}

/// The device of a process: its address, and the slot of that which is the process's own. `None` if it has all of it, or
/// does not say, as older versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PeerDevice {
    pub device: IpAddr,
    pub slot: Option<ProcessSlot>,
}

impl Message {
    pub const LEN: usize = 40;
    const MAGIC: [u8; 4] = *b"scm1";

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = self.found.into();
        bytes[8..24].copy_from_slice(&self.destination.0);
        // 0 for none, which is what older versions say.
        bytes[5] = self.home.slot.map_or(0, |slot| slot.number() as u8 + 1);
        bytes[24..].copy_from_slice(&Gid::from(self.home.device).0);
        bytes
    }

    pub fn read(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let gid = |at: usize| Gid(std::array::from_fn(|i| bytes[at + i]));
        let sound = bytes[..4] == Self::MAGIC && bytes[4] <= 1;
        let slot = usize::from(bytes[5]).checked_sub(1).and_then(ProcessSlot::new);
        let home = PeerDevice { device: gid(24).to_ip(), slot };
        sound.then(|| Message { found: bytes[4] == 1, destination: gid(8), home })
    }
}

/// The names of this process, and the clients that ask.
#[derive(Default)]
pub(super) struct Registry {
    names: HashMap<Name, Claim>,
    clients: VecDeque<Client>,
    pub lifelines: Lifelines,
    pub watch: Watch,
    /// The network that this process is on, if that is not the machine's.
    pub network: Option<Network>,
}

/// A name that we own.
struct Claim {
    socket: OwnedFd,
    /// What the socket is bound to.
    text: String,
    /// Identifiers that share it.
    owners: Vec<u32>,
    listens: bool,
}

struct Client {
    socket: OwnedFd,
    name: Name,
    until: Time,
    /// Its device, once it has asked.
    home: Option<PeerDevice>,
}

impl Client {
    /// It may have kept the stream by now.
    fn send_away(self) {
        if self.home.is_some() {
            lifeline::refuse(&self.socket);
        }
    }
}

impl Registry {
    /// Takes the names of a port, which other identifiers of this process may share.
    pub fn claim(
        &mut self,
        owner: u32,
        space: PortSpace,
        local: &Address,
        families: &[Family],
    ) -> Result<(), Error> {
        for name in names(self.network, space, local, families) {
            let claimed = match self.names.get_mut(&name) {
                Some(claim) => {
                    claim.owners.push(owner);
                    Ok(())
                }
                None => self.take(owner, name, refusal(local)),
            };
            if claimed.is_err() {
                self.release(owner);
                return claimed;
            }
        }
        Ok(())
    }

    fn take(&mut self, owner: u32, name: Name, taken: Error) -> Result<(), Error> {
        let made = bind_to(name.text()).or_else(|error| {
            // A privileged port is root's, whoever took the name first.
            let is_free = is_privileged(name.port) && error == Errno::ADDRINUSE && !is_roots(&name.text());
            if is_free { bind_to(name.unforeseen_text()?) } else { Err(error) }
        });
        let (socket, text) = made.map_err(|error| match error {
            Errno::ADDRINUSE => taken,
            _ => Error::NoDescriptor,
        })?;
        // Others look whose it is, which they can only see of a socket that listens.
        if is_privileged(name.port) {
            listen(&socket, MAX_CLIENTS as i32).map_err(|_| Error::NoMemory)?;
        }
        self.names.insert(name, Claim { socket, text, owners: vec![owner], listens: false });
        if self.is_kept(&name) { Err(Error::AddressNotAvailable) } else { Ok(()) }
    }

    /// Whether no other process has the port. (It may have by the time that this one takes it.)
    pub fn check_free(&self, space: PortSpace, local: &Address, families: &[Family]) -> Result<(), Error> {
        let mut names = names(self.network, space, local, families);
        if names.any(|name| self.is_kept(&name)) { Err(refusal(local)) } else { Ok(()) }
    }

    /// Whether another process has this name, or has the port in a way that excludes it.
    fn is_kept(&self, name: &Name) -> bool {
        let own = |text: &str| self.names.values().any(|claim| claim.text == text);
        let conflicts = |other: &Taken| *name == other.name || name.excludes(&other.name);
        let taken = taken().unwrap_or_default();
        taken.iter().any(|other| conflicts(other) && !own(&other.text) && is_kept_by(other))
    }

    /// Whether an identifier has its names.
    pub fn has(&self, owner: u32) -> bool {
        self.names.values().any(|claim| claim.owners.contains(&owner))
    }

    /// Answers clients that ask for the names of an identifier from now on.
    pub fn listen(&mut self, owner: u32) -> Result<(), Error> {
        for claim in self.names.values_mut().filter(|claim| claim.owners.contains(&owner)) {
            if !claim.listens {
                listen(&claim.socket, MAX_CLIENTS as i32).map_err(|_| Error::NoMemory)?;
                self.watch.add(&claim.socket);
                claim.listens = true;
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn release(&mut self, owner: u32) {
        self.names.retain(|_, claim| {
            claim.owners.retain(|known| *known != owner);
            !claim.owners.is_empty()
        });
    }

    /// When to drop a client.
    pub fn next_timer(&self) -> Option<Time> {
        self.clients.iter().map(|client| client.until).min()
    }

    /// Serves the connected clients, then accepts new ones and serves them too. `answer` returns the device that
    /// listens for a name and destination, if there is one.
    pub fn serve(&mut self, now: Time, mut answer: impl FnMut(&Name, IpAddr, IpAddr) -> Option<PeerDevice>) {
        // First, so that a client dropped to make room has nothing more to say.
        self.hear_all(now, &mut answer);
        self.accept(now);
        self.hear_all(now, &mut answer);
    }

    fn accept(&mut self, now: Time) {
        for (name, claim) in self.names.iter().filter(|(_, claim)| claim.listens) {
            for _ in 0..ROUND {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let Ok(socket) = accept_with(&claim.socket, flags) else { break };
                if self.clients.len() >= MAX_CLIENTS {
                    self.clients.pop_front().into_iter().for_each(Client::send_away);
                }
                let until = now + CLIENT_TIMEOUT;
                self.watch.add(&socket);
                self.clients.push_back(Client { socket, name: *name, until, home: None });
            }
        }
    }

    fn hear_all(&mut self, now: Time, answer: &mut impl FnMut(&Name, IpAddr, IpAddr) -> Option<PeerDevice>) {
        for _ in 0..self.clients.len() {
            let Some(mut client) = self.clients.pop_front() else { break };
            match self.hear(&mut client, answer) {
                Next::Wait if client.until > now => self.clients.push_back(client),
                Next::Wait | Next::Leave => client.send_away(),
                Next::Keep(home) => {
                    if let Err(socket) = self.lifelines.keep(client.socket, home) {
                        lifeline::refuse(&socket);
                    }
                }
            }
        }
    }

    fn hear(
        &self,
        client: &mut Client,
        answer: &mut impl FnMut(&Name, IpAddr, IpAddr) -> Option<PeerDevice>,
    ) -> Next {
        let mut bytes = [0; Message::LEN + 1];
        let len = match recv(&client.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Next::Leave,
            Ok((_, len)) => len.min(bytes.len()),
            Err(Errno::AGAIN | Errno::INTR) => return Next::Wait,
            Err(_) => return Next::Leave,
        };
        if let Some(home) = client.home {
            return if bytes[..len] == lifeline::KEEP { Next::Keep(home) } else { Next::Leave };
        }
        let Some(question) = Message::read(&bytes[..len]) else { return Next::Leave };
        client.home = Some(question.home);
        let home = answer(&client.name, question.destination.to_ip(), question.home.device);
        let nowhere = PeerDevice { device: IpAddr::from([0; 4]), slot: None };
        let answer = Message {
            found: home.is_some(),
            destination: question.destination,
            home: home.unwrap_or(nowhere),
        };
        match send(&client.socket, &answer.to_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) if home.is_some() => Next::Wait,
            _ => Next::Leave,
        }
    }
}

/// What happens to a client next.
enum Next {
    Wait,
    Keep(PeerDevice),
    Leave,
}

/// The names of a local address.
fn names(
    network: Option<Network>,
    space: PortSpace,
    local: &Address,
    families: &[Family],
) -> impl Iterator<Item = Name> {
    families.iter().map(move |&family| {
        let (every, one) = Name::both(network.as_ref(), space, local.port(), family, local.ip());
        one.unwrap_or(every)
    })
}

/// Why a port that is taken cannot be had, as in the kernel.
fn refusal(local: &Address) -> Error {
    let is_wild = local.is_any() || local.ip().is_loopback();
    if is_wild { Error::AddressNotAvailable } else { Error::AddressInUse }
}

fn bind_to(text: String) -> Result<(OwnedFd, String), Errno> {
    let socket = stream()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(text.as_bytes())?)?;
    Ok((socket, text))
}
