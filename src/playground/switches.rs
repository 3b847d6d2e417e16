//! The switches between the NICs, as `softrnic-fabric` models it.
//!
//! The model carries the numbers of packets. Their bytes stay in the simulated network, which holds each of them until the model
//! says what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_fabric::{
    DropReason, Ecn, Ect, Fabric, FlowTuple, Frame, Host, HostConfig, LinkChange, LinkId, LinkSpec, Meddling,
    NodeId, Observer, PRIORITIES, Pfc, Picos, PortId, Priority, SwitchConfig, To, Topology, TopologyError,
};
use softrnic_wire::{ROCE_UDP_PORT, Time};

use crate::action::{Network, Setup};
use crate::packet::Packet;
use crate::view::{LinkView, NetworkView, Pause, Queue};

/// What Ethernet adds to a packet: header, FCS, preamble and gap.
const ETHERNET: u32 = 38;
/// What headers and Ethernet add to the path MTU, at most.
const HEADERS: u32 = 128 + ETHERNET;
/// Name of a switch that is alone.
const SWITCH: &str = "switch";

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
            ect: match tos & 3 {
                0 => Ect::Not,
                3 => Ect::Experienced,
                _ => Ect::Capable,
            },
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

/// The nodes and links, and how many links a packet takes.
fn topology(setup: &Setup) -> Result<(Topology, u64), TopologyError> {
    let mut topology = Topology::new();
    let host = HostConfig { queue: u64::MAX, pfc: pfc(setup), ..HostConfig::default() };
    let nics: Vec<NodeId> = ["A", "B", "C"][..setup.sides]
        .iter()
        .map(|name| topology.add_host(name, host).map(|host| topology.node_of(host)))
        .collect::<Result<_, _>>()?;
    if setup.network != Network::Spines {
        let switch = topology.add_switch(SWITCH, switch(setup))?;
        let link = link(setup, 2);
        for &nic in &nics {
            topology.link(nic, switch, link)?;
        }
        return Ok((topology, 2));
    }
    let [senders, receivers, spine_1, spine_2] =
        ["leaf 1", "leaf 2", "spine 1", "spine 2"].map(|name| topology.add_switch(name, switch(setup)));
    let (senders, receivers) = (senders?, receivers?);
    let link = link(setup, 4);
    for (number, &nic) in nics.iter().enumerate() {
        match number {
            // Room for what both spines bring.
            1 => topology.link(nic, receivers, LinkSpec { rate: 2 * link.rate, ..link })?,
            _ => topology.link(nic, senders, link)?,
        };
    }
    for spine in [spine_1?, spine_2?] {
        topology.link(senders, spine, link)?;
        topology.link(spine, receivers, link)?;
    }
    Ok((topology, 4))
}

/// One of several links that a packet takes one after the other.
fn link(setup: &Setup, hops: u64) -> LinkSpec {
    LinkSpec {
        rate: bandwidth(setup),
        delay: Picos::from_nanos(setup.delay / hops),
        mtu_bytes: setup.mtu + HEADERS,
        ..LinkSpec::default()
    }
}

fn switch(setup: &Setup) -> SwitchConfig {
    let mark = Ecn { kmin: setup.mark_at, kmax: setup.mark_at, pmax: 1.0 };
    let usual = SwitchConfig::default();
    SwitchConfig {
        ecn: [(setup.mark_at > 0).then_some(mark); PRIORITIES],
        buffer: if setup.buffer > 0 { setup.buffer } else { usual.buffer },
        // Neighbours share what there is, and one port may fill nearly all.
        ingress_alpha_log2: 0,
        egress_alpha_log2: 3,
        pfc: pfc(setup),
        ..usual
    }
}

/// Flow control of the priority that all data has.
fn pfc(setup: &Setup) -> Pfc {
    Pfc { lossless: u8::from(setup.pfc), ..Pfc::default() }
}

fn bandwidth(setup: &Setup) -> u64 {
    setup.bandwidth.max(1_000_000)
}

fn picos(time: Time) -> Picos {
    Picos::from_nanos(time.as_nanos())
}

/// In whole nanoseconds, rounded up: by then it has happened.
fn time(at: Picos) -> Time {
    Time::from_nanos(at.as_nanos_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Op, Post};
    use crate::packet::Fate;
    use crate::world::World;

    fn write(world: &mut World, end: usize, len: u32) {
        let post = serde_json::json!({ "end": end, "op": Op::Write, "len": len });
        let post: Post = serde_json::from_value(post).expect("a post");
        world.act(&Action::Post(post)).expect("it is posted");
    }

    fn shared() -> World {
        let setup = Setup { sides: 3, congestion_control: true, mark_at: 5_000, ..Setup::default() };
        World::new(&setup).expect("a world")
    }

    /// One packet of `len` bytes of data: BTH, RETH, ICRC, UDP and IP, and what Ethernet adds.
    fn serialized(len: u64) -> u64 {
        ((len + 12 + 16 + 4 + 8 + 20 + u64::from(ETHERNET)) * 8).div_ceil(10)
    }

    #[test]
    fn a_packet_alone_takes_two_links_and_waits_for_nothing() {
        let mut world = shared();
        write(&mut world, 0, 1012);
        let expected = 5_000 + 2 * serialized(1012);
        assert_eq!(world.packets[0].at.as_nanos(), expected, "as it is foreseen");
        assert_eq!(world.next_time(), Some(Time::from_nanos(expected)));
        assert!(world.step());
        assert_eq!((world.packets[0].fate, world.now.as_nanos()), (Fate::Arrived, expected));
    }

    #[test]
    fn a_packet_of_another_nic_comes_right_behind() {
        let mut world = shared();
        write(&mut world, 0, 1012);
        write(&mut world, 2, 1012);
        while world.packets.iter().any(|packet| packet.from != 1 && packet.fate == Fate::Flying) {
            assert!(world.step());
        }
        let apart = world.packets[1].at.nanos_since(world.packets[0].at);
        assert_eq!(apart, serialized(1012));
    }

    #[test]
    fn what_was_dropped_by_hand_never_arrives_and_what_was_delayed_arrives_later() {
        let mut world = shared();
        write(&mut world, 0, 4096);
        let foreseen = world.packets[1].at;
        world.act(&Action::Drop { packet: 0 }).expect("it is under way");
        world.act(&Action::Delay { packet: 1, ns: 30_000 }).expect("it is under way");
        while world.now < foreseen + Duration::from_nanos(60_000) && world.step() {}
        assert_eq!(world.packets[0].fate, Fate::Lost);
        assert_eq!(world.packets[1].fate, Fate::Arrived);
        assert!(world.packets[1].at >= foreseen + Duration::from_nanos(30_000));
        let taken = |packet| {
            world
                .events
                .iter()
                .any(|event| event.what == crate::view::What::Received && event.packet == Some(packet))
        };
        assert!(taken(1) && !taken(0));
    }

    #[test]
    fn a_long_queue_marks_and_no_packet_is_lost() {
        let mut world = shared();
        for end in [0, 2] {
            write(&mut world, end, 16 << 10);
        }
        for _ in 0..200 {
            world.step();
        }
        let said = |text: &str| world.events.iter().filter(|event| event.text.contains(text)).count();
        let marked = world.packets.iter().filter(|packet| packet.ce).count();
        assert!(marked > 0 && !world.packets[0].ce, "{marked} marked");
        assert_eq!(said("the switch marks"), marked);
        assert_eq!(said("Success"), 2);
        assert!(world.packets.iter().all(|packet| packet.fate != Fate::Lost));
    }

    /// Two senders, with 20 WRITEs of 8192 bytes each, until all are done.
    fn both(setup: Setup, mut meanwhile: impl FnMut(usize, &mut World)) -> World {
        let mut world = World::new(&setup).expect("a world");
        for end in [0, 2] {
            (0..20).for_each(|_| write(&mut world, end, 8192));
        }
        for step in 0..4000 {
            meanwhile(step, &mut world);
            if !world.step() {
                break;
            }
        }
        assert_eq!(said(&world, "RdmaWrite, Success"), 40);
        world
    }

    fn said(world: &World, text: &str) -> usize {
        world.events.iter().filter(|event| event.text.contains(text)).count()
    }

    fn incast() -> Setup {
        Setup { sides: 3, network: Network::Switch, buffer: 100_000, ..Setup::default() }
    }

    fn spines() -> Setup {
        Setup { network: Network::Spines, pfc: true, sports: [49_152, 49_153], ..incast() }
    }

    #[test]
    fn without_pauses_a_full_switch_drops_and_with_them_it_does_not() {
        let lossy = both(incast(), |_, _| ());
        assert!(said(&lossy, "is lost at the switch: no room") > 0 && lossy.pauses.is_empty());
        assert!(lossy.queues.iter().all(|queue| queue.bytes <= 100_000));
        let lossless = both(Setup { pfc: true, ..incast() }, |_, _| ());
        assert_eq!(said(&lossless, "is lost"), 0);
        for nic in [0, 4] {
            let own: Vec<bool> =
                lossless.pauses.iter().filter(|pause| pause.port == nic).map(|pause| pause.paused).collect();
            assert!(
                !own.is_empty() && own.iter().enumerate().all(|(place, &paused)| paused == (place % 2 == 0))
            );
        }
    }

    #[test]
    fn a_queue_is_empty_in_the_end() {
        let world = both(Setup { pfc: true, ..incast() }, |_, _| ());
        assert_eq!(world.queues.last().map(|queue| queue.bytes), Some(0));
    }

    #[test]
    fn source_ports_choose_the_spine() {
        let apart = both(spines(), |_, _| ());
        let together = both(Setup { sports: [49_152; 2], ..spines() }, |_, _| ());
        let peak = |world: &World| world.queues.iter().map(|queue| queue.bytes).max().unwrap_or(0);
        assert!(peak(&apart) < 4 * 1106, "{}", peak(&apart));
        assert!(peak(&together) > 40_000, "{}", peak(&together));
    }

    #[test]
    fn a_link_that_fails_loses_packets_until_the_routes_follow() {
        let setup = Setup { convergence: 50_000, ..spines() };
        let mut failed = Time::ZERO;
        let world = both(setup, |step, world| {
            if step == 60 {
                failed = world.now;
                world.act(&Action::Link { link: 3, up: false }).expect("a link between switches");
            }
        });
        let lost: Vec<u64> = world
            .events
            .iter()
            .filter(|event| event.text.contains("is lost at"))
            .map(|event| event.at - failed.as_nanos())
            .collect();
        assert!(lost.len() > 30 && lost.iter().all(|&after| after <= 50_000), "{lost:?}");
    }

    #[test]
    fn links_of_nics_do_not_fail() {
        let mut world = World::new(&spines()).expect("a world");
        assert!(world.act(&Action::Link { link: 0, up: false }).is_err());
        assert!(world.act(&Action::Link { link: 7, up: false }).is_err());
    }
}
