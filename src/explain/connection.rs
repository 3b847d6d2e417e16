//! Connection handshakes: which side asked which for what, and the outcome.

use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_wire::{CmIds, Mtu, Psn, Qpn, ServiceId};

use super::event::{CmEvent, CmFacts};
use super::finding::{Finding, Kind};
use super::log::Log;

/// A connection as seen in its CM messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The side that asked.
    pub active: IpAddr,
    /// The side that was asked.
    pub passive: IpAddr,
    /// Communication id of the active side.
    pub active_id: u32,
    /// Communication id of the passive side, once it gave one.
    pub passive_id: Option<u32>,
    /// What was asked for.
    pub service: Option<ServiceId>,
    /// RC, UC or XRC.
    pub transport: &'static str,
    /// QPs of the active and the passive side.
    pub qpns: [Option<Qpn>; 2],
    /// First PSN that the active and the passive side will send.
    pub first_psns: [Option<Psn>; 2],
    /// Path MTU.
    pub mtu: Option<Mtu>,
    /// Exponent of the retransmission timer.
    pub ack_timeout: Option<u8>,
    /// Times a request may be repeated.
    pub retry_count: Option<u8>,
    /// Its state.
    pub state: CmState,
    /// Record numbers of its messages.
    pub packets: Vec<u32>,
    pub(crate) events: Vec<u32>,
    pub(crate) epochs: [u16; 2],
    /// When the last message that wants an answer was sent for the first time.
    asked_ns: u64,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmState {
    /// Asked for.
    Requested,
    /// Agreed to.
    Replied,
    /// Confirmed.
    Established,
    /// Refused, for this reason.
    Rejected(&'static str),
    /// One side asked to end it.
    Disconnecting,
    /// Ended.
    Disconnected,
}

impl CmState {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            CmState::Requested => "requested, not answered",
            CmState::Replied => "answered, not confirmed",
            CmState::Established => "established",
            CmState::Rejected(reason) => reason,
            CmState::Disconnecting => "disconnect requested, not answered",
            CmState::Disconnected => "disconnected",
        }
    }
}

/// Messages kept of one connection; a hostile file may repeat one for ever.
const EVENTS_KEPT: usize = 1000;

/// A message is unanswered after this, as long as Linux waits before it sends one again (4.3 s) but for the jitter. What
/// a program asks for when it ends is answered after the end of its capture.
const ANSWER_WAIT_NS: u64 = 4_000_000_000;

/// Follows the connections of a capture.
pub(crate) fn follow(messages: &[CmEvent], end_ns: u64, log: &mut Log) -> Vec<Connection> {
    let mut tracker = Tracker::default();
    for message in messages {
        tracker.take(message, log);
    }
    tracker.finish(end_ns, log);
    tracker.connections
}

#[derive(Default)]
struct Tracker {
    connections: Vec<Connection>,
    /// By the address and id of either side.
    by_id: FxHashMap<(IpAddr, u32), usize>,
    /// Names and ids of messages seen, to notice repeats.
    seen: FxHashMap<(IpAddr, &'static str, u32, u32), (u32, u64)>,
    /// Datagram service requests without answer.
    sidr: FxHashMap<(IpAddr, u32), (u32, u64)>,
    last_ns: u64,
}

impl Tracker {
    fn take(&mut self, m: &CmEvent, log: &mut Log) {
        self.last_ns = m.time_ns;
        let (local, remote) = match &m.message {
            CmFacts::Req(req) => (req.local_id, 0),
            CmFacts::Rep { ids, .. }
            | CmFacts::Rtu(ids)
            | CmFacts::Rej { ids, .. }
            | CmFacts::Mra(ids)
            | CmFacts::Dreq { ids, .. }
            | CmFacts::Drep(ids) => (ids.local, ids.remote),
            CmFacts::SidrReq { request_id, .. } | CmFacts::SidrRep { request_id, .. } => (*request_id, 0),
            CmFacts::Other => return,
        };
        let repeated = self.seen.insert((m.src, m.name, local, remote), (m.number, m.time_ns));
        if let Some((first, at)) = repeated {
            let gap = super::words::span(m.time_ns.saturating_sub(at));
            log.add(Finding {
                kind: Kind::CmRepeated,
                pair: None,
                time_ns: m.time_ns,
                psns: None,
                packets: vec![first, m.number],
                rule: None,
                text: format!(
                    "{} sent its CM {} again {gap} after packet {first}: the answer did not come in time",
                    m.src, m.name
                ),
            });
        }
        match &m.message {
            CmFacts::Req(_) => self.request(m),
            CmFacts::SidrReq { request_id, .. } => {
                self.sidr.entry((m.src, *request_id)).or_insert((m.number, m.time_ns));
            }
            CmFacts::SidrRep { request_id, status, status_name, .. } => {
                self.sidr.remove(&(m.dst, *request_id));
                if *status != 0 {
                    log.add(Finding {
                        kind: Kind::ServiceRefused,
                        pair: None,
                        time_ns: m.time_ns,
                        psns: None,
                        packets: vec![m.number],
                        rule: None,
                        text: format!("{} refused {} a datagram service: {status_name}", m.src, m.dst),
                    });
                }
            }
            _ => self.answer(m, CmIds { local, remote }, log),
        }
    }

    fn request(&mut self, m: &CmEvent) {
        let CmFacts::Req(req) = &m.message else { return };
        if let Some(known) = self.by_id.get(&(m.src, req.local_id)) {
            self.connections[*known].note(m);
            return;
        }
        self.by_id.insert((m.src, req.local_id), self.connections.len());
        let mut connection = Connection {
            active: m.src,
            passive: m.dst,
            active_id: req.local_id,
            passive_id: None,
            service: Some(req.service),
            transport: req.transport,
            qpns: [Some(req.qpn), None],
            first_psns: [None, Some(req.starting_psn)],
            mtu: Mtu::from_code(req.mtu_code),
            ack_timeout: Some(req.ack_timeout),
            retry_count: Some(req.retry_count),
            state: CmState::Requested,
            packets: Vec::new(),
            events: Vec::new(),
            epochs: [m.epoch, 0],
            asked_ns: m.time_ns,
        };
        connection.note(m);
        self.connections.push(connection);
    }

    fn answer(&mut self, m: &CmEvent, ids: CmIds, log: &mut Log) {
        let by_remote = self.by_id.get(&(m.dst, ids.remote)).copied();
        let Some(index) = by_remote.or_else(|| self.by_id.get(&(m.src, ids.local)).copied()) else { return };
        let connection = &mut self.connections[index];
        connection.note(m);
        match &m.message {
            CmFacts::Rep { qpn, starting_psn, .. } => {
                connection.passive_id = Some(ids.local);
                connection.qpns[1] = Some(*qpn);
                connection.first_psns[0] = Some(*starting_psn);
                connection.epochs[1] = m.epoch;
                if connection.state == CmState::Requested {
                    connection.state = CmState::Replied;
                    connection.asked_ns = m.time_ns;
                }
                self.by_id.insert((m.src, ids.local), index);
            }
            CmFacts::Rtu(_) if connection.state == CmState::Replied => {
                connection.state = CmState::Established;
            }
            CmFacts::Rej { reason, reason_name, .. } => {
                connection.state = CmState::Rejected(reason_name);
                log.add(Finding {
                    kind: Kind::ConnectionRefused,
                    pair: None,
                    time_ns: m.time_ns,
                    psns: None,
                    packets: vec![connection.packets.first().copied().unwrap_or(m.number), m.number],
                    rule: None,
                    text: format!(
                        "{} refused {} a connection to {}: {reason_name} (reason {reason})",
                        m.src,
                        m.dst,
                        service_name(connection.service)
                    ),
                });
            }
            CmFacts::Dreq { .. } if connection.state != CmState::Disconnected => {
                if connection.state != CmState::Disconnecting {
                    connection.asked_ns = m.time_ns;
                }
                connection.state = CmState::Disconnecting;
            }
            CmFacts::Drep(_) => connection.state = CmState::Disconnected,
            _ => {}
        }
    }

    fn finish(&mut self, end_ns: u64, log: &mut Log) {
        let over = |since_ns: u64| end_ns.saturating_sub(since_ns) >= ANSWER_WAIT_NS;
        for connection in self.connections.iter().filter(|connection| over(connection.asked_ns)) {
            let (text, time_ns) = match connection.state {
                CmState::Requested => ("asked for and never answered", self.last_ns),
                CmState::Replied => ("agreed to and never confirmed by an RTU", self.last_ns),
                CmState::Disconnecting => ("to be ended, but no DREP came", self.last_ns),
                _ => continue,
            };
            log.add(Finding {
                kind: Kind::CmUnanswered,
                pair: None,
                time_ns,
                psns: None,
                packets: connection.packets.clone(),
                rule: None,
                text: format!(
                    "the connection from {} to {} at {} was {text}",
                    connection.active,
                    service_name(connection.service),
                    connection.passive
                ),
            });
        }
        let mut open: Vec<_> = self.sidr.iter().filter(|(_, (_, asked_ns))| over(*asked_ns)).collect();
        open.sort_by_key(|(_, (number, _))| *number);
        for ((src, _), (number, time_ns)) in open {
            log.add(Finding {
                kind: Kind::CmUnanswered,
                pair: None,
                time_ns: *time_ns,
                psns: None,
                packets: vec![*number],
                rule: None,
                text: format!("the SIDR_REQ of {src} for a datagram service was never answered"),
            });
        }
    }
}

impl Connection {
    fn note(&mut self, m: &CmEvent) {
        if self.events.len() < EVENTS_KEPT {
            self.events.push(m.event);
            self.packets.push(m.number);
        }
    }
}

/// A service as port space and port, or as the plain number.
pub(crate) fn service_name(service: Option<ServiceId>) -> String {
    match service {
        Some(id) => match id.port() {
            Some((space, port)) => format!("{} port {port}", space.name()),
            None => format!("service {:#018x}", id.0),
        },
        None => "an unknown service".to_owned(),
    }
}
