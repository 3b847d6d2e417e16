//! The connection manager of one device: receives and sends messages, and runs the timers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use softrnic_wire::{CmBody, CmMessage, Gid, MAD_LEN, Mad, ServiceId, Time};

use crate::config::Config;
use crate::connection::{Connection, State, Status};
use crate::directory::{CommId, Directory};
use crate::event::Event;
use crate::params::Route;
use crate::repeat::{Due, Repeat};

/// A datagram to be sent from QP 1 to QP 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Source and destination.
    pub route: Route,
    /// The datagram.
    pub bytes: Box<[u8; MAD_LEN]>,
}

/// Counters of a connection manager. They wrap.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Messages received.
    pub received: u64,
    /// Messages sent, repeats included.
    pub sent: u64,
    /// Messages sent again because no answer came.
    pub repeated: u64,
    /// Messages received more than once.
    pub duplicates: u64,
    /// Dropped: not a connection management message, or of another version.
    pub drop_malformed: u64,
    /// Dropped: names no connection, or one with another address, or in a state that does not expect the message.
    pub drop_unexpected: u64,
    /// Dropped: too many requests wait for an answer.
    pub drop_backlog: u64,
    /// Requests refused without asking an application.
    pub refused: u64,
}

/// How much a connection manager holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Connections and SIDR requests, including those in timewait.
    pub connections: usize,
    /// Requests that no application has answered yet.
    pub pending: usize,
    /// Listeners.
    pub listeners: usize,
    /// Timers that are set.
    pub timers: usize,
    /// Index entries by which peers' messages find connections.
    pub index_entries: usize,
    /// Datagrams that wait to be sent.
    pub outgoing: usize,
    /// Events that wait to be fetched.
    pub events: usize,
}

/// The connection manager of one device.
pub struct Cm {
    pub(crate) config: Config,
    pub(crate) directory: Directory,
    pub(crate) counters: Counters,
    gids: Box<[Gid]>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    random: Box<dyn FnMut() -> u32 + Send>,
}

impl Cm {
    /// A connection manager without connections. `random` supplies communication ids. A peer must not be able to guess
    /// them, and a process that restarts with the same GUID must not reuse them.
    pub fn new(config: Config, random: impl FnMut() -> u32 + Send + 'static) -> Cm {
        Cm {
            config,
            directory: Directory::default(),
            counters: Counters::default(),
            gids: Box::default(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            random: Box::new(random),
        }
    }

    /// Sets the GIDs of the device. Requests for others are refused.
    pub fn set_gids(&mut self, gids: &[Gid]) {
        self.gids = gids.into();
    }

    pub(crate) fn has_gid(&self, gid: Gid) -> bool {
        self.gids.contains(&gid)
    }

    pub(crate) fn first_gid(&self) -> Gid {
        self.gids.first().copied().unwrap_or_default()
    }

    /// Handles the payload of a packet to QP 1 that arrived by `route`.
    pub fn on_mad(&mut self, now: Time, route: Route, payload: &[u8]) {
        let mad = Mad::read(payload).filter(|mad| payload.len() == MAD_LEN && mad.is_cm_send());
        let Some((mad, message)) = mad.and_then(|mad| Some((mad, mad.cm()?))) else {
            self.counters.drop_malformed += 1;
            return;
        };
        self.counters.received += 1;
        let private = message.private();
        match message.body() {
            CmBody::Req(req) => self.on_req(now, route, &mad, req, private),
            CmBody::Mra(mra) => self.on_mra(now, route, mra),
            CmBody::Rej(rej) => self.on_rej(now, route, rej, private),
            CmBody::Rep(rep) => self.on_rep(now, route, &mad, rep, private),
            CmBody::Rtu(ids) => self.on_rtu(route, *ids, private),
            CmBody::Dreq(dreq) => self.on_dreq(now, route, &mad, dreq, private),
            CmBody::Drep(ids) => self.on_drep(now, route, *ids, private),
            CmBody::SidrReq(req) => self.on_sidr_req(route, &mad, req, private),
            CmBody::SidrRep(rep) => self.on_sidr_rep(route, &mad, rep, private),
            // RoCE has no alternate paths; Linux ignores both there.
            CmBody::Lap(_) | CmBody::Apr(_) => self.counters.drop_unexpected += 1,
        }
    }

    /// Whether a service has a listener.
    pub fn listens(&self, service: ServiceId) -> bool {
        self.directory.has_listener(service)
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`Cm::poll_event`] has an event.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// When [`Cm::on_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.directory.next_timer()
    }

    /// Runs the timers that are due.
    pub fn on_timeout(&mut self, now: Time) {
        while let Some(id) = self.directory.pop_due(now) {
            self.on_connection_timeout(now, id);
        }
    }

    /// The state of a connection; `None` if it no longer exists.
    pub fn state(&self, id: CommId) -> Option<State> {
        self.directory.get(id).map(|c| c.state)
    }

    /// The id with this number, if a connection has it.
    pub fn id_of(&self, number: u32) -> Option<CommId> {
        self.directory.find(number).map(|c| c.id)
    }

    /// The connections with numbers above this one, or all, in numerical order.
    pub fn connections(&self, after: Option<CommId>) -> impl Iterator<Item = Status> + '_ {
        self.directory.after(after).map(Connection::status)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How much it holds.
    pub fn usage(&self) -> Usage {
        Usage {
            connections: self.directory.len(),
            pending: self.directory.pending,
            listeners: self.directory.listeners(),
            timers: self.directory.timers(),
            index_entries: self.directory.index_entries(),
            outgoing: self.outgoing.len(),
            events: self.events.len(),
        }
    }

    fn on_connection_timeout(&mut self, now: Time, id: CommId) {
        let Some(connection) = self.directory.get_mut(id) else { return };
        if connection.state == State::Timewait {
            return self.end_timewait(id);
        }
        let route = connection.route;
        let Some(repeat) = &mut connection.repeat else { return };
        match repeat.on_time(now) {
            Due::Nothing => {}
            Due::Again => {
                let bytes = Box::new(*repeat.bytes());
                self.counters.repeated += 1;
                self.send_bytes(route, bytes);
            }
            Due::GiveUp => return self.give_up(now, id),
        }
        self.keep_repeating(id);
    }

    /// Sets a connection's timer to the next repeat of its message.
    pub(crate) fn keep_repeating(&mut self, id: CommId) {
        let next = self.directory.get(id).and_then(|c| c.repeat.as_ref()).map_or(Time::NEVER, Repeat::next);
        self.directory.set_timer(id, next);
    }

    /// All repeats have gone unanswered.
    fn give_up(&mut self, now: Time, id: CommId) {
        match self.state(id) {
            Some(State::DreqSent) => self.disconnect_unanswered(now, id),
            Some(State::ReqSent | State::RepSent | State::SidrReqSent) => self.give_up_connecting(now, id),
            _ => {}
        }
    }

    pub(crate) fn fresh_id(&mut self) -> CommId {
        self.directory.free_id(&mut *self.random)
    }

    pub(crate) fn fresh_transaction(&mut self, id: CommId) -> u64 {
        u64::from((self.random)()) << 32 | u64::from(id.get())
    }

    /// Queues an event for a connection whose owner still wants events.
    pub(crate) fn emit_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn send_bytes(&mut self, route: Route, bytes: Box<[u8; MAD_LEN]>) {
        self.counters.sent += 1;
        self.outgoing.push_back(Outgoing { route, bytes });
    }

    /// Sends a message that needs no answer.
    pub(crate) fn send(&mut self, route: Route, transaction: u64, message: &CmMessage<'_>) {
        self.send_bytes(route, mad(transaction, 0, message));
    }

    /// Sends a connection's message and repeats it until it is answered.
    pub(crate) fn send_until_answered(
        &mut self,
        now: Time,
        id: CommId,
        bytes: Box<[u8; MAD_LEN]>,
        interval: core::time::Duration,
    ) {
        let retries = self.config.max_retries;
        let Some(connection) = self.directory.get_mut(id) else { return };
        let route = connection.route;
        connection.repeat = Some(Repeat::new(now, bytes.clone(), interval, retries));
        self.send_bytes(route, bytes);
        self.keep_repeating(id);
    }

    /// What a connection had sent has been answered.
    pub(crate) fn stop_repeating(&mut self, id: CommId) {
        if let Some(connection) = self.directory.get_mut(id) {
            connection.repeat = None;
        }
        self.directory.set_timer(id, Time::NEVER);
    }

    /// Whether the owner of a connection no longer wants its events.
    pub(crate) fn is_orphaned(&self, id: CommId) -> bool {
        self.directory.get(id).is_none_or(|c| c.orphaned)
    }

    /// Counts a message received more than once.
    pub(crate) fn note_duplicate(&mut self) {
        self.counters.duplicates += 1;
    }

    /// Counts an unexpected message.
    pub(crate) fn note_unexpected(&mut self) {
        self.counters.drop_unexpected += 1;
    }
}

/// The datagram that carries a message.
pub(crate) fn mad(transaction: u64, modifier: u32, message: &CmMessage<'_>) -> Box<[u8; MAD_LEN]> {
    let mut bytes = Box::new([0; MAD_LEN]);
    message.emit_mad(transaction, modifier, &mut bytes);
    bytes
}
