//! Requests in flight that touch the same bytes, in an order that nobody promises (IBTA 10.8.3.3).
//!
//! Requests of one send queue begin in their order, and all but READs and atomics take effect in it. What follows a READ or an
//! atomic does not wait for it without a fence. Between QPs there is no order at all. Receives are left out: programs that
//! measure post one buffer many times.

use softrnic_transport::WcOpcode;

use crate::Kind;
use crate::checker::Checker;
use crate::finding::Finding;
use crate::request::{Queue, Request};

/// Requests of a queue, and QPs, that a new one is compared with.
const NEWEST: usize = 64;
const MOST_QPS: usize = 8;

impl Checker {
    /// A request is about to be posted: whether it meets one of those that are in flight.
    pub(crate) fn compare(&mut self, qpn: u32, request: &Request) {
        let fetches = matches!(request.opcode, WcOpcode::RdmaRead);
        let own_fetched = self.fetched.contains(&qpn);
        let mut found = None;
        if own_fetched && !request.fenced {
            found = self.newest(qpn).find(|earlier| overtakes(earlier, request)).cloned();
        }
        let others = self.others_at(qpn, request);
        if found.is_none() {
            found = others.iter().find_map(|other| {
                self.newest(*other).find(|earlier| earlier.signaled && collides(earlier, request)).cloned()
            });
        }
        if fetches && !own_fetched {
            self.fetched.insert(qpn);
        }
        let Some(earlier) = found else { return };
        let what = format!("QP {qpn:#x}: a {request} touches bytes of a {earlier} which is not complete",);
        let parts = vec![self.posted(request), self.posted(&earlier)];
        self.find(Finding { kind: Kind::OverlappingRequests, what, parts });
    }

    fn newest(&self, qpn: u32) -> impl Iterator<Item = &Request> {
        self.queues.get(&Queue::Send(qpn)).into_iter().flat_map(|queue| queue.iter().rev().take(NEWEST))
    }

    /// The other QPs that may touch the same bytes: those that have used the key at the same peer, and those that fetch.
    fn others_at(&mut self, qpn: u32, request: &Request) -> Vec<u32> {
        let mut others = Vec::new();
        if let Some(remote) = request.remote
            && let Some(peer) = self.connections.get(&qpn).and_then(|connection| connection.peer())
        {
            let users = self.users.entry((peer, remote.rkey)).or_default();
            if !users.contains(&qpn) {
                if users.len() == MOST_QPS {
                    users.remove(0);
                }
                users.push(qpn);
            }
            others.extend(users.iter().filter(|user| **user != qpn));
        }
        if !request.pieces.is_empty() {
            let fetching = self.fetched.iter().filter(|other| **other != qpn).take(MOST_QPS);
            others.extend(fetching);
        }
        others
    }
}

/// Whether a request of the same queue may take effect before one in front of it.
fn overtakes(earlier: &Request, request: &Request) -> bool {
    match earlier.opcode {
        WcOpcode::RdmaRead => {
            (!request.writes() && earlier.meets_here(request))
                || (changes(request) && earlier.meets_there(request))
        }
        WcOpcode::CompareSwap | WcOpcode::FetchAdd => !request.writes() && earlier.meets_here(request),
        _ => false,
    }
}

/// Whether two requests of different queues touch bytes that one of them writes.
fn collides(earlier: &Request, request: &Request) -> bool {
    let here = earlier.writes() != request.writes() && earlier.meets_here(request);
    let there = (changes(earlier) || changes(request)) && earlier.meets_there(request);
    here || there
}

/// Whether it writes to the peer's bytes otherwise than by an atomic.
fn changes(request: &Request) -> bool {
    matches!(request.opcode, WcOpcode::RdmaWrite | WcOpcode::AtomicWrite)
}
