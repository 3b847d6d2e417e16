//! The transmit queue: datagrams in one contiguous buffer, gathered into runs that leave as one send.
//!
//! A run is what one `UDP_SEGMENT` send can carry: datagrams of one flow and of equal size, except that a shorter one
//! may end it. The kernel numbers the segments with consecutive IPv4 IDs, so a datagram's ID, which the ICRC covers, is
//! the first ID plus its position in the run. A datagram sent alone is a run of one.

use softrnic_wire::{DF, IpFacts};

use softrnic_link::{Flow, TxError};

use super::message::{Control, ControlWriter, SockAddr};
use super::sys::Outgoing;

/// The transmit buffer in bytes. Transports keep far less than this in flight.
const CAPACITY: usize = 1 << 20;
/// The most runs that wait for a flush.
const MAX_RUNS: usize = 512;
/// Each run starts on a new cache line.
const ALIGN: usize = 64;

/// TOS, or traffic class, that the sockets send with unless told otherwise.
pub(super) const DEFAULT_TOS: u8 = 0;
/// TTL, or hop limit, that the sockets send with unless told otherwise.
pub(super) const DEFAULT_TTL: u8 = 64;

/// Limits of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// Datagrams; 1 without segmentation.
    pub(super) segments: usize,
    /// Bytes of UDP payload.
    pub(super) bytes: usize,
}

/// The socket and the address of a new run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) socket: usize,
    pub(super) sport: u16,
    /// `None` for the peer that the socket is connected to.
    pub(super) to: Option<SockAddr>,
    /// The IPv4 ID of the run's first datagram.
    pub(super) first_id: u16,
}

/// Datagrams that are sent in one call.
pub(super) struct Run {
    flow: Flow,
    route: Route,
    start: usize,
    len: usize,
    segment: usize,
    count: usize,
    closed: bool,
    control: Control,
    control_len: usize,
}

impl Run {
    fn new(flow: Flow, route: Route, start: usize, segment: usize) -> Run {
        let mut control = Control::new();
        let mut writer = ControlWriter::new(&mut control);
        if flow.tos != DEFAULT_TOS || flow.ttl != DEFAULT_TTL {
            let (level, tos, ttl) = match flow.dst {
                std::net::IpAddr::V4(_) => (libc::SOL_IP, libc::IP_TOS, libc::IP_TTL),
                std::net::IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
            };
            writer.push(level, tos, &i32::from(flow.tos).to_ne_bytes());
            writer.push(level, ttl, &i32::from(flow.ttl).to_ne_bytes());
        }
        let control_len = writer.finish();
        Run { flow, route, start, len: 0, segment, count: 0, closed: false, control, control_len }
    }

    pub(super) fn socket(&self) -> usize {
        self.route.socket
    }

    /// The IPv4 ID of its first datagram.
    pub(super) fn first_id(&self) -> u16 {
        self.route.first_id
    }

    /// Datagrams in it.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of UDP payload in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn takes(&self, flow: &Flow, len: usize, limits: RunLimits) -> bool {
        self.flow == *flow
            && !self.closed
            && len <= self.segment
            && self.count < limits.segments
            && self.len + len <= limits.bytes
    }

    fn add(&mut self, len: usize) {
        self.closed = len < self.segment;
        self.len += len;
        self.count += 1;
    }

    /// Completes the control messages, with the segment size if there are several segments.
    fn seal(&mut self) {
        if self.count > 1 {
            let base = self.control_len;
            let mut writer = ControlWriter::resume(&mut self.control, base);
            writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, &(self.segment as u16).to_ne_bytes());
        }
    }

    fn sealed_control(&self) -> &[u8] {
        let segment = if self.count > 1 { ControlWriter::space(size_of::<u16>()) } else { 0 };
        &self.control.bytes()[..self.control_len + segment]
    }
}

/// See the [module](self).
pub(super) struct TxQueue {
    buffer: Box<[u8]>,
    runs: Vec<Run>,
    /// How many of `runs` have been sent.
    sent: usize,
    tail: usize,
    limits: RunLimits,
    reserved: Reserved,
}

#[derive(Clone, Copy)]
enum Reserved {
    Nothing,
    /// At the end of the last run.
    Append {
        start: usize,
        len: usize,
    },
    /// As the first datagram of a new run.
    Start {
        start: usize,
        len: usize,
        flow: Flow,
        route: Route,
    },
}

/// A reserved datagram: where it is, and what is known about its header.
pub(super) struct Reservation {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) id: u16,
    pub(super) sport: u16,
}

impl TxQueue {
    pub(super) fn new(limits: RunLimits) -> TxQueue {
        TxQueue {
            buffer: vec![0; CAPACITY].into_boxed_slice(),
            runs: Vec::with_capacity(MAX_RUNS),
            sent: 0,
            tail: 0,
            limits,
            reserved: Reserved::Nothing,
        }
    }

    pub(super) fn set_segments(&mut self, segments: usize) {
        self.limits.segments = segments;
        // Runs that wait have been numbered and must be sent as they are; nothing may be added to them.
        if let Some(last) = self.runs.last_mut() {
            last.closed = true;
        }
        self.reserved = Reserved::Nothing;
    }

    /// Reserves at the end of the last run, if the datagram fits there. The common case.
    #[inline]
    pub(super) fn append(&mut self, flow: &Flow, len: usize) -> Option<Reservation> {
        self.reserved = Reserved::Nothing;
        let last = self.runs.last()?;
        let start = last.start + last.len;
        if !last.takes(flow, len, self.limits) || start + len > self.buffer.len() {
            return None;
        }
        self.reserved = Reserved::Append { start, len };
        Some(Reservation {
            start,
            len,
            id: last.route.first_id.wrapping_add(last.count as u16),
            sport: last.route.sport,
        })
    }

    /// Reserves as the first datagram of a new run.
    pub(super) fn start(&mut self, flow: &Flow, route: Route, len: usize) -> Result<Reservation, TxError> {
        self.reserved = Reserved::Nothing;
        let start = self.tail.next_multiple_of(ALIGN);
        if self.runs.len() == MAX_RUNS || start + len > self.buffer.len() {
            return Err(TxError::Full);
        }
        self.reserved = Reserved::Start { start, len, flow: *flow, route };
        Ok(Reservation { start, len, id: route.first_id, sport: route.sport })
    }

    pub(super) fn bytes_mut(&mut self, reservation: &Reservation) -> &mut [u8] {
        &mut self.buffer[reservation.start..reservation.start + reservation.len]
    }

    pub(super) fn reserved(&self) -> &[u8] {
        match self.reserved {
            Reserved::Nothing => &[],
            Reserved::Append { start, len } | Reserved::Start { start, len, .. } => {
                &self.buffer[start..start + len]
            }
        }
    }

    /// Queues the datagram reserved last; returns the index of its socket if that starts a run.
    pub(super) fn commit(&mut self) -> Option<usize> {
        match std::mem::replace(&mut self.reserved, Reserved::Nothing) {
            Reserved::Nothing => None,
            Reserved::Append { start, len } => {
                if let Some(last) = self.runs.last_mut() {
                    last.add(len);
                    self.tail = start + len;
                }
                None
            }
            Reserved::Start { start, len, flow, route } => {
                let mut run = Run::new(flow, route, start, len);
                run.add(len);
                self.runs.push(run);
                self.tail = start + len;
                Some(route.socket)
            }
        }
    }

    /// The runs that wait to be sent.
    pub(super) fn unsent(&self) -> &[Run] {
        &self.runs[self.sent..]
    }

    /// The first unsent runs that share a socket, ready to be sent.
    pub(super) fn span(&mut self) -> impl Iterator<Item = Outgoing<'_>> {
        let unsent = &mut self.runs[self.sent..];
        let socket = unsent.first().map(Run::socket);
        let end = unsent.iter().take_while(|run| Some(run.socket()) == socket).count();
        for run in &mut unsent[..end] {
            run.seal();
        }
        let buffer = &self.buffer;
        self.runs[self.sent..self.sent + end].iter().map(|run| Outgoing {
            to: run.route.to.as_ref(),
            payload: &buffer[run.start..run.start + run.len],
            control: run.sealed_control(),
        })
    }

    /// Forgets the first `count` unsent runs: they have been sent, or cannot be.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.runs.len() {
            self.runs.clear();
            self.sent = 0;
            self.tail = 0;
            self.reserved = Reserved::Nothing;
        }
    }
}

/// What the ICRC of a datagram from this link covers.
pub(super) fn ip_facts(flow: &Flow, id: u16) -> Option<IpFacts> {
    match (flow.src, flow.dst) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            Some(IpFacts::V4 { src, dst, id, flags_frag: DF })
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => Some(IpFacts::V6 { src, dst }),
        _ => None,
    }
}
