//! Frame headers by source and destination, cached until the host's state changes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::{
    DF, EthHeader, FrameHeader, IPV4_LEN, IPV6_LEN, IpFacts, IpHeader, ROCE_UDP_PORT, Time, UDP_LEN, VlanTag,
};

use softrnic_link::Flow;
use softrnic_netdev::{Host, Neighbour, Query, Resolution, Vlan};

use super::identity::Identity;

/// A path is resolved again after this time, so that the kernel confirms neighbours that are in use.
const REFRESH: Duration = Duration::from_secs(1);
/// Beyond this many paths all are forgotten.
const REMEMBERED: usize = 4096;

/// Where a datagram is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// To the network.
    Network,
    /// To the link itself: the destination is one of its addresses.
    Own,
    /// To the network, and to the link itself: the destination is a group that it has joined.
    Both,
    /// Nowhere yet: the neighbour is not known, which may change at any moment.
    Pending,
    /// Nowhere.
    Unreachable,
}

/// The path from a source to a destination.
pub(super) struct Path {
    pub(super) target: Target,
    /// The largest datagram, BTH to ICRC, in bytes.
    pub(super) max_datagram: usize,
    /// Complete except for port, TOS, TTL and VLAN priorities, which [`Path::header`] fills in.
    header: FrameHeader,
    /// The tag nearest the payload first.
    vlans: Vec<Vlan>,
    generation: u64,
    resolved: Time,
}

impl Path {
    /// The headers of a datagram of `flow`.
    pub(super) fn header(&self, flow: &Flow) -> FrameHeader {
        let mut header = self.header;
        header.src_port = flow.sport;
        header.ip.tos = flow.tos;
        header.ip.ttl = flow.ttl;
        let mut tags = self
            .vlans
            .iter()
            .map(|vlan| VlanTag { tpid: vlan.tpid, ..VlanTag::new(vlan.id, vlan.pcp(flow.tos)) });
        header.eth.vlan = tags.next();
        header.eth.outer_vlan = tags.next();
        header
    }
}

/// The cached paths.
#[derive(Default)]
pub(super) struct Paths {
    index: HashMap<(IpAddr, IpAddr), usize>,
    paths: Vec<Path>,
    last: Option<((IpAddr, IpAddr), usize)>,
}

impl Paths {
    /// The path of `flow`, as current as the host's state.
    pub(super) fn get(&mut self, now: Time, flow: &Flow, identity: &Identity, host: &mut Host) -> &Path {
        let key = (flow.src, flow.dst);
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => self.place(key, now, identity, host),
        };
        self.last = Some((key, place));
        let path = &mut self.paths[place];
        if path.generation != host.generation() || now.since(path.resolved) >= REFRESH {
            *path = resolve(now, key, identity, host);
        }
        path
    }

    /// Forgets all paths, because the link's identity has changed.
    pub(super) fn clear(&mut self) {
        *self = Paths::default();
    }

    fn place(&mut self, key: (IpAddr, IpAddr), now: Time, identity: &Identity, host: &mut Host) -> usize {
        if let Some(place) = self.index.get(&key) {
            return *place;
        }
        if self.paths.len() >= REMEMBERED {
            self.clear();
        }
        let place = self.paths.len();
        self.paths.push(resolve(now, key, identity, host));
        self.index.insert(key, place);
        place
    }
}

fn resolve(now: Time, (src, dst): (IpAddr, IpAddr), identity: &Identity, host: &mut Host) -> Path {
    let (facts, ip_len) = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => (IpFacts::V4 { src, dst, id: 0, flags_frag: DF }, IPV4_LEN),
        (IpAddr::V6(src), IpAddr::V6(dst)) => (IpFacts::V6 { src, dst }, IPV6_LEN),
        // Of two families; no path leads there, and the facts are never used.
        _ => (IpFacts::V6 { src: [0; 16].into(), dst: [0; 16].into() }, IPV6_LEN),
    };
    let mut path = Path {
        target: Target::Unreachable,
        max_datagram: identity.max_datagram,
        header: FrameHeader {
            eth: EthHeader::untagged(identity.mac, identity.mac),
            ip: IpHeader { facts, tos: 0, ttl: 0, flow_label: 0 },
            src_port: 0,
            dst_port: ROCE_UDP_PORT,
        },
        vlans: Vec::new(),
        generation: host.generation(),
        resolved: now,
    };
    if src.is_ipv4() != dst.is_ipv4() || !identity.addresses.contains(&src) {
        return path;
    }
    if identity.addresses.contains(&dst) {
        path.target = Target::Own;
        return path;
    }
    // An address that is the device's but not the kernel's (the default GID) belongs to the interface.
    let owner = host.stacked_addresses(identity.ifindex).find(|address| address.ip == src);
    let oif = owner.map_or(identity.ifindex, |address| address.ifindex);
    let query = Query { dst, src: owner.map(|address| address.ip), oif: Some(oif) };
    let Ok(resolution) = host.resolve(now, &query) else {
        return path;
    };
    fill_in(&mut path, resolution, dst, ip_len, identity);
    path
}

fn fill_in(path: &mut Path, resolution: Resolution, dst: IpAddr, ip_len: usize, identity: &Identity) {
    if resolution.local || resolution.lower != identity.ifindex {
        return;
    }
    path.target = match resolution.neighbour {
        Neighbour::Known(mac) => {
            path.header.eth = EthHeader::untagged(mac, resolution.src_mac);
            if identity.groups.contains(&dst) { Target::Both } else { Target::Network }
        }
        Neighbour::Pending => Target::Pending,
        // A neighbour that did not answer is asked again, and may answer at any time too.
        Neighbour::Unreachable => Target::Pending,
    };
    let room = (resolution.mtu as usize).saturating_sub(ip_len + UDP_LEN);
    path.max_datagram = identity.max_datagram.min(room);
    path.vlans = resolution.vlans;
}

#[cfg(test)]
mod tests;
