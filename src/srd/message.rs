//! Messages that are being sent: requests of this side, and answers to READs of the peer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use softrnic_transport::{SendOp, SendWqe, SrdVerb};
use softrnic_wire::{Imm, Qkey, Qpn, Rkey, SrdPsn, SrdRemote, Time};

use crate::host::Post;

/// A message that is being sent.
pub(crate) struct Message<Q, D> {
    pub id: u32,
    pub qp: Q,
    pub qpn: Qpn,
    pub dest_qpn: Qpn,
    pub qkey: Qkey,
    pub work: Work<D>,
    /// Bytes that its own packets carry.
    pub length: u32,
    /// Of these, how many have been sent once.
    pub sent: u32,
    pub began: bool,
    /// Nothing new of it may be sent: it has ended, and packets of it may still come to the peer.
    pub held: bool,
    /// Packets that nobody has answered.
    pub in_flight: u32,
    /// The last of its packets so far.
    pub last: SrdPsn,
    /// Parts that the peer had no use for, and that go out again under new numbers.
    pub again: Vec<(u32, u32)>,
    /// It may not be sent before; never, if it does not wait.
    pub waits_until: Time,
    /// How often it may still be refused for want of a receive, and has been.
    pub rnr_left: u8,
    pub rnr_count: u8,
    /// Of a READ, bytes that have come.
    pub got: u32,
    /// Whether it is in the list of those that have something to send.
    queued: bool,
}

/// What a message is for.
pub(crate) enum Work<D> {
    /// A request of this side.
    Request(SendWqe<D>),
    /// The answer to a READ of the peer.
    Answer { to: u32, rkey: Rkey, va: u64 },
    /// That there is none.
    Failure { to: u32, code: u8 },
    /// A request of this side has ended early, and the peer may keep something for it.
    Cancel,
}

/// What a request asks for.
pub(crate) enum Request {
    Send(Option<Imm>),
    Write(SrdRemote, Option<Imm>),
    Read(SrdRemote),
}

impl<Q: Copy, D> Message<Q, D> {
    /// A part to send, if there is one: offset and length.
    pub fn next_part(&self, most: u32) -> Option<(u32, u32)> {
        if let Some(&part) = self.again.last() {
            return Some(part);
        }
        let more = !self.held && (!self.began || self.sent < self.length);
        more.then(|| (self.sent, (self.length - self.sent).min(most)))
    }

    /// That part has been sent for the first time under its number.
    pub fn part_sent(&mut self, psn: SrdPsn) {
        self.in_flight += 1;
        self.last = psn;
        if self.again.pop().is_none() {
            self.began = true;
        }
    }

    /// Whether all of it was sent, and answered.
    pub fn is_through(&self) -> bool {
        self.in_flight == 0 && self.began && !self.held && self.sent == self.length && self.again.is_empty()
    }

    /// Whether it was to move bytes to this side.
    pub fn is_read(&self) -> bool {
        matches!(&self.work, Work::Request(wqe) if matches!(request(wqe), Some(Request::Read(_))))
    }

    /// Whether the peer may keep something for it until it is complete, if packets carry `most` bytes.
    pub fn occupies_peer(&self, most: u32) -> bool {
        self.began && (self.is_read() || self.length > most)
    }
}

/// What a work request asks for.
pub(crate) fn request<D>(wqe: &SendWqe<D>) -> Option<Request> {
    let SendOp::Srd { verb, .. } = &wqe.op else { return None };
    Some(match *verb {
        SrdVerb::Send(imm) => Request::Send(imm),
        SrdVerb::Write(remote, imm) => Request::Write(SrdRemote { va: remote.va, rkey: remote.rkey }, imm),
        SrdVerb::Read(remote) => Request::Read(SrdRemote { va: remote.va, rkey: remote.rkey }),
    })
}

/// All messages of a connection, and those that have something to send.
pub(crate) struct Messages<Q, D> {
    slots: Vec<Option<Message<Q, D>>>,
    free: Vec<u32>,
    /// Tells a message from one that was in its place before.
    round: u32,
    ready: VecDeque<u32>,
}

/// Bits of an id that are its place.
const PLACE_BITS: u32 = 20;

impl<Q: Copy + Eq, D> Messages<Q, D> {
    pub fn new() -> Messages<Q, D> {
        Messages { slots: Vec::new(), free: Vec::new(), round: 0, ready: VecDeque::new() }
    }

    /// Adds a request. Gives it back if there is no room.
    pub fn post(&mut self, post: Post<Q, D>) -> Result<u32, Post<Q, D>> {
        let Ok(place) = self.reserve() else { return Err(post) };
        let Post { qp, qpn, dest_qpn, qkey, rnr_retry, wqe } = post;
        let is_read = matches!(request(&wqe), Some(Request::Read(_)));
        let length = if is_read { 0 } else { wqe.length };
        Ok(self.put(
            place,
            Message { rnr_left: rnr_retry, ..blank(qp, qpn, dest_qpn, qkey, length, Work::Request(wqe)) },
        ))
    }

    /// Adds an answer to the peer, if there is room.
    pub fn answer(&mut self, qp: Q, qpn: Qpn, to: Qpn, length: u32, work: Work<D>) -> Option<u32> {
        let place = self.reserve().ok()?;
        Some(self.put(place, blank(qp, qpn, to, Qkey(0), length, work)))
    }

    fn reserve(&mut self) -> Result<u32, ()> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        let place = self.slots.len() as u32;
        let none = |_| ();
        if place >= 1 << PLACE_BITS {
            return Err(());
        }
        self.slots.try_reserve(1).map_err(none)?;
        let count = self.slots.len() + 1;
        self.free.try_reserve(count - self.free.len()).map_err(none)?;
        self.ready.try_reserve(count.saturating_sub(self.ready.len())).map_err(none)?;
        self.slots.push(None);
        Ok(place)
    }

    fn put(&mut self, place: u32, message: Message<Q, D>) -> u32 {
        self.round = self.round.wrapping_add(1);
        let id = self.round << PLACE_BITS | place;
        self.slots[place as usize] = Some(Message { id, ..message });
        self.queue(id);
        id
    }

    /// The message with this number, if it is still there.
    pub fn get(&mut self, id: u32) -> Option<&mut Message<Q, D>> {
        let place = id & ((1 << PLACE_BITS) - 1);
        self.slots.get_mut(place as usize)?.as_mut().filter(|message| message.id == id)
    }

    pub fn remove(&mut self, id: u32) -> Option<Message<Q, D>> {
        self.get(id)?;
        let place = id & ((1 << PLACE_BITS) - 1);
        self.free.push(place);
        self.slots[place as usize].take()
    }

    /// It has something to send.
    pub fn queue(&mut self, id: u32) {
        let Some(message) = self.get(id) else { return };
        if !core::mem::replace(&mut message.queued, true) {
            self.ready.push_back(id);
        }
    }

    /// The one whose turn it is to send.
    pub fn front(&mut self) -> Option<u32> {
        while let Some(&id) = self.ready.front() {
            if self.get(id).is_some() {
                return Some(id);
            }
            self.ready.pop_front();
        }
        None
    }

    /// Its turn is over; it has more to send or not.
    pub fn next_turn(&mut self, more: bool) {
        let Some(id) = self.ready.pop_front() else { return };
        match self.get(id) {
            Some(_) if more => self.ready.push_back(id),
            Some(message) => message.queued = false,
            None => {}
        }
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Message<Q, D>> {
        self.slots.iter_mut().flatten()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

fn blank<Q, D>(qp: Q, qpn: Qpn, dest_qpn: Qpn, qkey: Qkey, length: u32, work: Work<D>) -> Message<Q, D> {
    Message {
        id: 0,
        qp,
        qpn,
        dest_qpn,
        qkey,
        work,
        length,
        sent: 0,
        began: false,
        held: false,
        in_flight: 0,
        last: SrdPsn(0),
        again: Vec::new(),
        waits_until: Time::NEVER,
        rnr_left: 0,
        rnr_count: 0,
        got: 0,
        queued: false,
    }
}
