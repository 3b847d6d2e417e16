//! Bytes that the NIC writes for a request: whether the program writes there too, before the request is complete.
//!
//! What the program does between two looks at the bytes is not seen, only that they differ, so nothing is said unless all that
//! the NIC has done meanwhile is known ([`Uses`](crate::uses::Uses)) and nothing of it was there.

use crate::Kind;
use crate::checker::{Checker, made};
use crate::finding::Finding;
use crate::object::{Facts, Object, ObjectKind};
use crate::request::{Piece, Queue, Request, Stage};

/// Words of atomics that are remembered.
const MOST_WORDS: usize = 1024;
/// Requests that are asked whether they share bytes with one whose bytes have changed.
const MOST: usize = 1 << 16;

/// The word of a peer's atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// The QP that executed it.
    pub qpn: u32,
    /// The key.
    pub rkey: u32,
    /// The address.
    pub addr: u64,
    /// What the word was.
    pub before: u64,
    /// What it is now.
    pub after: u64,
    /// When: the same for all that the NIC executes before a peer has an answer.
    pub step: u64,
}

/// What is known of a word.
pub(crate) struct Left {
    value: u64,
    step: u64,
    since: u64,
}

impl Checker {
    /// The NIC is about to write for a request of a QP, whose list this is. `sum` makes the checksum of what is there.
    pub fn places(
        &mut self,
        qpn: u32,
        list: impl Iterator<Item = Piece> + Clone,
        sum: impl Fn(&Request) -> Option<u32>,
    ) {
        if !self.is_logging() {
            return;
        }
        if let Some((queue, at)) = self.waiting_for(qpn, list.clone()) {
            let request = &mut self.queues.get_mut(&queue).expect("was found there")[at];
            let Stage::Waiting { since } = std::mem::replace(&mut request.stage, Stage::Placed) else {
                return;
            };
            if request.sum.is_some() {
                let request = request.clone();
                let is_changed = sum(&request).is_some_and(|now| Some(now) != request.sum);
                if is_changed && self.is_alone(&request, since, 1) {
                    self.was_written(
                        qpn,
                        &request,
                        "were changed after it was posted, and before the NIC wrote there",
                    );
                }
            }
        }
        for piece in list {
            self.uses.add(piece.addr, piece.length.into());
        }
    }

    /// A peer is about to write.
    pub fn peer_writes(&mut self, rkey: u32, addr: u64, length: u64) {
        if !self.is_logging() {
            return;
        }
        match self.is_seen_there(rkey, addr, length) {
            true => self.uses.add(addr, length),
            false => self.uses.add_any(),
        }
    }

    /// A completion is about to become visible.
    pub fn completes(
        &mut self,
        qpn: u32,
        wr_id: u64,
        is_receive: bool,
        sum: impl Fn(&Request) -> Option<u32>,
    ) {
        if self.sums == 0 {
            return;
        }
        let queue = if is_receive { self.receives_come_from(qpn) } else { Queue::Send(qpn) };
        let Some(requests) = self.queues.get_mut(&queue) else { return };
        let is_next = |request: &Request| match queue {
            Queue::Send(_) => request.signaled && request.wr_id == wr_id,
            Queue::Receive(_) => true,
            Queue::Shared(_) => request.wr_id == wr_id,
        };
        let mut open = requests
            .iter_mut()
            .filter(|request| !matches!(request.stage, Stage::Complete { .. }))
            .filter(|one| is_next(one));
        let Some(request) = open.next().filter(|request| request.wr_id == wr_id) else { return };
        if matches!(queue, Queue::Shared(_)) && open.next().is_some() {
            // Which of them it is will not be known.
            return;
        }
        let is_told = request.writes() && request.stage == Stage::Placed && request.sum.is_some();
        let sum = if is_told { sum(request) } else { None };
        request.stage = Stage::Complete { sum, since: self.uses.now() };
    }

    /// The program has polled the completion of a request, which is no longer among the others.
    pub(crate) fn look_at_written(
        &mut self,
        qpn: u32,
        request: &Request,
        sum: impl Fn(&Request) -> Option<u32>,
    ) {
        let Stage::Complete { sum: Some(left), since } = request.stage else { return };
        if sum(request).is_some_and(|now| now != left) && self.is_alone(request, since, 0) {
            self.was_written(
                qpn,
                request,
                "were changed after the NIC wrote there, and before its completion was polled",
            );
        }
    }

    /// A peer's atomic was executed.
    pub fn executed(&mut self, word: Word) {
        if self.words.len() == MOST_WORDS {
            self.words.clear();
        }
        let Word { qpn, rkey, addr, before, after, step } = word;
        if !self.is_seen_there(rkey, addr, 8) {
            self.uses.add_any();
            return;
        }
        let bytes = [Piece { addr, length: 8, lkey: rkey }];
        let left = self.words.get(&(rkey, addr));
        let left = left.filter(|left| left.step == step && !self.uses.meet_since(left.since, &bytes));
        if let Some(value) = left.map(|left| left.value).filter(|value| *value != before) {
            let what = format!(
                "QP {qpn:#x}: the word at {addr:#x} was {value:#x} after a peer's atomic and {before:#x} before the next one, while \
                 neither was answered: something else than this NIC has changed it"
            );
            let mut parts = self.of_key(rkey);
            parts.extend(self.history.qp(qpn).map(made));
            self.find(Finding { kind: Kind::ChangedAtomic, what, parts });
        }
        self.uses.add(addr, 8);
        let since = self.uses.now();
        self.words.insert((rkey, addr), Left { value: after, step, since });
    }

    /// Whether it needs to be told what the NIC writes.
    pub fn is_logging(&self) -> bool {
        self.sums > 0 || !self.words.is_empty()
    }

    /// The request that bytes are for: its queue, and its place there.
    fn waiting_for(&self, qpn: u32, list: impl Iterator<Item = Piece> + Clone) -> Option<(Queue, usize)> {
        let is_it = |request: &Request| {
            request.writes()
                && matches!(request.stage, Stage::Waiting { .. })
                && request.pieces.iter().copied().eq(list.clone())
        };
        [self.receives_come_from(qpn), Queue::Send(qpn)]
            .into_iter()
            .find_map(|queue| Some((queue, self.queues.get(&queue)?.iter().position(is_it)?)))
    }

    fn receives_come_from(&self, qpn: u32) -> Queue {
        match self.history.qp(qpn).map(|qp| &qp.facts) {
            Some(Facts::Qp { srq: Some(srq), .. }) => Queue::Shared(*srq),
            _ => Queue::Receive(qpn),
        }
    }

    /// Whether what a peer names is at the addresses that it names. Those of some regions and windows begin at 0.
    fn is_seen_there(&self, rkey: u32, addr: u64, length: u64) -> bool {
        let has = |object: &Object| match object.facts {
            Facts::Region { addr: first, length: bytes, .. } => {
                first != 0 && addr >= first && addr.saturating_add(length) - first <= bytes
            }
            _ => false,
        };
        match self.history.live_key(rkey) {
            Some(window) if window.kind == ObjectKind::Mw => self.history.alive().any(has),
            Some(region) => has(region),
            None => false,
        }
    }

    /// Whether nothing else that is known uses the bytes of a request, or has since then. `own` is 1 if it is among those that are
    /// outstanding.
    fn is_alone(&self, request: &Request, since: u64, own: usize) -> bool {
        let outstanding = || self.queues.values().flatten();
        !self.uses.meet_since(since, &request.pieces)
            && outstanding().nth(MOST).is_none()
            && outstanding().filter(|other| other.meets_here(request)).count() <= own
    }

    fn was_written(&mut self, qpn: u32, request: &Request, when: &str) {
        let at: Vec<_> = request.pieces.iter().map(|piece| format!("{:#x}", piece.addr)).collect();
        let what = format!("QP {qpn:#x}: the bytes of a {request} at {} {when}", at.join(", "));
        let mut parts = vec![self.posted(request)];
        for piece in &request.pieces {
            parts.extend(self.of_key(piece.lkey));
        }
        self.find(Finding { kind: Kind::WrittenBuffer, what, parts });
    }
}
