//! What the link is in the network: its interface and the addresses that it serves.

use std::collections::HashSet;
use std::net::IpAddr;

use softrnic_wire::{Gid, MacAddr};

use softrnic_netdev::{Host, LinkState};

use super::steering::Steering;

/// The link's interface and addresses, as of the last poll of the host.
pub(super) struct Identity {
    pub(super) ifindex: u32,
    pub(super) mac: MacAddr,
    /// Whether the interface is up and has a carrier.
    pub(super) is_up: bool,
    /// The addresses that were asked for; if empty, those of the interface.
    pub(super) wanted: Vec<IpAddr>,
    /// The addresses that the XDP program steers here.
    pub(super) addresses: HashSet<IpAddr>,
    /// The multicast groups that were joined.
    pub(super) groups: HashSet<IpAddr>,
    /// The largest datagram, BTH to ICRC, that the link carries; in bytes.
    pub(super) max_datagram: usize,
}

impl Identity {
    /// Follows the host's changes, and updates the XDP program's addresses.
    pub(super) fn update(&mut self, host: &Host, steering: &mut Steering) {
        let interface = host.interface(self.ifindex);
        self.is_up = interface.is_some_and(|interface| interface.state == LinkState::Up);
        let mut addresses = HashSet::new();
        if let Some(interface) = interface {
            self.mac = interface.mac;
            // The GID that a RoCE port has before it has any address.
            addresses.insert(Gid::link_local(interface.mac).to_ip());
            addresses.extend(host.stacked_addresses(self.ifindex).map(|address| address.ip));
        }
        if !self.wanted.is_empty() {
            addresses.retain(|address| self.wanted.contains(address));
        }
        // An address that the map does not accept is not served: it is tried again with the next change.
        addresses
            .retain(|address| self.addresses.contains(address) || steering.add_address(*address).is_ok());
        for gone in self.addresses.difference(&addresses) {
            // It can only be missing already.
            let _missing = steering.remove_address(*gone);
        }
        self.addresses = addresses;
    }
}
