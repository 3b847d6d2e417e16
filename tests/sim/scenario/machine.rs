//! One NIC, and a peer that the script plays.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_cm::CommId;
use softrnic_engine::{CqKey, Cqe, EngineConfig, Event, QpHandle, SrqHandle, XrcdKey};
use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_memory::PdId;
use softrnic_script::{Outgoing, Received, Seal, Trouble, describe, is_message};
use softrnic_transport::{QpAttr, QpType};
use softrnic_wire::{ICRC_LEN, IpFacts, ROCE_UDP_PORT, Time, UdpFacts, rxe_flush_icrc, seal, verify};

use crate::arena::Span;
use crate::pages::Pages;
use crate::world::{Node, Region, World};

/// What the script asked for and the NIC could not do, or a rule that it broke.
pub type Result<T = ()> = std::result::Result<T, Trouble>;

/// The script asked for something impossible.
pub fn broken(what: impl ToString) -> Trouble {
    Trouble::Broken(what.to_string())
}

/// A QP of the NIC.
pub struct Actor {
    pub handle: QpHandle,
    pub service: QpType,
    /// `dest_qpn` is the QP that the script plays.
    pub attr: QpAttr,
}

/// A named piece of registered memory.
#[derive(Clone, Copy)]
pub struct Memory {
    pub span: Span,
    pub region: Region,
}

/// A packet that the NIC has sent.
pub struct Seen {
    at: Time,
    tos: u8,
    sport: u16,
    bytes: Vec<u8>,
}

/// See the [module](self).
pub struct Machine {
    pub config: EngineConfig,
    pub options: SimOptions,
    pub cq_places: usize,
    world: Option<World>,
    remote: Option<SimLink>,
    stranger: Option<SimLink>,
    cq: Option<CqKey>,
    pub other_pd: Option<PdId>,
    pub xrcd: Option<XrcdKey>,
    pub qps: Vec<(String, Actor)>,
    pub srqs: BTreeMap<String, SrqHandle>,
    pub memory: BTreeMap<String, Memory>,
    pub mappings: BTreeMap<String, Pages>,
    pub seen: VecDeque<Seen>,
    /// Messages of its connection manager.
    pub messages: VecDeque<Seen>,
    /// Packets are sent to the NIC, which does not receive them yet.
    pub burst: bool,
    /// The QPs of the server's connections.
    pub served: Vec<(CommId, QpHandle)>,
    pub cqes: VecDeque<Cqe>,
    /// When the last line took effect.
    mark: Time,
}

/// The peer's address.
pub const REMOTE: [u8; 4] = [10, 0, 0, 2];
/// The NIC's.
pub const NIC: [u8; 4] = [10, 0, 0, 1];
const STRANGER: [u8; 4] = [10, 0, 0, 9];

/// What a server has to do is done in this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// How far a time may be off from the script: timers are exact, but sending takes no time.
const TOLERANCE: Duration = Duration::from_nanos(1_000);

impl Machine {
    pub fn new() -> Machine {
        let mut config = EngineConfig::with_seed(1);
        // Scripts that want it say so: it resends at times that depend on the measured round trip.
        config.transport.early_retransmission = false;
        config.transport.selective_recovery = false;
        Machine {
            config,
            options: SimOptions { sees_ip_header: true, ..SimOptions::default() },
            cq_places: 64,
            world: None,
            remote: None,
            stranger: None,
            cq: None,
            other_pd: None,
            xrcd: None,
            qps: Vec::new(),
            srqs: BTreeMap::new(),
            memory: BTreeMap::new(),
            mappings: BTreeMap::new(),
            seen: VecDeque::new(),
            messages: VecDeque::new(),
            burst: false,
            served: Vec::new(),
            cqes: VecDeque::new(),
            mark: Time::ZERO,
        }
    }

    /// The world, created when first needed; options can no longer change it.
    pub fn world(&mut self) -> &mut World {
        if self.world.is_none() {
            let places = self.cq_places;
            let path = Path { delay: Duration::ZERO, ..Path::default() };
            let mut world = World::new(1, path);
            let mut node = Node::new(&world.fabric, NIC.into(), self.options, self.config, 256 << 10);
            if self.config.transport.selective_recovery {
                node.engine.serve_management(0x0200_0000_0000_0001);
            }
            world.nodes.push(node);
            self.mark = world.now;
            self.remote = world.fabric.attach(REMOTE.into(), SimOptions::default()).ok();
            self.stranger = world.fabric.attach(STRANGER.into(), SimOptions::default()).ok();
            self.cq = Some(world.nodes[0].create_cq(places));
            self.other_pd = world.nodes[0].engine.memory().alloc_pd().ok();
            self.xrcd = Some(world.nodes[0].engine.create_xrcd().expect("an XRC domain"));
            self.world = Some(world);
        }
        self.world.as_mut().expect("just made")
    }

    pub fn node(&mut self) -> &mut Node {
        &mut self.world().nodes[0]
    }

    pub fn cq(&mut self) -> CqKey {
        self.world();
        self.cq.expect("made with the world")
    }

    /// Lets the NIC do what it has to do now, and checks the results.
    pub fn settle(&mut self) {
        self.world().settle();
        self.look();
        while self.serve() {
            self.world().settle();
            self.look();
        }
    }

    pub fn other_pd(&mut self) -> Option<PdId> {
        self.world();
        self.other_pd
    }

    fn look(&mut self) {
        let Some(world) = &mut self.world else { return };
        let now = world.now;
        for link in [&mut self.remote, &mut self.stranger].into_iter().flatten() {
            link.receive(now, usize::MAX, &mut |datagram| {
                let (tos, sport, bytes) = (datagram.tos, datagram.sport, datagram.bytes.to_vec());
                let queue = if is_message(&bytes) { &mut self.messages } else { &mut self.seen };
                queue.push_back(Seen { at: now, tos, sport, bytes });
            });
        }
        for ring in world.nodes[0].cqs.values_mut() {
            self.cqes.extend(std::iter::from_fn(|| ring.pop()));
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, duration: Duration) {
        self.world();
        let end = self.mark + duration;
        self.settle();
        while self.world().advance(end) {
            self.look();
            if self.serve() {
                self.settle();
            }
        }
        self.world().now = end;
        self.mark = end;
    }

    /// Sends a packet to the NIC.
    pub fn send(&mut self, packet: Outgoing) -> Result {
        if !self.burst {
            self.settle();
        }
        self.mark = self.world().now;
        let now = self.mark;
        let Outgoing { mut bytes, seal: how, stranger, tos } = packet;
        let (link, src) = if stranger { (&mut self.stranger, STRANGER) } else { (&mut self.remote, REMOTE) };
        let link = link.as_mut().ok_or_else(|| broken("no link"))?;
        let flow = Flow { src: src.into(), dst: IpAddr::from(NIC), sport: 0xC123, slot: None, tos, ttl: 64 };
        let slot = link.reserve(now, &flow, bytes.len()).map_err(broken)?;
        let covered = bytes.len() - ICRC_LEN;
        match how {
            Seal::Rxe => {
                let icrc = rxe_flush_icrc(&slot.facts, &bytes[..covered]);
                bytes[covered..].copy_from_slice(&icrc.to_le_bytes());
            }
            Seal::Good | Seal::Bad => seal(&slot.facts, &mut bytes),
        }
        if how == Seal::Bad {
            bytes[covered] ^= 1;
        }
        slot.bytes.copy_from_slice(&bytes);
        link.commit(now);
        link.flush(now);
        if !self.burst {
            self.settle();
        }
        Ok(())
    }

    /// How a packet that the NIC sent is sealed.
    fn seal_of(seen: &Seen) -> Seal {
        let bytes = &seen.bytes[..];
        let ip = IpFacts::v4(NIC.into(), REMOTE.into());
        let facts = UdpFacts { ip, src_port: seen.sport, dst_port: ROCE_UDP_PORT };
        let Some((covered, icrc)) = bytes.split_last_chunk::<ICRC_LEN>() else { return Seal::Bad };
        if verify(&facts, bytes) {
            Seal::Good
        } else if rxe_flush_icrc(&facts, covered) == u32::from_le_bytes(*icrc) {
            Seal::Rxe
        } else {
            Seal::Bad
        }
    }

    pub fn received(seen: Seen) -> Received {
        Received { seal: Machine::seal_of(&seen), bytes: seen.bytes, tos: seen.tos, sport: seen.sport }
    }

    /// The next packet that the NIC sends: one already sent or, with `after`, the next one ever, which must come that
    /// long after the last line.
    pub fn next_seen(&mut self, after: Option<Duration>) -> Result<Seen> {
        self.settle();
        let Some(after) = after else {
            return self.seen.pop_front().ok_or_else(|| Trouble::Deviation("nothing was sent".into()));
        };
        let expected = self.mark + after;
        while self.seen.is_empty() && self.world().advance(expected + after + TOLERANCE) {
            self.look();
        }
        let nothing = || Trouble::Deviation("nothing was sent, not even later".into());
        let seen = self.seen.pop_front().ok_or_else(nothing)?;
        let at = seen.at;
        let late = at.since(expected).max(expected.since(at));
        if late > TOLERANCE {
            let (took, line) = (at.since(self.mark), describe(&seen.bytes));
            return Err(Trouble::Deviation(format!("sent after {took:?}: {line}")));
        }
        self.mark = at;
        Ok(seen)
    }

    /// The next message of the connection manager: before long or, with `after`, that long after the last line.
    pub fn next_message(&mut self, after: Option<Duration>) -> Result<Seen> {
        self.settle();
        let limit = self.mark + after.map_or(PATIENCE, |after| 2 * after + TOLERANCE);
        while self.messages.is_empty() && self.world().advance(limit) {
            self.look();
            if self.serve() {
                self.settle();
            }
        }
        let nothing = || Trouble::Deviation("no message was sent".into());
        let seen = self.messages.pop_front().ok_or_else(nothing)?;
        if let Some(after) = after
            && seen.at.since(self.mark + after).max((self.mark + after).since(seen.at)) > TOLERANCE
        {
            let took = seen.at.since(self.mark);
            return Err(Trouble::Deviation(format!("sent after {took:?}: {}", describe(&seen.bytes))));
        }
        self.mark = seen.at;
        Ok(seen)
    }

    pub fn next_cqe(&mut self, after: Option<Duration>) -> Result<Cqe> {
        self.settle();
        if let Some(after) = after {
            let expected = self.mark + after;
            while self.cqes.is_empty() && self.world().advance(expected + after + TOLERANCE) {
                self.look();
            }
            let at = self.world().now;
            if at.since(expected).max(expected.since(at)) > TOLERANCE {
                return Err(Trouble::Deviation(format!("completed after {:?}", at.since(self.mark))));
            }
            self.mark = at;
        }
        self.cqes.pop_front().ok_or_else(|| Trouble::Deviation("nothing has completed".into()))
    }

    pub fn take_event(&mut self) -> Option<Event> {
        self.settle();
        let events = &mut self.node().events;
        if events.is_empty() { None } else { Some(events.remove(0)) }
    }

    pub fn actor(&mut self, name: &str) -> Result<&mut Actor> {
        let found = self.qps.iter_mut().find(|(known, _)| known == name);
        found.map(|(_, actor)| actor).ok_or_else(|| broken(format!("there is no QP `{name}`")))
    }

    pub fn known(&self, memory: &str) -> Result<Memory> {
        self.memory.get(memory).copied().ok_or_else(|| broken(format!("there is no memory `{memory}`")))
    }
}
