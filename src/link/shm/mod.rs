//! Shared memory between the processes of one user on one machine: [`ShmLink`] is a link with such a road to every peer
//! that can have one, above another link for all others.
//!
//! A datagram takes the road to its destination address if there is one, with its ICRC and all, and else the link below.
//! Roads are made when something is first sent to an address: the process that has the address is asked by its name
//! (`hello.rs`), and until it has answered datagrams go below. Each side writes memory of its own that the other can
//! only read (`segment.rs`), in rings of records (`ring.rs`). A full ring is no loss: the sender waits.
//!
//! An eventfd wakes a sleeping peer. A caller that polls reads the rings, which takes no system call, and asks the kernel
//! for everything else only every 50 µs.

#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod header;
mod hello;
mod ring;
mod road;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use softrnic_wire::{DF, IpFacts, Time};

use crate::audit::FrameAudit;
use crate::{Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, TxError, TxSlot};

use hello::{Heard, Message};
use ring::{Addressing, MAX_DATAGRAM, NoRoom};
use road::Road;
use segment::{MAX_CAPACITY, MIN_CAPACITY, Own};

/// A caller that polls asks the kernel this often for what is not in the rings.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// After a datagram on the link below, that is asked each time for so long.
const BELOW_ACTIVE: Duration = Duration::from_millis(1);
/// An address at which no process listened is tried again after this.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that are remembered, and roads.
const MOST: usize = 4096;
/// Those who connect that are let in at a time.
const MOST_LET_IN: usize = 16;

/// Roads of the largest rings, and of the second size: all rings of 64 processes that talk to all others take 230 MiB.
const LARGE_ROADS: usize = 4;
const MEDIUM_ROADS: usize = 16;
const MEDIUM_CAPACITY: usize = 64 << 10;

/// See the [module](self).
pub struct ShmLink<L> {
    below: L,
    address: IpAddr,
    capabilities: Capabilities,
    counters: LinkCounters,
    listener: OwnedFd,
    bell: OwnedFd,
    /// Everything that can wake a sleeper.
    epoll: OwnedFd,
    below_watched: Option<(RawFd, bool)>,
    /// By token; those that have ended leave a hole.
    streams: Vec<Option<Stream>>,
    ways: HashMap<IpAddr, Way>,
    /// Where the slot that was reserved last is.
    reserved: Option<usize>,
    next_id: u16,
    /// Roads with something that the peer cannot see yet.
    unshown: Vec<usize>,
    next_look: Time,
    below_until: Time,
    /// A thread waits on the descriptor; and how often one has.
    watched: bool,
    sleeps: u32,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

/// A stream to a peer, and what has come of it.
enum Stream {
    /// We have asked, and given a segment.
    Asked {
        socket: OwnedFd,
        own: Own,
        peer: IpAddr,
        since: Time,
    },
    /// A peer has connected, and not said anything yet.
    Came {
        socket: OwnedFd,
        since: Time,
    },
    Road(Box<Road>),
}

/// How to get to an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Road(usize),
    /// Below; after this time a road may be asked for again.
    Below(Time),
}

/// Tokens of the epoll instance below those of the streams.
const BELOW: u64 = 0;
const LISTENER: u64 = 1;
const BELL: u64 = 2;
const FIRST_STREAM: u64 = 3;

impl<L: Link> ShmLink<L> {
    /// Adds roads to a link whose only address is `address`.
    ///
    /// # Errors
    /// The kernel has no such memory, or another socket has the address' name; the link comes back.
    pub fn new(below: L, address: IpAddr) -> Result<ShmLink<L>, (L, io::Error)> {
        match Sockets::open(address) {
            Ok(Sockets { listener, bell, epoll }) => {
                let mut capabilities = below.capabilities().clone();
                capabilities.mode.push_str(", shared memory on this machine");
                let mut link = ShmLink {
                    below,
                    address,
                    capabilities,
                    counters: LinkCounters::default(),
                    listener,
                    bell,
                    epoll,
                    below_watched: None,
                    streams: Vec::new(),
                    ways: HashMap::new(),
                    reserved: None,
                    next_id: 0,
                    unshown: Vec::new(),
                    next_look: Time::ZERO,
                    below_until: Time::ZERO,
                    watched: false,
                    sleeps: 0,
                    buffer: Box::new([0; MAX_DATAGRAM]),
                };
                link.watch_below();
                Ok(link)
            }
            Err(error) => Err((below, error)),
        }
    }

    /// The link below may wait for other things by now.
    fn watch_below(&mut self) {
        let wanted = self.below.descriptor().map(|fd| (fd, self.below.is_blocked()));
        if self.below_watched == wanted {
            return;
        }
        if let Some((fd, _)) = self.below_watched.take() {
            // It may be closed by now, which has removed it.
            let _ = self.epoll_below(libc::EPOLL_CTL_DEL, fd, 0);
        }
        if let Some((fd, blocked)) = wanted {
            let events = if blocked { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
            if self.epoll_below(libc::EPOLL_CTL_ADD, fd, events).is_ok() {
                self.below_watched = wanted;
            }
        }
    }

    /// By number: nobody can say that the descriptor is still open, and the kernel does not mind.
    fn epoll_below(&self, operation: i32, fd: RawFd, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: BELOW };
        // SAFETY: the event lives through the call, which reads it.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The road to an address, if there is one. Otherwise it may ask for one.
    fn road_to(&mut self, now: Time, to: IpAddr) -> Option<usize> {
        match self.ways.get(&to) {
            Some(&Way::Road(index)) => Some(index),
            Some(&Way::Below(until)) if now < until => None,
            _ if to.is_multicast() => None,
            _ => {
                self.ask(now, to);
                None
            }
        }
    }

    #[cold]
    fn ask(&mut self, now: Time, peer: IpAddr) {
        self.forget_the_slow(now);
        if self.ways.len() >= MOST {
            self.ways.retain(|_, way| matches!(way, Way::Road(_)));
        }
        self.ways.insert(peer, Way::Below(now + ASK_AGAIN));
        // Refused for addresses of other machines, and of kernel rxe.
        let Ok(socket) = hello::ask(peer) else { return };
        let Ok((own, segment)) = Own::create(self.capacity()) else { return };
        if hello::offer(&socket, self.address, &segment, &self.bell).is_ok() {
            self.ways.insert(peer, Way::Below(now + PATIENCE));
            self.keep(Stream::Asked { socket, own, peer, since: now });
            self.next_look = now;
        }
    }

    /// Of the next road's rings.
    fn capacity(&self) -> usize {
        match self.streams.iter().flatten().count() {
            0..LARGE_ROADS => MAX_CAPACITY,
            LARGE_ROADS..MEDIUM_ROADS => MEDIUM_CAPACITY,
            _ => MIN_CAPACITY,
        }
    }

    fn keep(&mut self, stream: Stream) {
        let index = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        let token = epoll::EventData::new_u64(FIRST_STREAM + index as u64);
        let socket = match &stream {
            Stream::Asked { socket, .. } | Stream::Came { socket, .. } => socket,
            Stream::Road(road) => &road.stream,
        };
        if index >= MOST || epoll::add(&self.epoll, socket, token, epoll::EventFlags::IN).is_err() {
            return;
        }
        if index == self.streams.len() {
            self.streams.push(None);
        }
        self.streams[index] = Some(stream);
    }

    /// Asks the kernel what has come besides what is in the rings.
    #[cold]
    fn look(&mut self, now: Time) {
        self.next_look = now + LOOK_INTERVAL;
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) else { return };
        for event in &events[..count] {
            match event.data.u64() {
                BELOW => self.below_until = now + BELOW_ACTIVE,
                LISTENER => self.let_in(now),
                BELL => {
                    let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                }
                token => self.hear(now, (token - FIRST_STREAM) as usize),
            }
        }
    }

    fn let_in(&mut self, now: Time) {
        use rustix::net::{SocketFlags, accept_with};
        for _ in 0..MOST_LET_IN {
            let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
                break;
            };
            if hello::is_believed(&socket) {
                self.keep(Stream::Came { socket, since: now });
            }
        }
        self.forget_the_slow(now);
    }

    /// Those that have asked or been asked, and say nothing.
    fn forget_the_slow(&mut self, now: Time) {
        for stream in &mut self.streams {
            let late = match stream {
                Some(Stream::Asked { since, .. } | Stream::Came { since, .. }) => {
                    now.since(*since) >= PATIENCE
                }
                _ => false,
            };
            if late {
                *stream = None;
            }
        }
    }

    fn hear(&mut self, now: Time, index: usize) {
        let Some(stream) = self.streams.get_mut(index).and_then(Option::take) else { return };
        match stream {
            Stream::Road(mut road) => {
                // Nothing is said on it any more.
                road.ended |= !matches!(hello::hear(&road.stream), Heard::Nothing);
                if road.ended {
                    self.ways.remove(&road.peer);
                    // Otherwise it would wake everybody for ever.
                    let _ = epoll::delete(&self.epoll, &road.stream);
                }
                self.streams[index] = Some(Stream::Road(road));
            }
            Stream::Asked { socket, own, peer, since } => match hello::hear(&socket) {
                Heard::Nothing => self.streams[index] = Some(Stream::Asked { socket, own, peer, since }),
                Heard::Message(Message::Offer { address, segment, bell }) if address == peer => {
                    self.open(index, Road::new(peer, socket, own, &segment, bell));
                }
                Heard::Message(Message::Refusal) => {}
                Heard::Message(_) | Heard::End => {
                    self.ways.insert(peer, Way::Below(now + ASK_AGAIN));
                }
            },
            Stream::Came { socket, since } => match hello::hear(&socket) {
                Heard::Nothing => self.streams[index] = Some(Stream::Came { socket, since }),
                Heard::Message(Message::Offer { address, segment, bell }) => {
                    if let Some(road) = self.answer(address, socket, &segment, bell) {
                        self.open(index, road);
                    }
                }
                Heard::Message(Message::Refusal) | Heard::End => {}
            },
        }
    }

    /// A peer asks for a road. If we have asked it as well, the request of the lower address counts. A link that asks
    /// itself gets both ends.
    fn answer(
        &mut self,
        peer: IpAddr,
        socket: OwnedFd,
        segment: &OwnedFd,
        bell: OwnedFd,
    ) -> Option<io::Result<Road>> {
        let asked = self.streams.iter().flatten().any(|stream| match stream {
            Stream::Asked { peer: asked, .. } => *asked == peer,
            _ => false,
        });
        if asked && self.address < peer || !self.can_have(peer) {
            let _ = hello::refuse(&socket);
            return None;
        }
        let (own, file) = Own::create(self.capacity()).ok()?;
        let road = Road::new(peer, socket, own, segment, bell);
        if let Ok(road) = &road
            && hello::offer(&road.stream, self.address, &file, &self.bell).is_err()
        {
            return None;
        }
        Some(road)
    }

    /// Whether a peer can have this address.
    fn can_have(&self, peer: IpAddr) -> bool {
        let nobodys = match peer {
            IpAddr::V4(peer) => peer.is_unspecified() || peer.is_multicast() || peer.is_broadcast(),
            IpAddr::V6(peer) => peer.is_unspecified() || peer.is_multicast(),
        };
        !nobodys && peer.is_ipv4() == self.address.is_ipv4()
    }

    fn open(&mut self, index: usize, road: io::Result<Road>) {
        let Ok(mut road) = road else { return };
        if self.watched {
            // What has come on it already is found in the step that this is part of.
            let _ = road.rings.sleep(self.sleeps);
        }
        match self.ways.get(&road.peer).copied() {
            Some(Way::Road(_)) if road.peer == self.address => {}
            way => {
                // It leads to a process that has gone.
                if let Some(Way::Road(older)) = way
                    && let Some(older) = self.road(older)
                {
                    older.ended = true;
                }
                self.ways.insert(road.peer, Way::Road(index));
            }
        }
        self.streams[index] = Some(Stream::Road(Box::new(road)));
    }

    fn road(&mut self, index: usize) -> Option<&mut Road> {
        match self.streams.get_mut(index)? {
            Some(Stream::Road(road)) => Some(road),
            _ => None,
        }
    }

    #[inline]
    fn reserve_on_road(
        &mut self,
        now: Time,
        index: usize,
        flow: &Flow,
        ip: IpFacts,
        len: usize,
    ) -> Result<TxSlot<'_>, TxError> {
        match self.road(index).map(|road| road.rings.reserve(len)) {
            Some(Ok(())) => {}
            Some(Err(NoRoom::Full)) => return Err(TxError::Full),
            Some(Err(NoRoom::Corrupt(_))) => {
                self.counters.rx_malformed += 1;
                self.close(now, index);
                return Err(TxError::Unreachable);
            }
            None => return Err(TxError::Unreachable),
        }
        let addressing = Addressing { sport: flow.sport, id: self.next_id, tos: flow.tos, ttl: flow.ttl };
        self.next_id = self.next_id.wrapping_add(1);
        self.reserved = Some(index);
        let bytes = self.road(index).map_or(&mut [][..], |road| road.rings.slot(addressing));
        Ok(TxSlot { bytes, ip, sport: flow.sport })
    }

    /// Takes a road away: its peer has gone, or writes what cannot be.
    #[cold]
    fn close(&mut self, now: Time, index: usize) {
        let Some(Some(Stream::Road(road))) = self.streams.get_mut(index).map(Option::take) else { return };
        if self.ways.get(&road.peer) == Some(&Way::Road(index)) {
            self.ways.insert(road.peer, Way::Below(now + ASK_AGAIN));
        }
        self.unshown.retain(|&other| other != index);
    }
}

/// What a link has besides its roads.
struct Sockets {
    listener: OwnedFd,
    bell: OwnedFd,
    epoll: OwnedFd,
}

impl Sockets {
    fn open(address: IpAddr) -> io::Result<Sockets> {
        // Whether there is such memory at all.
        Own::create(MIN_CAPACITY)?;
        let listener = hello::take_name(address)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Sockets { listener, bell, epoll })
    }
}

fn facts(src: IpAddr, dst: IpAddr, id: u16) -> Option<IpFacts> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(IpFacts::V4 { src, dst, id, flags_frag: DF }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(IpFacts::V6 { src, dst }),
        _ => None,
    }
}

impl<L: Link> Link for ShmLink<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    #[inline]
    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.reserved = None;
        if flow.src == self.address
            && (1..=MAX_DATAGRAM).contains(&len)
            && let Some(index) = self.road_to(now, flow.dst)
            && let Some(ip) = facts(flow.src, flow.dst, self.next_id)
        {
            return self.reserve_on_road(now, index, flow, ip, len);
        }
        self.below_until = now + BELOW_ACTIVE;
        self.below.reserve(now, flow, len)
    }

    fn reserved(&self) -> &[u8] {
        match self.reserved.and_then(|index| self.streams[index].as_ref()) {
            Some(Stream::Road(road)) => road.rings.reserved(),
            _ => self.below.reserved(),
        }
    }

    #[inline]
    fn commit(&mut self, now: Time) {
        let Some(index) = self.reserved.take() else { return self.below.commit(now) };
        let Some(Some(Stream::Road(road))) = self.streams.get_mut(index) else { return };
        if !std::mem::replace(&mut road.queued, true) {
            self.unshown.push(index);
        }
        self.counters.tx_datagrams += 1;
        self.counters.tx_bytes += road.rings.reserved().len() as u64;
        road.rings.commit();
    }

    fn flush(&mut self, now: Time) {
        while let Some(index) = self.unshown.pop() {
            if let Some(road) = self.road(index) {
                road.flush();
            }
            self.counters.tx_calls += 1;
        }
        self.below.flush(now);
        self.watch_below();
    }

    fn is_blocked(&self) -> bool {
        self.below.is_blocked()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        if now >= self.next_look || self.watched {
            self.look(now);
        }
        let mut left = budget;
        for index in 0..self.streams.len() {
            let Some(Stream::Road(road)) = &mut self.streams[index] else { continue };
            let mut corrupt = road.corrupt;
            if !road.begun && road.rings.has_more() {
                // What the peer sent before it had the road comes first.
                loop {
                    let before = self.below.counters().rx_datagrams;
                    let overrun = self.below.receive(now, left, sink);
                    left = left.saturating_sub((self.below.counters().rx_datagrams - before) as usize);
                    match overrun {
                        Overrun::Drained => break,
                        Overrun::Unknown if left > 0 => {}
                        _ => return Overrun::Budget,
                    }
                }
                road.begun = true;
            }
            while left > 0 && corrupt.is_none() {
                match road.rings.receive(&mut self.buffer) {
                    Ok(Some((len, addressing))) => {
                        left -= 1;
                        self.counters.rx_datagrams += 1;
                        self.counters.rx_bytes += len as u64;
                        let id = match self.address {
                            IpAddr::V4(_) => HeaderId::Seen { id: addressing.id, flags: DF },
                            IpAddr::V6(_) => HeaderId::None,
                        };
                        sink(Datagram {
                            src: road.peer,
                            dst: self.address,
                            sport: addressing.sport,
                            tos: addressing.tos,
                            ttl: addressing.ttl,
                            id,
                            ip_header: None,
                            bytes: &self.buffer[..len],
                        });
                        if road.rings.has_read_much() {
                            road.tell();
                        }
                    }
                    Ok(None) => break,
                    Err(found) => corrupt = Some(found),
                }
            }
            road.tell();
            let ended = road.ended && left > 0;
            if corrupt.is_some() {
                self.counters.rx_malformed += 1;
            }
            if corrupt.is_some() || ended {
                self.close(now, index);
            }
        }
        if left == 0 {
            return Overrun::Budget;
        }
        if now < self.below_until {
            let before = self.below.counters().rx_datagrams;
            let overrun = self.below.receive(now, left, sink);
            if self.below.counters().rx_datagrams != before {
                self.below_until = now + BELOW_ACTIVE;
            }
            return overrun;
        }
        Overrun::Drained
    }

    fn has_room(&mut self, now: Time, dst: IpAddr, len: usize) -> bool {
        // A full ring says so by itself.
        matches!(self.ways.get(&dst), Some(Way::Road(_))) || self.below.has_room(now, dst, len)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.below.poll_timeout()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn watch(&mut self, watched: bool) -> bool {
        let mut busy = false;
        // 0 is no sleep.
        self.sleeps = self.sleeps.checked_add(1).unwrap_or(1);
        for stream in self.streams.iter_mut().flatten() {
            let Stream::Road(road) = stream else { continue };
            if watched {
                match road.rings.sleep(self.sleeps) {
                    Ok(more) => busy |= more,
                    Err(corrupt) => {
                        road.corrupt = Some(corrupt);
                        busy = true;
                    }
                }
            } else {
                road.rings.wake();
            }
        }
        self.watched = watched;
        self.next_look = Time::ZERO;
        busy
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        let joined = self.below.join(group);
        self.watch_below();
        joined
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        let left = self.below.leave(group);
        self.watch_below();
        left
    }

    fn counters(&self) -> LinkCounters {
        let below = self.below.counters();
        LinkCounters {
            tx_datagrams: below.tx_datagrams + self.counters.tx_datagrams,
            tx_bytes: below.tx_bytes + self.counters.tx_bytes,
            tx_calls: below.tx_calls + self.counters.tx_calls,
            rx_datagrams: below.rx_datagrams + self.counters.rx_datagrams,
            rx_bytes: below.rx_bytes + self.counters.rx_bytes,
            rx_malformed: below.rx_malformed + self.counters.rx_malformed,
            ..below
        }
    }

    fn packet_memory(&self) -> Option<FrameAudit> {
        self.below.packet_memory()
    }

    fn stop_segmenting(&mut self) {
        self.below.stop_segmenting();
        self.capabilities.segments = 1;
    }

    fn show_headers(&mut self) {
        self.below.show_headers();
    }
}
