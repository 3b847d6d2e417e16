//! Plays lines on a target, and judges what the NIC does.

mod capabilities;
mod expect;
mod message;
mod names;
mod post;

use std::collections::HashMap;
use std::time::Duration;

use softrnic_wire::{MAX_PATHS, Pad};

use crate::packet::{self, Fields, describe};
use crate::pattern::pattern;
use crate::script::Line;
use crate::statement::{Act, Packet, Post};
use crate::target::{Completion, Outgoing, Queue, Received, Seal, Target, Trouble};
use names::Names;

/// The line at which a case ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its number in the script.
    pub number: usize,
    /// Its text; `the end` if all lines were played.
    pub line: String,
    /// Why.
    pub trouble: Trouble,
}

/// Plays one case. Whatever the NIC sends, completes or raises must have a line, and the lines must have their way in
/// order.
///
/// # Errors
/// The first line that does not.
pub fn play(lines: &[Line], target: &mut dyn Target) -> std::result::Result<(), Failure> {
    let mut player = Player {
        target,
        names: Names::default(),
        queues: HashMap::new(),
        early: Vec::new(),
        ports: HashMap::new(),
        question: 0,
        ignores_events: false,
    };
    let played = player.all(lines);
    player.part();
    played
}

type Result<T = ()> = std::result::Result<T, Trouble>;

struct Player<'a> {
    target: &'a mut dyn Target,
    names: Names,
    /// Which work queue each request was posted to: its name, and whether it is one for receives.
    queues: HashMap<u64, (String, bool)>,
    /// Completions that came before one of another queue that the script mentions first.
    early: Vec<Completion>,
    /// The source port of the first packet to each QP that the script plays.
    ports: HashMap<u64, u16>,
    /// The transaction of the last question of the NIC.
    question: u64,
    /// Events do not matter from here on; one that is on its way may come late.
    ignores_events: bool,
}

fn deviation<T>(what: impl Into<String>) -> Result<T> {
    Err(Trouble::Deviation(what.into()))
}

impl Player<'_> {
    fn all(&mut self, lines: &[Line]) -> std::result::Result<(), Failure> {
        let failure =
            |line: &Line, trouble| Failure { number: line.number, line: line.text.clone(), trouble };
        let mut rest = lines;
        while let Some(line) = rest.first() {
            let posts: Vec<&Post> = rest.iter().map_while(Line::post).collect();
            if posts.is_empty() {
                self.line(line).map_err(|trouble| failure(line, trouble))?;
            } else {
                self.post_all(&posts).map_err(|(at, trouble)| failure(&rest[at], trouble))?;
            }
            rest = &rest[posts.len().max(1)..];
        }
        let number = lines.last().map_or(0, |line| line.number);
        self.end().map_err(|trouble| Failure { number, line: "the end".into(), trouble })
    }

    /// Posts of neighbouring lines, without a pause between them in which a timer of the NIC could run out.
    fn post_all(&mut self, posts: &[&Post]) -> std::result::Result<(), (usize, Trouble)> {
        let mut requests = Vec::new();
        for (at, told) in posts.iter().enumerate() {
            let request = self.request(told).map_err(|trouble| (at, trouble))?;
            self.queues.insert(request.wr_id, (told.qp.clone(), false));
            requests.push((&*told.qp, request));
        }
        self.target.post_all(requests)
    }

    fn line(&mut self, line: &Line) -> Result {
        let after = line.statement.after;
        match &line.statement.act {
            Act::Expect(packet) => self.expect_packet(packet, after),
            Act::ExpectMessage(told) => self.expect_message(told, after),
            Act::Complete(told) => self.completion(told, after),
            act => {
                if let Some(delay) = after {
                    self.nothing_sent()?;
                    self.target.pass(delay)?;
                    self.nothing_sent()?;
                }
                self.act(act)
            }
        }
    }

    fn act(&mut self, act: &Act) -> Result {
        match act {
            Act::Option(setting) => self.target.option(*setting),
            Act::Server(kind) => {
                let served = self.target.server(*kind)?;
                self.names.serve(served);
                Ok(())
            }
            Act::SendMessage(told) => self.send_message(told),
            Act::Ask(told) => self.ask_capabilities(told),
            Act::ExpectAnswer(told) => self.expect_capabilities(told),
            Act::ExpectQuestion(told) => self.expect_question(told),
            Act::Answer(told) => self.answer(told),
            Act::Qp(spec) => {
                let numbers = self.target.create_qp(spec)?;
                self.names.qps.push((spec.name.clone(), numbers));
                Ok(())
            }
            Act::Srq { name, places, xrc, elsewhere } => {
                let number = self.target.create_srq(name, *places, *xrc, *elsewhere)?;
                self.names.srqs.insert(name.clone(), number);
                Ok(())
            }
            Act::Limit { srq, limit } => self.target.limit(srq, *limit),
            Act::Mr(spec) => {
                let keys = self.target.create_mr(spec)?;
                self.names.regions.insert(spec.name.clone(), keys);
                Ok(())
            }
            Act::Window { name, kind } => {
                let key = self.target.create_window(name, *kind)?;
                self.names.windows.insert(name.clone(), key);
                Ok(())
            }
            Act::Mapping { name, pages } => {
                let keys = self.target.create_mapping(name, *pages)?;
                self.names.regions.insert(name.clone(), keys);
                Ok(())
            }
            Act::FastMr { name, mapping } => {
                let keys = self.target.create_fast_mr(name, mapping)?;
                self.names.regions.insert(name.clone(), keys);
                Ok(())
            }
            Act::Unmap { mapping, page } => self.target.unmap(mapping, *page),
            Act::Deregister(name) => self.target.deregister(name),
            Act::Modify { qp, state, notify, refused } => {
                match (self.target.modify(qp, *state, *notify)?, refused) {
                    (true, true) => deviation("was not refused"),
                    (false, false) => deviation("was refused"),
                    _ => Ok(()),
                }
            }
            Act::Destroy(name) if self.names.srqs.contains_key(name) => self.target.destroy_srq(name),
            Act::Destroy(name) => self.target.destroy_qp(name),
            Act::Tag { name, tag } => match self.target.bound_key(name) {
                Some(key) => {
                    self.names.windows.insert(name.clone(), key);
                    Ok(())
                }
                None => self.names.tag(name, *tag),
            },
            Act::Fill { piece, pattern: id } => self.target.write(&piece.place, &pattern(*id, piece.len)),
            Act::Word { place, value } => self.target.write(place, &value.to_ne_bytes()),
            Act::Post(told) => self.post_all(&[told]).map_err(|(_, trouble)| trouble),
            Act::Receive { queue, wr, pieces } => {
                let sges = pieces.iter().map(|piece| self.names.sge(piece)).collect::<Result<_>>()?;
                self.queues.insert(*wr, (queue.clone(), true));
                let queue = if self.names.srqs.contains_key(queue) {
                    Queue::Shared(queue)
                } else {
                    Queue::Own(queue)
                };
                self.target.receive(queue, *wr, sges)
            }
            Act::Inject(told) => self.inject(told),
            Act::Burst(begin) => self.target.burst(*begin),
            Act::Nothing(Some(time)) => {
                self.target.pass(*time)?;
                self.nothing_sent()
            }
            Act::Nothing(None) => self.nothing_new_sent(),
            Act::Quiet => {
                self.target.rest()?;
                self.nothing_sent()
            }
            Act::Wait(time) => self.target.pass(*time),
            Act::Ignore => self.target.forget_packets(),
            Act::IgnoreEvents => {
                self.ignores_events = true;
                while self.target.next_event(false)?.is_some() {}
                Ok(())
            }
            Act::State { qp, state } => self.state(qp, *state),
            Act::Event { object, event } => {
                self.ignores_events = false;
                self.event(object, *event)
            }
            Act::Memory { piece, filling } => self.memory(piece, *filling),
            Act::MemoryWord { place, value } => self.memory_word(place, *value),
            Act::Counter { name, value } => expect::count(self.target.counter(name)?, *value),
            Act::Drop { name, value } => expect::count(self.target.dropped(name)?, *value),
            Act::Usage { name, at_most, value } => match self.target.usage(name)? {
                Some(found) if *at_most && found <= *value => Ok(()),
                found => expect::count(found, *value),
            },
            Act::Expect(_) | Act::ExpectMessage(_) | Act::Complete(_) => {
                unreachable!("they have their own times")
            }
        }
    }

    fn nothing_sent(&mut self) -> Result {
        self.no_packet()?;
        if self.names.served().is_ok() { self.no_message(false) } else { Ok(()) }
    }

    /// As [`nothing_sent`](Player::nothing_sent), but a message may be repeated: the answer to it may not have been read yet.
    fn nothing_new_sent(&mut self) -> Result {
        self.no_packet()?;
        if self.names.served().is_ok() { self.no_message(true) } else { Ok(()) }
    }

    fn no_packet(&mut self) -> Result {
        match self.target.unexpected_packet()? {
            Some(packet) => deviation(format!("sent: {}", describe(&packet.bytes))),
            None => Ok(()),
        }
    }

    /// Nothing may be left that the script did not mention.
    fn end(&mut self) -> Result {
        self.nothing_sent()?;
        let early = (!self.early.is_empty()).then(|| self.early.remove(0));
        if let Some(completion) =
            early.map_or_else(|| self.target.unexpected_completion(), |early| Ok(Some(early)))?
        {
            return deviation(format!("not mentioned: {}", expect::told(&completion)));
        }
        if !self.ignores_events
            && let Some((object, event)) = self.target.next_event(false)?
        {
            return deviation(format!("not mentioned: event {object} {}", event.name()));
        }
        self.target.finish()
    }

    fn fields(&self, told: &Packet) -> Result<Fields> {
        told.fields.iter().map(|(name, value)| Ok((*name, self.names.value(name, value)?))).collect()
    }

    fn inject(&mut self, told: &Packet) -> Result {
        let mut fields = self.fields(told)?;
        let numbers = match &told.qp {
            Some(name) => self.names.qp(name),
            None => self.names.first(),
        };
        if let (false, Ok(numbers)) = (fields.contains_key("qp"), numbers) {
            fields.insert("qp", numbers.ours.into());
        }
        fields.insert("opcode", told.info.opcode.byte().into());
        fields.entry("pkey").or_insert(0xFFFF);
        fields.entry("M").or_insert(1);
        fields.entry("pad").or_insert_with(|| Pad::for_payload(told.len).len() as u64);
        let payload = payload(told, &fields).unwrap_or_else(|| vec![0; told.len]);
        let mut bytes = packet::build(told.info, &fields, &payload);
        if let Some(byte) = told.raw_opcode {
            bytes[0] = byte;
        }
        let seal = told.seal.unwrap_or(Seal::Good);
        self.target.inject(Outgoing { bytes, seal, stranger: told.stranger, tos: told.tos.unwrap_or(0) })
    }

    fn expect_packet(&mut self, told: &Packet, after: Option<Duration>) -> Result {
        let mut wanted = self.fields(told)?;
        let peer = match &told.qp {
            Some(name) => self.names.qp(name)?.peer,
            None => self.names.first()?.peer,
        };
        wanted.entry("qp").or_insert(peer.into());
        wanted.entry("A").or_insert(0);
        wanted.entry("SE").or_insert(0);
        if self.target.wants_migration_bit() {
            wanted.entry("M").or_insert(u64::from(told.info.name != "CNP"));
        }
        wanted.entry("pad").or_insert(Pad::for_payload(told.len).len() as u64);
        wanted.insert("tver", 0);
        wanted.insert("pkey", 0xFFFF);
        loop {
            let packet = self.target.next_packet(after)?;
            let first_port = *self.ports.entry(wanted["qp"]).or_insert(packet.sport);
            match compare(told, &wanted, &packet, first_port) {
                Err(_) if after.is_none() && self.target.is_repeat(&packet) => {}
                judged => return judged,
            }
        }
    }
}

/// Whether the packet is what the line says.
fn compare(told: &Packet, wanted: &Fields, packet: &Received, first_port: u16) -> Result {
    let line = || format!("sent: {}", describe(&packet.bytes));
    if told.tos.is_some_and(|expected| expected != packet.tos) {
        return deviation(format!("tos is {:#x}; {}", packet.tos, line()));
    }
    let path = (packet.sport ^ first_port) % u16::from(MAX_PATHS);
    if told.path.is_some_and(|expected| expected != path) {
        return deviation(format!("it took path {path}; {}", line()));
    }
    let (info, fields, found) =
        packet::take_apart(&packet.bytes).ok_or_else(|| Trouble::Deviation(line()))?;
    let is_as_long = told.came.is_some() || found.len() == told.len;
    if info.opcode.byte() != told.info.opcode.byte() || !is_as_long {
        return deviation(line());
    }
    let differences = packet::differences(&fields, wanted);
    if !differences.is_empty() {
        return deviation(format!("{}; {}", differences.join("; "), line()));
    }
    if packet.seal != told.seal.unwrap_or(packet.seal) || packet.seal == Seal::Bad {
        return deviation(format!("another ICRC; {}", line()));
    }
    if payload(told, &fields).is_some_and(|wanted| wanted != found) {
        return deviation(format!("another payload: {found:02x?}; {}", line()));
    }
    Ok(())
}

/// The payload, if the line says what is in it.
fn payload(told: &Packet, fields: &Fields) -> Option<Vec<u8>> {
    if let Some(came) = &told.came {
        return Some(bitmap(fields.get("psn").copied().unwrap_or(0) as u32, came));
    }
    let (id, offset) = told.data?;
    Some(pattern(id, offset + told.len)[offset..].to_vec())
}

/// A bit for each PSN from `first` on, in words of four bytes (docs/wire-extensions.md).
fn bitmap(first: u32, came: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for psn in came {
        let at = (psn.wrapping_sub(first) & 0xFF_FFFF) as usize;
        if bytes.len() <= at / 8 {
            bytes.resize((at / 32 + 1) * 4, 0);
        }
        bytes[at / 8] |= 1_u8 << (at % 8);
    }
    bytes
}
