//! Hosts that send as fast as their port takes it, and note what arrives.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use softrnic_fabric::{
    DropReason, Ect, Fabric, FlowTuple, Frame, Host, Meddling, Observer, Parts, Picos, PortId, Priority, To,
    Topology,
};

pub const GIGABIT: u64 = 1_000_000_000;

/// What a frame carries here: the flow, and its number in it.
pub type Payload = (u32, u64);

/// A flow of frames of one length.
#[derive(Clone, Copy)]
pub struct Flow {
    pub src: u32,
    pub dst: u32,
    pub bytes: u32,
    pub frames: u64,
    pub dscp: u8,
    pub sport: u16,
}

impl Flow {
    pub fn new(src: u32, dst: u32, bytes: u32, frames: u64) -> Flow {
        Flow { src, dst, bytes, frames, dscp: 0, sport: 10_000 }
    }

    pub fn dscp(self, dscp: u8) -> Flow {
        Flow { dscp, ..self }
    }

    pub fn sport(self, sport: u16) -> Flow {
        Flow { sport, ..self }
    }

    fn frame(&self, number: u32, sequence: u64) -> Frame<Payload> {
        let address = |host: u32| IpAddr::V4(Ipv4Addr::from(0x0b00_0001 + (host << 8)));
        let flow = FlowTuple {
            src: address(self.src),
            dst: address(self.dst),
            sport: self.sport,
            dport: 4791,
            protocol: 17,
        };
        Frame {
            from: Host(self.src),
            to: To::Host(Host(self.dst)),
            bytes: self.bytes,
            flow,
            dscp: self.dscp,
            ect: Ect::Capable,
            trimmed: false,
            payload: (number, sequence),
        }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Log {
    pub arrived: Vec<(Picos, Host, Payload, Ect)>,
    pub dropped: Vec<(Picos, DropReason, Payload)>,
    pub paused: Vec<(Picos, PortId, Priority, bool)>,
    pub links: Vec<(Picos, Host, bool)>,
    pub trimmed: usize,
    /// What is done to a frame of this number that leaves by this port.
    pub meddles: Option<(PortId, u64, Meddling)>,
    room: VecDeque<Host>,
}

impl Observer<Payload> for Log {
    fn deliver(&mut self, at: Picos, host: Host, frame: Frame<Payload>) {
        self.trimmed += usize::from(frame.trimmed);
        self.arrived.push((at, host, frame.payload, frame.ect));
    }

    fn meddle(&mut self, _at: Picos, port: PortId, frame: &mut Frame<Payload>) -> Option<Meddling> {
        let (at, sequence, meddling) = self.meddles?;
        ((at, sequence) == (port, frame.payload.1)).then_some(meddling)
    }

    fn has_room(&mut self, _at: Picos, host: Host) {
        self.room.push_back(host);
    }

    fn dropped(&mut self, at: Picos, _port: PortId, frame: &Frame<Payload>, reason: DropReason) {
        self.dropped.push((at, reason, frame.payload));
    }

    fn paused(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.paused.push((at, port, priority, true));
    }

    fn resumed(&mut self, at: Picos, port: PortId, priority: Priority) {
        self.paused.push((at, port, priority, false));
    }

    fn link_changed(&mut self, at: Picos, host: Host, is_up: bool) {
        self.links.push((at, host, is_up));
    }
}

/// A fabric with senders.
pub struct World {
    pub fabric: Fabric<Payload>,
    pub log: Log,
    flows: Vec<(Flow, u64)>,
}

impl World {
    pub fn new(topology: Topology, seed: u64, flows: &[Flow]) -> World {
        let fabric = Fabric::new(topology, seed).expect("a network that works");
        World { fabric, log: Log::default(), flows: flows.iter().map(|flow| (*flow, 0)).collect() }
    }

    /// Runs until nothing happens any more, or until a time.
    pub fn run(&mut self, until: Picos) -> &Log {
        for host in 0..self.fabric.topology().hosts().len() {
            self.feed(Host(host as u32));
        }
        while self.fabric.next_event().is_some_and(|at| at <= until) {
            self.fabric.step(&mut self.log);
            while let Some(host) = self.log.room.pop_front() {
                self.feed(host);
            }
        }
        &self.log
    }

    /// Gives a host's port all that it takes, of its flows in turn.
    fn feed(&mut self, host: Host) {
        let port = self.fabric.host_ports(host)[0];
        let now = self.fabric.now();
        loop {
            let mut sent = false;
            for (number, (flow, next)) in self.flows.iter_mut().enumerate() {
                if flow.src != host.0 || *next == flow.frames {
                    continue;
                }
                let frame = flow.frame(number as u32, *next);
                if self.fabric.send(now, port, frame, &mut self.log).is_ok() {
                    *next += 1;
                    sent = true;
                }
            }
            if !sent {
                return;
            }
        }
    }

    /// When the last frame of a flow arrived.
    pub fn last_arrival(&self, flow: u32) -> Picos {
        self.log
            .arrived
            .iter()
            .filter(|(.., payload, _)| payload.0 == flow)
            .map(|(at, ..)| *at)
            .max()
            .expect("arrivals")
    }

    pub fn sent(&self) -> u64 {
        self.flows.iter().map(|(_, next)| next).sum()
    }

    /// The port of the first switch that leads to a host's own port.
    pub fn towards(&self, host: u32) -> PortId {
        self.fabric.host_ports(Host(host))[0].peer()
    }
}

/// Parts with links of one rate and delay.
pub fn parts(rate: u64, delay: Picos) -> Parts {
    let mut parts = Parts::default();
    for link in [&mut parts.edge, &mut parts.core] {
        link.rate = rate;
        link.delay = delay;
    }
    parts
}

/// The time of `count` frames of `bytes` at `rate`.
pub fn time(count: u64, bytes: u32, rate: u64) -> Picos {
    Picos(count * Picos::of_bytes(u64::from(bytes), rate).0)
}
