//! SRD beside RC on whole NICs, under loss, duplicates, reordering and damage, with queue pairs that fail and come back: each
//! message arrives once or fails, for a reason that there is, and no byte changes but those that were asked for.
//!
//! Over 600 lines: what is posted, and what may come of it, is one model that knows both ends of every message.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use softrnic_engine::{
    Cqe, CqeExtra, EngineConfig, InlineBytes, LocalData, QpHandle, QpInit, ReceiveSource, RecvRequest,
    SendRequest, SrdConfig, SrdCounter, SrdSource,
};
use softrnic_link::sim::{Path, SimOptions};
use softrnic_sim_tests::arena::Span;
use softrnic_sim_tests::rng::{Rng, pattern};
use softrnic_sim_tests::world::{Agreement, Node, QKEY, World, empty_send};
use softrnic_transport::{QpAttr, QpState, QpType, SendOp, SendTail, SrdVerb, Status, WcOpcode};
use softrnic_wire::{Imm, Mtu, Psn, Qkey, Qpn, Rkey, Time};

const MEMORY: usize = 4 << 20;
/// The longest SEND of SRD, and the longest WRITE or READ here.
const LONGEST_SEND: usize = 8928;
const LONGEST: usize = 60_000;
/// How many bytes receives have: enough for all messages, or not.
const CAPACITIES: [usize; 3] = [LONGEST_SEND, LONGEST_SEND, 2_000];
const RECEIVES: usize = 8;
const LIMIT: Duration = Duration::from_secs(100);
const AGREEMENT: Agreement = Agreement {
    mtu: Mtu::B1024,
    timeout: 14,
    retry_cnt: 7,
    rnr_retry: 7,
    rnr_timer: 12,
    rd_atomic: 8,
    tos: 0,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A queue pair posts sends.
    Post(usize),
    /// It posts receives.
    Receive(usize),
    /// It goes to ERR.
    Fail(usize),
    /// It comes back.
    Return(usize),
}

/// A queue pair as its application sees it.
struct End {
    node: usize,
    qp: QpHandle,
    /// Its peer, if it is of RC.
    peer: Option<usize>,
    /// Bytes of each of its receives.
    capacity: usize,
    /// WRITEs with immediate data take no receive of it.
    unsolicited: bool,
    /// How often it has failed or come back.
    turns: u32,
    sends: HashMap<u64, Posted>,
    receives: HashMap<u64, Span>,
    /// Messages for it that have not arrived.
    incoming: Vec<Message>,
    /// Messages that it still posts.
    budget: usize,
}

impl End {
    fn is_up(&self) -> bool {
        self.turns.is_multiple_of(2)
    }
}

/// A message that takes a receive, or would.
#[derive(Clone, Copy, Debug)]
struct Message {
    id: u64,
    from: Qpn,
    node: usize,
    length: usize,
    imm: Option<Imm>,
    is_write: bool,
}

/// A send that has not completed.
struct Posted {
    to: usize,
    /// How often the peer had failed or come back.
    turns: u32,
    opcode: WcOpcode,
    length: usize,
    local: Option<Span>,
    effect: Effect,
    must_fail: Option<Status>,
}

enum Effect {
    Send,
    /// Puts the bytes into memory of the peer.
    Write(Span),
    /// Gets these bytes from there.
    Read(Span, Vec<u8>),
}

#[derive(Default, Debug)]
struct Seen {
    sent: u64,
    delivered: u64,
    refused: u64,
    flushed: u64,
    gone: u64,
    again: u64,
    not_ready: u64,
}

struct Run {
    world: World,
    rng: Rng,
    ends: Vec<End>,
    /// The address handle that each NIC has of each.
    handles: Vec<Vec<u16>>,
    by_qpn: HashMap<(usize, Qpn), usize>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    ids: u64,
    /// SENDs, and WRITEs with immediate data, that have succeeded, and not arrived yet.
    owed: HashSet<u64>,
    arrived: HashSet<u64>,
    /// Those that must not arrive.
    refused: HashSet<u64>,
    /// Memory of WRITEs that failed: late packets may still write there.
    limbo: Vec<(usize, Span)>,
    seen: Seen,
}

fn run(seed: u64) -> Seen {
    let mut run = Run::new(seed);
    run.play();
    run.finish()
}

fn path(rng: &mut Rng) -> Path {
    Path {
        delay: Duration::from_micros(rng.pick(&[0, 1, 5, 20, 100])),
        loss: rng.pick(&[0.0, 0.01, 0.05]),
        duplicate: rng.pick(&[0.0, 0.01, 0.1]),
        reorder: rng.pick(&[0.0, 0.05, 0.5]),
        reorder_delay: Duration::from_micros(rng.pick(&[2, 20, 300])),
        corrupt: rng.pick(&[0.0, 0.02]),
        mark: 0.0,
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, path(&mut rng));
        let nodes = 2 + rng.below(3);
        for index in 0..nodes {
            let address = Ipv4Addr::new(10, 0, 0, index as u8 + 1).into();
            let config = EngineConfig {
                srd: Some(SrdConfig::default()),
                ..EngineConfig::with_seed(seed << 8 | index as u64)
            };
            let options = SimOptions {
                bandwidth: rng.pick(&[None, Some(10_000_000_000)]),
                receive_buffer: rng.pick(&[212_992, 4 << 20]),
                ..SimOptions::default()
            };
            let mut node = Node::new(&world.fabric, address, options, config, MEMORY);
            node.callers = Some(Rng::new(seed ^ (index as u64) << 16));
            node.create_cq(4096);
            world.nodes.push(node);
        }
        let addresses: Vec<_> = world.nodes.iter().map(|node| node.address).collect();
        let handle_of = |node: &mut Node, to| {
            let (pd, own) = (node.pd, node.address);
            node.engine.add_handle(pd, own, to).expect("a handle")
        };
        let handles =
            world.nodes.iter_mut().map(|node| addresses.iter().map(|&to| handle_of(node, to)).collect());
        let handles = handles.collect();
        let mut run = Run {
            world,
            rng,
            ends: Vec::new(),
            handles,
            by_qpn: HashMap::new(),
            events: BinaryHeap::new(),
            ids: 0,
            owed: HashSet::new(),
            arrived: HashSet::new(),
            refused: HashSet::new(),
            limbo: Vec::new(),
            seen: Seen::default(),
        };
        for node in 0..nodes {
            for _ in 0..1 + run.rng.below(4) {
                let end = run.add(node, QpType::Srd);
                run.bring_up(end);
            }
        }
        for _ in 0..run.rng.below(3) {
            run.connect();
        }
        for end in 0..run.ends.len() {
            run.soon(200, Event::Receive(end));
            run.soon(200, Event::Post(end));
            if run.ends[end].peer.is_none() && run.rng.chance(0.3) {
                run.soon(5_000, Event::Fail(end));
            }
        }
        run
    }

    fn add(&mut self, node: usize, service: QpType) -> usize {
        let (on, number) = (&mut self.world.nodes[node], self.ends.len());
        let cq = *on.cqs.keys().next().expect("a CQ");
        let init = QpInit {
            service,
            pd: on.pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: 16,
            receive: ReceiveSource::Own(RECEIVES),
        };
        let qp = on.engine.create_qp(init).expect("a QP");
        let unsolicited = service == QpType::Srd && self.rng.chance(0.3);
        if unsolicited {
            on.engine.set_unsolicited(qp.key);
        }
        self.by_qpn.insert((node, qp.qpn), number);
        self.ends.push(End {
            node,
            qp,
            peer: None,
            capacity: if service == QpType::Srd { self.rng.pick(&CAPACITIES) } else { LONGEST_SEND },
            unsolicited,
            turns: 0,
            sends: HashMap::new(),
            receives: HashMap::new(),
            incoming: Vec::new(),
            budget: 5 + self.rng.below(40),
        });
        number
    }

    fn bring_up(&mut self, end: usize) {
        let End { node, qp, .. } = &self.ends[end];
        let attr = QpAttr { qkey: QKEY, ..QpAttr::default() };
        let (node, key) = (*node, qp.key);
        self.world.bring_up(node, key, QpType::Srd, &attr);
    }

    /// Two queue pairs of RC.
    fn connect(&mut self) {
        let nodes = [self.rng.below(self.handles.len()), self.rng.below(self.handles.len())];
        let ends = nodes.map(|node| self.add(node, QpType::Rc));
        for (from, to) in [(0_usize, 1_usize), (1, 0)] {
            let dest = self.ends[ends[to]].qp.qpn;
            let psns = (Psn::new(from as u32), Psn::new(to as u32));
            let attr = self.world.attributes(nodes[from], nodes[to], dest, &AGREEMENT, psns);
            self.world.bring_up(nodes[from], self.ends[ends[from]].qp.key, QpType::Rc, &attr);
            self.ends[ends[from]].peer = Some(ends[to]);
        }
    }

    fn soon(&mut self, most_us: u64, event: Event) {
        let delay = Duration::from_nanos(self.rng.between(0, most_us * 1000));
        let id = self.id();
        self.events.push(Reverse((self.world.now + delay, id, event)));
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn play(&mut self) {
        let limit = Time::ZERO + LIMIT;
        loop {
            self.world.settle();
            self.poll();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let quiet = event.is_none() && self.world.fabric.next_delivery().is_none();
            if quiet && self.ends.iter().all(|end| end.sends.is_empty() && end.budget == 0) {
                return;
            }
            let next = [event, self.world.next_time()].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next < limit) else {
                let waiting =
                    self.ends.iter().map(|end| (end.qp.qpn, end.sends.len(), end.receives.len(), end.turns));
                panic!("stalled at {:?}: {:?}", self.world.now, waiting.collect::<Vec<_>>());
            };
            self.world.now = self.world.now.max(next);
            while let Some(&Reverse((at, _, event))) = self.events.peek()
                && at <= self.world.now
            {
                self.events.pop();
                match event {
                    Event::Post(end) => self.post(end),
                    Event::Receive(end) => self.receive(end),
                    Event::Fail(end) => self.fail(end),
                    Event::Return(end) => self.come_back(end),
                }
            }
        }
    }

    fn fail(&mut self, end: usize) {
        let (node, key) = (self.ends[end].node, self.ends[end].qp.key);
        self.world.go(node, key, QpState::Err);
        self.ends[end].turns += 1;
        self.world.settle();
        self.poll();
        let End { sends, receives, .. } = &self.ends[end];
        assert!(sends.is_empty() && receives.is_empty(), "each request of a QP in ERR has completed");
        self.soon(2_000, Event::Return(end));
    }

    fn come_back(&mut self, end: usize) {
        let (node, key) = (self.ends[end].node, self.ends[end].qp.key);
        self.world.go(node, key, QpState::Reset);
        self.bring_up(end);
        self.ends[end].turns += 1;
        self.soon(100, Event::Receive(end));
        self.soon(100, Event::Post(end));
    }

    fn receive(&mut self, end: usize) {
        while self.ends[end].is_up() && self.ends[end].receives.len() < RECEIVES {
            let (wr_id, on) = (self.id(), &mut self.ends[end]);
            let node = &mut self.world.nodes[on.node];
            let Some(span) = node.arena.take(on.capacity, 1) else { break };
            node.arena.expose(span);
            let data =
                LocalData::Sges([node.sge(span, self.rng.below(node.regions.len()))].into_iter().collect());
            let request = RecvRequest { wr_id, data, length: span.len as u32 };
            on.qp.receives.as_mut().expect("its own queue").push(request).expect("a free place");
            on.receives.insert(wr_id, span);
        }
    }

    fn post(&mut self, end: usize) {
        for _ in 0..1 + self.rng.below(4) {
            let on = &self.ends[end];
            if !on.is_up() || on.budget == 0 || on.sends.len() == 16 {
                break;
            }
            if !self.post_one(end) {
                break;
            }
            self.ends[end].budget -= 1;
        }
        let on = &self.ends[end];
        self.world.nodes[on.node].engine.on_doorbell(self.world.now, on.qp.key.index());
        if on.is_up() && on.budget > 0 {
            self.soon(200, Event::Post(end));
        }
    }

    /// Whom a queue pair of SRD sends to: any other one, or itself.
    fn addressee(&mut self) -> usize {
        loop {
            let to = self.rng.below(self.ends.len());
            if self.ends[to].peer.is_none() {
                return to;
            }
        }
    }

    /// Posts a message. `false` if there is no memory for it.
    fn post_one(&mut self, end: usize) -> bool {
        let (node, peer) = (self.ends[end].node, self.ends[end].peer);
        let to = peer.unwrap_or_else(|| self.addressee());
        let (there, is_srd) = (self.ends[to].node, peer.is_none());
        let id = self.id();
        let kind = self.rng.below(3);
        let imm =
            (is_srd && kind < 2 && self.rng.chance(0.4)).then(|| Imm((self.rng.next() as u32).to_ne_bytes()));
        let longest = if kind == 0 { LONGEST_SEND } else { self.rng.pick(&[100, LONGEST]) };
        let length = self.rng.below(longest + 1);
        let takes_receive = kind == 0 || imm.is_some();

        let remote = if kind == 0 { None } else { self.world.nodes[there].arena.take(length, 1) };
        let is_inline = kind == 0 && length <= 32 && self.rng.chance(0.5);
        let local = if is_inline { None } else { self.world.nodes[node].arena.take(length, 1) };
        if (kind > 0 && remote.is_none()) || (!is_inline && local.is_none()) {
            let kept = [(there, remote), (node, local)];
            kept.into_iter()
                .for_each(|(at, span)| span.into_iter().for_each(|span| self.give_back(at, span)));
            return false;
        }
        let bytes = pattern(id, length);
        // What is wrong with it, if anything.
        let mistake = if is_srd { self.rng.below(12) } else { 11 };
        let too_long = kind == 0 && length > self.ends[to].capacity;
        let must_fail = match (mistake, kind) {
            (0, _) => Some(Status::RemoteInvalidReadRequest),
            (1, 1 | 2) if length > 0 => Some(Status::RemoteAccess),
            _ if too_long => Some(Status::RemoteInvalidRequest),
            _ => None,
        };
        let mut target = remote.map(|span| {
            let region = self.rng.below(self.world.nodes[there].regions.len());
            self.world.nodes[there].remote(span, region)
        });
        if let (Some(Status::RemoteAccess), Some(target)) = (must_fail, &mut target) {
            target.rkey = Rkey(target.rkey.0 ^ 0x0001_0000 << self.rng.below(8));
        }
        let effect = match (kind, remote) {
            (1, Some(span)) => {
                if must_fail.is_none() {
                    self.world.nodes[there].arena.expose(span);
                }
                Effect::Write(span)
            }
            (2, Some(span)) => {
                self.world.nodes[there].arena.write(span, &bytes);
                Effect::Read(span, bytes.clone())
            }
            _ => Effect::Send,
        };
        let home = &mut self.world.nodes[node];
        let data = match local {
            None => LocalData::Inline(InlineBytes::from_slice(&bytes)),
            Some(span) => {
                match kind {
                    2 => home.arena.expose(span),
                    _ => home.arena.write(span, &bytes),
                }
                let cut = self.rng.below(span.len + 1);
                let parts = [
                    Span { offset: span.offset, len: cut },
                    Span { offset: span.offset + cut, len: span.len - cut },
                ];
                let region = self.rng.below(home.regions.len());
                LocalData::Sges(parts.into_iter().map(|part| home.sge(part, region)).collect())
            }
        };
        let qkey = if mistake == 0 { Qkey(QKEY.0 ^ 1) } else { QKEY };
        let op = match (is_srd, kind, target) {
            (true, 1, Some(remote)) => self.srd(end, to, qkey, SrdVerb::Write(remote, imm)),
            (true, 2, Some(remote)) => self.srd(end, to, qkey, SrdVerb::Read(remote)),
            (true, ..) => self.srd(end, to, qkey, SrdVerb::Send(imm)),
            (false, 1, Some(remote)) => SendOp::Write { remote, imm },
            (false, 2, Some(remote)) => SendOp::Read { remote },
            (false, ..) => SendOp::Send(SendTail::Plain),
        };
        let request = SendRequest { op, data, length: length as u32, ..empty_send(id) };
        if takes_receive {
            let from = self.ends[end].qp.qpn;
            self.ends[to].incoming.push(Message { id, from, node, length, imm, is_write: kind == 1 });
            if must_fail.is_some() {
                self.refused.insert(id);
            }
        }
        let turns = self.ends[to].turns;
        let posted = Posted { to, turns, opcode: request.wc_opcode(), length, local, effect, must_fail };
        let on = &mut self.ends[end];
        on.qp.sends.push(request).expect("a free place");
        on.sends.insert(id, posted);
        true
    }

    fn srd(&self, end: usize, to: usize, qkey: Qkey, verb: SrdVerb) -> SendOp {
        let handle = self.handles[self.ends[end].node][self.ends[to].node];
        SendOp::Srd { handle, dest_qpn: self.ends[to].qp.qpn, qkey, verb }
    }

    fn give_back(&mut self, node: usize, span: Span) {
        self.world.nodes[node].arena.give_back(span);
    }

    fn poll(&mut self) {
        for node in 0..self.world.nodes.len() {
            loop {
                let ring = self.world.nodes[node].cqs.values_mut().next().expect("a CQ");
                let Some(cqe) = ring.pop() else { break };
                let end = self.by_qpn[&(node, cqe.qpn)];
                if cqe.opcode.is_receive() {
                    self.on_received(end, &cqe);
                } else {
                    self.on_sent(end, &cqe);
                }
            }
        }
    }

    fn on_sent(&mut self, end: usize, cqe: &Cqe) {
        let on = &mut self.ends[end];
        let (node, is_up) = (on.node, on.is_up());
        let posted = on.sends.remove(&cqe.wr_id).expect("a request that has not completed");
        let there = self.ends[posted.to].node;
        let was_disturbed = self.ends[posted.to].turns != posted.turns || !self.ends[posted.to].is_up();
        assert_eq!(cqe.opcode, posted.opcode);
        let status = cqe.status;
        match status {
            Status::Success => {
                assert_eq!(posted.must_fail, None, "{cqe:?}");
                assert_eq!(cqe.byte_len as usize, posted.length);
                self.seen.sent += 1;
                let is_message = self.ends[posted.to].incoming.iter().any(|message| message.id == cqe.wr_id);
                if is_message {
                    self.owed.insert(cqe.wr_id);
                }
            }
            Status::Flushed if !is_up => self.seen.flushed += 1,
            _ if posted.must_fail == Some(status) => self.seen.refused += 1,
            // The peer's QP does not receive, or had begun to.
            Status::RemoteInvalidReadRequest | Status::RemoteAborted if was_disturbed => self.seen.gone += 1,
            _ => panic!("{cqe:?}, to fail with {:?}, peer disturbed: {was_disturbed}", posted.must_fail),
        }
        let succeeded = status == Status::Success;
        match posted.effect {
            Effect::Send => {}
            Effect::Write(span) if succeeded => {
                self.world.nodes[there].arena.settle(span, &pattern(cqe.wr_id, span.len), "a WRITE");
                self.give_back(there, span);
            }
            Effect::Write(span) if posted.must_fail.is_some() => self.give_back(there, span),
            Effect::Write(span) => self.limbo.push((there, span)),
            Effect::Read(span, bytes) => {
                let local = posted.local.expect("READs have memory");
                let home = &mut self.world.nodes[node].arena;
                match succeeded {
                    true => home.settle(local, &bytes, "a READ"),
                    false => home.settle_unknown(local),
                }
                self.give_back(there, span);
            }
        }
        if let Some(local) = posted.local {
            self.give_back(node, local);
        }
    }

    fn on_received(&mut self, end: usize, cqe: &Cqe) {
        let on = &mut self.ends[end];
        let (node, is_srd) = (on.node, on.peer.is_none());
        let buffer = on.receives.remove(&cqe.wr_id);
        if cqe.status != Status::Success {
            assert!(cqe.status == Status::Flushed && !on.is_up(), "{cqe:?}");
            let buffer = buffer.expect("a receive that has not completed");
            self.world.nodes[node].arena.settle_unknown(buffer);
            return self.give_back(node, buffer);
        }
        let is_write = cqe.opcode == WcOpcode::RecvRdmaWithImm;
        let unsolicited = is_write && on.unsolicited;
        assert_eq!(buffer.is_none(), unsolicited, "{cqe:?}");
        let length = cqe.byte_len as usize;
        let bytes = match buffer {
            Some(buffer) if !is_write => {
                self.world.nodes[node].arena.read(Span { offset: buffer.offset, len: length })
            }
            _ => Vec::new(),
        };
        let imm = match cqe.extra {
            CqeExtra::Imm(imm) => Some(imm),
            _ => None,
        };
        let source = SrdSource::of(cqe);
        let handles = &self.handles[node];
        let is_it = |message: &Message| {
            let comes_from = !is_srd
                || message.from == cqe.src_qpn
                    && source.handle == Some(handles[message.node])
                    && source.unsolicited == unsolicited;
            comes_from
                && (message.length, message.imm, message.is_write) == (length, imm, is_write)
                && (is_write || bytes == pattern(message.id, length))
        };
        let at = on.incoming.iter().position(is_it).unwrap_or_else(|| panic!("nobody sent {cqe:?}"));
        let message = on.incoming.swap_remove(at);
        assert!(!self.refused.contains(&message.id), "{message:?} was to be refused");
        self.owed.remove(&message.id);
        assert!(self.arrived.insert(message.id));
        self.seen.delivered += 1;
        if let Some(buffer) = buffer {
            let arena = &mut self.world.nodes[node].arena;
            arena.settle_unknown(buffer);
            self.give_back(node, buffer);
            let most_us = self.rng.pick(&[0, 20, 1_000]);
            self.soon(most_us, Event::Receive(end));
        }
    }

    fn finish(mut self) -> Seen {
        for end in &self.ends {
            let lost: Vec<_> =
                end.incoming.iter().filter(|message| self.owed.contains(&message.id)).collect();
            assert!(
                lost.is_empty(),
                "succeeded, and did not arrive at {}, turns {}: {lost:?}",
                end.qp.qpn,
                end.turns
            );
        }
        for (node, span) in std::mem::take(&mut self.limbo) {
            self.world.nodes[node].arena.settle_unknown(span);
            self.give_back(node, span);
        }
        for end in 0..self.ends.len() {
            let (node, key) = (self.ends[end].node, self.ends[end].qp.key);
            self.world.nodes[node].engine.destroy_qp(self.world.now, key).expect("nothing that uses it");
            for buffer in std::mem::take(&mut self.ends[end].receives).into_values() {
                self.world.nodes[node].arena.settle_unknown(buffer);
                self.give_back(node, buffer);
            }
        }
        for node in &self.world.nodes {
            node.arena.verify_all();
            assert_eq!(node.arena.in_use(), 0, "bytes of requests that nobody knows of any more");
            let usage = node.engine.usage();
            assert_eq!((usage.queue_pairs, usage.in_flight, usage.waiting), (0, 0, 0), "{usage:?}");
            let (_, counters) = node.engine.srd_counters().expect("SRD");
            for (counter, value) in counters {
                match counter {
                    SrdCounter::SentAgain => self.seen.again += value,
                    SrdCounter::NotReady => self.seen.not_ready += value,
                    SrdCounter::Malformed | SrdCounter::Silent | SrdCounter::Restarts => {
                        assert_eq!(value, 0, "{}", counter.name());
                    }
                    _ => {}
                }
            }
        }
        self.seen
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn each_message_of_srd_arrives_once_or_fails() {
    let mut totals = Seen::default();
    let seeds = match number("SOFTRNIC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SOFTRNIC_SEEDS").unwrap_or(1000),
    };
    let only = seeds.end - seeds.start == 1;
    for seed in seeds {
        println!("seed {seed}");
        let Seen { sent, delivered, refused, flushed, gone, again, not_ready } = run(seed);
        totals.sent += sent;
        totals.delivered += delivered;
        totals.refused += refused;
        totals.flushed += flushed;
        totals.gone += gone;
        totals.again += again;
        totals.not_ready += not_ready;
    }
    println!("{totals:?}");
    let tried = [totals.refused, totals.flushed, totals.gone, totals.again, totals.not_ready];
    assert!(only || !tried.contains(&0), "something was not tried: {totals:?}");
}
