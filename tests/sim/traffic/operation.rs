//! The kinds of send work requests, chosen and built at random.

use softrnic_engine::{InlineBytes, LocalData, SendRequest};
use softrnic_memory::{Lkey, Sge};
use softrnic_transport::{QpType, RemoteBuffer, SendOp, SendTail, Status};
use softrnic_wire::{Feth, Imm, Placement, Rkey, Selectivity};

use super::Traffic;
use super::endpoint::{Effect, Endpoint, Message, Posted};
use crate::arena::Span;
use crate::rng::pattern;
use crate::world::QKEY;

/// What an end may post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Send,
    Write,
    Read,
    ReadThenSend,
    CompareSwap,
    FetchAdd,
    Shared,
    AtomicWrite,
    Flush,
}

const RELIABLE: &[Kind] = &[
    Kind::Send,
    Kind::Send,
    Kind::Send,
    Kind::Write,
    Kind::Write,
    Kind::Write,
    Kind::Read,
    Kind::Read,
    Kind::ReadThenSend,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::Shared,
    Kind::AtomicWrite,
    Kind::Flush,
];

/// The parts of a request that is being built.
pub struct Draft {
    pub op: SendOp,
    pub data: LocalData,
    pub length: u32,
    pub local: Vec<Span>,
    pub effect: Effect,
    pub fence: bool,
    pub must_fail: Option<Status>,
    /// The message that takes a receive of the peer.
    pub message: Option<Message>,
}

impl Draft {
    pub(super) fn new(op: SendOp, local: (LocalData, Vec<Span>), length: usize, effect: Effect) -> Draft {
        let (data, local) = local;
        let length = length as u32;
        Draft { op, data, length, local, effect, fence: false, must_fail: None, message: None }
    }
}

impl Traffic {
    /// The requests that an end posts next: one, or two that belong together. `None` when memory is short.
    pub(super) fn draft(&mut self, index: usize, side: usize, end: &mut Endpoint) -> Option<Vec<Draft>> {
        let plan = self.connections[index].plan;
        let peer = plan.nodes[1 - side];
        let mut kind = self.rng.pick(RELIABLE);
        if kind == Kind::ReadThenSend && end.qp.sends.capacity() - end.qp.sends.outstanding() < 2 {
            kind = Kind::Send;
        }
        let xrc = plan.service == QpType::XrcInitiator;
        if xrc && matches!(kind, Kind::AtomicWrite | Kind::Flush) {
            kind = Kind::Write;
        }
        if plan.service == QpType::Uc {
            kind = self.rng.pick(&[Kind::Send, Kind::Write]);
        }
        let mtu = plan.agreement.mtu.bytes() as usize;
        if !plan.robust && self.rng.chance(0.02) && plan.service == QpType::Rc {
            return Some(vec![self.wrong(end, peer, plan.longest_send)?]);
        }
        match kind {
            _ if plan.service == QpType::Ud => Some(vec![self.datagram(index, side, end)?]),
            Kind::Send => {
                let len = self.length(mtu, plan.longest_send);
                let (local, id) = self.source(end.node, len)?;
                Some(vec![self.send(local, id, len)])
            }
            Kind::ReadThenSend => {
                let len = self.length(mtu, plan.longest_send);
                let (mut read, id) = self.read(end, peer, len)?;
                // The SEND's bytes are those that the READ brings, so it must wait, and they stay.
                let spans = std::mem::take(&mut read.local);
                read.effect = read.effect.kept_in(&spans);
                let mut send = self.send((read.data.clone(), spans), id, len);
                send.fence = true;
                Some(vec![read, send])
            }
            Kind::Write => {
                let len = self.length(mtu, plan.longest_access);
                Some(vec![self.write(end, peer, len)?])
            }
            Kind::Read => {
                let len = self.length(mtu, plan.longest_access);
                Some(vec![self.read(end, peer, len)?.0])
            }
            Kind::CompareSwap | Kind::FetchAdd | Kind::AtomicWrite => {
                Some(vec![self.word_operation(end, peer, kind)?])
            }
            Kind::Shared => {
                let remote = self.anywhere(peer, self.sites[peer].word.span);
                let sink = self.sink(end.node, 8)?;
                Some(vec![Draft::new(SendOp::FetchAdd { remote, add: 1 }, sink, 8, Effect::Shared)])
            }
            Kind::Flush => {
                let whole = self.rng.chance(0.3);
                let selectivity = if whole { Selectivity::Region } else { Selectivity::Range };
                let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity };
                let remote = self.anywhere(peer, Span { offset: 64, len: 0 });
                let op = SendOp::Flush { remote, length: self.rng.below(100_000) as u32, feth };
                Some(vec![Draft::new(op, (LocalData::empty(), Vec::new()), 0, Effect::None)])
            }
        }
    }

    /// Lengths around those where something changes.
    pub(super) fn length(&mut self, mtu: usize, longest: usize) -> usize {
        let edges = [0, 1, 3, 4, 7, 8, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 3 * mtu, longest];
        let len = if self.rng.chance(0.5) { self.rng.pick(&edges) } else { self.rng.below(longest + 1) };
        len.min(longest)
    }

    fn send(&mut self, local: (LocalData, Vec<Span>), id: u64, len: usize) -> Draft {
        let imm = self.rng.chance(0.3).then(|| self.imm());
        let op = SendOp::Send(imm.map_or(SendTail::Plain, SendTail::Imm));
        let mut draft = Draft::new(op, local, len, Effect::None);
        draft.message = Some(Message { id, len, written: None, imm, invalidates: None });
        draft
    }

    fn write(&mut self, end: &Endpoint, peer: usize, len: usize) -> Option<Draft> {
        let (local, id) = self.source(end.node, len)?;
        let align = self.rng.pick(&[1, 1, 64]);
        let Some(target) = self.world.nodes[peer].arena.take(len, align) else {
            self.give_back(end.node, local.1);
            return None;
        };
        self.world.nodes[peer].arena.expose(target);
        let imm = self.rng.chance(0.3).then(|| self.imm());
        let remote = self.anywhere(peer, target);
        let mut draft = Draft::new(SendOp::Write { remote, imm }, local, len, Effect::Write { target, id });
        draft.message = imm.map(|_| Message { id, len, written: Some(target), imm, invalidates: None });
        Some(draft)
    }

    fn read(&mut self, end: &Endpoint, peer: usize, len: usize) -> Option<(Draft, u64)> {
        let local = self.sink(end.node, len)?;
        let Some(source) = self.world.nodes[peer].arena.take(len, 1) else {
            self.give_back(end.node, local.1);
            return None;
        };
        let id = self.next_id();
        self.world.nodes[peer].arena.write(source, &pattern(id, len));
        let remote = self.anywhere(peer, source);
        Some((
            Draft::new(SendOp::Read { remote }, local, len, Effect::Read { source, id, kept: Vec::new() }),
            id,
        ))
    }

    fn word_operation(&mut self, end: &mut Endpoint, peer: usize, kind: Kind) -> Option<Draft> {
        let index = self.rng.below(end.words.len());
        let (span, before) = (end.words[index].span, *end.words[index].values.back()?);
        let remote = self.anywhere(peer, span);
        let number = self.rng.next();
        let (op, local, after) = match kind {
            Kind::AtomicWrite => {
                let id = self.next_id();
                let bytes = pattern(id, 8);
                let after = u64::from_ne_bytes(bytes.as_slice().try_into().ok()?);
                (SendOp::AtomicWrite { remote }, self.gather(end.node, &bytes)?, after)
            }
            Kind::CompareSwap => {
                let equal = self.rng.chance(0.5);
                let compare = if equal { before } else { before ^ 1 << self.rng.below(64) };
                let op = SendOp::CompareSwap { remote, compare, swap: number };
                (op, self.sink(end.node, 8)?, if equal { number } else { before })
            }
            _ => (
                SendOp::FetchAdd { remote, add: number },
                self.sink(end.node, 8)?,
                before.wrapping_add(number),
            ),
        };
        end.words[index].values.push_back(after);
        let original = (kind != Kind::AtomicWrite).then_some(before);
        Some(Draft::new(op, local, 8, Effect::Word { index, original }))
    }

    /// A request that must fail.
    fn wrong(&mut self, end: &Endpoint, peer: usize, longest_send: usize) -> Option<Draft> {
        let whole = self.world.nodes[peer].arena.size();
        let anywhere = self.anywhere(peer, Span { offset: 0, len: 8 });
        let (op, local, len, status) = match self.rng.below(6) {
            0 => {
                let remote =
                    RemoteBuffer { rkey: Rkey(anywhere.rkey.0 ^ 1 << self.rng.below(32)), ..anywhere };
                let local = self.source(end.node, 8)?.0;
                (SendOp::Write { remote, imm: None }, local, 8, Status::RemoteAccess)
            }
            1 => {
                let beyond = self.anywhere(peer, Span { offset: whole - 4, len: 8 });
                let local = self.sink(end.node, 8)?;
                (SendOp::Read { remote: beyond }, local, 8, Status::RemoteAccess)
            }
            2 => {
                let before = RemoteBuffer { va: anywhere.va.wrapping_sub(8), ..anywhere };
                let local = self.source(end.node, 8)?.0;
                (SendOp::Write { remote: before, imm: None }, local, 8, Status::RemoteAccess)
            }
            3 => {
                let odd = RemoteBuffer { va: anywhere.va + 4, ..anywhere };
                let local = self.sink(end.node, 8)?;
                (SendOp::FetchAdd { remote: odd, add: 1 }, local, 8, Status::RemoteInvalidRequest)
            }
            4 => {
                let sge = Sge { addr: anywhere.va, length: 8, lkey: Lkey(0x77) };
                let data = LocalData::Sges([sge].into_iter().collect());
                (SendOp::Send(SendTail::Plain), (data, Vec::new()), 8, Status::LocalProtection)
            }
            _ => {
                let shared = self.sites.iter().map(|site| site.srq.capacity).max().unwrap_or(0);
                let len = shared.max(longest_send) + 41;
                let local = self.source(end.node, len)?.0;
                (SendOp::Send(SendTail::Plain), local, len, Status::RemoteInvalidRequest)
            }
        };
        let mut draft = Draft::new(op, local, len, Effect::None);
        draft.must_fail = Some(status);
        if len > 8 {
            draft.message = Some(Message { id: 0, len, written: None, imm: None, invalidates: None });
        }
        Some(draft)
    }

    /// A request is put into the queue of its end.
    pub(super) fn push(&mut self, index: usize, side: usize, end: &mut Endpoint, draft: Draft) {
        let wr_id = self.next_id();
        let last = end.budget <= 1;
        let full = end.unsignaled + 1 >= end.qp.sends.capacity();
        let signaled = last || full || draft.must_fail.is_some() || self.rng.chance(0.6);
        end.unsignaled = if signaled { 0 } else { end.unsignaled + 1 };
        end.budget = end.budget.saturating_sub(1);
        end.doomed |= draft.must_fail.is_some();
        let srqn = (end.service == QpType::XrcInitiator)
            .then(|| self.sites[self.connections[index].plan.nodes[1 - side]].xrc_srq.srqn);
        let request = SendRequest {
            wr_id,
            op: draft.op,
            data: draft.data,
            length: draft.length,
            signaled,
            solicited: self.rng.chance(0.2),
            fence: draft.fence || self.rng.chance(0.1),
            srqn,
        };
        let posted = Posted {
            wr_id,
            signaled,
            opcode: request.wc_opcode(),
            length: draft.length,
            local: draft.local,
            effect: draft.effect,
            must_fail: draft.must_fail,
        };
        end.push_send(request, posted);
    }

    pub(super) fn imm(&mut self) -> Imm {
        Imm((self.rng.next() as u32).to_be_bytes())
    }

    /// A piece of a peer's memory by one of its names.
    pub(super) fn anywhere(&mut self, node: usize, span: Span) -> RemoteBuffer {
        let region = self.rng.below(self.world.nodes[node].regions.len());
        self.world.nodes[node].remote(span, region)
    }

    /// A local buffer with a new pattern, and the pattern's number.
    pub(super) fn source(&mut self, node: usize, len: usize) -> Option<((LocalData, Vec<Span>), u64)> {
        let id = self.next_id();
        Some((self.gather(node, &pattern(id, len))?, id))
    }

    /// A local buffer that holds `bytes`, or the bytes themselves.
    fn gather(&mut self, node: usize, bytes: &[u8]) -> Option<(LocalData, Vec<Span>)> {
        if bytes.len() <= 220 && self.rng.chance(0.2) {
            return Some((LocalData::Inline(InlineBytes::from_slice(bytes)), Vec::new()));
        }
        let spans = self.pieces(node, bytes.len())?;
        let mut done = 0;
        for &span in &spans {
            self.world.nodes[node].arena.write(span, &bytes[done..done + span.len]);
            done += span.len;
        }
        Some((self.sges(node, &spans), spans))
    }

    /// A local buffer that the NIC will write.
    pub(super) fn sink(&mut self, node: usize, len: usize) -> Option<(LocalData, Vec<Span>)> {
        let spans = self.pieces(node, len)?;
        for &span in &spans {
            self.world.nodes[node].arena.expose(span);
        }
        Some((self.sges(node, &spans), spans))
    }

    fn pieces(&mut self, node: usize, len: usize) -> Option<Vec<Span>> {
        let count = if self.rng.chance(0.5) { 1 } else { self.rng.between(1, 5) };
        let mut spans = Vec::new();
        let mut left = len;
        for i in 0..count {
            let part = if i + 1 == count { left } else { self.rng.below(left + 1) };
            match self.world.nodes[node].arena.take(part, 1) {
                Some(span) => spans.push(span),
                None => {
                    self.give_back(node, spans);
                    return None;
                }
            }
            left -= part;
        }
        Some(spans)
    }

    fn sges(&mut self, node: usize, spans: &[Span]) -> LocalData {
        let mut list = softrnic_engine::SgeList::new();
        for &span in spans {
            let region = self.rng.below(self.world.nodes[node].regions.len());
            // Of an element without bytes not even the key is looked at.
            let nothing = Sge { addr: 0xBAD, length: 0, lkey: Lkey(0xBAD) };
            list.push(if span.len == 0 { nothing } else { self.world.nodes[node].sge(span, region) });
        }
        LocalData::Sges(list)
    }

    pub(super) fn give_back(&mut self, node: usize, spans: Vec<Span>) {
        for span in spans {
            self.world.nodes[node].arena.give_back(span);
        }
    }

    /// The operation of a datagram to the peer.
    pub(super) fn datagram_op(&self, index: usize, side: usize, imm: Option<Imm>) -> SendOp {
        let connection = &self.connections[index];
        let [from, to] = [side, 1 - side].map(|end| connection.plan.nodes[end]);
        let dest = connection.qpns[1 - side];
        let attr = self.world.attributes(from, to, dest, &connection.plan.agreement, Default::default());
        SendOp::Datagram { path: attr.path, dest_qpn: dest, qkey: QKEY, imm }
    }
}
