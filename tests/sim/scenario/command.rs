//! The lines of a script.

mod expect;
mod objects;
mod post;

use std::time::Duration;

use softrnic_memory::Lkey;
use softrnic_wire::{Pad, Rkey};

use super::machine::{Machine, Seal, Seen};
use super::packet::{self, Fields, field};
use super::value::{Words, duration, number};
use crate::rng::pattern;
use crate::tap::describe;

/// Executes one line.
pub fn run(machine: &mut Machine, line: &str) -> Result<(), String> {
    let mut words = Words::new(line);
    let mut after = None;
    if let Some(delay) = words.peek().and_then(|word| word.strip_prefix('+')) {
        after = Some(duration(delay)?);
        words.next()?;
    }
    let command = words.next()?;
    match command {
        ">" if words.take("nothing") => {
            if words.take("for") {
                machine.pass(duration(words.next()?)?);
            }
            machine.nothing_sent()?;
        }
        ">" => expect_packet(machine, &mut words, after)?,
        "complete" => expect::completion(machine, &mut words, after)?,
        _ => {
            if let Some(delay) = after {
                machine.nothing_sent()?;
                machine.pass(delay);
                machine.nothing_sent()?;
            }
            other(machine, command, &mut words)?;
        }
    }
    words.end()
}

fn other(machine: &mut Machine, command: &str, words: &mut Words<'_>) -> Result<(), String> {
    match command {
        "<" => send_packet(machine, words),
        "option" => objects::option(machine, words),
        "qp" => objects::qp(machine, words),
        "srq" | "xrcsrq" => objects::srq(machine, words, command == "xrcsrq"),
        "mr" => objects::mr(machine, words),
        "mw" => objects::mw(machine, words),
        "mapping" => {
            let (name, pages) = (words.next()?, words.number()?);
            machine.create_mapping(name, pages as usize)
        }
        "fastmr" => {
            let (name, mapping) = (words.next()?, words.next()?);
            machine.create_fast_mr(name, mapping)
        }
        "unmap" => {
            let mapping = machine.mappings.get(words.next()?).ok_or("no such mapping")?;
            mapping.unmap(words.number()? as usize);
            Ok(())
        }
        "deregister" => objects::deregister(machine, words),
        "modify" => objects::modify(machine, words),
        "destroy" => objects::destroy(machine, words),
        "limit" => objects::limit(machine, words),
        "fill" => post::fill(machine, words),
        "word" => post::word(machine, words),
        "post" => post::send(machine, words),
        "recv" => post::receive(machine, words),
        "expect" => expect::memory(machine, words),
        "state" => expect::state(machine, words),
        "event" => expect::event(machine, words),
        "counter" => expect::counter(machine, words),
        "drop" => expect::drop(machine, words),
        "usage" => expect::usage(machine, words),
        "quiet" => expect::quiet(machine),
        "wait" => {
            machine.pass(duration(words.next()?)?);
            Ok(())
        }
        "ignore" if words.take("events") => {
            while machine.take_event().is_some() {}
            Ok(())
        }
        "ignore" => {
            machine.forget_packets();
            Ok(())
        }
        "burst" => machine.burst(words.next()? == "begin"),
        "tag" => {
            let (name, tag) = (words.next()?, words.number()? as u32);
            if let Some(memory) = machine.memory.get_mut(name) {
                let key = memory.region.rkey.0 & !0xFF | tag;
                (memory.region.lkey, memory.region.rkey) = (Lkey(key), Rkey(key));
                return Ok(());
            }
            let key = machine.windows.get_mut(name).ok_or("no such window")?;
            *key = *key & !0xFF | tag;
            Ok(())
        }
        _ => Err(format!("`{command}` is no command")),
    }
}

/// The facts that a line gives about a packet.
struct Description {
    info: &'static softrnic_wire::OpcodeInfo,
    fields: Fields,
    len: usize,
    /// Pattern, and offset into it.
    data: Option<(u64, usize)>,
    qp: Option<String>,
    seal: Seal,
    sealed: bool,
    stranger: bool,
    tos: Option<u8>,
    /// An opcode byte instead of the named one.
    raw_opcode: Option<u8>,
}

const FLAGS: [&str; 5] = ["A", "SE", "M", "FECN", "BECN"];

fn description(machine: &mut Machine, words: &mut Words<'_>) -> Result<Description, String> {
    let mut name = words.next()?.to_string();
    while packet::opcode(&name).is_none()
        || words.peek().is_some_and(|next| next == "with" || next == "Middle")
    {
        name = format!("{name} {}", words.next().map_err(|_| format!("`{name}` is no opcode"))?);
    }
    let info = packet::opcode(&name).ok_or_else(|| format!("`{name}` is no opcode"))?;
    let mut told = Description {
        info,
        fields: Fields::new(),
        len: 0,
        data: None,
        qp: None,
        seal: Seal::Good,
        sealed: false,
        stranger: false,
        tos: None,
        raw_opcode: None,
    };
    while let Some(word) = words.peek() {
        words.next()?;
        told.sealed |= matches!(word, "rxe" | "good");
        match word {
            flag if FLAGS.contains(&flag) => {
                told.fields.insert(field(flag).ok_or("no field")?, 1);
            }
            "len" => told.len = words.number()? as usize,
            "data" => {
                let (id, offset) = words.next()?.split_once('@').ok_or("data is PATTERN@OFFSET")?;
                told.data = Some((number(id)?, number(offset)? as usize));
            }
            "ACK" => drop(told.fields.insert("syndrome", 0x1F)),
            "SEQ" => drop(told.fields.insert("syndrome", 0x60)),
            "INVALID" => drop(told.fields.insert("syndrome", 0x61)),
            "ACCESS" => drop(told.fields.insert("syndrome", 0x62)),
            "OPERATIONAL" => drop(told.fields.insert("syndrome", 0x63)),
            "RNR" => drop(told.fields.insert("syndrome", 0x20 | words.number()?)),
            "for" => told.qp = Some(words.next()?.into()),
            "badicrc" => told.seal = Seal::Bad,
            "rxeicrc" | "rxe" => told.seal = Seal::Rxe,
            "good" => told.seal = Seal::Good,
            "stranger" => told.stranger = true,
            "tos" => told.tos = Some(words.number()? as u8),
            "byte" => told.raw_opcode = Some(words.number()? as u8),
            name => {
                let name = field(name).ok_or_else(|| format!("`{name}` is no field"))?;
                let value = value(machine, name, words.next()?)?;
                told.fields.insert(name, value);
            }
        }
    }
    Ok(told)
}

/// A number, or a name that stands for one: an address or key of registered memory, an SRQ.
fn value(machine: &mut Machine, field: &str, word: &str) -> Result<u64, String> {
    match field {
        "srq" => match machine.srqs.get(word) {
            Some(srq) => Ok(srq.srqn.get().into()),
            None => number(word),
        },
        _ => objects::address_or_key(machine, field, word),
    }
}

fn send_packet(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let mut told = description(machine, words)?;
    let name = told.qp.clone().map_or_else(|| machine.first(), Ok)?;
    let (known, qpn) = (machine.actor(&name).is_ok(), machine.actor(&name).map(|actor| actor.handle.qpn));
    if !told.fields.contains_key("qp") && known {
        told.fields.insert("qp", qpn?.get().into());
    }
    told.fields.insert("opcode", told.info.opcode.byte().into());
    told.fields.entry("pkey").or_insert(0xFFFF);
    told.fields.entry("M").or_insert(1);
    told.fields.entry("pad").or_insert_with(|| Pad::for_payload(told.len).len() as u64);
    let payload = match told.data {
        Some((id, offset)) => pattern(id, offset + told.len)[offset..].to_vec(),
        None => vec![0; told.len],
    };
    let mut bytes = packet::build(told.info, &told.fields, &payload);
    if let Some(byte) = told.raw_opcode {
        bytes[0] = byte;
    }
    machine.inject(bytes, told.seal, told.stranger, told.tos.unwrap_or(0))
}

fn expect_packet(
    machine: &mut Machine,
    words: &mut Words<'_>,
    after: Option<Duration>,
) -> Result<(), String> {
    let mut told = description(machine, words)?;
    let name = told.qp.clone().map_or_else(|| machine.first(), Ok)?;
    let peer = machine.actor(&name)?.attr.dest_qpn.get();
    let Seen { tos, bytes, .. } = machine.next_packet(after)?;
    let line = || format!("sent: {}", describe(&bytes));
    if told.tos.is_some_and(|expected| expected != tos) {
        return Err(format!("tos is {tos:#x}; {}", line()));
    }
    let (info, fields, payload) = packet::take_apart(&bytes).ok_or_else(line)?;
    if info.opcode.byte() != told.info.opcode.byte() || payload.len() != told.len {
        return Err(line());
    }
    let cnp = info.name == "CNP";
    told.fields.entry("qp").or_insert(peer.into());
    told.fields.entry("A").or_insert(0);
    told.fields.entry("SE").or_insert(0);
    told.fields.entry("M").or_insert(u64::from(!cnp));
    told.fields.entry("pad").or_insert(Pad::for_payload(told.len).len() as u64);
    told.fields.insert("tver", 0);
    told.fields.insert("pkey", 0xFFFF);
    for (name, expected) in &told.fields {
        let found = fields.get(name).ok_or_else(|| format!("{name} is not in {}", line()))?;
        if found != expected {
            return Err(format!("{name} is {found:#x}, not {expected:#x}; {}", line()));
        }
    }
    if told.sealed && machine.seal_of(&bytes) != Some(told.seal) {
        return Err(format!("another ICRC; {}", line()));
    }
    if let Some((id, offset)) = told.data
        && payload != &pattern(id, offset + told.len)[offset..]
    {
        return Err(format!("another payload than {id}@{offset}; {}", line()));
    }
    Ok(())
}
