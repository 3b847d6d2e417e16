//! The names of listeners: abstract Unix sockets, one for each port space, port and family, or address.
//!
//! Their scope is the network namespace, like that of 127.0.0.1. The kernel ensures that a name is taken only once, and
//! is freed when its process ends, in whatever way. Any user may take any name, so what counts is also whose it is
//! (`reach.rs`).

use std::fmt;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use softrnic_nic::device::{Network, NetworkName};
use softrnic_wire::PortSpace;

/// The first port that needs no privilege.
const FIRST_FREE: u16 = 1024;

/// Before the random end of a name, which root takes for a privileged port if another user has the plain one.
const ENDING: char = '~';

/// The kernel's table of the Unix sockets in this network namespace.
const SOCKETS: &str = "/proc/net/unix";

/// The flag there of a socket that listens (SO_ACCEPTCON), and the type of those that bear names (SOCK_SEQPACKET).
const LISTENS: &str = "00010000";
const SEQPACKET: &str = "0005";

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
    /// The network, if it is not the machine's. Each of its hosts has names of its own there.
    pub network: Option<NetworkName>,
    pub space: PortSpace,
    pub port: u16,
    pub family: Family,
    /// `None` for a port on every address.
    pub address: Option<IpAddr>,
}

/// Whether only root may have a port.
pub(super) fn is_privileged(port: u16) -> bool {
    port < FIRST_FREE
}

impl Name {
    /// The name for a port on every address, and the one for a port on one address. Loopback addresses count as every
    /// address, as in the kernel, and native ones have no other name. On a network of its own, a host has one address.
    pub fn both(
        network: Option<&Network>,
        space: PortSpace,
        port: u16,
        family: Family,
        address: IpAddr,
    ) -> (Name, Option<Name>) {
        if let Some(network) = network {
            let address = Some(network.host_at(address));
            return (Name { network: Some(network.name), space, port, family, address }, None);
        }
        let every = Name { network: None, space, port, family, address: None };
        let has_own = family != Family::Native && !address.is_unspecified() && !address.is_loopback();
        (every, has_own.then_some(Name { address: Some(address), ..every }))
    }

    /// What its socket is bound to.
    pub fn text(&self) -> String {
        let family = match self.family {
            Family::V4 => '4',
            Family::V6 => '6',
            Family::Native => 'd',
        };
        let space = self.space.name().to_ascii_lowercase();
        let mut text = format!("softrnic/cm/{space}/{}/{family}", self.port);
        if let Some(address) = self.address {
            text += &format!("/{address}");
        }
        if let Some(network) = self.network {
            text += &format!("/{network}");
        }
        text
    }

    /// One of many texts for the name, which nobody else can foresee and take.
    pub fn unforeseen_text(&self) -> Result<String, Errno> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
        Ok(format!("{}{ENDING}{:016x}", self.text(), u64::from_ne_bytes(random)))
    }

    fn read(text: &str) -> Option<Name> {
        let name = match text.split_once(ENDING) {
            Some((name, _)) => name,
            None => text,
        };
        let mut words = name.strip_prefix("softrnic/cm/")?.split('/');
        let (space, port, family) = (words.next()?, words.next()?, words.next()?);
        let space = PortSpace::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(space))?;
        let family = match family {
            "4" => Family::V4,
            "6" => Family::V6,
            "d" => Family::Native,
            _ => return None,
        };
        let address = words.next().map(str::parse).transpose().ok()?;
        let network = words.next();
        let known = network.and_then(NetworkName::new);
        let name = Name { network: known, space, port: port.parse().ok()?, family, address };
        (words.next().is_none() && known.is_some() == network.is_some()).then_some(name)
    }

    /// Whether another name takes the same port the other way: on every address instead of one, or on one.
    pub fn excludes(&self, other: &Name) -> bool {
        let port = |name: &Name| (name.network, name.space, name.port, name.family);
        port(self) == port(other) && self.address.is_some() != other.address.is_some()
    }
}

/// As users write it: `tcp 10.0.0.1:7`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = match self.family {
            Family::V4 => IpAddr::from([0; 4]),
            Family::V6 => IpAddr::from([0; 16]),
            Family::Native => return write!(f, "{} AF_IB:{}", self.space.name().to_lowercase(), self.port),
        };
        let address = std::net::SocketAddr::new(self.address.unwrap_or(every), self.port);
        write!(f, "{} {address}", self.space.name().to_lowercase())?;
        self.network.map_or(Ok(()), |network| write!(f, " on {network}"))
    }
}

/// A socket in the kernel's table that is bound to a name.
pub(super) struct Taken {
    pub name: Name,
    pub text: String,
    pub listens: bool,
}

impl Taken {
    /// Whether the name is one of those that nobody can foresee.
    pub fn is_unforeseen(&self) -> bool {
        self.text.contains(ENDING)
    }
}

/// The names that processes have taken, of whatever user.
pub(super) fn taken() -> io::Result<Vec<Taken>> {
    let table = std::fs::read(SOCKETS).inspect_err(|error| {
        tracing::warn!(%error, "cannot read {SOCKETS}, so the listeners of other processes are unknown");
    })?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(read_line).collect())
}

/// A line is `address: references protocol flags type state inode @name`.
fn read_line(line: &[u8]) -> Option<Taken> {
    let at = line.iter().position(|byte| *byte == b'@')?;
    let (fields, text) = (std::str::from_utf8(&line[..at]).ok()?, std::str::from_utf8(&line[at + 1..]).ok()?);
    let mut fields = fields.split_whitespace().skip(3);
    let listens = fields.next() == Some(LISTENS);
    let name = Name::read(text).filter(|_| fields.next() == Some(SEQPACKET))?;
    Some(Taken { name, text: text.into(), listens })
}

/// The listeners that there are, for the log.
pub(super) fn listeners() -> String {
    let taken = taken().unwrap_or_default();
    let mut names: Vec<String> =
        taken.iter().filter(|taken| taken.listens).map(|taken| taken.name.to_string()).collect();
    names.sort();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(port: u16, address: [u8; 4]) -> Name {
        Name::both(None, PortSpace::Tcp, port, Family::V4, address.into()).1.expect("not a loopback address")
    }

    #[test]
    fn a_port_on_every_address_leaves_no_room_for_it_on_one() {
        let (every, _) = Name::both(None, PortSpace::Tcp, 7, Family::V4, [10, 0, 0, 1].into());
        let (name, other) = (one(7, [10, 0, 0, 1]), one(7, [10, 0, 0, 2]));
        assert_eq!(name.text(), "softrnic/cm/tcp/7/4/10.0.0.1");
        assert!(every.excludes(&name) && name.excludes(&every));
        assert!(!name.excludes(&other) && !name.excludes(&name) && !every.excludes(&every));
        let other_port = Name { port: 70, ..every };
        assert!(!other_port.excludes(&name) && !name.excludes(&other_port));
        assert_eq!(Name::both(None, PortSpace::Tcp, 7, Family::V4, [127, 0, 0, 1].into()), (every, None));
        let elsewhere = Name { network: NetworkName::new("net"), ..name };
        assert!(!elsewhere.excludes(&every) && elsewhere != name);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let every =
            Name { network: None, space: PortSpace::IpoIb, port: 65535, family: Family::V6, address: None };
        let elsewhere = Name { network: NetworkName::new("net"), ..one(7, [10, 0, 0, 1]) };
        for name in [one(7, [10, 0, 0, 1]), elsewhere, every, Name { address: Some([0; 16].into()), ..every }]
        {
            assert_eq!(Name::read(&name.text()), Some(name));
            assert_eq!(Name::read(&name.unforeseen_text().expect("random numbers")), Some(name));
        }
        for text in [
            "",
            "softrnic/cm/tcp/7",
            "softrnic/cm/tcp/7/4/9.9.9",
            "softrnic/cm/tcp/7/4/9.9.9.9/a b",
            "softrnic/cm/tcp/7/4/9.9.9.9/a/1",
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
        let line = b"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @softrnic/cm/udp/7/6";
        let socket = read_line(line).expect("a name");
        assert!(socket.listens && !socket.is_unforeseen());
        assert_eq!(socket.name.to_string(), "udp [::]:7");
    }
}
