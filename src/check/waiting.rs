//! What a program misses: completions that nobody polls, receives that come late.

use crate::checker::{Checker, made};
use crate::finding::{Finding, Part};
use crate::object::ObjectKind;
use crate::request::Queue;
use crate::{Kind, Trace};

impl Checker {
    /// The program has armed a completion queue.
    pub fn armed(&mut self, cq: usize, trace: Trace) {
        self.armed.insert(cq, trace);
    }

    /// It has polled completions of a queue.
    pub fn polled(&mut self, cq: usize) {
        self.polled.insert(cq);
    }

    /// Whether a queue was armed, and nothing of it was ever polled.
    pub fn is_unpolled(&self, cq: usize) -> bool {
        self.armed.contains_key(&cq) && !self.polled.contains(&cq)
    }

    /// A queue of which nothing was polled is destroyed, or the program ends. It holds so many completions.
    pub fn unpolled(&mut self, cq: usize, completions: usize) {
        let what = format!(
            "a completion queue was armed and holds {completions} completions, and none was ever polled"
        );
        let parts = self.of_cq(cq).into_iter().collect();
        self.find(Finding { kind: Kind::UnpolledQueue, what, parts });
    }

    /// A thread has waited for an event of a queue for a second. The queue has held so many completions all the time, and no
    /// event waits.
    pub fn missed(&mut self, cq: usize, completions: usize, call: Part) {
        let cause = match self.armed.contains_key(&cq) {
            true => "they were there when it was armed, or it was not armed since",
            false => "it was never armed",
        };
        let what = format!(
            "ibv_get_cq_event has waited for a second, and a completion queue holds {completions} completions: {cause}"
        );
        let mut parts = vec![call];
        parts.extend(self.of_cq(cq));
        self.find(Finding { kind: Kind::MissedEvent, what, parts });
    }

    fn of_cq(&self, cq: usize) -> Vec<Part> {
        let mut parts: Vec<Part> = self.history.at(cq).map(made).into_iter().collect();
        if let Some(trace) = self.armed.get(&cq) {
            parts.push(Part { says: "and was last armed".into(), trace: *trace });
        }
        parts
    }

    /// Nobody has taken the requests of a listener for a second.
    pub fn unserved(&mut self, call: Part) {
        let what = "a request for a connection has waited for a second, and nobody has taken one since the listener was made";
        self.find(Finding { kind: Kind::UnservedListener, what: what.into(), parts: vec![call] });
    }

    /// So many requests for connections found no room.
    pub fn crowded(&mut self, requests: u64, calls: Vec<Part>) {
        let what = format!("{requests} requests for connections were dropped, as the backlog was full");
        self.find(Finding { kind: Kind::FullBacklog, what, parts: calls });
    }

    /// An identifier with this many events is destroyed, and that has taken a second.
    pub fn unacked(&mut self, events: u32, call: Part) {
        let what =
            format!("rdma_destroy_id has waited for a second: not all of {events} events were acknowledged");
        self.find(Finding { kind: Kind::UnackedCmEvents, what, parts: vec![call] });
    }

    /// The program is about to fork, and has not prepared for that.
    pub fn forks(&mut self, call: Part) {
        let regions: Vec<_> = self.history.alive().filter(|object| object.kind == ObjectKind::Mr).collect();
        let Some(first) = regions.iter().min_by_key(|region| region.made) else { return };
        let what = format!(
            "fork was called with {} memory regions registered, and ibv_fork_init was not",
            regions.len()
        );
        let parts = vec![call, made(first)];
        self.find(Finding { kind: Kind::ForkWithoutSupport, what, parts });
    }

    /// A connection is accepted with this QP.
    pub fn accepted(&mut self, qpn: u32, trace: Trace) {
        self.accepted.insert(qpn, trace);
    }

    /// Whether a QP has posted no receive since it was made or reset.
    pub fn is_first_receive(&self, qpn: u32) -> bool {
        !self.queues.contains_key(&Queue::Receive(qpn))
    }

    /// The first receive of a QP was posted, after so many messages had found none.
    pub fn late(&mut self, qpn: u32, times: u64) {
        if self.starved.contains(&qpn) {
            return;
        }
        let what = format!(
            "QP {qpn:#x}: messages came before its first receive; it has answered {times} times that there is none"
        );
        let first = self.queues.get(&Queue::Receive(qpn)).and_then(|queue| queue.front());
        let mut parts: Vec<Part> = first.map(|request| self.posted(request)).into_iter().collect();
        if let Some(trace) = self.accepted.get(&qpn) {
            parts.push(Part { says: "the connection was accepted".into(), trace: *trace });
        } else if let Some(connection) = self.connections.get(&qpn) {
            parts.push(Part { says: "the QP was made ready to receive".into(), trace: connection.ready() });
        }
        self.find(Finding { kind: Kind::LateReceive, what, parts });
    }
}
