//! What the NIC has diagnosed, with the calls that led to it.

use softrnic_diagnosis::{Code, Denied, Diagnosis, Warning};
use softrnic_memory::Denial;
use softrnic_transport::{Concern, Failure, QpFacts, QpType, Reason, Unfit};

use crate::checker::{Checker, made};
use crate::finding::{Finding, Part};
use crate::history::Known;
use crate::object::{Facts, ObjectKind};
use crate::request::{Queue, Request};
use crate::{Kind, Trace};

/// Refusals that wait for the peer to say the same.
const MOST: usize = 64;

impl Checker {
    /// A QP has failed, or has refused what its peer asked for.
    pub fn failed(&mut self, diagnosis: &Diagnosis) {
        let facts = &diagnosis.failure.qp;
        if diagnosis.is_refusal() && self.is_peer_here(facts) {
            // The peer's report has both sides.
            if self.refused.len() < MOST {
                self.refused.push(diagnosis.clone());
            }
            return;
        }
        if let Some(peer) = &diagnosis.peer {
            let its = peer.failure.qp.qpn;
            self.refused.retain(|refused| refused.failure.qp.qpn != its);
        }
        self.report(diagnosis);
    }

    fn report(&mut self, diagnosis: &Diagnosis) {
        let code = diagnosis.code();
        let mut parts = self.of_failure(diagnosis);
        if let Some(peer) = &diagnosis.peer {
            for part in self.of_failure(peer) {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        let mut what = diagnosis.to_string();
        if let Some(more) = self.about_peer(code, diagnosis) {
            what.push_str("; ");
            what.push_str(&more.0);
            parts.extend(more.1);
        }
        self.find(Finding { kind: Kind::of(code), what, parts });
    }

    /// Refusals whose requester has said nothing: one of an unreliable service, or one that was destroyed.
    pub(crate) fn report_refused(&mut self) {
        for diagnosis in std::mem::take(&mut self.refused) {
            self.report(&diagnosis);
        }
    }

    /// Something will probably not go on by itself. `cq` is the queue that has overrun.
    pub fn warned(&mut self, warning: &Warning, cq: Option<usize>) {
        let (kind, mut parts) = match warning {
            Warning::Qp { concern: Concern::NoReceiveAtPeer { attempt, qp, .. }, .. } => {
                self.starved.insert(qp.peer.1.get());
                let mut parts = self.request_of(qp, attempt.wr_id);
                parts.extend(self.receives_of(qp));
                (Kind::NoReceive, parts)
            }
            Warning::Qp { concern: Concern::UnfitDatagram { unfit: Unfit::Qkey { .. }, qp, .. }, .. } => {
                let qpn = qp.qpn.get();
                let mut parts: Vec<Part> = self.history.qp(qpn).map(made).into_iter().collect();
                if let Some(connection) = self.connections.get(&qpn) {
                    parts.push(Part { says: "its Q_Key was set".into(), trace: connection.keyed() });
                }
                (Kind::WrongQkey, parts)
            }
            Warning::Qp { concern: Concern::UnfitDatagram { qp, .. }, .. } => {
                (Kind::ShortReceive, self.oldest_receive(qp))
            }
            Warning::CqOverrun { .. } => {
                (Kind::CqOverrun, cq.and_then(|cq| self.history.at(cq)).map(made).into_iter().collect())
            }
        };
        let mut what = warning.to_string();
        if let Some(cq) = cq {
            let waiting = self.outstanding_on(cq);
            if let Some((count, last)) = waiting {
                what.push_str(&format!("; {count} signaled requests and receives were outstanding"));
                parts.insert(0, Part { says: "the last of them was posted".into(), trace: last });
            }
        }
        self.find(Finding { kind, what, parts });
    }

    /// How many completions a CQ may get, and where the last was asked for.
    fn outstanding_on(&self, cq: usize) -> Option<(usize, Trace)> {
        let (mut count, mut last) = (0, None);
        for object in self.history.alive() {
            let Facts::Qp { qpn, send_cq, recv_cq, .. } = object.facts else { continue };
            for (queue, reports_to) in [(Queue::Send(qpn), send_cq), (Queue::Receive(qpn), recv_cq)] {
                if reports_to != cq {
                    continue;
                }
                for request in self.queues.get(&queue).into_iter().flatten().filter(|one| one.signaled) {
                    count += 1;
                    last = Some(request.posted);
                }
            }
        }
        Some((count, last?))
    }

    /// The calls behind a failure, as seen from its QP.
    fn of_failure(&self, diagnosis: &Diagnosis) -> Vec<Part> {
        let Failure { reason, attempt, qp, .. } = &diagnosis.failure;
        let mut parts = match attempt {
            Some(attempt) => self.request_of(qp, attempt.wr_id),
            None => Vec::new(),
        };
        if let Some(Denied::Key(denied)) = &diagnosis.denied {
            parts.extend(self.of_key(denied.key));
            match denied.denial {
                Denial::SwappedKey => parts.extend(self.of_key(denied.key.swap_bytes())),
                Denial::OldTag { key } => parts.extend(self.of_key(key)),
                Denial::WrongPd => parts.extend(self.domains(qp.qpn.get(), denied.key)),
                _ => {}
            }
        }
        if let (Reason::Qkey, Some(connection)) = (reason, self.connections.get(&qp.qpn.get())) {
            parts.push(Part { says: "its Q_Key was set".into(), trace: connection.keyed() });
        }
        if matches!(reason, Reason::ReceiverNotReady) {
            parts.extend(self.receives_of(qp));
        }
        let at_fault = matches!(
            reason,
            Reason::QpAccess
                | Reason::TooManyReads
                | Reason::NoReadsAllowed
                | Reason::WrongService
                | Reason::NoAnswer
                | Reason::SequenceNaks
                | Reason::PayloadLength
                | Reason::OpcodeSequence
                | Reason::Qkey
                | Reason::NakDestination
        );
        if at_fault || parts.is_empty() {
            parts.extend(self.history.qp(qp.qpn.get()).map(made));
        }
        parts
    }

    /// Where the request with a number was posted: the oldest, if several have it.
    fn request_of(&self, qp: &QpFacts, wr_id: Option<u64>) -> Vec<Part> {
        let Some(wr_id) = wr_id else { return Vec::new() };
        let qpn = qp.qpn.get();
        let shared = match self.history.qp(qpn).map(|qp| &qp.facts) {
            Some(Facts::Qp { srq, .. }) => srq.map(Queue::Shared),
            _ => None,
        };
        let find = |queue: Queue| -> Option<&Request> {
            self.queues.get(&queue)?.iter().find(|request| request.wr_id == wr_id)
        };
        let found = find(Queue::Send(qpn)).or_else(|| find(Queue::Receive(qpn)));
        let found = found.or_else(|| shared.and_then(find));
        found.map(|request| self.posted(request)).into_iter().collect()
    }

    /// The receive that the next message takes, and the QP.
    fn oldest_receive(&self, qp: &QpFacts) -> Vec<Part> {
        let qpn = qp.qpn.get();
        let queue = match self.history.qp(qpn).map(|qp| &qp.facts) {
            Some(Facts::Qp { srq: Some(srq), .. }) => Queue::Shared(*srq),
            _ => Queue::Receive(qpn),
        };
        let oldest = self.queues.get(&queue).and_then(|queue| queue.front());
        let posted = oldest.map(|request| self.posted(request));
        posted.into_iter().chain(self.history.qp(qpn).map(made)).collect()
    }

    /// The object with a key, and what became of it.
    pub(crate) fn of_key(&self, key: u32) -> Vec<Part> {
        match self.history.key(key) {
            Some(Known::Alive(object)) => vec![made(object)],
            Some(Known::Dead(dead)) => {
                let destroyed = dead.object.kind.destroyed();
                vec![made(&dead.object), Part { says: format!("and {destroyed}"), trace: dead.destroyed }]
            }
            None => Vec::new(),
        }
    }

    /// The protection domains of a QP and of a region.
    fn domains(&self, qpn: u32, key: u32) -> Vec<Part> {
        let domain_of = |object: Option<&crate::Object>| {
            let mut used = object?.uses.iter().filter_map(|address| self.history.at(*address));
            used.find(|object| object.kind == ObjectKind::Pd)
        };
        let region = match self.history.key(key) {
            Some(Known::Alive(object)) => Some(object),
            _ => None,
        };
        let named = |name: &str, pd: &crate::Object| Part {
            says: format!("the protection domain of the {name} was allocated"),
            trace: pd.made,
        };
        let of_region = domain_of(region).map(|pd| named("region", pd));
        let of_qp = domain_of(self.history.qp(qpn)).map(|pd| named("QP", pd));
        of_region.into_iter().chain(of_qp).collect()
    }

    /// What the peer of a QP has done about receives, if it is of this process.
    fn receives_of(&self, qp: &QpFacts) -> Vec<Part> {
        let number = qp.peer.1.get();
        let Some(peer) = self.peer_of(qp) else { return Vec::new() };
        let posted = self.queues.get(&Queue::Receive(number)).map_or(0, |queue| queue.len());
        let Facts::Qp { srq, .. } = peer.facts else { return Vec::new() };
        if let Some((address, queue)) = srq.and_then(|srq| Some((srq, self.history.at(srq)?))) {
            let posted = self.queues.get(&Queue::Shared(address)).map_or(0, |queue| queue.len());
            let says = format!(
                "the peer, QP {number:#x}, takes its receives from a shared receive queue with {posted} of them, which was created"
            );
            return vec![Part { says, trace: queue.made }];
        }
        let says = match (srq, posted) {
            (Some(_), _) => format!("the peer, QP {number:#x}, was created"),
            (None, 0) => format!("the peer, QP {number:#x}, has no receive outstanding; it was created"),
            (None, count) => {
                format!("the peer, QP {number:#x}, has {count} receives outstanding; it was created")
            }
        };
        vec![Part { says, trace: peer.made }]
    }

    fn is_peer_here(&self, qp: &QpFacts) -> bool {
        matches!(self.peer_of(qp).map(|peer| &peer.facts), Some(Facts::Qp { reliable: true, .. }))
    }

    /// The QP at the other end, if this process has made it.
    fn peer_of(&self, qp: &QpFacts) -> Option<&crate::Object> {
        self.history.qp(qp.peer.1.get())
    }

    /// What the QP at the other end says about a silence.
    fn about_peer(&self, code: Code, diagnosis: &Diagnosis) -> Option<(String, Vec<Part>)> {
        let qp = &diagnosis.failure.qp;
        let is_of_both = matches!(Kind::of(code), Kind::NoAnswer | Kind::LostPackets | Kind::BrokenRequest);
        if !is_of_both || qp.service == QpType::Ud {
            return None;
        }
        let number = qp.peer.1.get();
        match self.history.qp_ever(number)? {
            Known::Dead(dead) => {
                let destroyed = Part { says: format!("QP {number:#x} was destroyed"), trace: dead.destroyed };
                Some((format!("QP {number:#x} was destroyed"), vec![made(&dead.object), destroyed]))
            }
            Known::Alive(_) => self.misfit(qp.qpn.get(), number),
        }
    }
}
