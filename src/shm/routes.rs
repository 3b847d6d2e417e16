//! How to get to each peer that something was sent to, or that has a connection.

use rustc_hash::FxHashMap;
use softrnic_wire::Time;

use super::fallback_reason::FallbackReason;
use super::handshake::Endpoint;

/// How to get to an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The place of its connection.
    Connection(usize),
    /// Below; after this time a connection may be asked for again. It has been said why.
    Below(Time, Option<FallbackReason>),
}

/// The routes to all peers.
#[derive(Default)]
pub(super) struct Routes {
    to: FxHashMap<Endpoint, Route>,
    /// The connection that was taken last, which most datagrams take again: comparing costs less than looking it up.
    last: Option<(Endpoint, usize)>,
}

impl Routes {
    /// The route that a datagram takes.
    #[inline]
    pub fn take(&mut self, to: Endpoint) -> Option<Route> {
        if let Some((peer, index)) = self.last
            && peer.address == to.address
            && (peer.slot == to.slot || peer.slot.is_none())
        {
            return Some(Route::Connection(index));
        }
        let (peer, route) = self.find(to)?;
        if let Route::Connection(index) = route {
            self.last = Some((peer, index));
        }
        Some(route)
    }

    pub fn get(&self, to: Endpoint) -> Option<Route> {
        self.find(to).map(|(_, route)| route)
    }

    /// The route to a slot, or that to the process that has all of the address.
    fn find(&self, to: Endpoint) -> Option<(Endpoint, Route)> {
        [to, to.whole()].into_iter().find_map(|peer| Some((peer, *self.to.get(&peer)?)))
    }

    pub fn set(&mut self, to: Endpoint, route: Route) {
        self.last = None;
        if to.slot.is_none() {
            // What was known of slots is no more, and would hide it: the process there has the address alone. Until it has
            // answered, the connections of slots stay.
            let keeps_connections = !matches!(route, Route::Connection(_));
            self.to.retain(|known, route| {
                known.address != to.address || keeps_connections && matches!(route, Route::Connection(_))
            });
        }
        self.to.insert(to, route);
    }

    pub fn remove(&mut self, to: Endpoint) {
        self.last = None;
        self.to.remove(&to);
    }

    /// Forgets peers without a connection if there are this many, or more.
    pub fn limit(&mut self, most: usize) {
        if self.to.len() >= most {
            self.to.retain(|_, route| matches!(route, Route::Connection(_)));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Endpoint, Route)> {
        self.to.iter().map(|(&peer, &route)| (peer, route))
    }
}
