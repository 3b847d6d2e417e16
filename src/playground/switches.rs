//! The switch between the NICs, as `softrnic-fabric` models it.
//!
//! The model carries the numbers of packets. Their bytes stay in the simulated network, which holds each of them until the model
//! says what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_fabric::{
    DropReason, Ecn, Ect, Fabric, FlowTuple, Frame, Host, HostConfig, LinkSpec, Meddling, Observer,
    PRIORITIES, Picos, PortId, SwitchConfig, To, Topology,
};
use softrnic_wire::{ROCE_UDP_PORT, Time};

use crate::action::Setup;
use crate::packet::Packet;

/// What Ethernet adds to a packet: header, FCS, preamble and gap.
const ETHERNET: u32 = 38;

/// See the [module](self).
pub struct Switches {
    fabric: Fabric<usize>,
    /// The port of each NIC.
    nics: Vec<PortId>,
    bandwidth: u64,
    delay: Duration,
    seen: Seen,
    next: Option<Time>,
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
    /// It is marked, and so many bytes wait behind it.
    Marked(u64),
    /// It is lost.
    Lost(DropReason),
}

/// What the model tells, and what was done to packets by hand.
#[derive(Default)]
struct Seen {
    carried: BTreeSet<usize>,
    lost: BTreeSet<usize>,
    delayed: BTreeMap<usize, Duration>,
    marked: Vec<(PortId, usize)>,
    delivered: Vec<usize>,
    dropped: Vec<(usize, DropReason)>,
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

    fn dropped(&mut self, _at: Picos, _port: PortId, frame: &Frame<usize>, reason: DropReason) {
        self.dropped.push((frame.payload, reason));
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
        if setup.mark_at == 0 {
            return Ok(None);
        }
        let topology = topology(setup).map_err(|error| error.to_string())?;
        let fabric = Fabric::new(topology, setup.seed).map_err(|error| error.to_string())?;
        Ok(Some(Switches {
            nics: (0..setup.sides as u32).map(|nic| fabric.host_ports(Host(nic))[0]).collect(),
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
        let once = Picos::of_bytes(u64::from(bytes), self.bandwidth);
        now + self.delay + Duration::from_nanos((once + once).as_nanos_ceil())
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
        for (port, packet) in std::mem::take(&mut self.seen.marked) {
            let queue = self.fabric.queued(port).iter().sum();
            news.push(News { at, packet, what: Becomes::Marked(queue) });
        }
        for packet in std::mem::take(&mut self.seen.delivered) {
            let delay = self.seen.delayed.remove(&packet).unwrap_or_default();
            if self.forget(packet) {
                news.push(News { at, packet, what: Becomes::Delivered(delay) });
            }
        }
        for (packet, reason) in std::mem::take(&mut self.seen.dropped) {
            if self.forget(packet) {
                news.push(News { at, packet, what: Becomes::Lost(reason) });
            }
        }
    }

    /// Whether it had not been lost by hand before.
    fn forget(&mut self, packet: usize) -> bool {
        self.seen.carried.remove(&packet);
        !self.seen.lost.remove(&packet)
    }
}

/// All NICs at one switch.
fn topology(setup: &Setup) -> Result<Topology, softrnic_fabric::TopologyError> {
    let mark = Ecn { kmin: setup.mark_at, kmax: setup.mark_at, pmax: 1.0 };
    let switch = SwitchConfig { ecn: [Some(mark); PRIORITIES], ..SwitchConfig::default() };
    let host = HostConfig { queue: u64::MAX, ..HostConfig::default() };
    let link =
        LinkSpec { rate: bandwidth(setup), delay: Picos::from_nanos(setup.delay / 2), ..LinkSpec::default() };
    let mut topology = Topology::new();
    let switch = topology.add_switch("switch", switch)?;
    for name in ["A", "B", "C"].into_iter().take(setup.sides) {
        let host = topology.add_host(name, host)?;
        topology.link(topology.node_of(host), switch, link)?;
    }
    Ok(topology)
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
}
