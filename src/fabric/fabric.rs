//! The network in motion: frames, pauses and failing links, event by event.
//!
//! Over 600 lines: any event may cause any other, so a part of it would need all of the network anyway.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::balance;
use crate::buffer::{Buffer, Told};
use crate::config::{Ecn, Pfc, Schedule, SwitchConfig};
use crate::counters::PortCounters;
use crate::deadlock::{self, Deadlock};
use crate::frame::{Ect, Frame, PRIORITIES, Priority, To};
use crate::observer::{DropReason, Meddling, Observer};
use crate::picos::Picos;
use crate::port::{OnLink, Overtaken, PauseFrame, Port, Queued};
use crate::queue::EventQueue;
use crate::routing::Routes;
use crate::slab::Slab;
use crate::topology::{Host, LinkId, LinkSpec, NodeKind, PortId, Topology, TopologyError};

/// The longest that a frame waits until others have overtaken it.
const LONGEST_OVERTAKING: Picos = Picos::from_micros(1000);

/// What happens later.
#[derive(Clone)]
enum Event {
    /// The last bit of what a port sends has left, and more waits.
    Free(PortId),
    /// The first of the frames on their way from a port has arrived whole at the other end, and the node may look at it.
    Arrive(PortId),
    /// A frame that goes by itself has arrived at a port.
    ArriveAlone { port: PortId, key: u32, epoch: u32 },
    /// A port is to obey a pause.
    Pause { port: PortId, frame: PauseFrame, epoch: u32 },
    /// A pause runs out, unless it was renewed.
    PauseOver { port: PortId, priority: Priority },
    /// A port renews the pause that it has told its peer, if it still wants it.
    Refresh { port: PortId, priority: Priority },
    /// What waits at a port until others have overtaken it may have waited long enough.
    Overtake(PortId),
    /// Routes follow the links that are up.
    Reroute,
}

/// A change of a link, in both directions.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum LinkChange {
    /// It fails: both ends see it, and what is on it is lost.
    Down,
    /// It works again.
    Up,
    /// It has another rate, in bits per second.
    Rate(u64),
    /// It damages bits with another probability.
    BitErrorRate(f64),
    /// It damages frames with another probability.
    FrameErrorRate(f64),
    /// It loses everything, and neither end sees that; or no longer.
    BlackHole(bool),
}

/// The port of a host has no room for a frame of its priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

#[derive(Clone)]
struct LinkState {
    spec: LinkSpec,
    is_up: bool,
    is_black_hole: bool,
    /// Counts failures: what was on the link before one is lost.
    epoch: u32,
}

#[derive(Clone)]
struct Switch {
    config: SwitchConfig,
    buffer: Buffer,
    /// Packets balanced so far.
    turn: u32,
    rng: ChaCha8Rng,
}

/// Next hops of a group's frames by node, from one source.
type Tree = Vec<Vec<PortId>>;

/// See the [crate](crate). A clone has the same future, so that a player can look ahead.
#[derive(Clone)]
pub struct Fabric<P> {
    topology: Topology,
    /// Ports of each node.
    ports_of: Vec<Vec<PortId>>,
    /// Each port's place among those of its node.
    place: Vec<u16>,
    links: Vec<LinkState>,
    /// By node; hosts have none.
    switches: Vec<Option<Switch>>,
    /// By node; switches have none.
    host_of: Vec<Option<Host>>,
    ports: Vec<Port>,
    /// Priorities that a host pauses whatever happens ([`Fabric::pause_storm`]), one bit each.
    storms: Vec<u8>,
    frames: Slab<Frame<P>>,
    events: EventQueue<Event>,
    routes: Routes,
    convergence: Picos,
    groups: BTreeMap<u32, BTreeSet<Host>>,
    trees: BTreeMap<(u32, Host), Tree>,
    rng: ChaCha8Rng,
    now: Picos,
    /// Events handled.
    handled: u64,
}

impl<P: Clone> Fabric<P> {
    /// Brings a network to life. `seed` decides marks, damage and random paths.
    ///
    /// # Errors
    /// The topology cannot work; see [`TopologyError`].
    pub fn new(topology: Topology, seed: u64) -> Result<Fabric<P>, TopologyError> {
        topology.check()?;
        let ports_of = topology.ports();
        let mut place = vec![0; 2 * topology.links().len()];
        for ports in &ports_of {
            for (number, port) in ports.iter().enumerate() {
                place[port.index()] = number as u16;
            }
        }
        let mut switches = Vec::new();
        for (number, node) in topology.nodes().iter().enumerate() {
            switches.push(match &node.kind {
                NodeKind::Host(_) => None,
                NodeKind::Switch(config) => {
                    let headroom = ports_of[number].iter().map(|port| {
                        let spec = topology.links()[port.link().0 as usize].spec;
                        config.pfc.headroom_for(spec.rate, spec.delay, u64::from(spec.mtu_bytes))
                    });
                    let buffer = Buffer::new(config, headroom.collect()).map_err(|needed| {
                        TopologyError::BufferTooSmall {
                            switch: node.name.clone(),
                            buffer: config.buffer,
                            needed,
                        }
                    })?;
                    Some(Switch {
                        config: (**config).clone(),
                        buffer,
                        turn: 0,
                        rng: stream(seed, number as u64 + 1),
                    })
                }
            });
        }
        let mut host_of = vec![None; topology.nodes().len()];
        for (number, node) in topology.hosts().iter().enumerate() {
            host_of[node.0 as usize] = Some(Host(number as u32));
        }
        let links = topology.links().iter().map(|link| LinkState {
            spec: link.spec,
            is_up: true,
            is_black_hole: false,
            epoch: 0,
        });
        Ok(Fabric {
            routes: Routes::new(&topology, &ports_of, |_| true),
            links: links.collect(),
            ports: (0..place.len()).map(|_| Port::new()).collect(),
            storms: vec![0; place.len()],
            ports_of,
            place,
            switches,
            host_of,
            frames: Slab::new(),
            events: EventQueue::new(),
            convergence: Picos::ZERO,
            groups: BTreeMap::new(),
            trees: BTreeMap::new(),
            rng: stream(seed, 0),
            now: Picos::ZERO,
            handled: 0,
            topology,
        })
    }

    /// How long after a link has changed the routes follow; at once, unless this says otherwise.
    pub fn set_convergence(&mut self, time: Picos) {
        self.convergence = time;
    }

    /// What it was made from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The ports of a host, one for each of its links.
    pub fn host_ports(&self, host: Host) -> &[PortId] {
        &self.ports_of[self.topology.node_of(host).0 as usize]
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Picos> {
        self.events.next_at()
    }

    /// The time of the last event.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Events that were handled.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Frames under way.
    pub fn under_way(&self) -> usize {
        self.frames.len()
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.links[link.0 as usize].is_up
    }

    /// Counters of a port.
    pub fn counters(&self, port: PortId) -> PortCounters {
        self.ports[port.index()].counters
    }

    /// Bytes in the egress queue of a port, by priority.
    pub fn queued(&self, port: PortId) -> [u64; PRIORITIES] {
        self.ports[port.index()].queued
    }

    /// The most shared memory that a switch has used, in bytes.
    ///
    /// # Panics
    /// If the node is a host.
    pub fn buffer_peak(&self, node: crate::NodeId) -> u64 {
        self.switches[node.0 as usize].as_ref().expect("a switch").buffer.peak()
    }

    /// Whether the port of a host has room for a frame of `bytes` with this DSCP.
    pub fn has_room(&self, port: PortId, dscp: u8, bytes: u32) -> bool {
        let priority = self.priority(port, dscp) as usize;
        let queued = self.ports[port.index()].queued[priority];
        let limit = match &self.topology.nodes()[self.topology.owner(port).0 as usize].kind {
            NodeKind::Host(config) => config.queue,
            NodeKind::Switch(_) => 0,
        };
        queued == 0 || queued + u64::from(bytes) <= limit
    }

    /// A host sends a frame by one of its ports. A frame for a port whose link is down is lost.
    ///
    /// # Errors
    /// The port has no room; [`Observer::has_room`] tells when to ask again.
    ///
    /// # Panics
    /// If `now` is before the last event, or the port is a switch's.
    pub fn send<O: Observer<P>>(
        &mut self,
        now: Picos,
        port: PortId,
        frame: Frame<P>,
        observer: &mut O,
    ) -> Result<(), NoRoom> {
        assert!(now >= self.now, "time goes on");
        assert!(self.host_of[self.topology.owner(port).0 as usize].is_some(), "hosts send");
        self.now = now;
        if !self.has_room(port, frame.dscp, frame.bytes) {
            return Err(NoRoom);
        }
        let priority = self.priority(port, frame.dscp);
        let bytes = frame.bytes;
        let key = self.frames.insert(frame);
        self.push(port, priority, Queued { key, bytes, ingress: None }, observer);
        Ok(())
    }

    /// Lets the next event happen; `false` if there is none.
    pub fn step<O: Observer<P>>(&mut self, observer: &mut O) -> bool {
        let Some((at, event)) = self.events.pop() else { return false };
        self.now = at;
        self.handled += 1;
        match event {
            Event::Free(port) => self.on_free(port, observer),
            Event::Arrive(port) => {
                if let Some(frame) = self.take_from_link(port) {
                    self.on_arrival(port.peer(), frame.key, frame.epoch, observer);
                }
            }
            Event::ArriveAlone { port, key, epoch } => self.on_arrival(port, key, epoch, observer),
            Event::Pause { port, frame, epoch } => self.on_pause(port, frame, epoch, observer),
            Event::PauseOver { port, priority } => self.on_pause_over(port, priority, observer),
            Event::Refresh { port, priority } => self.on_refresh(port, priority, observer),
            Event::Overtake(port) => self.on_overtake(port),
            Event::Reroute => self.reroute(),
        }
        true
    }

    /// Lets everything happen up to and including a time.
    pub fn run_until<O: Observer<P>>(&mut self, until: Picos, observer: &mut O) {
        while self.next_event().is_some_and(|at| at <= until) {
            self.step(observer);
        }
        self.now = self.now.max(until);
    }

    /// A host becomes a member of a group.
    pub fn join(&mut self, group: u32, host: Host) {
        self.groups.entry(group).or_default().insert(host);
        self.trees.clear();
    }

    /// A host leaves a group.
    pub fn leave(&mut self, group: u32, host: Host) {
        if let Some(members) = self.groups.get_mut(&group) {
            members.remove(&host);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        self.trees.clear();
    }

    /// A host pauses priorities (one bit each) whatever happens, as broken NICs do; 0 ends that.
    pub fn pause_storm<O: Observer<P>>(
        &mut self,
        now: Picos,
        port: PortId,
        priorities: u8,
        observer: &mut O,
    ) {
        self.now = self.now.max(now);
        let before = std::mem::replace(&mut self.storms[port.index()], priorities);
        for priority in 0..PRIORITIES as Priority {
            match (before >> priority & 1, priorities >> priority & 1) {
                (0, 1) => self.tell(port, priority, Told::Pause, observer),
                (1, 0) => self.tell(port, priority, Told::Resume, observer),
                _ => {}
            }
        }
    }

    /// Changes a link.
    pub fn change<O: Observer<P>>(&mut self, now: Picos, link: LinkId, change: LinkChange, observer: &mut O) {
        self.now = self.now.max(now);
        let state = &mut self.links[link.0 as usize];
        match change {
            LinkChange::Rate(rate) => state.spec.rate = rate.max(1),
            LinkChange::BitErrorRate(rate) => state.spec.bit_error_rate = rate,
            LinkChange::FrameErrorRate(rate) => state.spec.frame_error_rate = rate,
            LinkChange::BlackHole(is) => state.is_black_hole = is,
            LinkChange::Down if state.is_up => {
                state.is_up = false;
                state.epoch += 1;
                self.link_changed(link, false, observer);
            }
            LinkChange::Up if !state.is_up => {
                state.is_up = true;
                self.link_changed(link, true, observer);
            }
            LinkChange::Down | LinkChange::Up => {}
        }
    }

    /// Queues that pause each other in a circle, if there are any: nothing in them will ever leave.
    pub fn deadlock(&self) -> Option<Deadlock> {
        deadlock::find(self.ports.len(), |port, priority| {
            let egress = &self.ports[port];
            if !egress.is_paused(self.now, priority) {
                return None;
            }
            // Who pauses this queue, and for which of its own paused queues it holds what came from here.
            let ingress = PortId(port as u32).peer();
            let node = self.topology.owner(ingress).0 as usize;
            let place = self.place[ingress.index()];
            let holds = |next: &&PortId| {
                let queue = &self.ports[next.index()].queues[priority as usize];
                queue.iter().any(|queued| queued.ingress == Some(place))
            };
            let is_switch = self.switches[node].is_some();
            let next = self.ports_of[node].iter().filter(|_| is_switch).filter(holds);
            Some(next.map(|port| port.index()).collect())
        })
    }

    fn on_free<O: Observer<P>>(&mut self, port: PortId, observer: &mut O) {
        self.ports[port.index()].wakes = false;
        self.start(port, observer);
    }

    fn on_arrival<O: Observer<P>>(&mut self, port: PortId, key: u32, epoch: u32, observer: &mut O) {
        let link = &self.links[port.link().0 as usize];
        if link.epoch != epoch || !link.is_up {
            return self.lose(port.peer(), key, DropReason::LinkDown, observer);
        }
        if link.is_black_hole {
            return self.lose(port.peer(), key, DropReason::BlackHole, observer);
        }
        if link.spec.bit_error_rate > 0.0 || link.spec.frame_error_rate > 0.0 {
            let damage = damage_probability(&link.spec, self.frames.get(key).bytes);
            if chance(&mut self.rng, damage) {
                return self.lose(port.peer(), key, DropReason::Damaged, observer);
            }
        }
        let node = self.topology.owner(port).0 as usize;
        match self.host_of[node] {
            Some(host) => {
                let frame = self.frames.remove(key);
                observer.deliver(self.now, host, frame);
            }
            None => self.forward(node, port, key, observer),
        }
    }

    /// A switch sends on what came by `ingress`.
    fn forward<O: Observer<P>>(&mut self, node: usize, ingress: PortId, key: u32, observer: &mut O) {
        match self.frames.get(key).to {
            To::Host(host) => match self.next_hop(node, host, key) {
                Some(port) => self.store(node, ingress, port, key, observer),
                None => self.lose(ingress, key, DropReason::NoRoute, observer),
            },
            To::Group(group) => {
                let hops = self.group_hops(node, group, key);
                let Some((last, others)) = hops.split_last() else {
                    return self.lose(ingress, key, DropReason::NoRoute, observer);
                };
                for &port in others {
                    let copy = self.frames.get(key).clone();
                    let copy = self.frames.insert(copy);
                    self.store(node, ingress, port, copy, observer);
                }
                self.store(node, ingress, *last, key, observer);
            }
        }
    }

    fn next_hop(&mut self, node: usize, host: Host, key: u32) -> Option<PortId> {
        let hops = self.routes.next_hops(node, host.0 as usize);
        let switch = self.switches[node].as_mut()?;
        if hops.is_empty() {
            return None;
        }
        let ports = &self.ports;
        let flow = &self.frames.get(key).flow;
        let chosen = balance::choose(
            switch.config.balance,
            flow,
            node as u32,
            hops.len(),
            &mut switch.turn,
            &mut switch.rng,
            |hop| ports[hops[hop].index()].waiting(),
        );
        Some(hops[chosen])
    }

    /// Puts a frame into the queue of `egress`, if there is room.
    fn store<O: Observer<P>>(
        &mut self,
        node: usize,
        ingress: PortId,
        egress: PortId,
        key: u32,
        observer: &mut O,
    ) {
        let frame = self.frames.get_mut(key);
        let Some(switch) = self.switches[node].as_mut() else { return };
        if !self.links[egress.link().0 as usize].is_up {
            return self.lose(egress, key, DropReason::LinkDown, observer);
        }
        let place = self.place[ingress.index()];
        let mut priority = match switch.config.trim {
            Some(trim) if frame.trimmed => trim.priority,
            _ => switch.config.dscp_to_priority[usize::from(frame.dscp & 63)],
        };
        let queued = |priority: Priority| self.ports[egress.index()].queued[priority as usize];
        let mut fits =
            switch.buffer.store(usize::from(place), priority, u64::from(frame.bytes), queued(priority));
        if let (false, Some(trim)) = (fits || frame.trimmed, switch.config.trim) {
            let bytes = trim.bytes.min(frame.bytes);
            fits = switch.buffer.store(
                usize::from(place),
                trim.priority,
                u64::from(bytes),
                queued(trim.priority),
            );
            if fits {
                priority = trim.priority;
                frame.trimmed = true;
                frame.bytes = bytes;
                self.ports[egress.index()].counters.trimmed += 1;
            }
        }
        if !fits {
            return self.lose(egress, key, DropReason::NoRoom, observer);
        }
        let bytes = frame.bytes;
        let told = switch.buffer.tells(usize::from(place), priority, true);
        self.push(egress, priority, Queued { key, bytes, ingress: Some(place) }, observer);
        if let Some(told) = told {
            self.tell(ingress, priority, told, observer);
        }
    }

    fn push<O: Observer<P>>(&mut self, port: PortId, priority: Priority, queued: Queued, observer: &mut O) {
        let egress = &mut self.ports[port.index()];
        egress.push(priority, queued);
        observer.enqueued(self.now, port, self.frames.get(queued.key), egress.queued[priority as usize]);
        self.start(port, observer);
    }

    /// A port that is free sends what is next.
    fn start<O: Observer<P>>(&mut self, port: PortId, observer: &mut O) {
        if self.now < self.ports[port.index()].free_at {
            return self.wake_when_free(port);
        }
        if !self.links[port.link().0 as usize].is_up {
            return self.discard(port, observer);
        }
        let node = self.topology.owner(port).0 as usize;
        if let Some(pause) = self.ports[port.index()].pauses.pop_front() {
            let bytes = u64::from(self.pfc(node).frame_bytes);
            let response = self.pfc(self.topology.owner(port.peer()).0 as usize).response;
            let (at, epoch) = self.occupy(port, bytes);
            self.events.push(at + response, Event::Pause { port: port.peer(), frame: pause, epoch });
            return;
        }
        let schedule = match &self.switches[node] {
            Some(switch) => switch.config.schedule,
            None => [Schedule::Weighted(1); PRIORITIES],
        };
        let Some((priority, queued)) = self.ports[port.index()].pop(self.now, &schedule) else { return };
        self.mark(node, port, priority, queued.key, observer);
        let counters = &mut self.ports[port.index()].counters;
        counters.tx_frames += 1;
        counters.tx_bytes += u64::from(queued.bytes);
        let mut meddling = None;
        if observer.watches() {
            meddling = observer.meddle(self.now, port, self.frames.get_mut(queued.key));
            observer.sent(self.now, port, self.frames.get(queued.key));
        }
        let (at, epoch) = self.occupy(port, u64::from(queued.bytes));
        let next = self.topology.owner(port.peer()).0 as usize;
        let latency = self.switches[next].as_ref().map_or(Picos::ZERO, |switch| switch.config.latency);
        let arrives = at + latency;
        match meddling {
            None => self.arrive(port, queued.key, epoch, arrives),
            Some(meddling) => self.meddle(port, queued.key, epoch, arrives, meddling, observer),
        }
        match queued.ingress {
            Some(ingress) => self.release(node, ingress, priority, queued.bytes, observer),
            None => {
                if let Some(host) = self.host_of[node] {
                    observer.has_room(self.now, host);
                }
            }
        }
    }

    /// A frame that has left will arrive, and what it was to overtake behind it.
    #[inline]
    fn arrive(&mut self, port: PortId, key: u32, epoch: u32, at: Picos) {
        let egress = &mut self.ports[port.index()];
        egress.on_link.push_back(OnLink { at, key, epoch });
        // The others follow one by one, so that there are no more events than ports.
        if egress.on_link.len() == 1 {
            self.events.push(at, Event::Arrive(port));
        }
        let Port { on_link, overtaken, .. } = egress;
        if !overtaken.is_empty() {
            overtaken.retain_mut(|frame| {
                frame.left = frame.left.saturating_sub(1);
                if frame.left == 0 {
                    on_link.push_back(OnLink { at, key: frame.key, epoch: frame.epoch });
                }
                frame.left > 0
            });
        }
    }

    fn take_from_link(&mut self, port: PortId) -> Option<OnLink> {
        let on_link = &mut self.ports[port.index()].on_link;
        let first = on_link.pop_front();
        if let Some(next) = on_link.front() {
            self.events.push(next.at, Event::Arrive(port));
        }
        first
    }

    #[cold]
    fn meddle<O: Observer<P>>(
        &mut self,
        port: PortId,
        key: u32,
        epoch: u32,
        at: Picos,
        meddling: Meddling,
        observer: &mut O,
    ) {
        self.ports[port.index()].counters.meddled += 1;
        match meddling {
            Meddling::Nothing => self.arrive(port, key, epoch, at),
            Meddling::Lose => self.lose(port, key, DropReason::OnPurpose, observer),
            Meddling::Twice => {
                let copy = self.frames.get(key).clone();
                let copy = self.frames.insert(copy);
                self.arrive(port, key, epoch, at);
                self.arrive(port, copy, epoch, at);
            }
            Meddling::Delay(by) => {
                self.events.push(at + by, Event::ArriveAlone { port: port.peer(), key, epoch });
            }
            Meddling::Behind(left) => {
                let until = at + LONGEST_OVERTAKING;
                self.events.push(until, Event::Overtake(port));
                self.ports[port.index()].overtaken.push(Overtaken { key, epoch, left, until });
            }
        }
    }

    /// Those that have waited long enough to be overtaken arrive.
    fn on_overtake(&mut self, port: PortId) {
        let (now, events) = (self.now, &mut self.events);
        self.ports[port.index()].overtaken.retain(|frame| {
            let is_over = frame.until <= now;
            if is_over {
                let (key, epoch) = (frame.key, frame.epoch);
                events.push(now, Event::ArriveAlone { port: port.peer(), key, epoch });
            }
            !is_over
        });
    }

    /// A port sends `bytes` from now on. Returns when they have arrived, and the epoch of the link.
    fn occupy(&mut self, port: PortId, bytes: u64) -> (Picos, u32) {
        let link = &self.links[port.link().0 as usize];
        let sent = self.now + Picos::of_bytes(bytes, link.spec.rate);
        let (arrives, epoch) = (sent + link.spec.delay, link.epoch);
        self.ports[port.index()].free_at = sent;
        self.wake_when_free(port);
        (arrives, epoch)
    }

    /// A port that is sending will go on, if there is something to go on with.
    fn wake_when_free(&mut self, port: PortId) {
        let egress = &mut self.ports[port.index()];
        if !egress.wakes && !egress.is_idle() {
            egress.wakes = true;
            self.events.push(egress.free_at, Event::Free(port));
        }
    }

    /// The memory of a frame that has left is free.
    fn release<O: Observer<P>>(
        &mut self,
        node: usize,
        place: u16,
        priority: Priority,
        bytes: u32,
        observer: &mut O,
    ) {
        let Some(switch) = self.switches[node].as_mut() else { return };
        switch.buffer.release(usize::from(place), priority, u64::from(bytes));
        if let Some(told) = switch.buffer.tells(usize::from(place), priority, false) {
            let ingress = self.ports_of[node][usize::from(place)];
            self.tell(ingress, priority, told, observer);
        }
    }

    /// Marks a frame that leaves a long queue.
    fn mark<O: Observer<P>>(
        &mut self,
        node: usize,
        port: PortId,
        priority: Priority,
        key: u32,
        observer: &mut O,
    ) {
        let Some(switch) = self.switches[node].as_mut() else { return };
        let Some(ecn) = switch.config.ecn[priority as usize] else { return };
        let probability = marking_probability(&ecn, self.ports[port.index()].queued[priority as usize]);
        if probability == 0.0 {
            return;
        }
        let frame = self.frames.get_mut(key);
        if frame.ect == Ect::Capable && chance(&mut switch.rng, probability) {
            frame.ect = Ect::Experienced;
            self.ports[port.index()].counters.marked += 1;
            observer.marked(self.now, port, self.frames.get(key));
        }
    }

    /// `port` tells its peer to pause a priority, or to go on.
    fn tell<O: Observer<P>>(&mut self, port: PortId, priority: Priority, told: Told, observer: &mut O) {
        self.ports[port.index()].counters.pauses_sent += u64::from(told == Told::Pause);
        let quanta = match told {
            Told::Pause => self.pfc(self.topology.owner(port).0 as usize).quanta,
            Told::Resume => Some(0),
        };
        self.send_pause(port, PauseFrame { priority, quanta }, observer);
    }

    /// Sends a PFC frame, and has a pause that has an end sent again before that.
    fn send_pause<O: Observer<P>>(&mut self, port: PortId, frame: PauseFrame, observer: &mut O) {
        let PauseFrame { priority, quanta } = frame;
        let end = quanta.filter(|&quanta| quanta > 0).map(|quanta| self.pause_time(port, quanta));
        let refresh_at = end.map_or(Picos::NEVER, |time| self.now + Picos(time.0 / 2));
        if end.is_some() {
            self.events.push(refresh_at, Event::Refresh { port, priority });
        }
        let egress = &mut self.ports[port.index()];
        egress.refresh_at[priority as usize] = refresh_at;
        egress.pauses.push_back(frame);
        self.start(port, observer);
    }

    fn on_refresh<O: Observer<P>>(&mut self, port: PortId, priority: Priority, observer: &mut O) {
        let Some(quanta) = self.pfc(self.topology.owner(port).0 as usize).quanta else { return };
        // A later pause has its own, and one that was taken back has none.
        if self.ports[port.index()].refresh_at[priority as usize] != self.now
            || !self.wants_pause(port, priority)
        {
            return;
        }
        self.send_pause(port, PauseFrame { priority, quanta: Some(quanta) }, observer);
    }

    /// Quanta are 512 bits.
    fn pause_time(&self, port: PortId, quanta: u16) -> Picos {
        Picos::of_bytes(64 * u64::from(quanta), self.links[port.link().0 as usize].spec.rate)
    }

    fn wants_pause(&self, port: PortId, priority: Priority) -> bool {
        match &self.switches[self.topology.owner(port).0 as usize] {
            Some(switch) => switch.buffer.is_pausing(usize::from(self.place[port.index()]), priority),
            None => self.storms[port.index()] >> priority & 1 != 0,
        }
    }

    fn on_pause<O: Observer<P>>(&mut self, port: PortId, frame: PauseFrame, epoch: u32, observer: &mut O) {
        let link = &self.links[port.link().0 as usize];
        let obeys = self.pfc(self.topology.owner(port).0 as usize).is_lossless(frame.priority);
        if link.epoch != epoch || link.is_black_hole || !obeys {
            return;
        }
        let time = frame.quanta.map_or(Picos::NEVER, |quanta| self.pause_time(port, quanta));
        let changed = self.ports[port.index()].pause(self.now, frame.priority, time);
        let until = self.ports[port.index()].paused_until[frame.priority as usize];
        if self.now < until {
            if changed {
                observer.paused(self.now, port, frame.priority);
            }
            if until != Picos::NEVER {
                self.events.push(until, Event::PauseOver { port, priority: frame.priority });
            }
        } else if changed {
            observer.resumed(self.now, port, frame.priority);
            self.start(port, observer);
        }
    }

    fn on_pause_over<O: Observer<P>>(&mut self, port: PortId, priority: Priority, observer: &mut O) {
        let egress = &mut self.ports[port.index()];
        if egress.paused_until[priority as usize] != self.now {
            return;
        }
        egress.note_paused(self.now, priority);
        observer.resumed(self.now, port, priority);
        self.start(port, observer);
    }

    fn link_changed<O: Observer<P>>(&mut self, link: LinkId, is_up: bool, observer: &mut O) {
        for port in link.ports() {
            let egress = &mut self.ports[port.index()];
            egress.pauses.clear();
            for priority in 0..PRIORITIES as Priority {
                if egress.is_paused(self.now, priority) {
                    egress.pause(self.now, priority, Picos::ZERO);
                    observer.resumed(self.now, port, priority);
                }
            }
        }
        for port in link.ports() {
            let node = self.topology.owner(port).0 as usize;
            for priority in 0..PRIORITIES as Priority {
                // The peer has forgotten what it was told.
                if is_up && self.wants_pause(port, priority) {
                    self.tell(port, priority, Told::Pause, observer);
                }
            }
            self.start(port, observer);
            if let Some(host) = self.host_of[node] {
                observer.link_changed(self.now, host, is_up);
            }
        }
        self.events.push(self.now + self.convergence, Event::Reroute);
    }

    fn reroute(&mut self) {
        let links = &self.links;
        self.routes = Routes::new(&self.topology, &self.ports_of, |port| links[port.link().0 as usize].is_up);
        self.trees.clear();
    }

    /// Empties the queues of a port whose link is down.
    fn discard<O: Observer<P>>(&mut self, port: PortId, observer: &mut O) {
        let node = self.topology.owner(port).0 as usize;
        self.ports[port.index()].pauses.clear();
        for priority in 0..PRIORITIES as Priority {
            for queued in self.ports[port.index()].clear(priority) {
                self.lose(port, queued.key, DropReason::LinkDown, observer);
                if let Some(ingress) = queued.ingress {
                    self.release(node, ingress, priority, queued.bytes, observer);
                }
            }
        }
        if let Some(host) = self.host_of[node] {
            observer.has_room(self.now, host);
        }
    }

    /// A frame is lost; `port` counts it.
    fn lose<O: Observer<P>>(&mut self, port: PortId, key: u32, reason: DropReason, observer: &mut O) {
        let counters = &mut self.ports[port.index()].counters;
        match reason {
            DropReason::NoRoom => counters.dropped += 1,
            DropReason::NoRoute | DropReason::LinkDown | DropReason::BlackHole => counters.lost_down += 1,
            DropReason::Damaged => counters.lost_damaged += 1,
            // Counted as it left.
            DropReason::OnPurpose => {}
        }
        let frame = self.frames.remove(key);
        observer.dropped(self.now, port, &frame, reason);
    }

    /// Where a switch sends a frame for a group.
    fn group_hops(&mut self, node: usize, group: u32, key: u32) -> Vec<PortId> {
        // Anybody may send to any group: nothing is kept of those without members.
        if !self.groups.contains_key(&group) {
            return Vec::new();
        }
        let source = self.frames.get(key).from;
        if !self.trees.contains_key(&(group, source)) {
            let tree = self.tree(group, source);
            self.trees.insert((group, source), tree);
        }
        self.trees[&(group, source)][node].clone()
    }

    /// Shortest paths from `source` to the members.
    fn tree(&self, group: u32, source: Host) -> Tree {
        let mut tree = vec![Vec::new(); self.topology.nodes().len()];
        let mut parent: Vec<Option<PortId>> = vec![None; tree.len()];
        let root = self.topology.node_of(source);
        let mut todo = VecDeque::from([root]);
        while let Some(node) = todo.pop_front() {
            for &port in &self.ports_of[node.0 as usize] {
                let next = self.topology.owner(port.peer());
                let seen = next == root || parent[next.0 as usize].is_some();
                if seen || !self.links[port.link().0 as usize].is_up {
                    continue;
                }
                parent[next.0 as usize] = Some(port);
                if self.switches[next.0 as usize].is_some() {
                    todo.push_back(next);
                }
            }
        }
        for &member in self.groups.get(&group).into_iter().flatten().filter(|&&member| member != source) {
            let mut node = self.topology.node_of(member);
            while let Some(port) = parent[node.0 as usize] {
                let before = self.topology.owner(port);
                if tree[before.0 as usize].contains(&port) {
                    break;
                }
                tree[before.0 as usize].push(port);
                node = before;
            }
        }
        tree
    }

    fn priority(&self, port: PortId, dscp: u8) -> Priority {
        match &self.topology.nodes()[self.topology.owner(port).0 as usize].kind {
            NodeKind::Host(config) => config.dscp_to_priority[usize::from(dscp & 63)],
            NodeKind::Switch(config) => config.dscp_to_priority[usize::from(dscp & 63)],
        }
    }

    fn pfc(&self, node: usize) -> &Pfc {
        match &self.topology.nodes()[node].kind {
            NodeKind::Host(config) => &config.pfc,
            NodeKind::Switch(config) => &config.pfc,
        }
    }
}

fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

fn chance(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    // 53 bits are as many as an f64 has.
    ((rng.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
}

fn damage_probability(spec: &LinkSpec, bytes: u32) -> f64 {
    if spec.bit_error_rate == 0.0 {
        return spec.frame_error_rate;
    }
    let whole = (1.0 - spec.bit_error_rate).powf(f64::from(bytes) * 8.0);
    1.0 - whole * (1.0 - spec.frame_error_rate)
}

fn marking_probability(ecn: &Ecn, queued: u64) -> f64 {
    if queued > ecn.kmax {
        1.0
    } else if queued > ecn.kmin {
        ecn.pmax * (queued - ecn.kmin) as f64 / (ecn.kmax - ecn.kmin) as f64
    } else {
        0.0
    }
}
