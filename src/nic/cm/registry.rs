//! The listeners on the ports of this machine: abstract Unix sockets, one for each port space, port and family, or
//! address.
//!
//! Their scope is the network namespace, like that of 127.0.0.1. The kernel ensures that a name is taken only once, and
//! is freed when its process ends, in whatever way. A name with an address and one without are taken independently; a
//! process that has taken one then looks for the other kind in the table of all sockets, and releases its own if there
//! is one. A client asks there which device to connect to (`lookup.rs`); any user may. What clients send is checked,
//! and what they keep open is bounded.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recv, send, socket_with,
};
use softrnic_link::Part;
use softrnic_wire::{Gid, PortSpace, Time};

use super::address::Address;
use super::error::Error;
use super::lifeline::{self, Lifelines};
use super::watch::Watch;

/// Clients that have not asked yet, or have asked and may keep the stream; beyond this many the oldest is dropped.
const MAX_CLIENTS: usize = 128;

/// How long a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Clients that one name serves in a round.
const ROUND: usize = 64;

/// Address families, each with names of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Family {
    V4,
    V6,
    /// `AF_IB`.
    Native,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub space: PortSpace,
    pub port: u16,
    pub family: Family,
    /// `None` for a port on every address.
    pub address: Option<IpAddr>,
}

/// The kernel's table of the Unix sockets in this network namespace.
const SOCKETS: &str = "/proc/net/unix";

impl Name {
    /// The name for a port on every address, and the one for a port on one address.
    pub fn both(space: PortSpace, port: u16, family: Family, address: IpAddr) -> [Name; 2] {
        let name = Name { space, port, family, address: None };
        [name, Name { address: Some(address), ..name }]
    }

    pub fn address(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(self.text().as_bytes())
    }

    fn text(&self) -> String {
        let family = match self.family {
            Family::V4 => '4',
            Family::V6 => '6',
            Family::Native => 'd',
        };
        let space = self.space.name().to_ascii_lowercase();
        let text = format!("softrnic/cm/{space}/{}/{family}", self.port);
        match self.address {
            Some(address) => format!("{text}/{address}"),
            None => text,
        }
    }

    /// Whether a socket's name takes the same port the other way: on every address instead of one, or on one.
    fn excludes(&self, socket: &str) -> bool {
        match self.address {
            Some(_) => socket == Name { address: None, ..*self }.text(),
            None => socket.strip_prefix(&self.text()).is_some_and(|rest| rest.starts_with('/')),
        }
    }
}

pub(super) fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A question or an answer: both are one message.
pub(super) struct Message {
    /// In an answer: there is a listener.
    pub found: bool,
    /// The requested destination.
    pub destination: Gid,
    /// The sender's device.
    pub home: Home,
}

/// The device of a process: its address, and the part of that which is the process's own. `None` if it has all of it, or
/// does not say, as older versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Home {
    pub device: IpAddr,
    pub part: Option<Part>,
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
        bytes[5] = self.home.part.map_or(0, |part| part.number() as u8 + 1);
        bytes[24..].copy_from_slice(&Gid::from(self.home.device).0);
        bytes
    }

    pub fn read(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let gid = |at: usize| Gid(std::array::from_fn(|i| bytes[at + i]));
        let sound = bytes[..4] == Self::MAGIC && bytes[4] <= 1;
        let part = usize::from(bytes[5]).checked_sub(1).and_then(Part::new);
        let home = Home { device: gid(24).to_ip(), part };
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
}

/// A name that we own.
struct Claim {
    socket: OwnedFd,
    /// Identifiers that share it.
    owners: Vec<u32>,
    listens: bool,
}

struct Client {
    socket: OwnedFd,
    name: Name,
    until: Time,
    /// Its device, once it has asked.
    home: Option<Home>,
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
        // Loopback addresses count as wildcards, as in the kernel.
        let wild = local.is_any() || local.ip().is_loopback();
        let taken = if wild { Error::AddressNotAvailable } else { Error::AddressInUse };
        for &family in families {
            let address = (!wild && family != Family::Native).then(|| local.ip());
            let name = Name { space, port: local.port(), family, address };
            if let Some(claim) = self.names.get_mut(&name) {
                claim.owners.push(owner);
                continue;
            }
            let made = stream().and_then(|socket| {
                bind(&socket, &name.address()?)?;
                Ok(socket)
            });
            match made {
                Ok(socket) => {
                    self.names.insert(name, Claim { socket, owners: vec![owner], listens: false });
                    if self.is_excluded(&name) {
                        self.release(owner);
                        return Err(Error::AddressNotAvailable);
                    }
                }
                Err(error) => {
                    self.release(owner);
                    return Err(if error == Errno::ADDRINUSE { taken } else { Error::NoDescriptor });
                }
            }
        }
        Ok(())
    }

    /// Whether another process has the port in a way that excludes this name.
    fn is_excluded(&self, name: &Name) -> bool {
        let sockets = match std::fs::read(SOCKETS) {
            Ok(sockets) => sockets,
            Err(error) => {
                tracing::warn!(%error, "{SOCKETS} cannot be read; whether another process has the port is not known");
                return false;
            }
        };
        let own = |socket: &str| self.names.keys().any(|known| known.text() == socket);
        let names = sockets.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'@')?;
            std::str::from_utf8(&line[at + 1..]).ok()
        });
        names.into_iter().any(|socket| name.excludes(socket) && !own(socket))
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
    pub fn serve(&mut self, now: Time, mut answer: impl FnMut(&Name, IpAddr, IpAddr) -> Option<Home>) {
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

    fn hear_all(&mut self, now: Time, answer: &mut impl FnMut(&Name, IpAddr, IpAddr) -> Option<Home>) {
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
        answer: &mut impl FnMut(&Name, IpAddr, IpAddr) -> Option<Home>,
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
        let nowhere = Home { device: IpAddr::from([0; 4]), part: None };
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
    Keep(Home),
    Leave,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_every_address_leaves_no_room_for_it_on_one() {
        let [every, one] = Name::both(PortSpace::Tcp, 7, Family::V4, [10, 0, 0, 1].into());
        let [_, other] = Name::both(PortSpace::Tcp, 7, Family::V4, [10, 0, 0, 2].into());
        assert_eq!(one.text(), "softrnic/cm/tcp/7/4/10.0.0.1");
        assert!(every.excludes(&one.text()) && one.excludes(&every.text()));
        assert!(!one.excludes(&other.text()) && !one.excludes(&one.text()) && !every.excludes(&every.text()));
        let [port_70, _] = Name::both(PortSpace::Tcp, 70, Family::V4, [10, 0, 0, 1].into());
        assert!(!port_70.excludes(&one.text()) && !one.excludes(&port_70.text()));
    }
}
