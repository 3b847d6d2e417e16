//! Finds out whether a receiver on this host has room, for datagrams that are never resent.
//!
//! A socket drops what it has no room for. Between two hosts the network is slower than either; on one host a sender
//! outruns a reader that is not scheduled. The kernel reports how full a socket in the same network namespace is
//! (`sock_diag(7)`), without privilege. Asking takes some microseconds, so each answer is used for a share of the room
//! that it reports.

use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::{ROCE_UDP_PORT, Time};

use super::sys::Diagnosis;

/// The share of the room that one answer covers: several senders may have seen the same room, and the kernel charges up
/// to twice what is sent.
const SHARE: usize = 8;
/// A receiver with less than a quarter of its room left gets time to read.
const SCARCE: usize = 4;
/// When to check again on a receiver that is behind.
const RECHECK: Duration = Duration::from_micros(100);
/// A receiver that has not read anything for this long is no longer waited for.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);
/// How long an address that is not on this host, or no longer waited for, is left alone.
const FORGET: Duration = Duration::from_millis(100);
/// The smallest charge of a datagram to a receive buffer.
const LEAST_CHARGE: usize = 640;
/// The most destinations that are remembered.
const MAX_DESTINATIONS: usize = 64;

/// How full a receive buffer is, in bytes as the kernel counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    pub(super) used: usize,
    pub(super) limit: usize,
}

/// What is known about receivers.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    destinations: Vec<Destination>,
    /// The one asked about last.
    last: usize,
    /// The one that the next new one replaces.
    oldest: usize,
    questions: Option<Questions>,
    /// When a caller that was told to wait should ask again.
    retry: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    address: IpAddr,
    known: Known,
    /// The fill level when it was first behind or last moved, and when that was.
    behind: Option<(usize, Time)>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Nothing,
    /// This many bytes fit.
    Room(usize),
    /// Behind; check again then.
    Full(Time),
    /// Not on this host, or given up on, until then.
    Elsewhere(Time),
}

impl Rooms {
    /// Whether `address` has room for `len` more bytes, as far as is known. `None`: it is time to
    /// [`look`](Rooms::look).
    #[inline]
    pub(super) fn check(&mut self, now: Time, address: IpAddr, len: usize) -> Option<bool> {
        let destination = self.destination(address);
        match &mut destination.known {
            Known::Room(left) => {
                *left = left.checked_sub(len.max(LEAST_CHARGE))?;
                Some(true)
            }
            Known::Elsewhere(until) if now < *until => Some(true),
            Known::Full(until) if now < *until => {
                self.retry = Some(*until);
                Some(false)
            }
            _ => None,
        }
    }

    /// Asks the kernel about `address`; everything sent so far must have left. `scope` is the interface of link-local
    /// addresses.
    pub(super) fn look(&mut self, now: Time, address: IpAddr, scope: u32) {
        let questions = self.questions.get_or_insert_with(Questions::open);
        let fill = questions.fill(address, scope);
        self.learn(now, address, fill);
    }

    fn learn(&mut self, now: Time, address: IpAddr, fill: Option<Fill>) {
        let destination = self.destination(address);
        let elsewhere = Known::Elsewhere(now + FORGET);
        (destination.known, destination.behind) = match (fill, destination.behind) {
            (None, _) => (elsewhere, None),
            // One of those of a shared address that belong to nobody yet.
            (Some(fill), _) if fill.used == 0 && fill.limit < SHARE * LEAST_CHARGE => (elsewhere, None),
            (Some(fill), behind) => {
                let free = fill.limit.saturating_sub(fill.used);
                match behind {
                    _ if free >= fill.limit / SCARCE => (Known::Room(free / SHARE), None),
                    Some((used, since)) if fill.used >= used && now.since(since) >= STALL_TIMEOUT => {
                        (elsewhere, behind)
                    }
                    Some((used, since)) if fill.used >= used => {
                        (Known::Full(now + RECHECK), Some((used, since)))
                    }
                    _ => (Known::Full(now + RECHECK), Some((fill.used, now))),
                }
            }
        };
    }

    /// When to ask again, if a caller was told to wait.
    pub(super) fn retry(&self) -> Option<Time> {
        self.retry
    }

    /// The caller that waited asks again now.
    pub(super) fn retried(&mut self, now: Time) {
        self.retry = self.retry.filter(|at| *at > now);
    }

    fn destination(&mut self, address: IpAddr) -> &mut Destination {
        if self.destinations.get(self.last).is_none_or(|last| last.address != address) {
            self.last = self.place(address);
        }
        &mut self.destinations[self.last]
    }

    fn place(&mut self, address: IpAddr) -> usize {
        let new = Destination { address, known: Known::Nothing, behind: None };
        match self.destinations.iter().position(|destination| destination.address == address) {
            Some(index) => index,
            None if self.destinations.len() < MAX_DESTINATIONS => {
                self.destinations.push(new);
                self.destinations.len() - 1
            }
            None => {
                let index = self.oldest;
                self.oldest = (index + 1) % MAX_DESTINATIONS;
                self.destinations[index] = new;
                index
            }
        }
    }
}

/// Queries to the kernel about sockets.
#[derive(Debug)]
struct Questions {
    /// Absent if the kernel cannot be asked.
    socket: Option<Diagnosis>,
    sequence: u32,
}

/// `SOCK_DIAG_BY_FAMILY`, query and answer.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_SKMEMINFO`.
const MEMORY: u16 = 7;
const HEADER_LEN: usize = 16;
/// The header with an `inet_diag_req_v2`.
const QUESTION_LEN: usize = HEADER_LEN + 56;
/// The header with an `inet_diag_msg`.
const ANSWER_LEN: usize = HEADER_LEN + 72;

impl Questions {
    fn open() -> Questions {
        Questions { socket: Diagnosis::open().ok(), sequence: 0 }
    }

    /// How full the receive buffer of the RoCE port of `address` is; `None` if there is none on this host.
    fn fill(&mut self, address: IpAddr, scope: u32) -> Option<Fill> {
        let socket = self.socket.as_ref()?;
        self.sequence = self.sequence.wrapping_add(1);
        let mut answer = [0; 512];
        let len = socket.ask(&question(self.sequence, address, scope), &mut answer).ok()?;
        answered(self.sequence, answer.get(..len)?)
    }
}

/// Kernels differ in which end of the socket they take as the source; both are the same here.
fn question(sequence: u32, address: IpAddr, scope: u32) -> [u8; QUESTION_LEN] {
    let mut bytes = [0; QUESTION_LEN];
    bytes[..4].copy_from_slice(&(QUESTION_LEN as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    let body = &mut bytes[HEADER_LEN..];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    body[..3].copy_from_slice(&[family as u8, libc::IPPROTO_UDP as u8, 1 << (MEMORY - 1)]);
    body[4..8].fill(0xFF);
    for (port, at) in [(8, 12), (10, 28)] {
        body[port..port + 2].copy_from_slice(&ROCE_UDP_PORT.to_be_bytes());
        match address {
            IpAddr::V4(address) => body[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => body[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    body[44..48].copy_from_slice(&scope.to_ne_bytes());
    // No cookie: any socket matches.
    body[48..].fill(0xFF);
    bytes
}

fn answered(sequence: u32, bytes: &[u8]) -> Option<Fill> {
    if short(bytes, 4)? != BY_FAMILY || word(bytes, 8)? != sequence {
        return None;
    }
    let mut attributes = bytes.get(ANSWER_LEN..)?;
    loop {
        let len = usize::from(short(attributes, 0)?);
        if short(attributes, 2)? == MEMORY {
            let [used, limit] = [word(attributes, 4)?, word(attributes, 8)?];
            return Some(Fill { used: used as usize, limit: limit as usize });
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
}

/// The fill level and size that the kernel's answer to query `sequence` reports, for fuzzing.
#[doc(hidden)]
pub fn answered_room(sequence: u32, answer: &[u8]) -> Option<(usize, usize)> {
    answered(sequence, answer).map(|fill| (fill.used, fill.limit))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests;
