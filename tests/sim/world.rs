//! NICs on a fabric, and the passing of virtual time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use softrnic_engine::{
    Budget, Caller, CqKey, Cqe, Engine, EngineConfig, Event, LocalData, QpKey, SendRequest,
};
use softrnic_link::Link;
use softrnic_link::sim::{Fabric, Path, SimOptions};
use softrnic_memory::{Access, Lkey, MemoryTable, MrSpec, PdId, Sge};
use softrnic_sync::queue::CompletionRing;
use softrnic_transport::{
    AttrMask, Path as QpPath, QpAccess, QpAttr, QpState, QpType, RemoteBuffer, SendOp, SendTail,
};
use softrnic_wire::{Gid, Mtu, Psn, Qkey, Qpn, Rkey, RnrTimer, Time};

use crate::arena::{Arena, Span};
use crate::rng::Rng;
use crate::switches::Switches;
use crate::tap::Tap;

/// A region over a node's whole arena.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its local key.
    pub lkey: Lkey,
    /// Its remote key.
    pub rkey: Rkey,
    /// Address of the arena's first byte under these keys.
    pub base: u64,
}

/// A NIC and its application.
pub struct Node {
    /// The NIC.
    pub engine: Engine,
    /// Its link.
    pub link: Tap,
    /// Its address.
    pub address: IpAddr,
    /// The application's memory.
    pub arena: Arena,
    /// The application's protection domain.
    pub pd: PdId,
    /// Regions that all cover the arena: at its address, at another one, zero-based, and on demand.
    pub regions: Vec<Region>,
    /// The application's ends of the completion queues.
    pub cqs: HashMap<CqKey, CompletionRing<Cqe>>,
    /// Asynchronous events that have not been looked at.
    pub events: Vec<Event>,
    /// How long the NIC is busy with each datagram that it receives; no time, if that is not modelled.
    pub pace: Option<Duration>,
    /// What drives the NIC.
    pub caller: Caller,
    /// Draws what drives it in each step.
    pub callers: Option<Rng>,
    /// When it can take the next datagram.
    free_at: Time,
}

/// Rights of everything that can be done with memory.
pub const ALL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::FLUSH_GLOBAL);

impl Node {
    /// A NIC at `address` of `fabric`, with `memory` bytes registered.
    pub fn new(
        fabric: &Fabric,
        address: IpAddr,
        options: SimOptions,
        config: EngineConfig,
        memory: usize,
    ) -> Node {
        let link = fabric.attach(address, options).expect("a free address");
        Node::on(Box::new(link), address, config, memory)
    }

    /// A NIC at `address` on a link of any kind.
    pub fn on(link: Box<dyn Link>, address: IpAddr, config: EngineConfig, memory: usize) -> Node {
        let mut engine = Engine::new(config);
        engine.gids().set(0, Some(address));
        let arena = Arena::new(memory);
        let pd = engine.memory().alloc_pd().expect("a PD");
        let range = arena.range();
        let [.., low] = Gid::from(address).0;
        let elsewhere = 0xABCD_0000_0000 + 8 * u64::from(low);
        let mut spaces = vec![
            (range.addr() as u64, ALL_ACCESS),
            (elsewhere, ALL_ACCESS),
            (0, ALL_ACCESS | Access::ZERO_BASED),
        ];
        if MemoryTable::on_demand_available() {
            spaces.push((elsewhere, ALL_ACCESS | Access::ON_DEMAND));
        }
        let register = |(base, access)| {
            let keys = engine.memory().reg_mr(pd, MrSpec { range, iova: base, access }).expect("a region");
            Region { lkey: keys.lkey, rkey: keys.rkey, base }
        };
        let regions: Vec<_> = spaces.into_iter().map(register).collect();
        let (cqs, events) = (HashMap::new(), Vec::new());
        Node {
            engine,
            link: Tap::new(link, address),
            address,
            arena,
            pd,
            regions,
            cqs,
            events,
            pace: None,
            caller: Caller::Control,
            callers: None,
            free_at: Time::ZERO,
        }
    }

    /// Makes a completion queue.
    pub fn create_cq(&mut self, capacity: usize) -> CqKey {
        let (key, ring, _) = self.engine.create_cq(capacity, None).expect("a CQ");
        self.cqs.insert(key, ring);
        key
    }

    /// A piece of the arena as a local buffer, through region `region`.
    pub fn sge(&self, span: Span, region: usize) -> Sge {
        let region = self.regions[region];
        Sge { addr: region.base + span.offset as u64, length: span.len as u32, lkey: region.lkey }
    }

    /// A piece of the arena as peers name it, through region `region`.
    pub fn remote(&self, span: Span, region: usize) -> RemoteBuffer {
        let region = self.regions[region];
        RemoteBuffer { va: region.base + span.offset as u64, rkey: region.rkey }
    }

    /// Lets the NIC do what it has to do. `true` if there is more to do right away.
    fn step(&mut self, now: Time) -> bool {
        if let Some(rng) = &mut self.callers {
            self.caller =
                rng.pick(&[Caller::Poll, Caller::Poll, Caller::Post, Caller::Thread, Caller::Control]);
        }
        let mut budget = Budget { caller: self.caller, ..Budget::default() };
        if self.pace.is_some() {
            budget.receive = usize::from(now >= self.free_at);
        }
        let step = self.engine.step(now, &mut self.link, budget);
        self.events.extend(self.engine.take_events());
        match self.pace {
            None => step.more,
            Some(pace) => {
                if step.received > 0 {
                    self.free_at = now + pace;
                }
                // What else has arrived waits; packets that are left to send do not.
                step.received > 0 || step.sent >= budget.transmit
            }
        }
    }

    /// The state of a QP.
    pub fn state(&self, key: QpKey) -> QpState {
        self.engine.query_qp(key).expect("a QP").status.state
    }
}

/// What both ends of a connection agree on.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Path MTU.
    pub mtu: Mtu,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Code of the wait that RNR NAKs ask for.
    pub rnr_timer: u8,
    /// READs and atomics outstanding in each direction.
    pub rd_atomic: u8,
    /// Traffic class.
    pub tos: u8,
}

/// After this time, an application that has made a NIC wait for its next call makes that call.
const NEXT_CALL: Duration = Duration::from_micros(2);

/// Q_Key of all datagram QPs.
pub const QKEY: Qkey = Qkey(0x1122_3344);

/// Everything at once.
pub struct World {
    /// The network.
    pub fabric: Fabric,
    /// Virtual time.
    pub now: Time,
    /// The NICs.
    pub nodes: Vec<Node>,
    /// What is between the NICs besides the wire.
    pub switches: Option<Switches>,
    /// Steps taken.
    pub steps: u64,
}

impl World {
    /// A world without NICs.
    pub fn new(seed: u64, path: Path) -> World {
        let fabric = Fabric::new(seed);
        fabric.set_default_path(path);
        // Not 0: time 0 means "never" nowhere, and this shows it.
        World { fabric, now: Time::from_nanos(1_000), nodes: Vec::new(), switches: None, steps: 0 }
    }

    /// Attributes that connect a QP of node `from` to QP `dest` of node `to`.
    pub fn attributes(
        &self,
        from: usize,
        to: usize,
        dest: Qpn,
        agreement: &Agreement,
        psns: (Psn, Psn),
    ) -> QpAttr {
        QpAttr {
            access: QpAccess {
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                flush_global: true,
                flush_persistent: false,
            },
            qkey: QKEY,
            path: QpPath {
                src: self.nodes[from].address,
                dst: self.nodes[to].address,
                sport: 0xC000,
                tos: agreement.tos,
                ttl: 64,
            },
            mtu: agreement.mtu,
            dest_qpn: dest,
            sq_psn: psns.0,
            rq_psn: psns.1,
            max_rd_atomic: agreement.rd_atomic,
            max_dest_rd_atomic: agreement.rd_atomic,
            min_rnr_timer: RnrTimer::new(agreement.rnr_timer),
            timeout: agreement.timeout,
            retry_cnt: agreement.retry_cnt,
            rnr_retry: agreement.rnr_retry,
            ..QpAttr::default()
        }
    }

    /// Brings a QP from RESET to RTS.
    pub fn bring_up(&mut self, node: usize, key: QpKey, service: QpType, attr: &QpAttr) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.modify(node, key, mask_to(service, state), &QpAttr { state, ..*attr });
        }
    }

    /// Changes a QP, which must be legal.
    pub fn modify(&mut self, node: usize, key: QpKey, mask: AttrMask, attr: &QpAttr) {
        let now = self.now;
        self.nodes[node].engine.modify_qp(now, key, mask, attr).expect("a legal change");
    }

    /// Moves a QP to a state that needs no attributes.
    pub fn go(&mut self, node: usize, key: QpKey, state: QpState) {
        self.modify(node, key, AttrMask::STATE, &QpAttr { state, ..QpAttr::default() });
    }

    /// Lets every NIC do what it has to do at this time.
    pub fn settle(&mut self) {
        if let Some(switches) = &mut self.switches {
            switches.run_until(&self.fabric, self.now);
        }
        let mut rounds = 0;
        loop {
            let mut more = false;
            for node in &mut self.nodes {
                more |= node.step(self.now);
                self.steps += 1;
            }
            rounds += 1;
            assert!(rounds < 10_000, "a NIC never comes to rest at {:?}", self.now);
            if !more {
                break;
            }
        }
        if let Some(switches) = &mut self.switches {
            switches.take(&self.fabric);
        }
    }

    /// When something happens next by itself.
    pub fn next_time(&self) -> Option<Time> {
        let nodes = self.nodes.iter().flat_map(|n| [n.engine.poll_timeout(), n.link.poll_timeout()]);
        let busy = self.nodes.iter().filter(|node| node.pace.is_some());
        let busy = busy.filter(|node| self.fabric.waiting(node.address) > 0).map(|node| Some(node.free_at));
        let called = self.nodes.iter().filter(|node| node.engine.holds_acks());
        let called = called.map(|_| Some(self.now + NEXT_CALL));
        let network = [self.fabric.next_delivery(), self.switches.as_ref().and_then(Switches::next)];
        nodes.chain(busy).chain(called).chain(network).flatten().min()
    }

    /// Moves time to what happens next, but not past `limit`, and lets it happen. `false` if nothing will.
    pub fn advance(&mut self, limit: Time) -> bool {
        let Some(next) = self.next_time().filter(|&next| next <= limit) else { return false };
        self.now = self.now.max(next);
        self.settle();
        true
    }
}

/// A SEND of no bytes.
pub fn empty_send(wr_id: u64) -> SendRequest {
    SendRequest {
        wr_id,
        op: SendOp::Send(SendTail::Plain),
        data: LocalData::empty(),
        length: 0,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: None,
    }
}

/// The attributes that a transition into `state` needs.
pub fn mask_to(service: QpType, state: QpState) -> AttrMask {
    use AttrMask as M;
    let all = |masks: &[M]| masks.iter().fold(M::STATE, |all, &mask| all.union(mask));
    let responds = matches!(service, QpType::Rc | QpType::XrcTarget);
    let requests = matches!(service, QpType::Rc | QpType::XrcInitiator);
    match (state, service) {
        (QpState::Init, QpType::Ud | QpType::Srd) => all(&[M::PKEY_INDEX, M::PORT, M::QKEY]),
        (QpState::Init, _) => all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
        (QpState::Rtr, QpType::Ud | QpType::Srd) => M::STATE,
        (QpState::Rtr, _) if responds => {
            all(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN, M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER])
        }
        (QpState::Rtr, _) => all(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN]),
        (QpState::Rts, QpType::XrcTarget) => all(&[M::TIMEOUT, M::SQ_PSN]),
        (QpState::Rts, _) if requests => {
            all(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC])
        }
        (QpState::Rts, _) => all(&[M::SQ_PSN]),
        _ => M::STATE,
    }
}
