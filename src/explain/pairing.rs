//! Finds which two flows are the two directions of one connection.
//!
//! A packet names only the QP it goes to, so packets of QP a to QP b carry b, and those back carry a. What relates the
//! two, in falling order of trust: the connection handshake, which names both; answers, whose PSN is that of a request
//! in the other direction; the UDP source port, which by the kernel's rule is a hash of both QPNs, the same in both
//! directions; and there being only one candidate.

use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHashSet};
use softrnic_wire::{Qpn, Transport, default_flow_label, flow_label_to_sport};

use super::collect::Collected;
use super::connection::Connection;
use super::event::Flow;

/// Two QPs that communicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Address and QPN of both sides; the side that sent first is the first.
    pub ends: [(IpAddr, Option<Qpn>); 2],
    pub transport: Transport,
    /// Packets of the first side, and of the second.
    pub flows: [Option<u32>; 2],
    pub connection: Option<usize>,
    pub paired_by: PairedBy,
}

/// The evidence that two directions belong together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PairedBy {
    /// The packets name both QPs.
    Datagrams,
    /// REQ and REP named both QPs.
    Handshake,
    /// Answers carried the PSNs of requests.
    Answers,
    /// The UDP source port is the hash of both QPNs.
    SourcePort,
    /// There was no other candidate.
    OnlyCandidate,
    /// The QP is connected to itself, so that there is but one flow.
    Itself,
    /// None: only one direction is known.
    Nothing,
}

/// Answers looked at per flow; a few suffice.
const SAMPLE: u32 = 64;
/// More unpaired flows than this between two addresses are not tried against each other.
const MAX_CANDIDATES: usize = 512;

/// Pairs all flows; congestion notifications belong to the pair they slow down and are left out.
pub(crate) fn pair(collected: &Collected, connections: &[Connection]) -> Vec<Plan> {
    let mut pairing =
        Pairing { flows: &collected.flows, taken: vec![false; collected.flows.len()], plans: vec![] };
    pairing.datagrams();
    pairing.handshakes(connections);
    pairing.answers(collected);
    pairing.leftovers();
    let mut plans = pairing.plans;
    for plan in &mut plans {
        plan.put_first_sender_first(&collected.flows);
    }
    plans.sort_by_key(|plan| plan.first_event(&collected.flows));
    plans
}

struct Pairing<'c> {
    flows: &'c [Flow],
    taken: Vec<bool>,
    plans: Vec<Plan>,
}

impl Pairing<'_> {
    fn free(&self, flow: usize) -> bool {
        !self.taken[flow] && self.flows[flow].key.transport != Transport::Cnp
    }

    /// Makes a pair of a flow and the one back, if there is one.
    fn join(&mut self, there: usize, back: Option<usize>, connection: Option<usize>, paired_by: PairedBy) {
        let key = self.flows[there].key;
        self.taken[there] = true;
        let near = back.map(|back| {
            self.taken[back] = true;
            self.flows[back].key.dest
        });
        self.plans.push(Plan {
            ends: [(key.src, near.or(key.src_qpn)), (key.dst, Some(key.dest))],
            transport: key.transport,
            flows: [Some(there as u32), back.map(|b| b as u32)],
            connection,
            paired_by,
        });
    }

    fn datagrams(&mut self) {
        let mut by_ends = FxHashMap::default();
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some(src_qpn) = flow.key.src_qpn {
                by_ends.insert((flow.key.src, src_qpn, flow.key.dst, flow.key.dest), index);
            }
        }
        for index in 0..self.flows.len() {
            let key = self.flows[index].key;
            if let (true, Some(src_qpn)) = (self.free(index), key.src_qpn) {
                let back = by_ends.get(&(key.dst, key.dest, key.src, src_qpn)).copied();
                self.join(index, back.filter(|b| *b != index && self.free(*b)), None, PairedBy::Datagrams);
            }
        }
    }

    fn handshakes(&mut self, connections: &[Connection]) {
        let mut by_dest = FxHashMap::default();
        for (index, flow) in self.flows.iter().enumerate() {
            if self.free(index) {
                let key = flow.key;
                by_dest.insert((key.src, key.dst, key.dest, key.epoch), index);
            }
        }
        for (number, connection) in connections.iter().enumerate() {
            let [Some(active), Some(passive)] = connection.qpns else { continue };
            let to_passive = (connection.active, connection.passive, passive, connection.epochs[1]);
            let to_active = (connection.passive, connection.active, active, connection.epochs[0]);
            let find = |key| by_dest.get(&key).copied().filter(|flow| self.free(*flow));
            let (there, back) = (find(to_passive), find(to_active));
            match (there, back) {
                (Some(there), back) => {
                    self.join(there, back, Some(number), PairedBy::Handshake);
                    if let Some(plan) = self.plans.last_mut() {
                        plan.ends[0].1 = Some(active);
                    }
                }
                (None, Some(back)) => {
                    self.join(back, None, Some(number), PairedBy::Handshake);
                    if let Some(plan) = self.plans.last_mut() {
                        plan.ends[0].1 = Some(passive);
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// Lets answers vote for the flow with the request they answer.
    fn answers(&mut self, collected: &Collected) {
        let directions = Directions::of(self.flows);
        let mut sampled = vec![0u32; self.flows.len()];
        let mut wanted = FxHashSet::default();
        for event in &collected.events {
            let flow = event.flow as usize;
            if event.operation.is_response() && sampled[flow] < SAMPLE {
                sampled[flow] += 1;
                wanted.insert((directions.back[flow], event.psn().get()));
            }
        }

        sampled.fill(0);
        let mut latest = FxHashMap::default();
        let mut votes: FxHashMap<(usize, usize), u32> = FxHashMap::default();
        for event in &collected.events {
            let flow = event.flow as usize;
            if !self.free(flow) || self.flows[flow].key.src_qpn.is_some() {
                continue;
            }
            let psn = event.psn().get();
            if event.operation.is_request() {
                if wanted.contains(&(directions.own[flow], psn)) {
                    latest.insert((directions.own[flow], psn), flow);
                }
            } else if sampled[flow] < SAMPLE {
                sampled[flow] += 1;
                if let Some(request) = latest.get(&(directions.back[flow], psn)).copied()
                    && request != flow
                    && self.flows[request].key.transport == self.flows[flow].key.transport
                {
                    *votes.entry((request.min(flow), request.max(flow))).or_default() += 1;
                }
            }
        }
        let mut ranked: Vec<_> = votes.into_iter().collect();
        ranked.sort_by_key(|((a, b), votes)| {
            let hinted = self.source_ports_fit(*a, *b);
            (std::cmp::Reverse((*votes, hinted)), *a, *b)
        });
        for ((a, b), _) in ranked {
            if self.free(a) && self.free(b) {
                self.join(a, Some(b), None, PairedBy::Answers);
            }
        }
    }

    /// Whether the source port of either flow is the kernel's hash of both QPNs.
    fn source_ports_fit(&self, a: usize, b: usize) -> bool {
        let port = flow_label_to_sport(default_flow_label(self.flows[a].key.dest, self.flows[b].key.dest));
        self.flows[a].src_port == port || self.flows[b].src_port == port
    }

    fn leftovers(&mut self) {
        let mut groups: FxHashMap<(IpAddr, IpAddr, Transport), [Vec<usize>; 2]> = FxHashMap::default();
        for index in (0..self.flows.len()).filter(|index| self.free(*index)) {
            let key = self.flows[index].key;
            let forward = key.src <= key.dst;
            let ends = if forward { (key.src, key.dst) } else { (key.dst, key.src) };
            groups.entry((ends.0, ends.1, key.transport)).or_default()[usize::from(!forward)].push(index);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort();
        for [there, mut back] in groups {
            // Between two QPs of one device both directions have the same addresses.
            let is_loop = there.first().is_some_and(|flow| {
                let key = self.flows[*flow].key;
                key.src == key.dst
            });
            if is_loop {
                back.clone_from(&there);
            }
            if there.len() * back.len() <= MAX_CANDIDATES * MAX_CANDIDATES {
                for a in &there {
                    let fits = back
                        .iter()
                        .copied()
                        .find(|b| a != b && self.free(*b) && self.source_ports_fit(*a, *b));
                    if let Some(b) = fits.filter(|_| self.free(*a)) {
                        self.join(*a, Some(b), None, PairedBy::SourcePort);
                    }
                }
            }
            let left = |of: &[usize]| of.iter().copied().filter(|i| self.free(*i)).collect::<Vec<_>>();
            let (there, back) = (left(&there), left(&back));
            if let ([a], [b]) | ([a, b], [_, _]) = (&there[..], &back[..])
                && is_loop == (there.len() == 2)
                && self.overlap(*a, *b)
            {
                self.join(*a, Some(*b), None, PairedBy::OnlyCandidate);
                continue;
            }
            for alone in there.into_iter().chain(back) {
                if self.free(alone) {
                    self.alone(alone);
                }
            }
        }
    }

    fn alone(&mut self, flow: usize) {
        let Flow { key, packets, answers, .. } = self.flows[flow];
        if key.src == key.dst && (1..packets).contains(&answers) {
            self.join(flow, None, None, PairedBy::Itself);
            if let Some(plan) = self.plans.last_mut() {
                plan.ends[0] = plan.ends[1];
            }
        } else {
            self.join(flow, None, None, PairedBy::Nothing);
        }
    }

    fn overlap(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.flows[a], &self.flows[b]);
        // Events are in the order of time, so their indices are too.
        a.first <= b.last && b.first <= a.last
            || a.first.abs_diff(b.last) < 64
            || b.first.abs_diff(a.last) < 64
    }
}

/// Numbers for (source, destination), and for the direction back.
struct Directions {
    own: Vec<u32>,
    back: Vec<u32>,
}

impl Directions {
    fn of(flows: &[Flow]) -> Directions {
        let mut numbers = FxHashMap::default();
        let mut number = |key: (IpAddr, IpAddr)| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        };
        let own = flows.iter().map(|f| number((f.key.src, f.key.dst))).collect();
        let back = flows.iter().map(|f| number((f.key.dst, f.key.src))).collect();
        Directions { own, back }
    }
}

impl Plan {
    fn first_event(&self, flows: &[Flow]) -> u32 {
        self.flows.iter().flatten().map(|f| flows[*f as usize].first).min().unwrap_or(u32::MAX)
    }

    fn put_first_sender_first(&mut self, flows: &[Flow]) {
        let first = |flow: Option<u32>| flow.map_or(u32::MAX, |f| flows[f as usize].first);
        if first(self.flows[1]) < first(self.flows[0]) {
            self.flows.swap(0, 1);
            self.ends.swap(0, 1);
        }
    }
}
