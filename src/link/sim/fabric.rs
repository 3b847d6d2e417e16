//! The state that all links of a fabric share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::{Time, UDP_LEN};

use crate::rng::Rng;

use super::{AddressTaken, FabricCounters, Flight, Meddling, Path, link};

/// A datagram in flight or waiting to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Parcel {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) sport: u16,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    /// IPv4 identification; 0 for IPv6.
    pub(super) id: u16,
    pub(super) bytes: Vec<u8>,
}

impl Parcel {
    /// Bytes with UDP and IP headers.
    pub(super) fn wire_len(&self) -> usize {
        self.bytes.len() + UDP_LEN + if self.dst.is_ipv4() { 20 } else { 40 }
    }
}

#[derive(Debug)]
pub(super) struct State {
    seed: u64,
    pub(super) default_path: Path,
    paths: BTreeMap<(IpAddr, IpAddr), PathState>,
    endpoints: BTreeMap<IpAddr, Endpoint>,
    under_way: BinaryHeap<Reverse<Arrival>>,
    /// Orders arrivals of the same time.
    sequence: u64,
    pub(super) counters: FabricCounters,
}

#[derive(Debug)]
struct PathState {
    path: Option<Path>,
    rng: Rng,
}

#[derive(Debug)]
struct Endpoint {
    groups: BTreeSet<IpAddr>,
    queue: VecDeque<Parcel>,
    queued_bytes: usize,
    receive_buffer: usize,
    overruns: u64,
}

#[derive(Debug)]
struct Arrival {
    at: Time,
    sequence: u64,
    to: IpAddr,
    parcel: Parcel,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            seed,
            default_path: Path::default(),
            paths: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            under_way: BinaryHeap::new(),
            sequence: 0,
            counters: FabricCounters::default(),
        }
    }

    pub(super) fn attach(&mut self, address: IpAddr, receive_buffer: usize) -> Result<(), AddressTaken> {
        if self.endpoints.contains_key(&address) {
            return Err(AddressTaken(address));
        }
        let endpoint = Endpoint {
            groups: BTreeSet::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            receive_buffer,
            overruns: 0,
        };
        self.endpoints.insert(address, endpoint);
        Ok(())
    }

    pub(super) fn detach(&mut self, address: IpAddr) {
        self.endpoints.remove(&address);
    }

    pub(super) fn set_path(&mut self, src: IpAddr, dst: IpAddr, path: Path) {
        path_state(&mut self.paths, self.seed, src, dst).path = Some(path);
    }

    pub(super) fn join(&mut self, address: IpAddr, group: IpAddr) {
        if let Some(endpoint) = self.endpoints.get_mut(&address) {
            endpoint.groups.insert(group);
        }
    }

    /// Whether `address` was a member.
    pub(super) fn leave(&mut self, address: IpAddr, group: IpAddr) -> bool {
        self.endpoints.get_mut(&address).is_some_and(|endpoint| endpoint.groups.remove(&group))
    }

    /// Accepts a datagram whose last bit leaves at `at`.
    pub(super) fn send(&mut self, at: Time, parcel: Parcel) {
        if !parcel.dst.is_multicast() {
            self.send_to(at, parcel.dst, parcel);
            return;
        }
        let members = self.endpoints.iter().filter(|(_, endpoint)| endpoint.groups.contains(&parcel.dst));
        let members: Vec<IpAddr> = members.map(|(address, _)| *address).collect();
        for member in members {
            self.send_to(at, member, parcel.clone());
        }
    }

    fn send_to(&mut self, at: Time, to: IpAddr, mut parcel: Parcel) {
        self.counters.sent += 1;
        if !self.endpoints.contains_key(&to) {
            self.counters.unroutable += 1;
            return;
        }
        let state = path_state(&mut self.paths, self.seed, parcel.src, to);
        let path = state.path.unwrap_or(self.default_path);
        // Every datagram draws the same numbers, whatever happens to it, so that changing one probability does not
        // affect the others.
        let lost = state.rng.chance(path.loss);
        let duplicated = state.rng.chance(path.duplicate);
        let reordered = state.rng.chance(path.reorder);
        let corrupted = state.rng.chance(path.corrupt);
        let marked = state.rng.chance(path.mark);
        let extra = state.rng.below(path.reorder_delay.as_nanos().clamp(1, u64::MAX.into()) as u64);
        let mut noise = Rng::new(state.rng.next());

        if lost {
            self.counters.lost += 1;
            return;
        }
        if marked && matches!(parcel.tos & ECN, ECT_0 | ECT_1) {
            parcel.tos |= CONGESTION_EXPERIENCED;
            self.counters.marked += 1;
        }
        let arrival = at + path.delay;
        if duplicated {
            self.counters.duplicated += 1;
            self.schedule(arrival, to, parcel.clone());
        }
        if corrupted {
            self.counters.corrupted += 1;
            noise.corrupt(&mut parcel.bytes);
        }
        self.counters.reordered += u64::from(reordered);
        let extra = if reordered { Duration::from_nanos(extra + 1) } else { Duration::ZERO };
        self.schedule(arrival + extra, to, parcel);
    }

    fn schedule(&mut self, at: Time, to: IpAddr, parcel: Parcel) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.under_way.push(Reverse(Arrival { at, sequence, to, parcel }));
    }

    pub(super) fn next_delivery(&self) -> Option<Time> {
        self.under_way.peek().map(|Reverse(arrival)| arrival.at)
    }

    pub(super) fn flights(&self, first: u64) -> Vec<Flight> {
        let wanted = self.under_way.iter().filter(|Reverse(arrival)| arrival.sequence >= first);
        let mut flights: Vec<Flight> = wanted.map(|Reverse(arrival)| arrival.flight()).collect();
        flights.sort_by_key(|flight| (flight.at, flight.number));
        flights
    }

    /// Whether there was such a datagram, and it could be done.
    pub(super) fn meddle(&mut self, number: u64, what: Meddling) -> bool {
        let mut arrivals = std::mem::take(&mut self.under_way).into_vec();
        let place = arrivals.iter().position(|Reverse(arrival)| arrival.sequence == number);
        let mut copy = None;
        let done = place.is_some_and(|place| {
            let Reverse(arrival) = &mut arrivals[place];
            match what {
                Meddling::Lose => {
                    arrivals.swap_remove(place);
                    self.counters.lost += 1;
                }
                Meddling::Duplicate => {
                    copy = Some((arrival.at, arrival.to, arrival.parcel.clone()));
                    self.counters.duplicated += 1;
                }
                Meddling::ArriveAt(at) => arrival.at = at,
                Meddling::Mark if arrival.parcel.tos & ECN == 0 => return false,
                Meddling::Mark => {
                    arrival.parcel.tos |= CONGESTION_EXPERIENCED;
                    self.counters.marked += 1;
                }
                Meddling::Flip { bit } => {
                    let Some(byte) = arrival.parcel.bytes.get_mut(bit / 8) else { return false };
                    *byte ^= 0x80 >> (bit % 8);
                    self.counters.corrupted += 1;
                }
            }
            true
        });
        self.under_way = arrivals.into();
        if let Some((at, to, parcel)) = copy {
            self.schedule(at, to, parcel);
        }
        done
    }

    pub(super) fn advance(&mut self, now: Time) {
        while self.next_delivery().is_some_and(|at| at <= now) {
            let Some(Reverse(arrival)) = self.under_way.pop() else { return };
            let Some(endpoint) = self.endpoints.get_mut(&arrival.to) else {
                self.counters.unroutable += 1;
                continue;
            };
            let bytes = endpoint.queued_bytes + arrival.parcel.wire_len();
            if bytes > endpoint.receive_buffer {
                endpoint.overruns += 1;
                self.counters.overrun += 1;
                continue;
            }
            self.counters.delivered += 1;
            endpoint.queued_bytes = bytes;
            endpoint.queue.push_back(arrival.parcel);
        }
    }

    /// Takes the first datagram that waits.
    pub(super) fn take(&mut self, address: IpAddr) -> Option<Parcel> {
        let endpoint = self.endpoints.get_mut(&address)?;
        let parcel = endpoint.queue.pop_front()?;
        endpoint.queued_bytes -= parcel.wire_len();
        Some(parcel)
    }

    pub(super) fn waiting(&self, address: IpAddr) -> usize {
        self.endpoints.get(&address).map_or(0, |endpoint| endpoint.queue.len())
    }

    pub(super) fn overruns(&self, address: IpAddr) -> u64 {
        self.endpoints.get(&address).map_or(0, |endpoint| endpoint.overruns)
    }
}

const ECN: u8 = 0b11;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CONGESTION_EXPERIENCED: u8 = 0b11;

fn path_state(
    paths: &mut BTreeMap<(IpAddr, IpAddr), PathState>,
    seed: u64,
    src: IpAddr,
    dst: IpAddr,
) -> &mut PathState {
    paths.entry((src, dst)).or_insert_with(|| {
        let direction = format!("{src} to {dst}");
        PathState { path: None, rng: Rng::stream(seed, direction.as_bytes()) }
    })
}

impl Arrival {
    fn flight(&self) -> Flight {
        Flight {
            number: self.sequence,
            at: self.at,
            from: self.parcel.src,
            to: self.to,
            packet: link::packet(&self.parcel),
        }
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Arrival) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
