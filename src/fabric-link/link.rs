//! The NIC's end.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use softrnic_link::{
    Capabilities, Carrier, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, Sharing, Sleeper, TxError,
    TxSlot,
};
use softrnic_shm::pair::{Bells, MAX_DATAGRAM as BUFFER, Pair, Refused};
use softrnic_sys::pace;
use softrnic_wire::{DF, IpFacts, Time, UdpFacts};

use crate::join::{self, JoinError, Place};
use crate::network::{Network, NetworkName};
use crate::record::{GROUP_LEN, Headers, MAX_DATAGRAM, Record};
use crate::rendezvous::{self, Message, PeerMessage};
use crate::services::Services;

/// Looks at fabrics, of all links of this process.
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// A caller that polls asks the kernel this often for what is not in the rings.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// A fabric that has not read anything for this long is not waited for any more: its process is stopped.
const STALLED: Duration = Duration::from_millis(500);
/// What the fabric keeps for a NIC that does not read, with what is in the ring.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Tokens of the epoll instance.
const STREAM: u64 = 0;
const BELL: u64 = 1;

/// A link to a fabric. See the [crate](crate).
pub struct FabricLink {
    place: Place,
    network: Network,
    /// Absent once the fabric has ended.
    pair: Option<Pair>,
    services: Services,
    bells: Bells,
    epoll: OwnedFd,
    capabilities: Capabilities,
    counters: LinkCounters,
    sleeper: Sleeper,
    /// A slot is reserved.
    reserved: bool,
    /// Something was queued since the last flush.
    queued: bool,
    /// The fabric's ring has no room: how much it had read then, and until when it is waited for.
    full: Option<(u64, Time)>,
    /// When to stop waiting for it; never, if it is not waited for.
    gives_up_at: Time,
    /// Priorities that the fabric has paused, one bit each.
    paused: u8,
    /// A cable of the host is up, and what is rung when that changes.
    is_up: bool,
    changed: OwnedFd,
    next_look: Time,
    buffer: Box<[u8; BUFFER]>,
}

impl FabricLink {
    /// Joins the fabric with this name as a process of one of its hosts.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(fabric: &str, host: &str) -> Result<FabricLink, JoinError> {
        let name = NetworkName::new(fabric).ok_or_else(|| JoinError::NoFabric(fabric.into()))?;
        let bells = Bells::new()?;
        let joined = join::join(fabric, host, &bells)?;
        let place = joined.place;
        if !pace::slow_down(place.slow, &LOOKS) {
            return Err(JoinError::Pace(fabric.into(), place.slow));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let [thread, _] = bells.files();
        epoll::add(&epoll, &joined.stream, epoll::EventData::new_u64(STREAM), epoll::EventFlags::IN)?;
        epoll::add(&epoll, thread, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let [quiet, changed] = [event()?, event()?];
        let capabilities = Capabilities {
            max_datagram: MAX_DATAGRAM,
            ip_mtu: place.ip_mtu.into(),
            sees_ip_header: true,
            receive_buffer: RECEIVE_BUFFER,
            slot: Some(place.slot),
            ..Capabilities::none(&format!("fabric {fabric}, host {host}"))
        };
        Ok(FabricLink {
            place,
            network: Network::new(name, &place),
            pair: Some(joined.pair),
            services: Services::new(quiet, joined.stream, place.processes),
            bells,
            epoll,
            capabilities,
            counters: LinkCounters::default(),
            sleeper: Sleeper::Nobody,
            reserved: false,
            queued: false,
            full: None,
            gives_up_at: Time::NEVER,
            paused: 0,
            is_up: place.is_up,
            changed,
            next_look: Time::ZERO,
            buffer: Box::new([0; BUFFER]),
        })
    }

    /// The network that it leads to.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The host's address.
    pub fn address(&self) -> IpAddr {
        self.place.address.into()
    }

    /// Asks the kernel what has come besides what is in the ring.
    #[cold]
    fn look(&mut self, now: Time) {
        self.next_look = now + pace::from_the_wall(LOOK_INTERVAL);
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&at_once)).unwrap_or(0);
        for event in &events[..count] {
            match event.data.u64() {
                BELL => {
                    self.bells.silence();
                    if self.sleeper == Sleeper::Thread {
                        // Another thread than the one that waits may take note: the fabric is to ring for what comes next.
                        self.sleep();
                    }
                }
                _ => self.hear(),
            }
        }
        if now >= self.gives_up_at {
            self.gives_up_at = Time::NEVER;
        }
    }

    fn hear(&mut self) {
        let Some(stream) = &self.services.stream else { return };
        match rendezvous::hear(stream) {
            PeerMessage::Message(Message::Served(served)) => self.services.answered(served),
            PeerMessage::Message(Message::Carrier(is_up)) => self.carry(is_up),
            PeerMessage::Nothing | PeerMessage::Message(_) => {}
            PeerMessage::End | PeerMessage::Garbage => self.end(),
        }
    }

    /// The network is dead: what is sent is lost, and nothing comes any more.
    #[cold]
    fn end(&mut self) {
        if let Some(stream) = self.services.stream.take() {
            let _ = epoll::delete(&self.epoll, &stream);
            tracing::warn!(address = %self.place.address, mode = self.capabilities.mode, "the fabric has ended");
        }
        self.pair = None;
        self.paused = 0;
        self.carry(false);
    }

    /// The state of the cable, which the port takes from here.
    fn carry(&mut self, is_up: bool) {
        if std::mem::replace(&mut self.is_up, is_up) != is_up {
            let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
        }
    }

    /// There is no room until the fabric reads. One that does not read is waited for only so long.
    #[cold]
    fn no_room(&mut self, now: Time) -> TxError {
        let Some(pair) = &self.pair else { return TxError::Unreachable };
        let read = pair.read_by_peer();
        let until = match self.full {
            Some((before, until)) if before == read => until,
            _ => {
                self.counters.shm_full += 1;
                now + pace::from_the_wall(STALLED)
            }
        };
        self.full = Some((read, until));
        if now < until {
            self.gives_up_at = until;
            return TxError::Full;
        }
        self.counters.tx_errors += 1;
        TxError::Unreachable
    }

    /// The fabric rings for what it sends from now on. Returns whether something has come before.
    fn sleep(&mut self) -> bool {
        let sleeper = self.sleeper;
        match self.pair.as_mut().map(|pair| pair.sleep(sleeper)) {
            Some(Ok(more)) => more,
            Some(Err(_)) => {
                self.give_up();
                true
            }
            None => false,
        }
    }

    /// The fabric violates the protocol of the rings.
    #[cold]
    fn give_up(&mut self) {
        self.counters.shm_corrupt += 1;
        self.end();
    }
}

/// Somebody looks at the network. If two do so at once, it may count as one look.
#[inline]
fn note_look() {
    LOOKS.store(LOOKS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Something that can be rung.
fn event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// The priority of a packet, as the fabric's switches have it.
fn priority(tos: u8) -> u8 {
    tos >> 5
}

impl Link for FabricLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        self.reserved = false;
        if len == 0 || len > MAX_DATAGRAM {
            return Err(TxError::TooLong);
        }
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else {
            return Err(TxError::Unreachable);
        };
        if self.paused >> priority(flow.tos) & 1 != 0 {
            return Err(TxError::Full);
        }
        match self.pair.as_mut().map(|pair| pair.reserve(len)) {
            Some(Ok(())) => {}
            Some(Err(Refused::Full)) => return Err(self.no_room(now)),
            Some(Err(Refused::Corrupt)) => {
                self.give_up();
                return Err(TxError::Unreachable);
            }
            None => return Err(TxError::Unreachable),
        }
        self.full = None;
        self.reserved = true;
        let headers = Headers { peer: dst, sport: flow.sport, tos: flow.tos, ttl: flow.ttl };
        let bytes = self.pair.as_mut().map_or(&mut [][..], |pair| pair.slot(&Record::Packet(headers).note()));
        let ip = IpFacts::V4 { src, dst, id: 0, flags_frag: DF };
        Ok(TxSlot { bytes, facts: UdpFacts::roce(ip, flow.sport), wants_icrc: true })
    }

    fn reserved(&self) -> &[u8] {
        self.pair.as_ref().filter(|_| self.reserved).map_or(&[], Pair::reserved)
    }

    fn commit(&mut self, _now: Time) {
        if !std::mem::take(&mut self.reserved) {
            return;
        }
        if let Some(pair) = &mut self.pair {
            self.counters.tx_datagrams += 1;
            self.counters.tx_bytes += pair.reserved().len() as u64;
            pair.commit();
            self.queued = true;
        }
    }

    fn show(&mut self) {
        if let Some(pair) = self.pair.as_mut().filter(|_| self.queued) {
            pair.show();
        }
    }

    fn flush(&mut self, _now: Time) {
        if std::mem::take(&mut self.queued)
            && let Some(pair) = &mut self.pair
        {
            pair.flush();
            self.counters.tx_calls += 1;
        }
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        note_look();
        if now >= self.next_look || self.sleeper == Sleeper::Thread {
            self.look(now);
        }
        let Some(pair) = &mut self.pair else { return Overrun::Drained };
        let mut left = budget;
        let broken = loop {
            if left == 0 {
                pair.publish_head();
                self.bells.ring_own(self.sleeper);
                return Overrun::Budget;
            }
            match pair.receive(&mut self.buffer) {
                Ok(Some((len, note))) => {
                    let (headers, len, dst) = match Record::read(&note) {
                        Some(Record::Paused(priorities)) => {
                            self.paused = priorities;
                            continue;
                        }
                        Some(Record::Packet(headers)) => (headers, len, self.place.address),
                        Some(Record::GroupPacket(headers)) if len >= GROUP_LEN => {
                            let at = len - GROUP_LEN;
                            let group: [u8; GROUP_LEN] = std::array::from_fn(|i| self.buffer[at + i]);
                            (headers, at, Ipv4Addr::from(group))
                        }
                        _ => break true,
                    };
                    left -= 1;
                    self.counters.rx_datagrams += 1;
                    self.counters.rx_bytes += len as u64;
                    sink(Datagram {
                        src: headers.peer.into(),
                        dst: dst.into(),
                        sport: headers.sport,
                        tos: headers.tos,
                        ttl: headers.ttl,
                        id: HeaderId::Seen { id: 0, flags: DF },
                        ip_header: None,
                        bytes: &self.buffer[..len],
                        has_icrc: true,
                        record: None,
                    });
                    if pair.has_read_much() {
                        pair.publish_head();
                    }
                }
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        if broken {
            self.give_up();
        } else {
            pair.publish_head();
        }
        Overrun::Drained
    }

    fn receives_in_memory(&self, _now: Time) -> bool {
        true
    }

    fn is_quiet(&mut self, now: Time) -> bool {
        note_look();
        now < self.next_look
            && !self.queued
            && self.sleeper != Sleeper::Thread
            && self.pair.as_ref().is_none_or(Pair::is_quiet)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.gives_up_at).filter(|&at| at != Time::NEVER)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        self.sleeper = sleeper;
        if sleeper == Sleeper::Nobody {
            if let Some(pair) = &mut self.pair {
                pair.wake();
            }
            self.next_look = Time::ZERO;
            return false;
        }
        let busy = self.sleep();
        if busy || sleeper != Sleeper::Caller {
            self.next_look = Time::ZERO;
        }
        busy
    }

    fn caller_wake_fd(&self) -> Option<RawFd> {
        Some(self.bells.caller())
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.tell_of_group(group, Message::JoinGroup)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.tell_of_group(group, Message::LeaveGroup)
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(&mut self.services)
    }

    fn carrier(&mut self) -> Option<Carrier> {
        let _ = rustix::io::read(&self.changed, &mut [0; 8]);
        Some(Carrier { is_up: self.is_up, descriptor: self.changed.as_raw_fd() })
    }
}

impl FabricLink {
    fn tell_of_group(&self, group: IpAddr, message: fn(Ipv4Addr) -> Message) -> io::Result<()> {
        let IpAddr::V4(group) = group else { return Err(io::ErrorKind::Unsupported.into()) };
        match &self.services.stream {
            Some(stream) => Ok(rendezvous::say(stream, &message(group))?),
            None => Err(io::ErrorKind::NetworkDown.into()),
        }
    }
}
