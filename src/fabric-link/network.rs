//! What a process knows of the network that it is on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::Place;
use crate::rendezvous::MAX_NAME;

/// A short name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkName {
    len: u8,
    text: [u8; MAX_NAME],
}

impl NetworkName {
    /// `None` if it cannot be the name of a fabric.
    pub fn new(name: &str) -> Option<NetworkName> {
        if !crate::rendezvous::is_name(name) {
            return None;
        }
        let mut text = [0; MAX_NAME];
        text[..name.len()].copy_from_slice(name.as_bytes());
        Some(NetworkName { len: name.len() as u8, text })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A network with hosts of its own, on one machine: what an address means there is no business of the machine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Its name.
    pub name: NetworkName,
    /// The address of the host that this process is on.
    pub home: Ipv4Addr,
    first: Ipv4Addr,
    hosts: u32,
}

impl Network {
    pub(crate) fn new(name: NetworkName, place: &Place) -> Network {
        Network { name, home: place.address, first: place.first, hosts: place.hosts }
    }

    /// The address of a host of the network: all others are this host's, as loopback addresses are.
    pub fn host_at(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) if u32::from(v4).wrapping_sub(self.first.into()) < self.hosts => address,
            _ => self.home.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use softrnic_link::ProcessSlot;

    use super::*;

    #[test]
    fn what_is_no_address_of_the_network_is_this_host() {
        let at = |last| Ipv4Addr::new(127, 77, 0, last);
        let place = Place {
            address: at(2),
            slot: ProcessSlot::default(),
            ip_mtu: 1500,
            processes: 1,
            is_up: true,
            first: at(1),
            hosts: 3,
            slow: 1,
        };
        let network = Network::new(NetworkName::new("net").expect("a name"), &place);
        for (address, host) in [(at(1), at(1)), (at(3), at(3)), (at(4), at(2)), (at(0), at(2))] {
            assert_eq!(network.host_at(address.into()), IpAddr::V4(host));
        }
        assert_eq!(network.host_at(Ipv4Addr::LOCALHOST.into()), IpAddr::V4(at(2)));
        assert_eq!((network.name.as_str(), NetworkName::new("a b")), ("net", None));
    }
}
