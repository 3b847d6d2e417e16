//! Which connections there are: asking for them, answering those who ask, and giving them up.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;
use softrnic_sys::{epoll_ctl, unix};
use softrnic_wire::Time;

use softrnic_link::{Reach, Sleeper};

use super::connection::Connection;
use super::fallback_reason::FallbackReason;
use super::handshake::{self, Bells, Endpoint, Message, PeerMessage, Shared};
use super::header::Sleep;
use super::routes::{Route, Routes};
use super::segment::{MAX_CAPACITY, MIN_CAPACITY, Own};

/// An address at which no process listened is tried again after this.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long an answer may take.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection on which nothing has moved for this long is given back.
pub(super) const IDLE: Duration = Duration::from_secs(10);
/// Addresses that are remembered, and connections.
const MOST: usize = 4096;
/// Those who connect that are let in at a time.
pub(super) const MOST_LET_IN: usize = 16;

/// Connections of the largest rings, and of the second size: all rings of 64 processes that talk to all others take 230 MiB.
const LARGE_CONNECTIONS: usize = 4;
const MEDIUM_CONNECTIONS: usize = 16;
const MEDIUM_CAPACITY: usize = 64 << 10;

/// Tokens of the epoll instance below those of the streams.
const BELOW: u64 = 0;
const LISTENER: u64 = 1;
const BELL: u64 = 2;
const FIRST_STREAM: u64 = 3;

/// The connections of an address.
pub(super) struct Connections {
    pub own: Endpoint,
    listener: OwnedFd,
    /// Others may wait to be let in.
    crowd: bool,
    bells: Bells,
    /// Everything that can wake a sleeper.
    epoll: OwnedFd,
    /// By token; those that have ended leave a hole.
    streams: Vec<Option<Stream>>,
    routes: Routes,
    /// Peers that ceased to have a connection, unless it was given back.
    pub fallbacks: u64,
    /// Invalid messages.
    pub bad_hellos: u64,
    /// Peers are asked for the ICRC of each datagram.
    pub asks_for_icrcs: bool,
    /// Who sleeps until something comes, and the last sleep.
    sleeper: Sleeper,
    sleep: Sleep,
    /// When to see which connections are idle; never, while there is none.
    sweep_at: Time,
}

/// A stream to a peer, and what has come of it.
enum Stream {
    /// We have asked, and given a segment.
    Asked {
        socket: OwnedFd,
        own: Own,
        peer: Endpoint,
        since: Time,
    },
    /// A peer has connected, and not said anything yet.
    Came {
        socket: OwnedFd,
        since: Time,
    },
    Connection(Box<Connection>),
}

impl Stream {
    fn socket(&self) -> &OwnedFd {
        match self {
            Stream::Asked { socket, .. } | Stream::Came { socket, .. } => socket,
            Stream::Connection(connection) => &connection.stream,
        }
    }
}

impl Connections {
    /// # Errors
    /// The kernel has no such memory, or another socket has the address' name.
    pub fn open(own: Endpoint) -> io::Result<Connections> {
        // Whether there is such memory at all.
        Own::create(MIN_CAPACITY)?;
        let listener = handshake::take_name(own)?;
        let bells = Bells::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // By its edge: one that cannot be accepted for want of descriptors must not wake the sleeper for ever.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), edge)?;
        epoll::add(&epoll, &bells.thread, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Connections {
            own,
            listener,
            crowd: false,
            bells,
            epoll,
            streams: Vec::new(),
            routes: Routes::default(),
            fallbacks: 0,
            bad_hellos: 0,
            asks_for_icrcs: false,
            sleeper: Sleeper::Nobody,
            sleep: Sleep::NONE,
            sweep_at: Time::NEVER,
        })
    }

    /// Becomes readable when there is something to [`look`](Self::look) at.
    pub fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches a descriptor of the link below, or stops. By number, since it may be closed by now, which the kernel
    /// reports as an error.
    pub fn watch_below(&self, operation: i32, fd: RawFd, events: i32) -> io::Result<()> {
        epoll_ctl(&self.epoll, operation, fd, events, BELOW)
    }

    /// How each peer is reached that something was sent to, or that has a connection.
    pub fn reaches(&self) -> Vec<Reach> {
        let reach = |(Endpoint { address: peer, slot }, route)| match route {
            Route::Connection(index) => match self.streams.get(index)? {
                Some(Stream::Connection(connection)) => Some(Reach {
                    peer,
                    slot,
                    fallback_reason: None,
                    tx_datagrams: connection.sent,
                    rx_datagrams: connection.received,
                }),
                _ => None,
            },
            Route::Below(_, fallback_reason) => {
                let fallback_reason =
                    fallback_reason.map_or_else(|| "not answered yet".into(), |it| it.to_string());
                Some(Reach {
                    peer,
                    slot,
                    fallback_reason: Some(fallback_reason),
                    tx_datagrams: 0,
                    rx_datagrams: 0,
                })
            }
        };
        self.routes.iter().filter_map(reach).collect()
    }

    /// The places at which connections may be.
    #[inline]
    pub fn places(&self) -> usize {
        self.streams.len()
    }

    #[inline]
    pub fn connection(&mut self, index: usize) -> Option<&mut Connection> {
        match self.streams.get_mut(index)? {
            Some(Stream::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Whether nothing has come on any, and all peers know that what came before was read.
    #[inline]
    pub fn are_quiet(&self) -> bool {
        self.streams.iter().flatten().all(|stream| match stream {
            Stream::Connection(connection) => connection.is_quiet(),
            _ => true,
        })
    }

    pub fn reserved(&self, index: usize) -> &[u8] {
        match self.streams.get(index) {
            Some(Some(Stream::Connection(connection))) => connection.rings.reserved(),
            _ => &[],
        }
    }

    pub fn is_there(&self, to: Endpoint) -> bool {
        matches!(self.routes.get(to), Some(Route::Connection(_)))
    }

    /// The connection to an address, if there is one. Otherwise it may ask for one.
    #[inline]
    pub fn to(&mut self, now: Time, to: Endpoint) -> Option<usize> {
        match self.routes.take(to) {
            Some(Route::Connection(index)) => Some(index),
            Some(Route::Below(until, _)) if now < until => None,
            _ if to.address.is_multicast() => None,
            _ => {
                self.ask(now, to);
                None
            }
        }
    }

    #[cold]
    fn ask(&mut self, now: Time, peer: Endpoint) {
        self.forget_the_slow(now);
        self.routes.limit(MOST);
        match self.offer_to(peer) {
            Ok((socket, own, peer)) => {
                let said = self.said(peer);
                if self.keep(Stream::Asked { socket, own, peer, since: now }).is_some() {
                    self.routes.set(peer, Route::Below(now + ANSWER_TIMEOUT, said));
                }
            }
            Err(fallback_reason) => self.go_below(now, peer, fallback_reason),
        }
    }

    fn offer_to(&self, to: Endpoint) -> Result<(OwnedFd, Own, Endpoint), FallbackReason> {
        let (socket, peer) = handshake::ask(to)?;
        let (own, segment) = Own::create(self.capacity())?;
        self.offer(&socket, &segment)?;
        Ok((socket, own, peer))
    }

    fn offer(&self, socket: &OwnedFd, segment: &OwnedFd) -> Result<(), FallbackReason> {
        let Connections { own, bells, asks_for_icrcs, .. } = self;
        handshake::offer(socket, *own, segment, bells, *asks_for_icrcs).map_err(|_| FallbackReason::NoAnswer)
    }

    /// What was last said about the route to a peer.
    fn said(&self, peer: Endpoint) -> Option<FallbackReason> {
        match self.routes.get(peer) {
            Some(Route::Below(_, said)) => said,
            _ => None,
        }
    }

    /// From now on, and for a while, datagrams to the peer go below.
    #[cold]
    fn go_below(&mut self, now: Time, peer: Endpoint, fallback_reason: FallbackReason) {
        if self.said(peer) != Some(fallback_reason) {
            tracing::info!(from = %self.own, to = %peer, %fallback_reason, "no shared memory");
        }
        self.routes.set(peer, Route::Below(now + ASK_AGAIN, Some(fallback_reason)));
    }

    /// Of the next connection's rings.
    fn capacity(&self) -> usize {
        match self.streams.iter().flatten().count() {
            0..LARGE_CONNECTIONS => MAX_CAPACITY,
            LARGE_CONNECTIONS..MEDIUM_CONNECTIONS => MEDIUM_CAPACITY,
            _ => MIN_CAPACITY,
        }
    }

    fn keep(&mut self, stream: Stream) -> Option<usize> {
        let index = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        let token = epoll::EventData::new_u64(FIRST_STREAM + index as u64);
        if index >= MOST || epoll::add(&self.epoll, stream.socket(), token, epoll::EventFlags::IN).is_err() {
            return None;
        }
        if index == self.streams.len() {
            self.streams.push(None);
        }
        self.streams[index] = Some(stream);
        Some(index)
    }

    /// Takes a stream away. Only an explicit end is the end of its events: a child that was made without the handlers of
    /// a fork may have a copy of the descriptor.
    fn remove(&mut self, index: usize) -> Option<Stream> {
        let stream = self.streams.get_mut(index)?.take()?;
        // One that has ended is not watched any more.
        let _ = epoll::delete(&self.epoll, stream.socket());
        Some(stream)
    }

    /// Asks the kernel what has come besides what is in the rings. Returns whether something has on the link below.
    #[cold]
    pub fn look(&mut self, now: Time) -> bool {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) else { return false };
        let mut below = false;
        for event in &events[..count] {
            match event.data.u64() {
                BELOW => below = true,
                LISTENER => self.crowd = true,
                BELL => self.silence(),
                token => self.hear(now, (token - FIRST_STREAM) as usize),
            }
        }
        if self.crowd {
            self.let_in(now);
        }
        below
    }

    /// Takes note of the bell. Another thread than the one that waits may do so: that one sleeps on, and peers are to ring
    /// for what comes next.
    fn silence(&mut self) {
        let _ = rustix::io::read(&self.bells.thread, &mut [0; 8]);
        if self.sleeper == Sleeper::Thread {
            // What has come already is found in the step that this is part of.
            self.sleep();
        }
    }

    /// A thread that waits is to take what others leave behind, although they have taken note of the bell.
    pub fn leave_more(&self) {
        let bell = match self.sleeper {
            Sleeper::Nobody => return,
            Sleeper::Thread => &self.bells.thread,
            Sleeper::Caller => &self.bells.caller,
        };
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }

    fn let_in(&mut self, now: Time) {
        for _ in 0..MOST_LET_IN {
            match unix::accept(&self.listener) {
                Ok(socket) if handshake::is_same_user(&socket) => {
                    self.keep(Stream::Came { socket, since: now });
                }
                Ok(_) => {}
                // A later connection is another edge, and also admits those that wait for want of descriptors.
                Err(_) => {
                    self.crowd = false;
                    break;
                }
            }
        }
        self.forget_the_slow(now);
    }

    /// Those that have asked or been asked, and say nothing.
    fn forget_the_slow(&mut self, now: Time) {
        for index in 0..self.streams.len() {
            let Some(Stream::Asked { since, .. } | Stream::Came { since, .. }) = &self.streams[index] else {
                continue;
            };
            if now.since(*since) < ANSWER_TIMEOUT {
                continue;
            }
            if let Some(Stream::Asked { peer, .. }) = self.remove(index)
                && !self.is_there(peer)
            {
                self.go_below(now, peer, FallbackReason::NoAnswer);
            }
        }
    }

    fn hear(&mut self, now: Time, index: usize) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let heard = handshake::hear(stream.socket());
        if matches!(heard, PeerMessage::Nothing) {
            return;
        }
        self.bad_hellos += u64::from(matches!(heard, PeerMessage::Garbage));
        if let Stream::Connection(connection) = stream {
            // What is in its ring is still read. Its end would wake everybody until then.
            connection.ended = true;
            let _ = epoll::delete(&self.epoll, &connection.stream);
            let peer = connection.peer;
            let given_back = matches!(heard, PeerMessage::Message(Message::Farewell));
            self.fallbacks += u64::from(self.leave(peer, index) && !given_back);
            return;
        }
        match (self.remove(index), heard) {
            (
                Some(Stream::Asked { socket, own, peer, .. }),
                PeerMessage::Message(Message::Offer { from, shared }),
            ) if from == peer => {
                let connection = Connection::new(peer, socket, own, shared);
                self.begin(now, peer, connection.map_err(FallbackReason::from));
            }
            // The peer's own request counts, or it has not noticed yet that a connection has ended.
            (Some(Stream::Asked { peer, .. }), PeerMessage::Message(Message::Refusal)) => {
                if let Some(Route::Below(_, said)) = self.routes.get(peer) {
                    self.routes.set(peer, Route::Below(now + ASK_AGAIN, said));
                }
            }
            (Some(Stream::Asked { peer, .. }), _) if !self.is_there(peer) => {
                self.go_below(now, peer, FallbackReason::NoAnswer);
            }
            (Some(Stream::Came { socket, .. }), PeerMessage::Message(Message::Offer { from, shared })) => {
                self.answer(now, from, socket, shared)
            }
            _ => {}
        }
    }

    /// A peer asks for a connection. If we have asked it as well, the request of the lower address counts, and if we have its
    /// answer already, ours. A link that asks itself gets both ends.
    fn answer(&mut self, now: Time, peer: Endpoint, socket: OwnedFd, shared: Shared) {
        let asked = self.streams.iter().flatten().any(|stream| match stream {
            Stream::Asked { peer: asked, .. } => *asked == peer,
            _ => false,
        });
        let loses = asked && self.own < peer || self.has_connection_to_process(now, peer, &socket);
        if loses || !self.can_have(peer) {
            let _ = handshake::refuse(&socket);
            return;
        }
        let connection = self.accept(peer, socket, shared);
        self.begin(now, peer, connection);
    }

    /// Whether a connection leads to the very process that asks. One to the process that had the address before has ended, or
    /// is about to.
    fn has_connection_to_process(&mut self, now: Time, peer: Endpoint, asks: &OwnedFd) -> bool {
        let Some(Route::Connection(index)) = self.routes.get(peer) else { return false };
        // Its end may not have been heard yet.
        self.hear(now, index);
        let still = self.routes.get(peer) == Some(Route::Connection(index));
        peer != self.own
            && still
            && self
                .connection(index)
                .is_some_and(|connection| handshake::are_of_one_process(&connection.stream, asks))
    }

    /// Whether a peer can have this address.
    fn can_have(&self, peer: Endpoint) -> bool {
        let nobodys = match peer.address {
            IpAddr::V4(peer) => peer.is_unspecified() || peer.is_multicast() || peer.is_broadcast(),
            IpAddr::V6(peer) => peer.is_unspecified() || peer.is_multicast(),
        };
        !nobodys && peer.address.is_ipv4() == self.own.address.is_ipv4()
    }

    fn accept(&self, peer: Endpoint, socket: OwnedFd, shared: Shared) -> Result<Connection, FallbackReason> {
        let (own, file) = Own::create(self.capacity())?;
        let connection = Connection::new(peer, socket, own, shared)?;
        self.offer(&connection.stream, &file)?;
        Ok(connection)
    }

    fn begin(&mut self, now: Time, peer: Endpoint, connection: Result<Connection, FallbackReason>) {
        let mut connection = match connection {
            Ok(connection) => Box::new(connection),
            Err(fallback_reason) => return self.go_below(now, peer, fallback_reason),
        };
        if self.sleeper != Sleeper::Nobody {
            // What has come on it already is found in the step that this is part of.
            let _ = connection.rings.sleep(self.sleep);
        }
        let Some(index) = self.keep(Stream::Connection(connection)) else { return };
        if peer != self.own {
            // Older ones lead to a process that has gone, or were given back.
            for (place, stream) in self.streams.iter_mut().enumerate() {
                if let Some(Stream::Connection(older)) = stream {
                    older.ended |= older.peer == peer && place != index;
                }
            }
        }
        if peer != self.own || !self.is_there(peer) {
            self.routes.set(peer, Route::Connection(index));
            tracing::info!(from = %self.own, to = %peer, "through shared memory");
        }
        self.sweep_at = self.sweep_at.min(now + IDLE);
    }

    /// Nothing more is sent on a connection. Returns whether anything was.
    fn leave(&mut self, peer: Endpoint, index: usize) -> bool {
        let used = self.routes.get(peer) == Some(Route::Connection(index));
        if used {
            self.routes.remove(peer);
        }
        used
    }

    /// The peer of a connection has gone, and everything that it sent was read.
    pub fn end(&mut self, index: usize) {
        if let Some(Stream::Connection(connection)) = self.remove(index) {
            self.leave(connection.peer, index);
        }
    }

    /// The peer of a connection has violated the ring protocol.
    #[cold]
    pub fn give_up(&mut self, now: Time, index: usize) {
        if let Some(Stream::Connection(connection)) = self.remove(index)
            && self.leave(connection.peer, index)
        {
            self.fallbacks += 1;
            self.go_below(now, connection.peer, FallbackReason::Corrupt);
        }
    }

    /// When to [`sweep`](Self::sweep), if ever.
    #[inline]
    pub fn sweep_at(&self) -> Time {
        self.sweep_at
    }

    /// Gives back what was not used since the last time. Nothing is sent on such a connection any more; the peer ends it when it
    /// has read everything, and what it has sent meanwhile is read here.
    #[cold]
    pub fn sweep(&mut self, now: Time) {
        self.sweep_at = Time::NEVER;
        for index in 0..self.streams.len() {
            let Some(Stream::Connection(connection)) = &mut self.streams[index] else { continue };
            self.sweep_at = now + IDLE;
            let (peer, idle) = (connection.peer, connection.was_idle());
            if idle && handshake::farewell(&connection.stream).is_ok() {
                tracing::debug!(from = %self.own, to = %peer, "released idle shared memory");
                self.leave(peer, index);
            }
        }
    }

    /// A thread sleeps from now on, or does not any more. Returns whether there is something to do.
    pub fn watch(&mut self, sleeper: Sleeper) -> bool {
        self.sleeper = sleeper;
        if sleeper != Sleeper::Nobody {
            return self.sleep() | self.crowd;
        }
        for stream in self.streams.iter_mut().flatten() {
            if let Stream::Connection(connection) = stream {
                connection.rings.wake();
            }
        }
        false
    }

    /// Has every peer ring for what it sends from now on. Returns whether something has come before.
    fn sleep(&mut self) -> bool {
        let mut busy = false;
        self.sleep = self.sleep.next(self.sleeper);
        for stream in self.streams.iter_mut().flatten() {
            let Stream::Connection(connection) = stream else { continue };
            connection.publish_head();
            match connection.rings.sleep(self.sleep) {
                Ok(more) => busy |= more,
                Err(corrupt) => {
                    connection.corrupt = Some(corrupt);
                    busy = true;
                }
            }
        }
        busy
    }

    /// Whether a thread waits on the descriptor.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.sleeper == Sleeper::Thread
    }

    /// Where a caller sleeps.
    pub fn caller_wake_fd(&self) -> RawFd {
        self.bells.caller.as_raw_fd()
    }
}

#[cfg(feature = "fuzz")]
impl Connections {
    pub fn each(&self) -> impl Iterator<Item = &Connection> {
        self.streams.iter().flatten().filter_map(|stream| match stream {
            Stream::Connection(connection) => Some(&**connection),
            _ => None,
        })
    }
}

#[cfg(test)]
impl Connections {
    /// Connections, and streams that are none yet.
    pub fn count(&self) -> (usize, usize) {
        let streams = self.streams.iter().flatten();
        let (connections, others): (Vec<_>, Vec<_>) =
            streams.partition(|stream| matches!(stream, Stream::Connection(_)));
        (connections.len(), others.len())
    }
}
