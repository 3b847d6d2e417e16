//! One NIC, and a peer that the script plays.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softrnic_link::sim::{Path, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_memory::{Access, MrSpec, PdId, PreparedPages};
use softrnic_nic::engine::{
    CqKey, Cqe, EngineConfig, Event, QpHandle, QpInit, ReceiveSource, SrqHandle, SrqInit, XrcdKey,
};
use softrnic_transport::{QpAttr, QpState, QpType};
use softrnic_wire::{
    ICRC_LEN, IpFacts, Mtu, Psn, Qpn, ROCE_UDP_PORT, Time, UdpFacts, rxe_flush_icrc, seal, verify,
};

use crate::arena::Span;
use crate::pages::Pages;
use crate::tap::describe;
use crate::world::{Agreement, Node, Region, World};

/// How a packet's ICRC is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seal {
    Good,
    Bad,
    /// As kernel rxe does it for FLUSH.
    Rxe,
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
    pub tos: u8,
    pub bytes: Vec<u8>,
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
    pub windows: BTreeMap<String, u32>,
    pub mappings: BTreeMap<String, Pages>,
    seen: VecDeque<Seen>,
    /// Packets are sent to the NIC, which does not receive them yet.
    burst: bool,
    cqes: VecDeque<Cqe>,
    /// When the last line took effect.
    mark: Time,
}

/// The peer's address.
pub const REMOTE: [u8; 4] = [10, 0, 0, 2];
const NIC: [u8; 4] = [10, 0, 0, 1];
const STRANGER: [u8; 4] = [10, 0, 0, 9];

/// How far a time may be off from the script: timers are exact, but sending takes no time.
const TOLERANCE: Duration = Duration::from_nanos(1_000);

impl Machine {
    pub fn new() -> Machine {
        let mut config = EngineConfig::with_seed(1);
        // Scripts that want it say so: it resends at times that depend on the measured round trip.
        config.transport.early_retransmission = false;
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
            windows: BTreeMap::new(),
            mappings: BTreeMap::new(),
            seen: VecDeque::new(),
            burst: false,
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
            let node = Node::new(&world.fabric, NIC.into(), self.options, self.config, 256 << 10);
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

    /// The attributes of a QP for which the script gives none.
    pub fn attributes(&mut self) -> QpAttr {
        let peer_qpn = Qpn::new(0xA00 + self.qps.len() as u32);
        let agreement = Agreement {
            mtu: Mtu::B1024,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            rd_atomic: 4,
            tos: 0,
        };
        let psns = (Psn::new(100), Psn::new(100));
        let mut attr = self.world().attributes(0, 0, peer_qpn, &agreement, psns);
        attr.path.dst = REMOTE.into();
        attr
    }

    /// Makes a QP and brings it up to `state`.
    pub fn create_qp(
        &mut self,
        name: &str,
        service: QpType,
        receive: ReceiveSource,
        depth: usize,
        attr: QpAttr,
        state: QpState,
    ) -> Result<(), String> {
        let cq = self.cq();
        let world = self.world();
        let node = &mut world.nodes[0];
        let init = QpInit { service, pd: node.pd, send_cq: cq, recv_cq: cq, max_send_wr: depth, receive };
        let handle = node.engine.create_qp(init).map_err(|error| error.to_string())?;
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if next as u8 <= state as u8 {
                let mask = crate::world::mask_to(service, next);
                world.modify(0, handle.key, mask, &QpAttr { state: next, ..attr });
            }
        }
        if matches!(state, QpState::Sqd | QpState::Err) {
            world.go(0, handle.key, state);
        }
        self.qps.push((name.into(), Actor { handle, service, attr }));
        self.settle();
        Ok(())
    }

    pub fn create_srq(&mut self, name: &str, places: usize, xrc: bool, other_pd: bool) -> Result<(), String> {
        let (cq, xrcd, other) = (self.cq(), self.xrcd, self.other_pd);
        let node = self.node();
        let xrc = xrcd.filter(|_| xrc).map(|xrcd| (xrcd, cq));
        let pd = if other_pd { other.ok_or("no PD")? } else { node.pd };
        let init = SrqInit { pd, max_wr: places, xrc };
        let srq = node.engine.create_srq(init).map_err(|error| error.to_string())?;
        self.srqs.insert(name.into(), srq);
        Ok(())
    }

    /// Registers a new piece of memory.
    pub fn create_mr(&mut self, name: &str, len: u64, access: Access, other_pd: bool) -> Result<(), String> {
        let other = self.other_pd;
        let node = self.node();
        let span = node.arena.take(len as usize, 4096).ok_or("the NIC's application has no such memory")?;
        let pd = if other_pd { other.ok_or("no PD")? } else { node.pd };
        let iova = node.arena.address() as u64 + span.offset as u64;
        let spec = MrSpec { range: node.arena.part(span), iova, access };
        let keys = node.engine.memory().reg_mr(pd, spec).map_err(|error| error.to_string())?;
        node.arena.expose(span);
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        self.memory
            .insert(name.into(), Memory { span, region: Region { lkey: keys.lkey, rkey: keys.rkey, base } });
        Ok(())
    }

    /// Maps pages and registers them on demand.
    pub fn create_mapping(&mut self, name: &str, pages: usize) -> Result<(), String> {
        let mapping = Pages::new(pages);
        let node = self.node();
        let base = mapping.range().addr() as u64;
        let access = crate::world::ALL_ACCESS | Access::ON_DEMAND;
        let spec = MrSpec { range: mapping.range(), iova: base, access };
        let keys = node.engine.memory().reg_mr(node.pd, spec).map_err(|error| error.to_string())?;
        let region = Region { lkey: keys.lkey, rkey: keys.rkey, base };
        self.memory.insert(name.into(), Memory { span: Span { offset: 0, len: 0 }, region });
        self.mappings.insert(name.into(), mapping);
        Ok(())
    }

    /// Makes a fast-register region that will cover a mapping.
    pub fn create_fast_mr(&mut self, name: &str, mapping: &str) -> Result<(), String> {
        let range = self.mappings.get(mapping).ok_or("no such mapping")?.range();
        let base = range.addr() as u64;
        let node = self.node();
        let keys = node.engine.memory().alloc_mr(node.pd, 8).map_err(|error| error.to_string())?;
        let mapped = PreparedPages::new(&[range])
            .and_then(|pages| node.engine.memory().map_pages(keys.lkey, &pages, 4096, base));
        mapped.map_err(|error| error.to_string())?;
        let region = Region { lkey: keys.lkey, rkey: keys.rkey, base };
        self.memory.insert(name.into(), Memory { span: Span { offset: 0, len: 0 }, region });
        Ok(())
    }

    pub fn actor(&mut self, name: &str) -> Result<&mut Actor, String> {
        let found = self.qps.iter_mut().find(|(known, _)| known == name);
        found.map(|(_, actor)| actor).ok_or_else(|| format!("there is no QP `{name}`"))
    }

    /// The QP of lines that name none.
    pub fn first(&self) -> Result<String, String> {
        self.qps.first().map(|(name, _)| name.clone()).ok_or_else(|| "there is no QP".into())
    }

    /// Lets the NIC do what it has to do now, and checks the results.
    pub fn settle(&mut self) {
        self.world().settle();
        self.look();
    }

    fn look(&mut self) {
        let Some(world) = &mut self.world else { return };
        let now = world.now;
        for link in [&mut self.remote, &mut self.stranger].into_iter().flatten() {
            link.receive(now, usize::MAX, &mut |datagram| {
                self.seen.push_back(Seen { at: now, tos: datagram.tos, bytes: datagram.bytes.to_vec() })
            });
        }
        for ring in world.nodes[0].cqs.values_mut() {
            self.cqes.extend(std::iter::from_fn(|| ring.pop()));
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, duration: Duration) {
        self.world();
        let end = self.mark + duration;
        self.settle();
        while self.world().advance(end) {
            self.look();
        }
        self.world().now = end;
        self.mark = end;
    }

    /// Sends a packet to the NIC.
    pub fn inject(
        &mut self,
        mut bytes: Vec<u8>,
        how: Seal,
        from_stranger: bool,
        tos: u8,
    ) -> Result<(), String> {
        if !self.burst {
            self.settle();
        }
        self.mark = self.world().now;
        let now = self.mark;
        let (link, src) =
            if from_stranger { (&mut self.stranger, STRANGER) } else { (&mut self.remote, REMOTE) };
        let link = link.as_mut().ok_or("no link")?;
        let flow = Flow { src: src.into(), dst: IpAddr::from(NIC), sport: 0xC123, part: None, tos, ttl: 64 };
        let slot = link.reserve(now, &flow, bytes.len()).map_err(|error| error.to_string())?;
        let facts = UdpFacts { ip: slot.ip, src_port: slot.sport, dst_port: ROCE_UDP_PORT };
        let covered = bytes.len() - ICRC_LEN;
        match how {
            Seal::Rxe => {
                let icrc = rxe_flush_icrc(&facts, &bytes[..covered]);
                bytes[covered..].copy_from_slice(&icrc.to_le_bytes());
            }
            Seal::Good | Seal::Bad => seal(&facts, &mut bytes),
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

    /// From `begin` on packets gather, which the NIC then finds all at once.
    pub fn burst(&mut self, begin: bool) -> Result<(), String> {
        self.settle();
        self.burst = begin;
        Ok(())
    }

    /// How a packet that the NIC sent is sealed, if it is.
    pub fn seal_of(&self, bytes: &[u8]) -> Option<Seal> {
        let ip = IpFacts::v4(NIC.into(), REMOTE.into());
        let src_port = self.qps.first().map(|(_, actor)| actor.attr.path.sport)?;
        let facts = UdpFacts { ip, src_port, dst_port: ROCE_UDP_PORT };
        let (covered, icrc) = bytes.split_last_chunk::<ICRC_LEN>()?;
        let icrc = u32::from_le_bytes(*icrc);
        if verify(&facts, bytes) {
            return Some(Seal::Good);
        }
        Some(if rxe_flush_icrc(&facts, covered) == icrc { Seal::Rxe } else { Seal::Bad })
    }

    /// The next packet that the NIC sends: one already sent or, with `after`, the next one ever, which must come that
    /// long after the last line.
    pub fn next_packet(&mut self, after: Option<Duration>) -> Result<Seen, String> {
        self.settle();
        let Some(after) = after else {
            return self.seen.pop_front().ok_or_else(|| "nothing was sent".into());
        };
        let expected = self.mark + after;
        while self.seen.is_empty() && self.world().advance(expected + after + TOLERANCE) {
            self.look();
        }
        let seen = self.seen.pop_front().ok_or("nothing was sent, not even later")?;
        let at = seen.at;
        let late = at.since(expected).max(expected.since(at));
        if late > TOLERANCE {
            let (took, line) = (at.since(self.mark), describe(&seen.bytes));
            return Err(format!("sent after {took:?}: {line}"));
        }
        self.mark = at;
        Ok(seen)
    }

    /// Nothing may have been sent.
    pub fn nothing_sent(&mut self) -> Result<(), String> {
        self.settle();
        match self.seen.front() {
            Some(seen) => Err(format!("sent: {}", describe(&seen.bytes))),
            None => Ok(()),
        }
    }

    pub fn forget_packets(&mut self) {
        self.settle();
        self.seen.clear();
    }

    pub fn next_completion(&mut self, after: Option<Duration>) -> Result<Cqe, String> {
        self.settle();
        if let Some(after) = after {
            let expected = self.mark + after;
            while self.cqes.is_empty() && self.world().advance(expected + after + TOLERANCE) {
                self.look();
            }
            let at = self.world().now;
            if at.since(expected).max(expected.since(at)) > TOLERANCE {
                return Err(format!("completed after {:?}", at.since(self.mark)));
            }
            self.mark = at;
        }
        self.cqes.pop_front().ok_or_else(|| "nothing has completed".into())
    }

    pub fn take_event(&mut self) -> Option<Event> {
        self.settle();
        let events = &mut self.node().events;
        if events.is_empty() { None } else { Some(events.remove(0)) }
    }

    /// Nothing may be left that the script did not mention, and no memory may have changed that was not exposed.
    pub fn finish(&mut self) -> Result<(), String> {
        self.nothing_sent()?;
        if let Some(cqe) = self.cqes.pop_front() {
            return Err(format!("not mentioned: {cqe:?}"));
        }
        if let Some(event) = self.take_event() {
            return Err(format!("not mentioned: {event:?}"));
        }
        self.node().arena.verify_all();
        Ok(())
    }
}
