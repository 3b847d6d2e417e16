//! Lines that state what must be true.

use std::time::Duration;

use softrnic_nic::engine::{CqeExtra, Event};
use softrnic_transport::QpEvent;
use softrnic_wire::{Imm, Rkey};

use super::objects;
use super::post::span;
use crate::rng::pattern;
use crate::scenario::machine::Machine;
use crate::scenario::value::Words;

pub fn completion(
    machine: &mut Machine,
    words: &mut Words<'_>,
    after: Option<Duration>,
) -> Result<(), String> {
    let cqe = machine.next_completion(after)?;
    words.take("wr");
    let wrong = |what: &str| Err(format!("{what}: {cqe:?}"));
    if cqe.wr_id != words.number()? {
        return wrong("another request");
    }
    if format!("{:?}", cqe.status) != words.next()? {
        return wrong("another status");
    }
    let mut extra = CqeExtra::None;
    while let Some(word) = words.peek() {
        words.next()?;
        match word {
            "opcode" if format!("{:?}", cqe.opcode) != words.next()? => return wrong("another opcode"),
            "opcode" => {}
            "len" if u64::from(cqe.byte_len) != words.number()? => return wrong("another length"),
            "len" => {}
            "src" if u64::from(cqe.src_qpn.get()) != words.number()? => return wrong("another sender"),
            "src" => {}
            "imm" => extra = CqeExtra::Imm(Imm((words.number()? as u32).to_be_bytes())),
            "inv" => {
                let key = objects::address_or_key(machine, "key", words.next()?)?;
                extra = CqeExtra::Invalidated(Rkey(key as u32));
            }
            "of" => {
                if machine.actor(words.next()?)?.handle.qpn != cqe.qpn {
                    return wrong("another QP");
                }
            }
            other => return Err(format!("`{other}` is nothing that a completion says")),
        }
    }
    if cqe.extra != extra { wrong("other extras") } else { Ok(()) }
}

pub fn memory(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let first = words.next()?;
    if first == "word" {
        let place = format!("{}:8", words.next()?);
        let span = span(machine, &place)?.0;
        let found = machine.node().arena.read(span);
        let found = u64::from_ne_bytes(found.try_into().map_err(|_| "eight bytes")?);
        let expected = words.number()?;
        return if found == expected { Ok(()) } else { Err(format!("it holds {found:#x}")) };
    }
    let span = span(machine, first)?.0;
    let expected = match words.next()? {
        "zeros" => vec![0; span.len],
        "untouched" => machine.node().arena.expected(span),
        id => match id.split_once('@') {
            Some((id, offset)) => {
                let offset = super::number(offset)? as usize;
                pattern(super::number(id)?, offset + span.len)[offset..].to_vec()
            }
            None => pattern(super::number(id)?, span.len),
        },
    };
    let found = machine.node().arena.read(span);
    match found.iter().zip(&expected).position(|(a, b)| a != b) {
        Some(at) => Err(format!("differs from byte {at} on")),
        None => Ok(()),
    }
}

pub fn state(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    machine.settle();
    let key = machine.actor(words.next()?)?.handle.key;
    let (found, expected) = (machine.node().state(key), objects::state(words.next()?)?);
    if found == expected { Ok(()) } else { Err(format!("it is {found:?}")) }
}

pub fn event(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let event = machine.take_event().ok_or("no event was raised")?;
    let name = words.next()?;
    let wanted = words.next()?;
    let text = match event {
        Event::Qp(key, event) if machine.actor(name).is_ok_and(|actor| actor.handle.key == key) => {
            match event {
                QpEvent::CommunicationEstablished => "COMM_EST",
                QpEvent::SendQueueDrained => "SQ_DRAINED",
                QpEvent::LastWqeReached => "LAST_WQE_REACHED",
                QpEvent::Fatal => "QP_FATAL",
                QpEvent::RequestError => "QP_REQ_ERR",
                QpEvent::AccessError => "QP_ACCESS_ERR",
            }
        }
        Event::SrqLimit(key) if machine.srqs.get(name).is_some_and(|srq| srq.key == key) => {
            "SRQ_LIMIT_REACHED"
        }
        Event::CqError(_) if name == "cq" => "CQ_ERR",
        _ => "",
    };
    if text == wanted { Ok(()) } else { Err(format!("raised: {event:?}")) }
}

pub fn counter(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    machine.settle();
    let (name, expected) = (words.next()?, words.number()?);
    let found = machine.node().engine.counters().find(|(counter, _)| counter.name() == name);
    compare(found.map(|(_, count)| count), expected)
}

pub fn drop(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    machine.settle();
    let (name, expected) = (words.next()?, words.number()?);
    let found = machine.node().engine.drops().find(|(reason, _)| reason.name() == name);
    compare(found.map(|(_, count)| count), expected)
}

fn compare(found: Option<u64>, expected: u64) -> Result<(), String> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(format!("it is {found}")),
        None => Err("there is no such counter".into()),
    }
}

pub fn usage(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    machine.settle();
    let usage = machine.node().engine.usage();
    let found = match words.next()? {
        "in_flight" => usage.in_flight,
        "responses" => usage.responses as u64,
        "saved" => usage.saved as u64,
        "timers" => usage.timers as u64,
        other => return Err(format!("`{other}` is nothing that is held")),
    };
    let at_most = words.take("at_most");
    let expected = words.number()?;
    if at_most && found <= expected { Ok(()) } else { compare(Some(found), expected) }
}

/// Whatever arrives, nothing may be sent or completed any longer.
pub fn quiet(machine: &mut Machine) -> Result<(), String> {
    machine.pass(Duration::from_secs(60));
    machine.nothing_sent()
}
