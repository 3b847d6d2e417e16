//! Virtual time: flows start, the fabric moves frames, NICs answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::iter::Peekable;
use std::slice::Iter;

use softrnic_fabric::{
    DropReason, Fabric, Frame, Host, LinkChange, LinkId, Meddling, Observer, Picos, PortId, Priority,
    Topology, TopologyError,
};
use softrnic_link::capture::Capture;
use softrnic_link::fault::FaultSpec;
use softrnic_transport::Status;
use softrnic_wire::Psn;

use crate::description::{Becomes, Change, Description, Sampling};
use crate::flow::{Flow, FlowState};
use crate::host::{End, StudyHost, messages};
use crate::nic::NicConfig;
use crate::packet::Packet;
use crate::result::{FlowResult, PortResult, Report, Sample};
use crate::watch::Watch;

/// Virtual time between two reports of progress.
const PROGRESS: Picos = Picos::from_micros(50);

/// More would fill the memory: every second one is left out.
const MOST_SAMPLES: usize = 100_000;
/// Between samples, until there are too many.
const FIRST_INTERVAL: Picos = Picos::from_nanos(100);

/// Why a study cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The network cannot work.
    Topology(TopologyError),
    /// A flow names a host that does not exist, or sends to itself.
    Flow(usize),
    /// A NIC refused to make or to change an object.
    Nic(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Topology(error) => error.fmt(f),
            Error::Flow(flow) => write!(f, "flow {flow} does not lead from one host to another"),
            Error::Nic(error) => write!(f, "a NIC refused: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<TopologyError> for Error {
    fn from(error: TopologyError) -> Error {
        Error::Topology(error)
    }
}

/// See the [crate](crate).
pub struct Study {
    fabric: Fabric<Box<Packet>>,
    nic: NicConfig,
    hosts: Vec<StudyHost>,
    flows: Vec<Flow>,
    /// Both ends of each flow: the sender's, and the receiver's.
    ends: Vec<[End; 2]>,
    states: Vec<FlowState>,
    /// Flows in the order of their start, those that have not started from `next_start` on.
    starts: Vec<usize>,
    next_start: usize,
    running: usize,
    /// When each host's NIC wants to be driven: the time that is in force, and the heap that finds the first.
    deadlines: Vec<Picos>,
    timers: BinaryHeap<Reverse<(Picos, u32)>>,
    seen: Seen,
    now: Picos,
    /// What each receiver has got of its flow.
    received: Vec<Received>,
    samples: Vec<Sample>,
}

/// Packets of a flow that its receiver has taken, in order.
#[derive(Clone, Copy, Default)]
struct Received {
    packets: u64,
    /// What it expects next.
    psn: Psn,
}

/// What the fabric told of an event: packets by host, and hosts with room.
#[derive(Default)]
struct Seen {
    arrived: Vec<(Host, Box<Packet>)>,
    room: Vec<Host>,
    watch: Watch,
}

impl Observer<Box<Packet>> for Seen {
    fn deliver(&mut self, _at: Picos, host: Host, frame: Frame<Box<Packet>>) {
        // What is left of a trimmed frame fails its ICRC, as in a NIC that does not know trimming.
        if !frame.trimmed {
            self.arrived.push((host, frame.payload.arrived(frame.ect)));
        }
    }

    fn has_room(&mut self, _at: Picos, host: Host) {
        self.room.push(host);
    }

    #[inline]
    fn watches(&self) -> bool {
        self.watch.is_on()
    }

    #[inline]
    fn meddle(&mut self, at: Picos, port: PortId, frame: &mut Frame<Box<Packet>>) -> Option<Meddling> {
        self.watch.meddle(at, port, frame)
    }

    #[inline]
    fn sent(&mut self, at: Picos, port: PortId, frame: &Frame<Box<Packet>>) {
        self.watch.sent(at, port, frame);
    }

    fn marked(&mut self, _at: Picos, port: PortId, _frame: &Frame<Box<Packet>>) {
        self.watch.marked(port);
    }

    fn dropped(&mut self, at: Picos, port: PortId, frame: &Frame<Box<Packet>>, reason: DropReason) {
        self.watch.dropped(at, port, frame, reason);
    }

    fn paused(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.watch.paused(at, port, priority, true);
    }

    fn resumed(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.watch.paused(at, port, priority, false);
    }
}

impl Study {
    /// Puts NICs at the hosts of a network, and connects a pair of queue pairs for each flow.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(topology: Topology, nic: NicConfig, flows: &[Flow], seed: u64) -> Result<Study, Error> {
        let hosts = topology.hosts().len() as u32;
        if let Some(bad) =
            flows.iter().position(|flow| flow.src == flow.dst || flow.src.0.max(flow.dst.0) >= hosts)
        {
            return Err(Error::Flow(bad));
        }
        let fabric = Fabric::new(topology, seed)?;
        let mut nodes = Vec::new();
        for host in (0..hosts).map(Host) {
            let port = fabric.host_ports(host)[0];
            let rate = fabric.topology().links()[port.link().0 as usize].spec.rate;
            nodes.push(StudyHost::new(host, port, rate, &nic, seed)?);
        }
        let mut ends = Vec::new();
        for flow in flows {
            ends.push(connect(&mut nodes, flow, &nic)?);
        }
        let mut starts: Vec<usize> = (0..flows.len()).collect();
        starts.sort_by_key(|&flow| (flows[flow].start, flow));
        Ok(Study {
            fabric,
            nic,
            deadlines: vec![Picos::NEVER; nodes.len()],
            hosts: nodes,
            flows: flows.to_vec(),
            ends,
            states: vec![FlowState::Running; flows.len()],
            starts,
            next_start: 0,
            running: flows.len(),
            timers: BinaryHeap::new(),
            seen: Seen::default(),
            now: Picos::ZERO,
            received: vec![Received::default(); flows.len()],
            samples: Vec::new(),
        })
    }

    /// The study that a description asks for. Its changes of links are played by [`play`](Study::play).
    ///
    /// # Errors
    /// See [`Error`].
    pub fn described(description: &Description) -> Result<Study, Error> {
        let topology = description.topology.clone();
        let mut study = Study::new(topology, description.nic, &description.flows, description.seed)?;
        study.fabric.set_convergence(description.convergence);
        Ok(study)
    }

    /// Lets time pass until all flows have ended, or until the description's end, and changes links on the way. `progress` is
    /// called now and then.
    ///
    /// # Errors
    /// A NIC refused a request.
    pub fn play(&mut self, description: &Description, mut progress: impl FnMut(&Study)) -> Result<(), Error> {
        let mut changes = description.changes.iter().peekable();
        let mut interval = match description.sampling {
            Sampling::Off => Picos::NEVER,
            Sampling::Every(interval) => interval,
            Sampling::AtLeast(_) => FIRST_INTERVAL,
        };
        let mut sample_at = interval;
        self.change_until_now(&mut changes);
        while self.running > 0 && self.now < description.until {
            let slice = self.now + PROGRESS;
            let next = changes.peek().map_or(Picos::NEVER, |change| change.at);
            self.run(slice.min(next).min(sample_at).min(description.until))?;
            if self.now >= sample_at {
                self.sample();
                let most = match description.sampling {
                    Sampling::AtLeast(least) => 2 * least.max(1),
                    Sampling::Every(_) | Sampling::Off => MOST_SAMPLES,
                };
                if self.samples.len() >= most {
                    interval = Picos(2 * interval.0);
                    let mut number = 0;
                    self.samples.retain(|_| {
                        number += 1;
                        number % 2 == 0
                    });
                }
                sample_at += interval;
            }
            self.change_until_now(&mut changes);
            progress(self);
        }
        Ok(())
    }

    /// Lets links change whose time has come.
    fn change_until_now(&mut self, changes: &mut Peekable<Iter<'_, Change>>) {
        while let Some(change) = changes.next_if(|change| change.at <= self.now) {
            match &change.becomes {
                Becomes::Link(becomes) => self.change(change.port.link(), *becomes),
                Becomes::Faulty(faults) => self.inject(change.port, faults),
            }
        }
    }

    /// Queues that pause each other in a circle, by the names of their ports.
    pub fn deadlock(&self) -> Option<Vec<String>> {
        let deadlock = self.fabric.deadlock()?;
        Some(deadlock.ports.iter().map(|port| self.fabric.topology().port_name(*port)).collect())
    }

    /// Virtual time.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// How far each flow is.
    pub fn states(&self) -> &[FlowState] {
        &self.states
    }

    /// Flows that have not ended.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Records what leaves by each port from now on.
    pub fn capture(&mut self, capture: &Capture) {
        // Virtual time has no date, and the same study gives the same file.
        self.seen.watch.capture(capture, self.fabric.topology(), 0);
    }

    /// Changes a link now.
    pub fn change(&mut self, link: LinkId, change: LinkChange) {
        self.fabric.change(self.now, link, change, &mut self.seen);
        self.serve();
    }

    /// Injects these faults on a link from now on, and no others. `tx` is what leaves by this port of it.
    pub fn inject(&mut self, from: PortId, faults: &FaultSpec) {
        self.seen.watch.inject(self.now, from, faults);
    }

    /// Flows of the study.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Lets time pass until all flows have ended, or until `until`.
    ///
    /// # Errors
    /// A NIC refused a request.
    pub fn run(&mut self, until: Picos) -> Result<(), Error> {
        while self.running > 0 {
            let next = self.next();
            if next > until || next == Picos::NEVER {
                break;
            }
            self.now = next;
            self.start_flows()?;
            while self.fabric.next_event().is_some_and(|at| at <= self.now) {
                self.fabric.step(&mut self.seen);
                self.serve();
            }
            self.fire_timers();
        }
        if self.running > 0 && until != Picos::NEVER {
            self.now = self.now.max(until);
        }
        self.count_received();
        Ok(())
    }

    /// Counts what receivers have got since the last time. Until then, at most 2^24 packets of a flow may arrive.
    fn count_received(&mut self) {
        for (number, received) in self.received.iter_mut().enumerate() {
            if matches!(self.states[number], FlowState::Done(_)) {
                continue;
            }
            let receiver = &self.ends[number][1].qp;
            let engine = &self.hosts[self.flows[number].dst.0 as usize].engine;
            let Ok(query) = engine.query_qp(receiver.key) else { continue };
            let psn = query.status.expected_psn;
            received.packets += u64::from(psn.distance_from(received.psn) as u32 & 0xFF_FFFF);
            received.psn = psn;
        }
    }

    /// Bytes of a flow that its receiver has got, in order: those of whole packets, while it runs.
    fn delivered(&self, flow: usize) -> u64 {
        if matches!(self.states[flow], FlowState::Done(_)) {
            return self.flows[flow].bytes;
        }
        (self.received[flow].packets * u64::from(self.nic.mtu.bytes())).min(self.flows[flow].bytes)
    }

    fn sample(&mut self) {
        let ports = 0..2 * self.fabric.topology().links().len() as u32;
        self.samples.push(Sample {
            time_ns: self.now.0 as f64 / 1000.0,
            delivered: (0..self.flows.len()).map(|flow| self.delivered(flow)).collect(),
            queued: ports.map(|port| self.fabric.queued(PortId(port)).iter().sum()).collect(),
        });
    }

    /// When something happens next.
    fn next(&self) -> Picos {
        let start = self.starts.get(self.next_start).map(|&flow| self.flows[flow].start);
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        // A timer that has passed is due now.
        [start, timer, self.fabric.next_event()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Picos::NEVER)
            .max(self.now)
    }

    fn start_flows(&mut self) -> Result<(), Error> {
        while let Some(&number) = self.starts.get(self.next_start)
            && self.flows[number].start <= self.now
        {
            self.next_start += 1;
            let flow = self.flows[number];
            let host = &mut self.hosts[flow.src.0 as usize];
            host.post(self.now, &mut self.ends[number][0], number, flow.bytes)?;
            self.drive(flow.src);
        }
        Ok(())
    }

    /// Drives the NICs that the last event concerns.
    fn serve(&mut self) {
        // Driving may fill both again.
        while !(self.seen.arrived.is_empty() && self.seen.room.is_empty()) {
            for (host, packet) in std::mem::take(&mut self.seen.arrived) {
                self.hosts[host.0 as usize].port.inbox.push_back(packet);
                self.drive(host);
            }
            for host in std::mem::take(&mut self.seen.room) {
                let node = &self.hosts[host.0 as usize];
                if node.port.is_full || !node.port.outbox.is_empty() {
                    self.drive(host);
                }
            }
        }
    }

    fn fire_timers(&mut self) {
        while let Some(&Reverse((at, host))) = self.timers.peek()
            && at <= self.now
        {
            self.timers.pop();
            // Later ones have replaced it, unless it is the one in force.
            if self.deadlines[host as usize] == at {
                self.deadlines[host as usize] = Picos::NEVER;
                self.drive(Host(host));
                self.serve();
            }
        }
    }

    fn drive(&mut self, host: Host) {
        let place = host.0 as usize;
        let (now, states, running) = (self.now, &mut self.states, &mut self.running);
        self.hosts[place].drive(now, &mut self.fabric, self.nic.overhead, &mut self.seen, |completion| {
            let flow = completion.wr_id as usize;
            let is_send = !completion.opcode.is_receive();
            if completion.status != Status::Success {
                if states[flow] == FlowState::Running && is_send {
                    states[flow] = FlowState::Failed(now, completion.status);
                    *running -= 1;
                }
            } else if is_send {
                states[flow] = FlowState::Done(now);
                *running -= 1;
            }
        });
        let deadline = self.hosts[place].deadline();
        if deadline != self.deadlines[place] {
            self.deadlines[place] = deadline;
            if deadline != Picos::NEVER {
                self.timers.push(Reverse((deadline, host.0)));
            }
        }
    }

    /// What has come of it so far.
    pub fn report(&self) -> Report {
        let topology = self.fabric.topology();
        let name = |host| topology.name(topology.node_of(host)).to_owned();
        let nanos = |time: Picos| time.0 as f64 / 1000.0;
        let flows =
            self.flows.iter().zip(&self.states).enumerate().map(|(number, (flow, state))| FlowResult {
                flow: number,
                src: name(flow.src),
                dst: name(flow.dst),
                bytes: flow.bytes,
                delivered: self.delivered(number),
                start_ns: nanos(flow.start),
                fct_ns: match state {
                    FlowState::Done(at) => Some(nanos(*at - flow.start)),
                    _ => None,
                },
                error: match state {
                    FlowState::Failed(_, status) => Some(format!("{status:?}")),
                    _ => None,
                },
            });
        let ports = PortResult::all(&self.fabric);
        let mut counters = BTreeMap::new();
        for host in &self.hosts {
            for (counter, count) in host.engine.counters().filter(|(_, count)| *count > 0) {
                *counters.entry(counter.name()).or_insert(0) += count;
            }
            for (reason, count) in host.engine.drops().filter(|(_, count)| *count > 0) {
                *counters.entry(reason.name()).or_insert(0) += count;
            }
        }
        Report {
            flows: flows.collect(),
            hops: ports.iter().map(|port| port.tx_frames).sum(),
            ports,
            samples: self.samples.clone(),
            counters,
            end_ns: nanos(self.now),
            events: self.fabric.handled(),
        }
    }
}

/// The two ends of a flow, connected.
fn connect(hosts: &mut [StudyHost], flow: &Flow, nic: &NicConfig) -> Result<[End; 2], Error> {
    let count = messages(flow.bytes).count();
    let (src, dst) = (flow.src.0 as usize, flow.dst.0 as usize);
    let sender = hosts[src].create_end(count)?;
    let mut receiver = hosts[dst].create_end(count)?;
    hosts[src].connect(&sender, flow.dst, receiver.qp.qpn, flow.dscp, flow.sport, nic)?;
    hosts[dst].connect(&receiver, flow.src, sender.qp.qpn, flow.dscp, flow.sport, nic)?;
    hosts[dst].receive(&mut receiver, flow.bytes)?;
    Ok([sender, receiver])
}
