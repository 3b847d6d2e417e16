//! Switches between the NICs, as `softrnic-fabric` models them.
//!
//! The model carries the numbers of datagrams. Their bytes stay in the simulated wire, which holds each datagram until the
//! model says what becomes of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_fabric::{
    Balance, DropReason, Ecn, Ect, FlowTuple, Frame, Host, HostConfig, LinkChange, LinkId, LinkSpec,
    Observer, PRIORITIES, Parts, Pfc, Picos, PortId, Priority, SwitchConfig, To, Topology,
};
use softrnic_link::sim::{Fabric, Flight, Meddling, Path};
use softrnic_wire::{ROCE_UDP_PORT, Time};

use crate::rng::Rng;

/// Datagrams that the model has are due then, and later by as much as the wire delays them: never.
const HELD: Time = Time::from_nanos(1 << 60);
/// What Ethernet adds to a packet: header, FCS, preamble and gap.
const ETHERNET: u32 = 38;
const UDP: u8 = 17;

/// See the [module](self).
pub struct Switches {
    model: softrnic_fabric::Fabric<u64>,
    /// By the model's numbers.
    hosts: Vec<IpAddr>,
    /// Datagrams of the wire below this number are known.
    next_number: u64,
    /// What leaves its NIC at a later time.
    departures: BinaryHeap<Reverse<(Time, u64)>>,
    leaving: BTreeMap<u64, Frame<u64>>,
    /// Links that fail, and work again.
    changes: VecDeque<(Time, LinkId, LinkChange)>,
    told: Told,
}

/// What switches have done to packets, to see that they did something.
#[derive(Clone, Copy, Default, Debug)]
pub struct SwitchCounts {
    /// Lost for want of memory.
    pub no_room: u64,
    /// Lost on a link that was down.
    pub link_down: u64,
    /// Marked.
    pub marked: u64,
    /// Times that a port was paused.
    pub pauses: u64,
}

impl SwitchCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: SwitchCounts) {
        self.no_room += other.no_room;
        self.link_down += other.link_down;
        self.marked += other.marked;
        self.pauses += other.pauses;
    }
}

/// What the model has told.
#[derive(Default)]
struct Told {
    /// When, which, and whether it is marked.
    delivered: Vec<(Time, u64, bool)>,
    dropped: Vec<u64>,
    counts: SwitchCounts,
}

impl Observer<u64> for Told {
    fn deliver(&mut self, at: Picos, _host: Host, frame: Frame<u64>) {
        self.delivered.push((time(at), frame.payload, frame.ect == Ect::Experienced));
    }

    fn marked(&mut self, _at: Picos, _port: PortId, _frame: &Frame<u64>) {
        self.counts.marked += 1;
    }

    fn dropped(&mut self, _at: Picos, _port: PortId, frame: &Frame<u64>, reason: DropReason) {
        self.dropped.push(frame.payload);
        match reason {
            DropReason::NoRoom => self.counts.no_room += 1,
            DropReason::LinkDown => self.counts.link_down += 1,
            _ => {}
        }
    }

    fn paused(&mut self, _at: Picos, _port: PortId, _priority: Priority) {
        self.counts.pauses += 1;
    }
}

impl Switches {
    /// A network of a seed's choice for NICs at these addresses.
    pub fn new(seed: u64, hosts: Vec<IpAddr>) -> Switches {
        let rng = &mut Rng::new(seed ^ 0x5_717C);
        let count = hosts.len() as u32;
        let mut parts = parts(rng);
        let topology = match rng.below(4) {
            // Little memory, which loses.
            0 => {
                parts.switch.buffer = rng.pick(&[48 << 10, 128 << 10]);
                parts.core.rate /= 4;
                Topology::dumbbell(count.div_ceil(2), &parts)
            }
            // Lossless, and marked.
            1 => {
                let pfc = Pfc { lossless: 1, ..Pfc::default() };
                (parts.host.pfc, parts.switch.pfc) = (pfc, pfc);
                parts.switch.buffer = 1 << 20;
                parts.core.rate /= 10;
                Topology::dumbbell(count.div_ceil(2), &parts)
            }
            2 => Topology::clos(2, 2, count.div_ceil(2), &parts),
            _ => {
                parts.switch.balance = rng.pick(&[Balance::RoundRobin, Balance::Random, Balance::LeastQueue]);
                Topology::clos(2, 3, count.div_ceil(2), &parts)
            }
        };
        let topology = topology.expect("a network");
        let changes = failures(rng, &topology);
        let mut model = softrnic_fabric::Fabric::new(topology, seed).expect("a network");
        model.set_convergence(Picos::from_micros(rng.pick(&[0, 100, 2_000])));
        Switches {
            model,
            hosts,
            next_number: 0,
            departures: BinaryHeap::new(),
            leaving: BTreeMap::new(),
            changes,
            told: Told::default(),
        }
    }

    /// The wire's path to the switches. It does to packets what `path` says, but all delays are those of the model.
    pub fn path(path: Path) -> Path {
        Path { delay: HELD.since(Time::ZERO), ..path }
    }

    /// What they have done.
    pub fn counts(&self) -> SwitchCounts {
        self.told.counts
    }

    /// Takes what the NICs have sent since it was last called.
    pub fn take(&mut self, wire: &Fabric) {
        for flight in wire.flights_from(self.next_number) {
            self.next_number = self.next_number.max(flight.number + 1);
            let departure = Time::ZERO + flight.at.since(HELD);
            if flight.from == flight.to {
                wire.meddle(flight.number, Meddling::ArriveAt(departure));
            } else {
                self.departures.push(Reverse((departure, flight.number)));
                self.leaving.insert(flight.number, self.frame(&flight));
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let departure = self.departures.peek().map(|Reverse((at, _))| *at);
        let change = self.changes.front().map(|(at, ..)| *at).filter(|_| self.model.under_way() > 0);
        [departure, change, self.model.next_event().map(time)].into_iter().flatten().min()
    }

    /// Lets everything happen up to a time, and has the wire deliver what has arrived.
    pub fn run_until(&mut self, wire: &Fabric, until: Time) {
        while let Some(&(at, link, change)) = self.changes.front().filter(|(at, ..)| *at <= until) {
            self.send_until(at);
            self.changes.pop_front();
            self.model.change(picos(at), link, change, &mut self.told);
        }
        self.send_until(until);
        for (at, number, is_marked) in self.told.delivered.drain(..) {
            if is_marked {
                wire.meddle(number, Meddling::Mark);
            }
            wire.meddle(number, Meddling::ArriveAt(at));
        }
        for number in self.told.dropped.drain(..) {
            wire.meddle(number, Meddling::Lose);
        }
    }

    fn send_until(&mut self, until: Time) {
        while let Some(&Reverse((at, number))) = self.departures.peek()
            && at <= until
        {
            self.departures.pop();
            let Some(frame) = self.leaving.remove(&number) else { continue };
            self.model.run_until(picos(at), &mut self.told);
            let port = self.model.host_ports(frame.from)[0];
            self.model.send(picos(at), port, frame, &mut self.told).expect("hosts' queues have no end");
        }
        self.model.run_until(picos(until), &mut self.told);
    }

    fn frame(&self, flight: &Flight) -> Frame<u64> {
        let host = |address| {
            let place = self.hosts.iter().position(|host| *host == address);
            Host(place.expect("an address of this network") as u32)
        };
        let packet = &flight.packet;
        let (tos, udp) = match flight.to {
            IpAddr::V4(_) => (packet[1], 20),
            IpAddr::V6(_) => (packet[0] << 4 | packet[1] >> 4, 40),
        };
        Frame {
            from: host(flight.from),
            to: To::Host(host(flight.to)),
            bytes: packet.len() as u32 + ETHERNET,
            flow: FlowTuple {
                src: flight.from,
                dst: flight.to,
                sport: u16::from_be_bytes([packet[udp], packet[udp + 1]]),
                dport: ROCE_UDP_PORT,
                protocol: UDP,
            },
            dscp: tos >> 2,
            ect: Ect::from_tos(tos),
            trimmed: false,
            payload: flight.number,
        }
    }
}

fn parts(rng: &mut Rng) -> Parts {
    let link = LinkSpec {
        rate: rng.pick(&[10_000_000_000, 40_000_000_000, 100_000_000_000]),
        delay: Picos::from_nanos(rng.pick(&[100, 1_000, 10_000])),
        ..LinkSpec::default()
    };
    let ecn = rng.chance(0.7).then_some(Ecn { kmin: 10_000, kmax: 100_000, pmax: 0.5 });
    Parts {
        host: HostConfig { queue: u64::MAX, ..HostConfig::default() },
        switch: SwitchConfig { ecn: [ecn; PRIORITIES], ..SwitchConfig::default() },
        edge: link,
        core: link,
    }
}

/// Now and then, a link between two switches fails, and works again.
fn failures(rng: &mut Rng, topology: &Topology) -> VecDeque<(Time, LinkId, LinkChange)> {
    let is_host = |node| topology.hosts().contains(node);
    let links = topology.links().iter().enumerate();
    let core = links.filter(|(_, link)| !link.ends.iter().any(is_host)).map(|(number, _)| number as u32);
    let core: Vec<u32> = core.collect();
    let mut at = Time::ZERO;
    let mut changes = VecDeque::new();
    for _ in 0..rng.below(4) {
        let link = LinkId(rng.pick(&core));
        for change in [LinkChange::Down, LinkChange::Up] {
            at += Duration::from_nanos(rng.between(10_000, 3_000_000));
            changes.push_back((at, link, change));
        }
    }
    changes
}

fn picos(time: Time) -> Picos {
    Picos::from_nanos(time.as_nanos())
}

/// In whole nanoseconds, rounded up: by then it has happened.
fn time(at: Picos) -> Time {
    Time::from_nanos(at.as_nanos_ceil())
}
