//! The switches between the NICs, as `softrnic-fabric` models it.
//!
//! The model carries the numbers of packets. Their bytes stay in the simulated network, which holds each of them until the model
//! says what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_fabric::{
    DropReason, Ect, Fabric, FlowTuple, Frame, Host, LinkChange, LinkId, Meddling, Observer, Picos, PortId,
    Priority, To,
};
use softrnic_wire::{ROCE_UDP_PORT, Time};

use crate::action::{Network, Setup};
use crate::packet::Packet;
use crate::topology::{ETHERNET, SWITCH, bandwidth, topology};
use crate::view::{LinkView, NetworkView, Pause, Queue};

/// See the [module](self).
pub struct Switches {
    fabric: Fabric<usize>,
    /// The port of each NIC.
    nics: Vec<PortId>,
    /// Links from one NIC to another.
    hops: u64,
    bandwidth: u64,
    delay: Duration,
    seen: Seen,
    next: Option<Time>,
    /// Bytes that wait at each port of a switch.
    waiting: Vec<(PortId, u64)>,
    /// What has changed there, until somebody takes it.
    pub queues: Vec<Queue>,
    /// Which ports were paused, until somebody takes it.
    pub pauses: Vec<Pause>,
}

/// What becomes of a packet.
pub struct News {
    /// When.
    pub at: Time,
    /// Which packet.
    pub packet: usize,
    /// What.
    pub what: Becomes,
}

/// See [`News`].
pub enum Becomes {
    /// It has reached its NIC, or does so after this time if somebody has delayed it.
    Delivered(Duration),
    /// It waits for those before it, so that it arrives so much later.
    Held(Duration),
    /// A switch marks it, and so many bytes wait behind it.
    Marked(String, u64),
    /// It is lost.
    Lost(String, DropReason),
}

/// What the model tells, and what was done to packets by hand.
#[derive(Default)]
struct Seen {
    carried: BTreeSet<usize>,
    lost: BTreeSet<usize>,
    delayed: BTreeMap<usize, Duration>,
    marked: Vec<(PortId, usize)>,
    delivered: Vec<usize>,
    dropped: Vec<(PortId, usize, DropReason)>,
    /// Bytes that packets have found before them.
    found: Vec<(PortId, usize, u64)>,
    pauses: Vec<(PortId, bool)>,
}

impl Observer<usize> for Seen {
    fn deliver(&mut self, _at: Picos, _host: Host, frame: Frame<usize>) {
        self.delivered.push(frame.payload);
    }

    fn meddle(&mut self, _at: Picos, _port: PortId, frame: &mut Frame<usize>) -> Option<Meddling> {
        self.lost.contains(&frame.payload).then_some(Meddling::Lose)
    }

    fn marked(&mut self, _at: Picos, port: PortId, frame: &Frame<usize>) {
        self.marked.push((port, frame.payload));
    }

    fn enqueued(&mut self, _at: Picos, port: PortId, frame: &Frame<usize>, queued: u64) {
        let before = queued - u64::from(frame.bytes);
        if before > 0 {
            self.found.push((port, frame.payload, before));
        }
    }

    fn dropped(&mut self, _at: Picos, port: PortId, frame: &Frame<usize>, reason: DropReason) {
        self.dropped.push((port, frame.payload, reason));
    }

    fn paused(&mut self, _at: Picos, port: PortId, _priority: Priority) {
        self.pauses.push((port, true));
    }

    fn resumed(&mut self, _at: Picos, port: PortId, _priority: Priority) {
        self.pauses.push((port, false));
    }
}

/// Looks for the next thing that the world has to know.
struct Ahead<'s> {
    lost: &'s BTreeSet<usize>,
    waiting: &'s [bool],
    has_found: bool,
}

impl Observer<usize> for Ahead<'_> {
    fn deliver(&mut self, _at: Picos, _host: Host, frame: Frame<usize>) {
        self.has_found |= !self.lost.contains(&frame.payload);
    }

    fn has_room(&mut self, _at: Picos, host: Host) {
        self.has_found |= self.waiting[host.0 as usize];
    }

    fn meddle(&mut self, _at: Picos, _port: PortId, frame: &mut Frame<usize>) -> Option<Meddling> {
        self.lost.contains(&frame.payload).then_some(Meddling::Lose)
    }

    fn dropped(&mut self, _at: Picos, _port: PortId, frame: &Frame<usize>, _reason: DropReason) {
        self.has_found |= !self.lost.contains(&frame.payload);
    }
}

impl Switches {
    /// The network of a setup that has a switch.
    ///
    /// # Errors
    /// What is wrong with the setup, in a sentence.
    pub fn new(setup: &Setup) -> Result<Option<Switches>, String> {
        if setup.network == Network::Cable && setup.mark_at == 0 {
            return Ok(None);
        }
        let (topology, hops) = topology(setup).map_err(|error| error.to_string())?;
        let mut fabric = Fabric::new(topology, setup.seed).map_err(|error| error.to_string())?;
        fabric.set_convergence(Picos::from_nanos(setup.convergence));
        let topology = fabric.topology();
        let ends = (0..topology.links().len() as u32).flat_map(|link| LinkId(link).ports());
        let is_nic = |port: &PortId| topology.hosts().contains(&topology.owner(*port));
        Ok(Some(Switches {
            nics: (0..setup.sides as u32).map(|nic| fabric.host_ports(Host(nic))[0]).collect(),
            waiting: ends.filter(|port| !is_nic(port)).map(|port| (port, 0)).collect(),
            queues: Vec::new(),
            pauses: Vec::new(),
            hops,
            fabric,
            bandwidth: bandwidth(setup),
            delay: Duration::from_nanos(setup.delay),
            seen: Seen::default(),
            next: None,
        }))
    }

    /// Whether a NIC's port has room for a packet.
    pub fn has_room(&self, nic: usize) -> bool {
        self.fabric.queued(self.nics[nic]).iter().sum::<u64>() == 0
    }

    /// Takes a packet that a NIC sends. Returns when it arrives, if nothing is in its way.
    pub fn send(&mut self, now: Time, packet: &Packet, addresses: [IpAddr; 2]) -> Time {
        let bytes = packet.length as u32 + ETHERNET;
        let tos = packet.bytes.get(1).copied().unwrap_or(0);
        let sport = packet.bytes.get(20..22).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
        let [src, dst] = addresses;
        let frame = Frame {
            from: Host(packet.from as u32),
            to: To::Host(Host(packet.to as u32)),
            bytes,
            flow: FlowTuple { src, dst, sport, dport: ROCE_UDP_PORT, protocol: 17 },
            dscp: tos >> 2,
            ect: Ect::from_tos(tos),
            trimmed: false,
            payload: packet.id,
        };
        self.seen.carried.insert(packet.id);
        // A copy made by hand goes there even if there is no room.
        let sent = self.fabric.send(picos(now), self.nics[packet.from], frame, &mut self.seen);
        debug_assert!(sent.is_ok(), "the model's ports take everything");
        let on = |rate| Picos::of_bytes(u64::from(bytes), rate).0;
        let [first, last] = [packet.from, packet.to].map(|nic| on(self.rate(self.nics[nic])));
        let links = Picos(first + last + (self.hops - 2) * on(self.bandwidth));
        let waits: Picos = std::mem::take(&mut self.seen.found)
            .into_iter()
            .fold(Picos::ZERO, |sum, (port, _, before)| sum + Picos::of_bytes(before, self.rate(port)));
        now + self.delay + Duration::from_nanos((links + waits).as_nanos_ceil())
    }

    /// Whether what becomes of a packet is not known yet.
    pub fn carries(&self, packet: usize) -> bool {
        self.seen.carried.contains(&packet)
    }

    /// Loses a packet on the link that it is on or comes to next.
    pub fn lose(&mut self, packet: usize) {
        if self.carries(packet) {
            self.seen.lost.insert(packet);
        }
    }

    /// Keeps a packet for longer on the last link.
    pub fn delay(&mut self, packet: usize, time: Duration) {
        *self.seen.delayed.entry(packet).or_default() += time;
    }

    /// Lets a link fail, or work again. Returns its name too.
    ///
    /// # Errors
    /// Why that is not possible, in a sentence.
    pub fn change(&mut self, now: Time, link: usize, up: bool) -> Result<(String, Vec<News>), String> {
        let topology = self.fabric.topology();
        let known = topology.links().get(link).ok_or_else(|| format!("there is no link {link}"))?;
        if known.ends.iter().any(|end| topology.hosts().contains(end)) {
            return Err("only links between switches fail here".into());
        }
        let name = known.ends.map(|end| topology.name(end)).join(" to ");
        let change = if up { LinkChange::Up } else { LinkChange::Down };
        self.fabric.change(picos(now), LinkId(link as u32), change, &mut self.seen);
        let mut news = Vec::new();
        self.tell(now, &mut news);
        Ok((name, news))
    }

    /// What can be seen of them.
    pub fn view(&self) -> NetworkView {
        let topology = self.fabric.topology();
        let links = topology.links().iter().enumerate().map(|(number, link)| {
            let id = LinkId(number as u32);
            LinkView {
                ends: link.ends.map(|end| end.0 as usize),
                up: self.fabric.is_up(id),
                packets: id.ports().map(|port| self.fabric.counters(port).tx_frames),
            }
        });
        NetworkView {
            nodes: topology.nodes().iter().map(|node| node.name.clone()).collect(),
            links: links.collect(),
        }
    }

    fn rate(&self, port: PortId) -> u64 {
        self.fabric.topology().links()[port.link().0 as usize].spec.rate
    }

    /// Lets everything happen up to a time.
    pub fn run_until(&mut self, until: Time) -> Vec<News> {
        let mut news = Vec::new();
        while let Some(at) = self.fabric.next_event().filter(|&at| at <= picos(until)) {
            self.fabric.step(&mut self.seen);
            self.tell(time(at), &mut news);
        }
        news
    }

    /// Finds when it next has something to say: at the latest at `until`. A NIC that waits wants to know when there is room.
    pub fn look_ahead(&mut self, waiting: &[bool], until: Option<Time>) {
        let mut ahead = Ahead { lost: &self.seen.lost, waiting, has_found: false };
        let comes = |at: &Picos| until.is_none_or(|until| *at <= picos(until));
        self.next = None;
        if !self.fabric.next_event().is_some_and(|at| comes(&at)) {
            return;
        }
        let mut fabric = self.fabric.clone();
        while let Some(at) = fabric.next_event().filter(comes) {
            fabric.step(&mut ahead);
            if ahead.has_found {
                self.next = Some(time(at));
                return;
            }
        }
    }

    /// What [`look_ahead`](Switches::look_ahead) has found.
    pub fn next(&self) -> Option<Time> {
        self.next
    }

    fn tell(&mut self, at: Time, news: &mut Vec<News>) {
        let nanos = at.as_nanos();
        for (port, before) in &mut self.waiting {
            let bytes = self.fabric.queued(*port).iter().sum();
            if std::mem::replace(before, bytes) == bytes {
                continue;
            }
            let sample = Queue { at: nanos, port: port.0 as usize, bytes };
            // What comes and goes at one time has not waited.
            match self.queues.iter_mut().rfind(|last| last.port == sample.port) {
                Some(last) if last.at == nanos => *last = sample,
                _ => self.queues.push(sample),
            }
        }
        for (port, paused) in std::mem::take(&mut self.seen.pauses) {
            self.pauses.push(Pause { at: nanos, port: port.0 as usize, paused });
        }
        for (port, packet, before) in std::mem::take(&mut self.seen.found) {
            let waits = Picos::of_bytes(before, self.rate(port)).as_nanos_ceil();
            news.push(News { at, packet, what: Becomes::Held(Duration::from_nanos(waits)) });
        }
        for (port, packet) in std::mem::take(&mut self.seen.marked) {
            let queue = self.fabric.queued(port).iter().sum();
            news.push(News { at, packet, what: Becomes::Marked(self.owner(port), queue) });
        }
        for packet in std::mem::take(&mut self.seen.delivered) {
            let delay = self.seen.delayed.remove(&packet).unwrap_or_default();
            if self.forget(packet) {
                news.push(News { at, packet, what: Becomes::Delivered(delay) });
            }
        }
        for (port, packet, reason) in std::mem::take(&mut self.seen.dropped) {
            if self.forget(packet) {
                news.push(News { at, packet, what: Becomes::Lost(self.owner(port), reason) });
            }
        }
    }

    fn owner(&self, port: PortId) -> String {
        let topology = self.fabric.topology();
        let name = topology.name(topology.owner(port));
        if name == SWITCH { format!("the {name}") } else { name.to_owned() }
    }

    /// Whether it had not been lost by hand before.
    fn forget(&mut self, packet: usize) -> bool {
        self.seen.carried.remove(&packet);
        !self.seen.lost.remove(&packet)
    }
}

fn picos(time: Time) -> Picos {
    Picos::from_nanos(time.as_nanos())
}

/// In whole nanoseconds, rounded up: by then it has happened.
fn time(at: Picos) -> Time {
    Time::from_nanos(at.as_nanos_ceil())
}

#[cfg(test)]
mod tests;
