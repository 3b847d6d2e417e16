//! The loop: time passes, packets are taken, packets are given.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use softrnic_fabric::{
    DropReason, Fabric, Frame, Host, Meddling, NodeKind, Observer, PRIORITIES, Picos, PortId, Priority, To,
};
use softrnic_fabric_link::rendezvous::{self, Answer};
use softrnic_link::capture::Capture;
use softrnic_shm::pair::{Bells, MAX_DATAGRAM};
use softrnic_study::{Becomes, Change, Description, Packet, Spares, Watch};

use crate::cargo::{Cargo, EthernetFrame};
use crate::clock::Clock;
use crate::host::HostState;
use crate::interface::{Interface, Stations};
use crate::lateness::Lateness;
use crate::member::{FULL, Member};
use crate::outside::open_interfaces;
use crate::up_error::UpError;

/// Ethernet, IPv4 and UDP headers, FCS, preamble and gap: bytes that a packet takes on the wire besides its own.
const OVERHEAD: u32 = 66;
/// What is due this soon is waited for awake: the kernel wakes nobody so precisely.
const AWAKE: Duration = Duration::from_micros(10);
/// How often the kernel is asked for what is not in the rings, while there is no sleep.
const LOOK_INTERVAL: Picos = Picos::from_micros(500);
/// Events of the model between two looks at the rings, and packets taken from one NIC.
const EVENTS: usize = 512;
pub(crate) const BUDGET: usize = 64;

/// When an interface is asked again that did not take all.
const RETRY: Duration = Duration::from_micros(100);

/// Its programs may use all processors, and wait for it.
const SLICE: Duration = Duration::from_micros(100);

/// Tokens of the epoll instance.
pub(crate) const LISTENER: u64 = 0;
const BELL: u64 = 1;
const STOP: u64 = 2;
/// The next turn takes what has come there.
pub(crate) const INTERFACE: u64 = 3;
pub(crate) const FIRST_PEER: u64 = 4;

/// Somebody who has connected.
pub(crate) enum Peer {
    /// It has not said yet who it is.
    Unidentified(OwnedFd),
    /// A NIC.
    Member(Box<Member>),
    /// A NIC that has ended, and whose last packets have not left yet.
    Ended(Box<Member>),
    /// A command of it was carried out, and it has not read all of the answer.
    Asker(OwnedFd, Answer),
}

/// A fabric that runs.
pub struct Live {
    pub(crate) name: String,
    pub(crate) fabric: Fabric<Cargo>,
    pub(crate) hosts: Vec<HostState>,
    addresses: Ipv4Addr,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) stations: Stations,
    pub(crate) peers: Vec<Option<Peer>>,
    pub(crate) seen: Seen,
    clock: Clock,
    pub(crate) slow: u32,
    /// How far virtual time has come.
    pub(crate) now: Picos,
    /// Changes of links that are to come, by time.
    pub(crate) changes: VecDeque<Change>,
    pub(crate) lateness: Lateness,
    /// Frames for addresses that no host has, and for queue pairs of no process.
    pub(crate) astray: u64,
    pub(crate) ends: bool,
    pub(crate) listener: OwnedFd,
    /// Descriptors may run out: what is closed then, to hear one more.
    pub(crate) spare_file: Option<OwnedFd>,
    /// Whether those who come are let in now.
    pub(crate) listens: bool,
    pub(crate) epoll: OwnedFd,
    pub(crate) bells: Bells,
    look_at: Picos,
    buffer: Box<[u8; MAX_DATAGRAM]>,
    spares: Spares<Packet>,
    /// What has been taken from NICs, and does not leave yet.
    taken: Vec<(usize, Box<Packet>)>,
    pub(crate) spare_frames: Spares<EthernetFrame>,
    /// Frames that have just come from outside; empty in between.
    #[expect(clippy::vec_box, reason = "the boxes are what is handed on")]
    pub(crate) come: Vec<Box<EthernetFrame>>,
}

/// What the model told of an event.
#[derive(Default)]
pub(crate) struct Seen {
    arrived: Vec<(Host, Cargo)>,
    room: Vec<Host>,
    /// Hosts one of whose cables has changed.
    changed: Vec<Host>,
    watch: Watch,
}

impl Observer<Cargo> for Seen {
    fn deliver(&mut self, _at: Picos, host: Host, frame: Frame<Cargo>) {
        // What is left of a trimmed frame fails its ICRC, as in a NIC that does not know trimming.
        if !frame.trimmed {
            self.arrived.push((host, frame.payload.arrived(frame.ect)));
        }
    }

    fn has_room(&mut self, _at: Picos, host: Host) {
        self.room.push(host);
    }

    fn link_changed(&mut self, _at: Picos, host: Host, _is_up: bool) {
        self.changed.push(host);
    }

    #[inline]
    fn watches(&self) -> bool {
        self.watch.is_on()
    }

    #[inline]
    fn meddle(&mut self, at: Picos, port: PortId, frame: &mut Frame<Cargo>) -> Option<Meddling> {
        self.watch.meddle(at, port, frame)
    }

    #[inline]
    fn sent(&mut self, at: Picos, port: PortId, frame: &Frame<Cargo>) {
        self.watch.sent(at, port, frame);
    }

    fn marked(&mut self, _at: Picos, port: PortId, _frame: &Frame<Cargo>) {
        self.watch.marked(port);
    }

    fn dropped(&mut self, at: Picos, port: PortId, frame: &Frame<Cargo>, reason: DropReason) {
        self.watch.dropped(at, port, frame, reason);
    }

    fn paused(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.watch.paused(at, port, priority, true);
    }

    fn resumed(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.watch.paused(at, port, priority, false);
    }
}

impl Live {
    /// Brings a fabric up. It runs while [`run`](Live::run) does.
    ///
    /// # Errors
    /// See [`UpError`].
    pub fn up(name: &str, description: &Description) -> Result<Live, UpError> {
        let mut fabric =
            Fabric::new(description.topology.clone(), description.seed).map_err(UpError::Topology)?;
        fabric.set_convergence(description.convergence);
        if !description.interfaces.is_empty() && description.slow > 1 {
            return Err(UpError::InterfaceInSlowMotion);
        }
        let listener = rendezvous::listen(name).map_err(|error| match error {
            Errno::ADDRINUSE if rendezvous::connect(name).err() == Some(Errno::PERM) => {
                UpError::NameOfOthers(name.into())
            }
            Errno::ADDRINUSE => UpError::NameTaken(name.into()),
            error => error.into(),
        })?;
        let bells = Bells::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let [bell, _] = bells.files();
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let base = u32::from(description.addresses);
        let hosts = (0..fabric.topology().hosts().len() as u32)
            .map(|host| HostState::new(Host(host), Ipv4Addr::from(base.wrapping_add(host + 1)), &fabric));
        let mut hosts: Vec<HostState> = hosts.collect();
        let interfaces = open_interfaces(&description.interfaces, &mut fabric, &mut hosts, &epoll)?;
        Ok(Live {
            name: name.into(),
            hosts,
            interfaces,
            stations: Stations::default(),
            fabric,
            addresses: description.addresses,
            peers: Vec::new(),
            seen: Seen::default(),
            clock: Clock::start(description.slow),
            slow: description.slow,
            now: Picos::ZERO,
            changes: description.changes.iter().cloned().collect(),
            lateness: Lateness::default(),
            astray: 0,
            ends: false,
            spare_file: Some(listener.try_clone()?),
            listens: true,
            listener,
            epoll,
            bells,
            look_at: Picos::ZERO,
            buffer: Box::new([0; MAX_DATAGRAM]),
            spares: Spares::default(),
            taken: Vec::new(),
            spare_frames: Spares::default(),
            come: Vec::new(),
        })
    }

    /// Records what leaves by each port. `epoch` is when the fabric came up, in nanoseconds since 1970.
    pub fn capture(&mut self, capture: &Capture, epoch: u64) {
        self.seen.watch.capture(capture, self.fabric.topology(), epoch);
    }

    /// Runs until somebody ends it, or `stop` is readable. Then the NICs that have joined are on a dead network.
    ///
    /// # Errors
    /// The kernel does not say what has come.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), UpError> {
        epoll::add(&self.epoll, stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        // The kernel adds 50 µs to each timeout otherwise.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        softrnic_sys::ask_for_short_slices(SLICE);
        while !self.ends {
            if !self.turn() {
                self.rest()?;
            }
        }
        Ok(())
    }

    /// Names of the hosts, and their addresses or interfaces.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, String)> {
        self.hosts.iter().map(|state| {
            let interface = self.interface_of(state.host).map(str::to_owned);
            (self.host_name(state.host), interface.unwrap_or_else(|| state.address.to_string()))
        })
    }

    pub(crate) fn host_name(&self, host: Host) -> &str {
        let topology = self.fabric.topology();
        topology.name(topology.node_of(host))
    }

    /// Lets pass what time has passed, and takes and gives packets. Returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let clock = self.clock.now();
        let mut handled = self.advance(clock);
        let mut taken = 0;
        for peer in 0..self.peers.len() {
            taken += self.take_from(peer);
        }
        if !self.taken.is_empty() {
            // Nothing leaves before it was sent, however long ago this turn began.
            handled += self.advance(self.clock.now());
            self.let_leave();
        }
        for interface in 0..self.interfaces.len() {
            taken += self.take_from_interface(interface);
        }
        for peer in 0..self.peers.len() {
            self.flush(peer);
        }
        for interface in &mut self.interfaces {
            interface.tap.flush();
        }
        self.pause_switches();
        if clock >= self.look_at {
            let _ = self.look(Duration::ZERO);
        }
        handled + taken > 0
    }

    /// Lets happen what is due. If that is much, the rest is due in the next turn.
    fn advance(&mut self, clock: Picos) -> usize {
        let mut handled = 0;
        loop {
            let event = self.fabric.next_event().unwrap_or(Picos::NEVER);
            let change = self.changes.front().map_or(Picos::NEVER, |change| change.at);
            if event.min(change) > clock {
                self.now = clock;
                return handled;
            }
            if handled == EVENTS {
                return handled;
            }
            handled += 1;
            if change <= event {
                if let Some(change) = self.changes.pop_front() {
                    self.now = self.now.max(change.at);
                    self.change(change.port, &change.becomes);
                }
                continue;
            }
            self.now = event;
            self.fabric.step(&mut self.seen);
            self.serve(clock);
        }
    }

    /// Changes a link now.
    pub(crate) fn change(&mut self, port: PortId, becomes: &Becomes) {
        match becomes {
            Becomes::Link(change) => self.fabric.change(self.now, port.link(), *change, &mut self.seen),
            Becomes::Faulty(faults) => self.seen.watch.inject(self.now, port, faults),
        }
        self.serve(self.now);
        for host in std::mem::take(&mut self.seen.changed) {
            self.tell_of_carrier(host);
        }
    }

    /// Gives packets that have arrived to NICs, and hands over more where there is room.
    pub(crate) fn serve(&mut self, clock: Picos) {
        while !(self.seen.arrived.is_empty() && self.seen.room.is_empty()) {
            for (host, cargo) in std::mem::take(&mut self.seen.arrived) {
                self.lateness.note(self.now, clock);
                match cargo {
                    Cargo::Packet(packet) => self.deliver(host, packet, true),
                    Cargo::Frame(frame) => self.deliver_outside(host, frame),
                }
            }
            for host in std::mem::take(&mut self.seen.room) {
                self.feed(host);
            }
        }
    }

    /// Gives a packet to the NICs of a host that it is for. Whether it came by the cable decides what happens if one does not
    /// read: the switch can be paused, a NIC of the same host cannot.
    fn deliver(&mut self, host: Host, packet: Box<Packet>, by_cable: bool) {
        let state = &self.hosts[host.0 as usize];
        let IpAddr::V4(dst) = packet.dst else { return };
        if !dst.is_multicast() {
            match state.member_for(&packet.bytes) {
                Some(peer) => self.deliver_to(peer, packet, by_cable),
                None => self.lose(packet),
            }
            return;
        }
        let members: Vec<usize> = state.members.iter().flatten().copied().collect();
        for peer in members {
            if matches!(&self.peers[peer], Some(Peer::Member(member)) if member.groups.contains(&dst)) {
                self.deliver_to(peer, packet.clone(), by_cable);
            }
        }
    }

    fn deliver_to(&mut self, peer: usize, packet: Box<Packet>, by_cable: bool) {
        let priority = packet.tos >> 5;
        let Some(Peer::Member(member)) = &mut self.peers[peer] else { return self.lose(packet) };
        let is_lossless = by_cable && lossless(&self.fabric, member.host) >> priority & 1 != 0;
        match member.deliver(packet, is_lossless) {
            Ok(Some(written)) => self.spares.keep(written),
            Ok(None) => {}
            Err(_) => self.end(peer),
        }
    }

    fn lose(&mut self, packet: Box<Packet>) {
        self.astray += 1;
        self.spares.keep(packet);
    }

    /// Hands over to the port of a host what its NICs have sent, in turn, as far as there is room.
    pub(crate) fn feed(&mut self, host: Host) {
        let place = host.0 as usize;
        for priority in 0..PRIORITIES {
            while self.hosts[place].backlog[priority] > 0 && self.feed_one(place, priority) {}
        }
    }

    fn feed_one(&mut self, place: usize, priority: usize) -> bool {
        if let Some(interface) = self.hosts[place].interface {
            return self.feed_frame(place, interface, priority);
        }
        let state = &mut self.hosts[place];
        let links_up = state.ports.iter().find(|port| self.fabric.is_up(port.link()));
        let port = *links_up.unwrap_or(&state.ports[0]);
        let count = state.members.len();
        for step in 0..count {
            let number = (state.turns[priority] + step) % count;
            let Some(peer) = state.members[number] else { continue };
            let Some(Peer::Member(member) | Peer::Ended(member)) = &mut self.peers[peer] else { continue };
            let Some(packet) = member.sent[priority].front() else { continue };
            let bytes = packet.bytes.len() as u32 + OVERHEAD;
            if !self.fabric.has_room(port, packet.tos >> 2, bytes) {
                return false;
            }
            let Some(packet) = member.sent[priority].pop() else { return false };
            state.turns[priority] = number + 1;
            state.backlog[priority] -= 1;
            let to = match packet.dst {
                IpAddr::V4(group) if group.is_multicast() => To::Group(group.into()),
                IpAddr::V4(address) => {
                    To::Host(Host(u32::from(address).wrapping_sub(self.addresses.into()).wrapping_sub(1)))
                }
                IpAddr::V6(_) => return true,
            };
            let frame = packet.into_frame(Host(place as u32), to, OVERHEAD).map(Cargo::Packet);
            let _ = self.fabric.send(self.now, port, frame, &mut self.seen);
            return true;
        }
        false
    }

    /// Takes what a NIC has written. Returns how many packets.
    pub(crate) fn take_from(&mut self, peer: usize) -> usize {
        let Some(Peer::Member(member)) = &mut self.peers[peer] else { return 0 };
        let host = member.host;
        let place = host.0 as usize;
        let (state, spares, sent) = (&self.hosts[place], &mut self.spares, &mut self.taken);
        let hosts = self.fabric.topology().hosts().len() as u32;
        let (base, mut astray) = (u32::from(self.addresses), 0);
        let mut within = Vec::new();
        let taken = member.take(&mut self.buffer, BUDGET, |headers, bytes| {
            let mut packet = spares.take();
            let to = headers.peer;
            (packet.src, packet.dst) = (state.address.into(), to.into());
            (packet.sport, packet.tos, packet.ttl) = (headers.sport, headers.tos, headers.ttl);
            packet.bytes.clear();
            packet.bytes.extend_from_slice(bytes);
            // What is for the host itself does not leave it, whatever the cable does.
            if to == state.address {
                within.push(packet);
                return;
            }
            if to.is_multicast() && state.processes() > 1 {
                within.push(packet.clone());
            }
            if to.is_multicast() || u32::from(to).wrapping_sub(base).wrapping_sub(1) < hosts {
                sent.push((peer, packet));
            } else {
                astray += 1;
                spares.keep(packet);
            }
        });
        self.astray += astray;
        for packet in within {
            self.deliver_within(peer, host, packet);
        }
        match taken {
            Ok(taken) => taken,
            Err(_) => {
                self.end(peer);
                0
            }
        }
    }

    /// What was taken leaves, as far as there is room.
    pub(crate) fn let_leave(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        let mut last = None;
        for (peer, packet) in taken.drain(..) {
            let Some(Peer::Member(member) | Peer::Ended(member)) = &mut self.peers[peer] else {
                self.spares.keep(packet);
                continue;
            };
            let (host, priority) = (member.host, usize::from(packet.tos >> 5));
            member.sent[priority].push(packet);
            self.hosts[host.0 as usize].backlog[priority] += 1;
            match last.replace(host) {
                Some(before) if before != host => self.feed(before),
                _ => {}
            }
        }
        self.taken = taken;
        if let Some(host) = last {
            self.feed(host);
        }
        self.serve(self.now);
    }

    /// A packet of a NIC for a NIC of the same host, or for all others there.
    fn deliver_within(&mut self, from: usize, host: Host, packet: Box<Packet>) {
        let is_group = packet.dst.is_multicast();
        if !is_group {
            return self.deliver(host, packet, false);
        }
        let IpAddr::V4(group) = packet.dst else { return };
        let others = self.hosts[host.0 as usize].members.iter().flatten().copied();
        for peer in others.filter(|&peer| peer != from).collect::<Vec<_>>() {
            if matches!(&self.peers[peer], Some(Peer::Member(member)) if member.groups.contains(&group)) {
                self.deliver_to(peer, packet.clone(), false);
            }
        }
    }

    pub(crate) fn flush(&mut self, peer: usize) {
        let is_over = match &mut self.peers[peer] {
            Some(Peer::Member(member)) => member.flush().is_err(),
            Some(Peer::Ended(member)) => member.has_sent_all(),
            _ => false,
        };
        match &self.peers[peer] {
            Some(Peer::Member(_)) if is_over => self.end(peer),
            Some(Peer::Ended(_)) if is_over => self.forget(peer),
            _ => {}
        }
    }

    /// A host whose NICs do not read, or which has a storm, pauses its switch in lossless priorities.
    fn pause_switches(&mut self) {
        for place in 0..self.hosts.len() {
            let state = &self.hosts[place];
            let lossless = lossless(&self.fabric, state.host);
            if lossless == 0 {
                continue;
            }
            let limit = if state.pausing == state.storm { FULL } else { FULL / 2 };
            let is_full = state.members.iter().flatten().any(
                |&peer| matches!(&self.peers[peer], Some(Peer::Member(member)) if member.waiting() > limit),
            );
            let wanted = state.storm | if is_full { lossless } else { 0 };
            if wanted != state.pausing {
                for port in state.ports.clone() {
                    self.fabric.pause_storm(self.now, port, wanted, &mut self.seen);
                }
                self.hosts[place].pausing = wanted;
                self.serve(self.now);
            }
        }
    }

    /// Sleeps until something is due or somebody rings.
    fn rest(&mut self) -> Result<(), UpError> {
        let event = self.fabric.next_event().unwrap_or(Picos::NEVER);
        let change = self.changes.front().map_or(Picos::NEVER, |change| change.at);
        let until = event.min(change);
        let wait = if until == Picos::NEVER { Duration::MAX } else { self.clock.until(until) };
        if wait <= AWAKE {
            std::hint::spin_loop();
            return Ok(());
        }
        let is_stuck = self.interfaces.iter().any(|interface| interface.tap.is_waiting());
        let wait = if is_stuck { wait.min(RETRY) } else { wait };
        let mut busy = false;
        for peer in self.peers.iter_mut().flatten() {
            if let Peer::Member(member) = peer {
                busy |= member.sleep().unwrap_or(true);
            }
        }
        let looked = if busy { Ok(()) } else { self.look(wait) };
        for peer in self.peers.iter_mut().flatten() {
            if let Peer::Member(member) = peer {
                member.wake();
            }
        }
        looked
    }

    /// Asks the kernel what has come besides what is in the rings.
    fn look(&mut self, wait: Duration) -> Result<(), UpError> {
        self.look_at = self.now + Picos(LOOK_INTERVAL.0 / u64::from(self.slow));
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 32];
        let timeout = i64::try_from(wait.as_secs())
            .ok()
            .map(|tv_sec| Timespec { tv_sec, tv_nsec: i64::from(wait.subsec_nanos()) });
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            match event.data.u64() {
                LISTENER => self.accept_peers(),
                BELL => self.bells.silence(),
                INTERFACE => {}
                STOP => self.ends = true,
                token => self.hear((token - FIRST_PEER) as usize),
            }
        }
        self.listen_again();
        Ok(())
    }
}

/// The priorities that a host must not lose.
pub(crate) fn lossless(fabric: &Fabric<Cargo>, host: Host) -> u8 {
    let topology = fabric.topology();
    match &topology.nodes()[topology.node_of(host).0 as usize].kind {
        NodeKind::Host(config) => config.pfc.lossless,
        NodeKind::Switch(_) => 0,
    }
}
