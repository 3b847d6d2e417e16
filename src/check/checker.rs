//! The checker: what it is told, and what it makes of that.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use softrnic_diagnosis::Diagnosis;
use softrnic_wire::Gid;

use crate::connection::Connection;
use crate::finding::{Finding, Part, Summary};
use crate::history::History;
use crate::object::{Facts, Object};
use crate::placing::Left;
use crate::request::{Completion, Piece, Queue, Request, Stage};
use crate::uses::Uses;
use crate::{Kind, Trace};

/// Most requests that are remembered of a queue: more than it holds, as nobody may poll.
const MOST: usize = 1 << 17;
/// Headers before a datagram.
const GRH: u64 = 40;
/// Receives that are asked whether they share bytes with one that is complete.
const SHARERS: usize = 256;
/// Bytes of the cache's line, which hardware may write to its end.
const LINE: u64 = 64;
/// So many requests that the NIC writes for are looked at of those that are posted at one place, and later some of as many.
const ALL_OF_FIRST: u32 = 4096;
const SOME_OF_LATER: u32 = 256;
/// Findings that wait to be written.
const WAITING: usize = 1024;

/// What is known of a program. See the crate's root.
#[derive(Default)]
pub struct Checker {
    pub(crate) history: History,
    pub(crate) queues: FxHashMap<Queue, VecDeque<Request>>,
    pub(crate) connections: FxHashMap<u32, Connection>,
    /// What this side refused to a QP of this process, which will say so too.
    pub(crate) refused: Vec<Diagnosis>,
    /// QPs that have posted READs.
    pub(crate) fetched: FxHashSet<u32>,
    /// The last QPs that have used a key at an address.
    pub(crate) users: FxHashMap<(Gid, u32), Vec<u32>>,
    /// Where completion queues were armed last.
    pub(crate) armed: FxHashMap<usize, Trace>,
    /// Completion queues of which something was polled.
    pub(crate) polled: FxHashSet<usize>,
    /// QPs of which it was told that they have no receive.
    pub(crate) starved: FxHashSet<u32>,
    /// Where connections were accepted, by the number of their QPs.
    pub(crate) accepted: FxHashMap<u32, Trace>,
    /// What has used memory last.
    pub(crate) uses: Uses,
    /// Outstanding requests that the NIC writes for and that have a checksum.
    pub(crate) sums: usize,
    /// How many of these were posted where.
    looked_at: FxHashMap<Trace, u32>,
    /// What peers' atomics have left, by key and address.
    pub(crate) words: FxHashMap<(u32, u64), Left>,
    found: Vec<Finding>,
    /// How often each was found.
    seen: FxHashMap<(Kind, Vec<Trace>), u64>,
    suppressed: FxHashSet<(Kind, Vec<Trace>)>,
    summary: Summary,
}

impl Checker {
    /// The program has made an object.
    pub fn made(&mut self, object: Object) {
        if let Facts::Qp { qpn, .. } = object.facts {
            self.forget(qpn);
            self.connections.remove(&qpn);
        }
        self.history.add(object);
    }

    /// It has destroyed one.
    pub fn destroyed(&mut self, address: usize, trace: Trace) {
        let qpn = match self.history.remove(address, trace).map(|object| &object.facts) {
            Some(Facts::Qp { qpn, .. }) => Some(*qpn),
            _ => None,
        };
        if let Some(qpn) = qpn {
            self.forget(qpn);
            self.fetched.remove(&qpn);
            self.accepted.remove(&qpn);
            self.starved.remove(&qpn);
        }
        self.armed.remove(&address);
        self.polled.remove(&address);
        self.forget_queue(Queue::Shared(address));
    }

    /// A window or a region has another key from now on, and maybe other bytes.
    pub fn changed(&mut self, address: usize, facts: Facts) {
        self.history.change(address, facts);
    }

    /// The requests of a QP are gone: it was reset or destroyed.
    pub fn forget(&mut self, qpn: u32) {
        self.forget_queue(Queue::Send(qpn));
        self.forget_queue(Queue::Receive(qpn));
    }

    fn forget_queue(&mut self, queue: Queue) {
        let requests = self.queues.remove(&queue);
        self.sums -= requests.iter().flatten().filter(|request| is_summed(request)).count();
    }

    /// The program is about to post a request.
    pub fn post(&mut self, queue: Queue, request: Request) {
        if let Queue::Receive(qpn) = queue
            && request.length < GRH
            && let Some(Facts::Qp { datagrams: true, .. }) = self.history.qp(qpn).map(|qp| &qp.facts)
        {
            let what =
                format!("a receive of {} B on UD QP {qpn:#x}, and the header takes {GRH} B", request.length);
            let parts = vec![self.posted(&request)];
            self.find(Finding { kind: Kind::ShortDatagramReceive, what, parts });
        }
        if let Queue::Send(qpn) = queue {
            self.compare(qpn, &request);
        }
        match request.writes() {
            true => self.sums += usize::from(request.sum.is_some()),
            false if self.sums > 0 => {
                request.pieces.iter().for_each(|one| self.uses.add(one.addr, one.length.into()))
            }
            false => {}
        }
        let since = self.uses.now();
        let requests = self.queues.entry(queue).or_default();
        if requests.len() == MOST {
            let oldest = requests.pop_front();
            self.sums -= oldest.iter().filter(|request| is_summed(request)).count();
        }
        requests.push_back(Request { stage: Stage::Waiting { since }, ..request });
    }

    /// Whether the bytes of a request must not change, and can be read at their addresses: those of some regions are not
    /// where the program sees them. An unsignaled datagram is sent once, and an answer shows that it was. Of receives that share
    /// their bytes, nothing could be told.
    pub fn keeps_bytes(&mut self, queue: Queue, request: &Request) -> bool {
        if request.writes() {
            return self.is_turn_of(request.posted)
                && !request.pieces.is_empty()
                && !self.has_neighbour(queue, request)
                && self.are_seen(&request.pieces);
        }
        let Queue::Send(qpn) = queue else { return false };
        let datagrams =
            matches!(self.history.qp(qpn).map(|qp| &qp.facts), Some(Facts::Qp { datagrams: true, .. }));
        (request.signaled || !datagrams) && !request.pieces.is_empty() && self.are_seen(&request.pieces)
    }

    /// Whether a request that is posted there is looked at, of those that the NIC writes for.
    fn is_turn_of(&mut self, posted: Trace) -> bool {
        let posted = self.looked_at.entry(posted).or_default();
        let turn = *posted;
        *posted = turn.checked_add(1).unwrap_or(ALL_OF_FIRST);
        turn < ALL_OF_FIRST || turn % ALL_OF_FIRST < SOME_OF_LATER
    }

    /// Whether a request shares bytes with the first or the last of its queue, as those do that all have one buffer.
    fn has_neighbour(&self, queue: Queue, request: &Request) -> bool {
        let requests = self.queues.get(&queue);
        let mut neighbours =
            requests.into_iter().flat_map(|queue| queue.back().into_iter().chain(queue.front()));
        neighbours.any(|other| other.meets_here(request))
    }

    /// Whether bytes are where the program sees them, in live regions.
    fn are_seen(&self, pieces: &[Piece]) -> bool {
        pieces.iter().all(|piece| match self.history.live_key(piece.lkey).map(|key| &key.facts) {
            Some(Facts::Region { addr, length, .. }) => {
                let end = piece.addr.checked_add(piece.length.into());
                *addr != 0 && piece.addr >= *addr && end.is_some_and(|end| end - addr <= *length)
            }
            _ => false,
        })
    }

    /// The last `count` requests were not posted after all.
    pub fn withdraw(&mut self, queue: Queue, count: usize) {
        if let Some(requests) = self.queues.get_mut(&queue) {
            let withdrawn = requests.drain(requests.len().saturating_sub(count)..);
            self.sums -= withdrawn.filter(is_summed).count();
        }
    }

    /// The program has polled a completion. `sum` makes the checksum of what a request names now. Returns the receive that
    /// the completion is of.
    pub fn completed(
        &mut self,
        completion: Completion,
        sum: impl Fn(&Request) -> Option<u32>,
    ) -> Option<(Queue, Request)> {
        let Completion { wr_id, qpn, receive, failed, .. } = completion;
        let shared = match self.history.qp(qpn).map(|qp| &qp.facts) {
            Some(Facts::Qp { srq, .. }) => srq.map(Queue::Shared),
            _ => None,
        };
        let queue = match (receive, shared) {
            (false, _) => Queue::Send(qpn),
            (true, None) => Queue::Receive(qpn),
            (true, Some(shared)) => shared,
        };
        let requests = self.queues.get_mut(&queue)?;
        let is_of = |request: &Request| request.wr_id == wr_id && (request.signaled || failed);
        let at = requests.iter().position(is_of)?;
        if let Queue::Shared(_) = queue {
            let request = requests.remove(at)?;
            self.sums -= usize::from(is_summed(&request));
            if !failed {
                self.look_at_written(qpn, &request, sum);
            }
            return Some((queue, request));
        }
        // Those before it are complete as well.
        let mut last = None;
        let mut changed = Vec::new();
        for request in requests.drain(..=at) {
            if request.writes() {
                self.sums -= usize::from(is_summed(&request));
                last = Some(request);
            } else if request.sum.is_some() && sum(&request) != request.sum {
                changed.push(request);
            }
        }
        for request in changed {
            self.buffer_changed(qpn, &request);
        }
        let last = last.filter(|last| last.wr_id == wr_id)?;
        if !failed {
            self.look_at_written(qpn, &last, sum);
        }
        receive.then_some((queue, last))
    }

    /// The bytes of a receive behind the message that it has taken, up to the end of the cache's line: an address and a length.
    /// They mean nothing. None where another receive may have them too, or they are not where the program sees them.
    pub fn behind(&self, queue: Queue, receive: &Request, message: u64) -> Option<(u64, u64)> {
        let mut skip = message;
        let last = receive.pieces.iter().find(|piece| {
            let is_last = skip < piece.length.into();
            skip -= if is_last { 0 } else { u64::from(piece.length) };
            is_last
        })?;
        let from = last.addr.checked_add(skip)?;
        let length = (from.next_multiple_of(LINE) - from).min(u64::from(last.length) - skip);
        let mut others = self.queues.get(&queue).into_iter().flatten().take(SHARERS);
        let is_shared = others.any(|other| other.meets_here(receive));
        (length > 0 && !is_shared && self.are_seen(&receive.pieces)).then_some((from, length))
    }

    fn buffer_changed(&mut self, qpn: u32, request: &Request) {
        let what = format!("QP {qpn:#x}: the bytes of a {request} are not what they were when it was posted");
        let mut parts = vec![self.posted(request)];
        for piece in &request.pieces {
            parts.extend(self.of_key(piece.lkey));
        }
        self.find(Finding { kind: Kind::ChangedBuffer, what, parts });
    }

    /// A verb was refused, for this reason if it is known.
    pub fn refused(&mut self, kind: Kind, what: String, call: Part, object: Option<usize>) {
        let mut parts = vec![call];
        if let Some(address) = object {
            parts.extend(self.history.at(address).map(made));
            if kind == Kind::StillUsed {
                for user in self.history.users(address) {
                    parts.push(Part {
                        says: format!("the {user} uses it, and was {}", user.kind.made()),
                        trace: user.made,
                    });
                }
            }
        }
        self.find(Finding { kind, what, parts });
    }

    /// What kind of refusal it is that a send queue is full, and what there is to say about it.
    pub fn full(&mut self, queue: Queue, call: Part) {
        let requests = self.queues.get(&queue).map_or(0, VecDeque::len);
        let signaled =
            self.queues.get(&queue).into_iter().flatten().filter(|request| request.signaled).count();
        let (kind, what, qpn) = match queue {
            Queue::Send(qpn) if signaled == 0 && requests > 0 => {
                let what = format!(
                    "QP {qpn:#x}: the send queue is full: {requests} requests are outstanding, and none of them is \
                     signaled, so nothing will be polled that makes room"
                );
                (Kind::SendQueueFull, what, Some(qpn))
            }
            // It polls, and posts again.
            _ => return,
        };
        let mut parts = vec![call];
        if let Some(oldest) = self.queues.get(&queue).and_then(VecDeque::front) {
            parts.push(Part { says: format!("the oldest, a {oldest} was posted"), trace: oldest.posted });
        }
        parts.extend(qpn.and_then(|qpn| self.history.qp(qpn)).map(made));
        self.find(Finding { kind, what, parts });
    }

    /// The oldest request of a send queue.
    pub fn oldest(&self, qpn: u32) -> Option<&Request> {
        self.queues.get(&Queue::Send(qpn))?.front()
    }

    /// Takes what was found and not yet taken.
    pub fn take(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.found)
    }

    /// Whether there is something to take.
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// A finding that was taken is not to be counted.
    pub fn suppress(&mut self, finding: &Finding) {
        let identity = finding.identity();
        let times = self.seen.remove(&identity).unwrap_or(0);
        self.suppressed.insert(identity);
        self.summary.suppressed += times;
        if let Some((count, places)) = self.summary.kinds.get_mut(&finding.kind) {
            (*count, *places) = (*count - times, *places - 1);
        }
        self.summary.kinds.retain(|_, (count, _)| *count > 0);
    }

    /// What was found so far.
    pub fn summary(&mut self) -> &mut Summary {
        &mut self.summary
    }

    pub(crate) fn find(&mut self, finding: Finding) {
        let identity = finding.identity();
        if self.suppressed.contains(&identity) {
            self.summary.suppressed += 1;
            return;
        }
        let times = self.seen.entry(identity).or_default();
        *times += 1;
        let is_new = *times == 1;
        let (count, places) = self.summary.kinds.entry(finding.kind).or_default();
        *count += 1;
        *places += u64::from(is_new);
        if is_new && self.found.len() < WAITING {
            self.found.push(finding);
        }
    }

    /// Where a request was posted.
    pub(crate) fn posted(&self, request: &Request) -> Part {
        Part { says: format!("the {request} was posted"), trace: request.posted }
    }
}

/// Whether it is one of those that [`Checker::sums`] counts.
fn is_summed(request: &Request) -> bool {
    request.writes() && request.sum.is_some()
}

/// Where an object was made.
pub(crate) fn made(object: &Object) -> Part {
    Part { says: format!("the {object} was {}", object.kind.made()), trace: object.made }
}
