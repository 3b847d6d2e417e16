//! All connections and listeners, and the indices to find them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use core::ops::Bound;

use softrnic_wire::{Qpn, ServiceId, Time};

use crate::connection::Connection;
use crate::params::Listen;

/// Local communication id of a connection or a SIDR request on this device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommId(u32);

impl CommId {
    /// The number that messages carry.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Id of a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(u64);

/// The device at the other end. Its GUID alone is only what a message says: anybody can name that of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Peer {
    /// The address that its messages come from.
    pub source: IpAddr,
    pub guid: u64,
}

pub(crate) struct Listener {
    pub id: ListenerId,
    pub listen: Listen,
    /// Requests that no application has answered yet.
    pub pending: usize,
}

#[derive(Default)]
pub(crate) struct Directory {
    connections: BTreeMap<CommId, Connection>,
    /// Passive connections by what the peer calls them.
    by_remote_id: BTreeMap<(Peer, u32), CommId>,
    /// Connections by the peer's QP, while they own that QP.
    by_remote_qp: BTreeMap<(Peer, Qpn), CommId>,
    /// SIDR requests to us, by the sender's address and the request id.
    questions: BTreeMap<(IpAddr, u32), CommId>,
    timers: BTreeSet<(Time, CommId)>,
    listeners: BTreeMap<ServiceId, Listener>,
    next_listener: u64,
    pub pending: usize,
}

impl Directory {
    /// A communication id that is not in use.
    pub fn free_id(&self, random: &mut dyn FnMut() -> u32) -> CommId {
        loop {
            let id = CommId(random());
            if id.0 != 0 && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    pub fn insert(&mut self, connection: Connection) {
        self.connections.insert(connection.id, connection);
    }

    pub fn get(&self, id: CommId) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub fn get_mut(&mut self, id: CommId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// The connection with this number.
    pub fn find(&self, local: u32) -> Option<&Connection> {
        self.connections.get(&CommId(local))
    }

    /// The connection that a message from this address names by our id.
    pub fn find_from(&self, source: IpAddr, local: u32) -> Option<&Connection> {
        self.find(local).filter(|c| c.source == source)
    }

    pub fn find_by_remote_id(&self, peer: Peer, remote: u32) -> Option<&Connection> {
        self.get(*self.by_remote_id.get(&(peer, remote))?)
    }

    /// Whether the peer asked for the connection.
    pub fn is_passive(&self, id: CommId) -> bool {
        self.get(id).is_some_and(|c| self.by_remote_id.get(&(c.peer(), c.remote_id)) == Some(&id))
    }

    pub fn find_by_remote_qp(&self, peer: Peer, qpn: Qpn) -> Option<&Connection> {
        self.get(*self.by_remote_qp.get(&(peer, qpn))?)
    }

    pub fn find_question(&self, from: IpAddr, request: u32) -> Option<&Connection> {
        self.get(*self.questions.get(&(from, request))?)
    }

    /// Indexes a connection by the peer's id from now on.
    pub fn note_remote_id(&mut self, id: CommId) {
        if let Some(c) = self.connections.get(&id) {
            self.by_remote_id.insert((c.peer(), c.remote_id), id);
        }
    }

    /// The peer's QP belongs to this connection from now on.
    pub fn note_remote_qp(&mut self, id: CommId) {
        if let Some(c) = self.connections.get(&id) {
            self.by_remote_qp.insert((c.peer(), c.remote.qpn), id);
        }
    }

    pub fn note_question(&mut self, id: CommId) {
        if let Some(c) = self.connections.get(&id) {
            self.questions.insert((c.route.remote, c.remote_id), id);
        }
    }

    /// Another connection may use the peer's QP.
    pub fn forget_remote_qp(&mut self, id: CommId) {
        let Some(c) = self.connections.get(&id) else { return };
        remove_if(&mut self.by_remote_qp, (c.peer(), c.remote.qpn), id);
    }

    pub fn remove(&mut self, id: CommId) -> Option<Connection> {
        self.forget_remote_qp(id);
        self.set_timer(id, Time::NEVER);
        let c = self.connections.get(&id)?;
        remove_if(&mut self.by_remote_id, (c.peer(), c.remote_id), id);
        remove_if(&mut self.questions, (c.route.remote, c.remote_id), id);
        self.connections.remove(&id)
    }

    /// Sets the connection's only timer.
    pub fn set_timer(&mut self, id: CommId, at: Time) {
        let Some(c) = self.connections.get_mut(&id) else { return };
        let old = core::mem::replace(&mut c.timer, at);
        if old != Time::NEVER {
            self.timers.remove(&(old, id));
        }
        if at != Time::NEVER {
            self.timers.insert((at, id));
        }
    }

    pub fn next_timer(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub fn pop_due(&mut self, now: Time) -> Option<CommId> {
        let &(at, id) = self.timers.first()?;
        if at > now {
            return None;
        }
        self.set_timer(id, Time::NEVER);
        Some(id)
    }

    pub fn listen(&mut self, listen: Listen) -> Option<ListenerId> {
        if self.listeners.contains_key(&listen.service) {
            return None;
        }
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        self.listeners.insert(listen.service, Listener { id, listen, pending: 0 });
        Some(id)
    }

    pub fn listener(&mut self, service: ServiceId) -> Option<&mut Listener> {
        self.listeners.get_mut(&service)
    }

    pub fn has_listener(&self, service: ServiceId) -> bool {
        self.listeners.contains_key(&service)
    }

    pub fn listener_by_id(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.values_mut().find(|listener| listener.id == id)
    }

    pub fn remove_listener(&mut self, id: ListenerId) -> bool {
        let service = self.listener_by_id(id).map(|listener| listener.listen.service);
        service.is_some_and(|service| self.listeners.remove(&service).is_some())
    }

    /// The connections that a listener was asked for and has not answered.
    pub fn unanswered(&self, listener: ListenerId) -> Box<[CommId]> {
        use crate::connection::State::{ReqRcvd, SidrReqRcvd};
        let waits =
            |c: &&Connection| c.listener == Some(listener) && matches!(c.state, ReqRcvd | SidrReqRcvd);
        self.connections.values().filter(waits).map(|c| c.id).collect()
    }

    /// The connections with a peer's address, and the ids that it gave them.
    pub fn with_peer(&self, peer: IpAddr) -> Box<[(CommId, u32)]> {
        let its = self.connections.values().filter(|c| c.route.remote == peer);
        its.map(|c| (c.id, c.remote_id)).collect()
    }

    /// One more request waits for an answer.
    pub fn note_pending(&mut self, service: ServiceId) {
        self.pending += 1;
        if let Some(listener) = self.listeners.get_mut(&service) {
            listener.pending += 1;
        }
    }

    /// A request for this listener has been answered or has gone.
    pub fn note_answered(&mut self, listener: ListenerId) {
        self.pending -= 1;
        if let Some(listener) = self.listener_by_id(listener) {
            listener.pending -= 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// The connections with numbers above this one, in numerical order.
    pub fn after(&self, id: Option<CommId>) -> impl Iterator<Item = &Connection> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.connections.range((from, Bound::Unbounded)).map(|(_, connection)| connection)
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    pub fn listeners(&self) -> usize {
        self.listeners.len()
    }

    pub fn index_entries(&self) -> usize {
        self.by_remote_id.len() + self.by_remote_qp.len() + self.questions.len()
    }
}

fn remove_if<K: Ord>(map: &mut BTreeMap<K, CommId>, key: K, id: CommId) {
    if map.get(&key) == Some(&id) {
        map.remove(&key);
    }
}
