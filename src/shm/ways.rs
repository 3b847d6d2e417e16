//! How to get to each peer that something was sent to, or that has a road.

use rustc_hash::FxHashMap;
use softrnic_wire::Time;

use super::hello::Endpoint;
use super::obstacle::Obstacle;

/// How to get to an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The place of its road.
    Road(usize),
    /// Below; after this time a road may be asked for again. It has been said why.
    Below(Time, Option<Obstacle>),
}

/// The ways to all peers.
#[derive(Default)]
pub(super) struct Ways {
    to: FxHashMap<Endpoint, Way>,
    /// The road that was taken last, which most datagrams take again: comparing costs less than looking it up.
    last: Option<(Endpoint, usize)>,
}

impl Ways {
    /// The way that a datagram takes.
    #[inline]
    pub fn take(&mut self, to: Endpoint) -> Option<Way> {
        if let Some((peer, index)) = self.last
            && peer.address == to.address
            && (peer.part == to.part || peer.part.is_none())
        {
            return Some(Way::Road(index));
        }
        let (peer, way) = self.find(to)?;
        if let Way::Road(index) = way {
            self.last = Some((peer, index));
        }
        Some(way)
    }

    pub fn get(&self, to: Endpoint) -> Option<Way> {
        self.find(to).map(|(_, way)| way)
    }

    /// The way to a part, or that to the process that has all of the address.
    fn find(&self, to: Endpoint) -> Option<(Endpoint, Way)> {
        [to, to.whole()].into_iter().find_map(|peer| Some((peer, *self.to.get(&peer)?)))
    }

    pub fn set(&mut self, to: Endpoint, way: Way) {
        self.last = None;
        if to.part.is_none() {
            // What was known of parts is no more, and would hide it: the process there has the address alone. Until it has
            // answered, the roads of parts stay.
            let keeps_roads = !matches!(way, Way::Road(_));
            self.to.retain(|known, way| {
                known.address != to.address || keeps_roads && matches!(way, Way::Road(_))
            });
        }
        self.to.insert(to, way);
    }

    pub fn remove(&mut self, to: Endpoint) {
        self.last = None;
        self.to.remove(&to);
    }

    /// Forgets peers without a road if there are this many, or more.
    pub fn limit(&mut self, most: usize) {
        if self.to.len() >= most {
            self.to.retain(|_, way| matches!(way, Way::Road(_)));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Endpoint, Way)> {
        self.to.iter().map(|(&peer, &way)| (peer, way))
    }
}
