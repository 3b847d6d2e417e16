//! Lines that post work requests, and that write memory as the application.

use softrnic_memory::{Access, BindSpec, Lkey, Sge};
use softrnic_nic::engine::{FastRegister, InlineBytes, LocalData, RecvRequest, SendRequest, SgeList};
use softrnic_transport::{LocalOp, RemoteBuffer, SendExtra, SendOp};
use softrnic_wire::{Feth, Imm, Placement, Qkey, Qpn, Rkey, Selectivity, Srqn};

use super::objects::address_or_key;
use crate::arena::Span;
use crate::rng::pattern;
use crate::scenario::machine::Machine;
use crate::scenario::value::{Words, number};
use crate::world::{ALL_ACCESS, empty_send};

/// `NAME+OFFSET:LENGTH`.
pub fn span(machine: &Machine, word: &str) -> Result<(Span, Sge), String> {
    let (place, len) = word.split_once(':').ok_or("a piece of memory is NAME+OFFSET:LENGTH")?;
    let (name, offset) = place.split_once('+').unwrap_or((place, "0"));
    let (len, offset) = (number(len)?, number(offset)?);
    let memory = machine.memory.get(name).ok_or_else(|| format!("there is no memory `{name}`"))?;
    let sge = Sge { addr: memory.region.base + offset, length: len as u32, lkey: memory.region.lkey };
    Ok((Span { offset: memory.span.offset + offset as usize, len: len as usize }, sge))
}

fn sges(machine: &Machine, list: &str) -> Result<(LocalData, u32), String> {
    let mut sges = SgeList::new();
    for piece in list.split(',') {
        let (piece, flip) = piece.split_once('^').unwrap_or((piece, "0"));
        let mut sge = span(machine, piece)?.1;
        sge.lkey = Lkey(sge.lkey.0 ^ number(flip)? as u32);
        sges.push(sge);
    }
    let length = sges.iter().map(|sge| sge.length).sum();
    Ok((LocalData::Sges(sges), length))
}

pub fn fill(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let span = span(machine, words.next()?)?.0;
    let id = words.number()?;
    machine.node().arena.poke(span, &pattern(id, span.len));
    Ok(())
}

pub fn word(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let place = format!("{}:8", words.next()?);
    let span = span(machine, &place)?.0;
    let value = words.number()?;
    machine.node().arena.poke(span, &value.to_ne_bytes());
    Ok(())
}

pub fn receive(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let name = words.next()?.to_string();
    words.take("wr");
    let wr_id = words.number()?;
    let (data, length) = match words.peek() {
        Some(list) => {
            words.next()?;
            sges(machine, list)?
        }
        None => (LocalData::empty(), 0),
    };
    let request = RecvRequest { wr_id, data, length };
    if let Some(srq) = machine.srqs.get_mut(&name) {
        return srq.receives.push(request).map_err(|_| "the SRQ is full".into());
    }
    let actor = machine.actor(&name)?;
    let index = actor.handle.key.index();
    let ring = actor.handle.receives.as_mut().ok_or("the QP has no receive queue")?;
    ring.push(request).map_err(|_| "the receive queue is full")?;
    ring_doorbell(machine, index);
    Ok(())
}

/// What the words of a send say, before it is known what kind it is.
struct Parts {
    data: LocalData,
    length: u32,
    remote: RemoteBuffer,
    imm: Option<Imm>,
    invalidate: Option<Rkey>,
    numbers: [u64; 3],
    request: SendRequest,
    bell: bool,
}

pub fn send(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let name = words.next()?.to_string();
    let kind = words.next()?;
    let nothing = empty_send(0);
    let mut parts = Parts {
        data: LocalData::empty(),
        length: 0,
        remote: RemoteBuffer { va: 0, rkey: Rkey(0) },
        imm: None,
        invalidate: None,
        numbers: [0; 3],
        request: nothing,
        bell: true,
    };
    while let Some(word) = words.peek() {
        words.next()?;
        part(machine, &mut parts, word, words)?;
    }
    let op = operation(machine, kind, &name, &parts)?;
    let request = SendRequest { op, data: parts.data, length: parts.length, ..parts.request };
    let actor = machine.actor(&name)?;
    let index = actor.handle.key.index();
    actor.handle.sends.push(request).map_err(|_| "the send queue is full")?;
    if parts.bell {
        ring_doorbell(machine, index);
    }
    Ok(())
}

fn part(machine: &mut Machine, parts: &mut Parts, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    match word {
        "wr" => parts.request.wr_id = words.number()?,
        "fence" => parts.request.fence = true,
        "solicited" => parts.request.solicited = true,
        "unsignaled" => parts.request.signaled = false,
        "silent" => parts.bell = false,
        "srq" => parts.request.srqn = Some(Srqn::new(words.number()? as u32)),
        "imm" => parts.imm = Some(Imm((words.number()? as u32).to_be_bytes())),
        "invalidate" => parts.invalidate = Some(Rkey(words.number()? as u32)),
        "to" | "from" => parts.remote.va = address_or_key(machine, "va", words.next()?)?,
        "key" => parts.remote.rkey = Rkey(address_or_key(machine, "key", words.next()?)? as u32),
        "compare" | "length" | "qkey" | "tag" => parts.numbers[0] = words.number()?,
        "swap" | "add" | "dest" => parts.numbers[1] = words.number()?,
        "whole" => parts.numbers[2] = 1,
        "inline" => {
            let (id, len) = words.next()?.split_once(':').ok_or("inline is PATTERN:LENGTH")?;
            let bytes = pattern(number(id)?, number(len)? as usize);
            parts.length = bytes.len() as u32;
            parts.data = LocalData::Inline(InlineBytes::from_slice(&bytes));
        }
        list => (parts.data, parts.length) = sges(machine, list)?,
    }
    Ok(())
}

fn operation(
    machine: &mut Machine,
    kind: &str,
    name: &str,
    parts: &Parts,
) -> Result<SendOp<LocalData>, String> {
    let (remote, imm) = (parts.remote, parts.imm);
    let [first, second, third] = parts.numbers;
    Ok(match kind {
        "send" => SendOp::Send(match (imm, parts.invalidate) {
            (Some(imm), _) => SendExtra::Imm(imm),
            (None, Some(rkey)) => SendExtra::Invalidate(rkey),
            (None, None) => SendExtra::Plain,
        }),
        "write" => SendOp::Write { remote, imm },
        "read" => SendOp::Read { remote },
        "cas" => SendOp::CompareSwap { remote, compare: first, swap: second },
        "fadd" => SendOp::FetchAdd { remote, add: second },
        "awrite" => SendOp::AtomicWrite { remote },
        "flush" => {
            let selectivity = if third == 1 { Selectivity::Region } else { Selectivity::Range };
            let feth = Feth { placement: Placement::GLOBAL_VISIBILITY, selectivity };
            SendOp::Flush { remote, length: first as u32, feth }
        }
        "datagram" => {
            let (path, peer) = machine.actor(name).map(|actor| (actor.attr.path, actor.attr.dest_qpn))?;
            let dest_qpn = if second == 0 { peer } else { Qpn::new(second as u32) };
            SendOp::Datagram { path, dest_qpn, qkey: Qkey(first as u32), imm }
        }
        "invalidate" => SendOp::Local(LocalOp::Invalidate(remote.rkey)),
        "fastreg" => {
            let (lkey, new_key) = (Lkey(remote.rkey.0), remote.rkey.0 & !0xFF | first as u32);
            let request = FastRegister { lkey, new_key, access: ALL_ACCESS };
            SendOp::Local(LocalOp::FastRegister(LocalData::FastRegister(Box::new(request))))
        }
        // The window is the key, the piece of memory is the local data.
        "bind" => {
            let LocalData::Sges(sges) = &parts.data else { return Err("bind what?".into()) };
            let sge = sges.first().copied().unwrap_or_default();
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let (mw, tag) = (remote.rkey, first as u8);
            let spec = BindSpec { mw, tag, mr: sge.lkey, addr: sge.addr, length: sge.length.into(), access };
            SendOp::Local(LocalOp::BindWindow(LocalData::Bind(Box::new(spec))))
        }
        other => return Err(format!("`{other}` is nothing that can be posted")),
    })
}

fn ring_doorbell(machine: &mut Machine, index: usize) {
    let world = machine.world();
    let now = world.now;
    world.nodes[0].engine.on_doorbell(now, index);
    machine.settle();
}
