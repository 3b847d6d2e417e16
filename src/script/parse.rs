//! From the text of a line to a [`Statement`].

mod message;
mod objects;
mod packet;
mod post;

use crate::statement::{Act, Agreed, Complete, Event, Filling, Piece, Server, State, Statement, Value};
use crate::target::Place;
use crate::words::{Words, duration, number, size};

/// What a line says.
pub fn statement(line: &str) -> Result<Statement, String> {
    let mut words = Words::new(line);
    let mut after = None;
    if let Some(delay) = words.peek().and_then(|word| word.strip_prefix('+')) {
        after = Some(duration(delay)?);
        words.next()?;
    }
    let act = act(&mut words)?;
    words.end()?;
    Ok(Statement { after, act })
}

fn act(words: &mut Words<'_>) -> Result<Act, String> {
    let command = words.next()?;
    Ok(match command {
        ">" if words.take("nothing") => {
            let time = if words.take("for") { Some(duration(words.next()?)?) } else { None };
            Act::Nothing(time)
        }
        ">" if words.take("CM") => Act::ExpectMessage(message::message(words)?),
        "<" if words.take("CM") => Act::SendMessage(message::message(words)?),
        ">" if words.take("SOFTRNIC") => softrnic(words, "question", Act::ExpectQuestion, Act::ExpectAnswer)?,
        "<" if words.take("SOFTRNIC") => softrnic(words, "answer", Act::Answer, Act::Ask)?,
        ">" => Act::Expect(packet::packet(words)?),
        "<" => match packet::packet(words)? {
            told if told.path.is_some() => return Err("only packets of the NIC have a path".into()),
            told => Act::Inject(told),
        },
        "server" => Act::Server(match words.following() {
            None => Server::Connections,
            Some("datagrams") => Server::Datagrams,
            Some(other) => {
                return Err(format!("a server is for datagrams or for connections; `{other}` is neither"));
            }
        }),
        "option" => Act::Option(objects::option(words)?),
        "qp" => Act::Qp(objects::qp(words)?),
        "srq" | "xrcsrq" => {
            let (name, places) = (words.name()?, words.number()?);
            Act::Srq { name, places, xrc: command == "xrcsrq", elsewhere: words.take("elsewhere") }
        }
        "limit" => Act::Limit { srq: words.name()?, limit: words.number()? },
        "mr" => Act::Mr(objects::mr(words)?),
        "mw" => Act::Window {
            name: words.name()?,
            kind: match words.number()? {
                kind @ (1_u8 | 2) => kind,
                _ => return Err("a window is of type 1 or 2".into()),
            },
        },
        "mapping" => Act::Mapping { name: words.name()?, pages: words.number()? },
        "fastmr" => Act::FastMr { name: words.name()?, mapping: words.name()? },
        "unmap" => Act::Unmap { mapping: words.name()?, page: words.number()? },
        "deregister" => Act::Deregister(words.name()?),
        "modify" => Act::Modify {
            qp: words.name()?,
            state: state(words.next()?)?,
            notify: words.take("notify"),
            refused: words.take("refused"),
        },
        "destroy" => Act::Destroy(words.name()?),
        "tag" => Act::Tag { name: words.name()?, tag: words.number()? },
        "fill" => Act::Fill { piece: piece(words.next()?)?, pattern: words.number()? },
        "word" => Act::Word { place: place(words.next()?)?, value: words.number()? },
        "post" => Act::Post(post::post(words)?),
        "recv" => post::receive(words)?,
        "complete" => Act::Complete(complete(words)?),
        "expect" if words.take("word") => {
            Act::MemoryWord { place: place(words.next()?)?, value: words.number()? }
        }
        "expect" => Act::Memory { piece: piece(words.next()?)?, filling: filling(words.next()?)? },
        "state" => Act::State { qp: words.name()?, state: state(words.next()?)? },
        "event" => Act::Event { object: words.name()?, event: event(words.next()?)? },
        "counter" => Act::Counter { name: words.name()?, value: words.number()? },
        "drop" => Act::Drop { name: words.name()?, value: words.number()? },
        "usage" => Act::Usage { name: words.name()?, at_most: words.take("at_most"), value: words.number()? },
        "quiet" => Act::Quiet,
        "wait" => Act::Wait(duration(words.next()?)?),
        "ignore" if words.take("events") => Act::IgnoreEvents,
        "ignore" => Act::Ignore,
        "burst" => Act::Burst(match words.next()? {
            "begin" => true,
            "end" => false,
            other => return Err(format!("a burst begins and ends; `{other}` is neither")),
        }),
        _ => return Err(format!("`{command}` is not a command")),
    })
}

/// A datagram between SoftRNICs: one with `word`, or one of the other two, which say `capabilities`.
fn softrnic(
    words: &mut Words<'_>,
    word: &str,
    of_word: fn(Agreed) -> Act,
    of_capabilities: fn(Agreed) -> Act,
) -> Result<Act, String> {
    let act = match words.next()? {
        found if found == word => of_word,
        "capabilities" => of_capabilities,
        other => return Err(format!("a SoftRNIC says `capabilities` or `{word}` here, and not `{other}`")),
    };
    Ok(act(Agreed { qp: words.name()?, paths: words.take("paths") }))
}

fn state(word: &str) -> Result<State, String> {
    let found = State::NAMES.iter().find(|(name, _)| *name == word);
    found.map(|(_, state)| *state).ok_or_else(|| format!("`{word}` is not a state"))
}

fn event(word: &str) -> Result<Event, String> {
    let found = Event::NAMES.iter().find(|(name, _)| *name == word);
    found.map(|(_, event)| *event).ok_or_else(|| format!("`{word}` is not an event"))
}

/// `NAME+OFFSET` or `NAME`.
fn place(word: &str) -> Result<Place, String> {
    let (memory, offset) = word.split_once('+').unwrap_or((word, "0"));
    Ok(Place { memory: memory.into(), offset: number(offset)? })
}

/// `NAME+OFFSET:LENGTH^BITS`.
fn piece(word: &str) -> Result<Piece, String> {
    let (word, flip) = word.split_once('^').unwrap_or((word, "0"));
    let (at, len) = word.split_once(':').ok_or("a piece of memory is NAME+OFFSET:LENGTH")?;
    Ok(Piece { place: place(at)?, len: size(len)?, flip: number(flip)? })
}

/// A number, `NAME+OFFSET` or `NAME-OFFSET` as an address, `NAME^BITS` as a key.
fn value(word: &str) -> Result<Value, String> {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Value::Number(number(word)?));
    }
    let (word, flip) = word.split_once('^').unwrap_or((word, "0"));
    let flip = number(flip)?;
    let (name, offset) = match (word.split_once('+'), word.split_once('-')) {
        (Some((name, offset)), _) => (name, number(offset)?),
        (None, Some((name, offset))) => (name, number::<u64>(offset)?.wrapping_neg()),
        (None, None) => (word, 0),
    };
    Ok(Value::Name { name: name.into(), offset, flip })
}

fn filling(word: &str) -> Result<Filling, String> {
    Ok(match word {
        "zeros" => Filling::Zeros,
        "untouched" => Filling::Untouched,
        _ => {
            let (id, offset) = word.split_once('@').unwrap_or((word, "0"));
            Filling::Pattern(number(id)?, number(offset)?)
        }
    })
}

fn complete(words: &mut Words<'_>) -> Result<Complete, String> {
    words.take("wr");
    let mut told = Complete {
        wr: words.number()?,
        status: words.name()?,
        opcode: None,
        len: None,
        src: None,
        imm: None,
        inv: None,
        of: None,
    };
    while let Some(word) = words.following() {
        match word {
            "opcode" => told.opcode = Some(words.name()?),
            "len" => told.len = Some(words.number()?),
            "src" => told.src = Some(words.number()?),
            "imm" => told.imm = Some(words.number()?),
            "inv" => told.inv = Some(value(words.next()?)?),
            "of" => told.of = Some(words.name()?),
            other => return Err(format!("`{other}` is nothing that a completion says")),
        }
    }
    Ok(told)
}
