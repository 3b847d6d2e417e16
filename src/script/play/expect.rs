//! Lines that state what must be true.

use std::time::Duration;

use super::{Player, Result, deviation};
use crate::pattern::pattern;
use crate::statement::{Complete, Event, Filling, Piece, State};
use crate::target::{Completion, Place, Trouble};

/// A completion in one readable line.
pub fn told(completion: &Completion) -> String {
    let Completion { wr_id, status, opcode, byte_len, src_qpn, imm, invalidated, qpn } = completion;
    let mut text = format!("complete wr {wr_id} {status}");
    if let Some(opcode) = opcode {
        text += &format!(" opcode {opcode}");
    }
    for (name, value) in [("len", *byte_len), ("src", *src_qpn), ("imm", imm.map(u64::from))] {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    if let Some(key) = invalidated {
        text += &format!(" inv {key:#x}");
    }
    format!("{text} of QP {qpn:#x}")
}

/// What can be counted must be what it should be; what cannot, is not judged.
pub fn count(found: Option<u64>, expected: u64) -> Result {
    match found {
        Some(found) if found != expected => deviation(format!("it is {found}")),
        _ => Ok(()),
    }
}

impl Player<'_> {
    pub(super) fn completion(&mut self, wanted: &Complete, after: Option<Duration>) -> Result {
        let inv = match &wanted.inv {
            Some(key) => Some(self.names.value("key", key)? as u32),
            None => None,
        };
        let found = self.next_completion(wanted.wr, after)?;
        let wrong = |what: &str| deviation(format!("{what}: {}", told(&found)));
        if found.wr_id != wanted.wr {
            return wrong("another request");
        }
        let is_status = match wanted.status.as_str() {
            "Error" => found.status != "Success",
            status => found.status == status,
        };
        if !is_status {
            return wrong("another status");
        }
        if wanted.opcode.is_some() && wanted.opcode != found.opcode {
            return wrong("another opcode");
        }
        if wanted.len.is_some() && wanted.len != found.byte_len {
            return wrong("another length");
        }
        if wanted.src.is_some() && wanted.src != found.src_qpn {
            return wrong("another sender");
        }
        if let Some(of) = &wanted.of
            && self.names.qp(of)?.ours != found.qpn
        {
            return wrong("another QP");
        }
        // What a sender's completion says of its immediate data means nothing.
        let is_receive = found.opcode.as_ref().is_some_and(|opcode| opcode.starts_with("Recv"));
        if is_receive && (wanted.imm, inv) != (found.imm, found.invalidated) {
            return wrong("other extras");
        }
        Ok(())
    }

    /// The next completion of the queue that `wr` was posted to. Those of one work queue come in order; between two, there
    /// is none (IBTA 10.8.5).
    fn next_completion(&mut self, wr: u64, after: Option<Duration>) -> Result<Completion> {
        let queue = self.queues.get(&wr).cloned();
        let is_ours = |player: &Self, found: &Completion| player.queues.get(&found.wr_id) == queue.as_ref();
        if let Some(at) = self.early.iter().position(|found| is_ours(self, found)) {
            return Ok(self.early.remove(at));
        }
        loop {
            match (self.target.next_completion(after), self.early.first()) {
                (Ok(found), _) if is_ours(self, &found) => return Ok(found),
                (Ok(found), _) => self.early.push(found),
                (Err(Trouble::Deviation(what)), Some(early)) => {
                    return deviation(format!("{what} but {}", told(early)));
                }
                (Err(trouble), _) => return Err(trouble),
            }
        }
    }

    pub(super) fn memory(&mut self, piece: &Piece, filling: Filling) -> Result {
        let expected = match filling {
            Filling::Zeros => vec![0; piece.len],
            Filling::Untouched => self.target.untouched(&piece.place, piece.len)?,
            Filling::Pattern(id, offset) => pattern(id, offset + piece.len)[offset..].to_vec(),
        };
        loop {
            let found = self.target.read(&piece.place, piece.len)?;
            let Some(at) = found.iter().zip(&expected).position(|(a, b)| a != b) else { return Ok(()) };
            if !self.target.look_again() {
                return deviation(format!("differs from byte {at} on"));
            }
        }
    }

    pub(super) fn memory_word(&mut self, place: &Place, expected: u64) -> Result {
        loop {
            let found = self.target.read(place, 8)?;
            if found == expected.to_ne_bytes() {
                return Ok(());
            }
            if !self.target.look_again() {
                let word = <[u8; 8]>::try_from(&*found).map(u64::from_ne_bytes);
                return deviation(
                    word.map_or("it cannot be read".into(), |word| format!("it holds {word:#x}")),
                );
            }
        }
    }

    pub(super) fn state(&mut self, qp: &str, expected: State) -> Result {
        loop {
            let found = self.target.state(qp)?;
            if found == expected {
                return Ok(());
            }
            if !self.target.look_again() {
                return deviation(format!("it is {}", found.name()));
            }
        }
    }

    pub(super) fn event(&mut self, object: &str, expected: Event) -> Result {
        match self.target.next_event(true)? {
            None => deviation("no event was raised"),
            Some((of, event)) if of == object && event == expected => Ok(()),
            Some((of, event)) => deviation(format!("raised: event {of} {}", event.name())),
        }
    }
}
