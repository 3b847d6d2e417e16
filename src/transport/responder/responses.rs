//! The responses that the responder has yet to send, in the order in which they must leave (IBTA 9.7.5.1, C9-105).

use alloc::collections::VecDeque;

use softrnic_wire::{Aeth, Body, Headers, IcrcForm, Msn, Op, Pad, Psn, Syndrome, Time, XrcBody};

use super::resources::{Saved, SavedKind};
use super::{Refusal, Responder};
use crate::QpType;
use crate::completion::WcOpcode;
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::failure::Attempt;
use crate::host::{Host, Payload, Transmit, TransmitError};
use crate::paths::Paths;
use crate::qp::{Progress, Stop};
use crate::segment::Position;
use crate::wqe::RemoteBuffer;

/// A negative acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nak {
    pub psn: Psn,
    pub msn: Msn,
    pub syndrome: Syndrome,
}

/// An acknowledgement that is all that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoneAck {
    pub psn: Psn,
    /// It has replaced one that had not been sent: the peer goes on without waiting for it.
    pub replaces: bool,
}

/// One response, or a run of READ responses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Response {
    Ack {
        psn: Psn,
        msn: Msn,
        /// See [`LoneAck`].
        replaces: bool,
    },
    /// What has come out of order; which packets is known when it is sent.
    Selective {
        psn: Psn,
        msn: Msn,
    },
    Nak(Nak),
    Atomic {
        psn: Psn,
        msn: Msn,
        original: u64,
        repeated: bool,
    },
    Empty {
        psn: Psn,
        msn: Msn,
    },
    /// `sent` of its packets have been sent, and no more than `end` will be.
    Read {
        saved: Saved,
        sent: u32,
        end: u32,
        repeated: bool,
    },
}

impl Response {
    /// A positive acknowledgement.
    pub fn ack(psn: Psn, msn: Msn) -> Response {
        Response::Ack { psn, msn, replaces: false }
    }

    /// The answer to a READ.
    pub fn read(saved: Saved) -> Response {
        Response::Read { saved, sent: 0, end: saved.packets, repeated: false }
    }

    /// The answer to an atomic, FLUSH or ATOMIC WRITE, new or repeated.
    pub fn saved(saved: Saved, repeated: bool) -> Response {
        match saved.kind {
            SavedKind::Atomic(original) => {
                Response::Atomic { psn: saved.first, msn: saved.msn, original, repeated }
            }
            SavedKind::Empty | SavedKind::Read(..) => Response::Empty { psn: saved.first, msn: saved.msn },
        }
    }

    fn psn(&self) -> Psn {
        match self {
            Response::Ack { psn, .. }
            | Response::Selective { psn, .. }
            | Response::Atomic { psn, .. }
            | Response::Empty { psn, .. } => *psn,
            Response::Nak(nak) => nak.psn,
            Response::Read { saved, .. } => saved.first,
        }
    }

    /// The request that it answers.
    #[cold]
    fn attempt(&self) -> Attempt {
        let (opcode, length, remote) = match self {
            Response::Read { saved: Saved { kind: SavedKind::Read(_, reth), .. }, .. } => {
                (WcOpcode::RdmaRead, reth.dma_len, Some(RemoteBuffer::of(reth)))
            }
            _ => (WcOpcode::RdmaRead, 0, None),
        };
        Attempt { opcode, wr_id: None, length: length.into(), remote, room: None }
    }

    /// The index of the packet `psn` in the answer to a READ, and how many of its packets have been sent.
    fn place_of(&self, psn: Psn) -> Option<(u32, u32)> {
        let Response::Read { saved, sent, end, .. } = self else { return None };
        let place = psn.distance_from(saved.first);
        (place >= 0 && (place as u32) < *end).then_some((place as u32, *sent))
    }
}

/// Only a peer that repeats requests without end makes more repeated answers than this wait; it can do so again.
const MAX_REPEATED: usize = 512;

/// With this many responses waiting, no more requests are accepted.
const FULL: usize = 1024;

/// The queue of responses.
pub(crate) struct Responses {
    queue: VecDeque<Response>,
}

impl Responses {
    pub fn new() -> Responses {
        Responses { queue: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether too many responses wait to accept another request, or there is no memory for its answer.
    pub fn is_full(&mut self) -> bool {
        self.queue.len() >= FULL || self.queue.try_reserve(1).is_err()
    }

    /// Whether fewer READs and atomics than `limit` wait for their first answer. Usually fewer responses than that wait
    /// in all.
    pub fn owes_fewer_than(&self, limit: usize) -> bool {
        self.queue.len() < limit || self.owed() < limit
    }

    /// READs and atomics that wait for their first answer.
    fn owed(&self) -> usize {
        let first = |response: &&Response| {
            matches!(
                response,
                Response::Read { repeated: false, .. } | Response::Atomic { repeated: false, .. }
            )
        };
        self.queue.iter().filter(first).count()
    }

    /// The ACK, if nothing else waits.
    pub fn lone_ack(&self) -> Option<LoneAck> {
        match (self.queue.len(), self.queue.front()) {
            (1, Some(&Response::Ack { psn, replaces, .. })) => Some(LoneAck { psn, replaces }),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// Queues the answer to a new request. An ACK replaces the one before it (IBTA 9.7.5.1.2).
    pub fn push(&mut self, response: Response) {
        if let (Some(last @ Response::Ack { .. }), Response::Ack { psn, msn, .. }) =
            (self.queue.back_mut(), response)
        {
            if !psn.is_before(last.psn()) {
                *last = Response::Ack { psn, msn, replaces: true };
            }
            return;
        }
        self.queue.push_back(response);
    }

    /// Queues a report of what has come out of order, `expected` not being there. It replaces an acknowledgement before it.
    pub fn push_selective(&mut self, expected: Psn, msn: Msn) {
        let report = Response::Selective { psn: expected, msn };
        match self.queue.back_mut() {
            Some(last @ (Response::Ack { .. } | Response::Selective { .. })) => *last = report,
            _ => self.queue.push_back(report),
        }
    }

    /// Queues the answer to a repeated request ahead of those to later ones, unless the same answer still waits.
    pub fn repeat(&mut self, response: Response) -> bool {
        let same = |waiting: &Response| {
            waiting.psn() == response.psn()
                && core::mem::discriminant(waiting) == core::mem::discriminant(&response)
        };
        if self.queue.len() >= MAX_REPEATED || self.queue.iter().any(same) {
            return false;
        }
        if matches!(response, Response::Ack { .. }) {
            self.push(response);
            return true;
        }
        let later = |waiting: &Response| waiting.psn().is_after(response.psn());
        let at = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(at, response);
        true
    }

    /// How many packets have been sent, from `psn` on, of the READ answer that contains `psn`, if one is queued.
    pub fn sent_from(&self, psn: Psn) -> Option<u32> {
        self.queue
            .iter()
            .find_map(|response| response.place_of(psn))
            .map(|(place, sent)| sent.saturating_sub(place))
    }

    /// Starts that answer again, in the form that its repetition asks for.
    pub fn send_again(&mut self, again: Saved) {
        for response in &mut self.queue {
            if response.place_of(again.first).is_some()
                && let Response::Read { saved, sent, end, .. } = response
            {
                (*saved, *sent, *end) = (again, 0, again.packets);
                return;
            }
        }
    }
}

impl<D> Responder<D> {
    /// Sends responses until the budget is used up or the link is full.
    pub fn transmit<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        mut paths: Option<&mut Paths>,
        host: &mut H,
        budget: usize,
        progress: &mut Progress,
    ) -> Outcome {
        while progress.sent < budget {
            let Some(response) = self.responses.queue.front().copied() else { return Outcome::Continue };
            match self.transmit_response(cx, now, paths.as_deref_mut(), &response, host) {
                Ok(done) => {
                    progress.sent += 1;
                    if done {
                        self.responses.queue.pop_front();
                    }
                }
                // What was answered once and cannot be answered now is dropped (error class D, IBTA 9.9.3).
                Err(TransmitError::Remote(_))
                    if matches!(response, Response::Read { repeated: true, .. }) =>
                {
                    self.responses.queue.pop_front();
                    host.count(Counter::DropDuplicateUnmatched);
                }
                Err(TransmitError::Remote(_)) => {
                    // A READ that fails is refused at the PSN of the response that could not be sent. Requests behind
                    // it were executed, but their answers would acknowledge it.
                    let psn = response.psn() + self.read_progress();
                    self.responses.clear();
                    return self.refuse(cx, psn, Refusal::Access, response.attempt(), host);
                }
                Err(TransmitError::Full) => {
                    progress.stop = Stop::LinkFull;
                    return Outcome::Continue;
                }
                Err(TransmitError::Local(_) | TransmitError::TooLong) => {
                    self.responses.queue.pop_front();
                }
            }
        }
        progress.stop = Stop::Budget;
        Outcome::Continue
    }

    fn read_progress(&self) -> u32 {
        match self.responses.queue.front() {
            Some(Response::Read { sent, .. }) => *sent,
            _ => 0,
        }
    }

    /// Sends one packet of a response; `true` if that was its last.
    fn transmit_response<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        now: Time,
        paths: Option<&mut Paths>,
        response: &Response,
        host: &mut H,
    ) -> Result<bool, TransmitError> {
        let ack = Aeth::ack;
        let (psn, op, payload, done) = match *response {
            Response::Ack { psn, msn, .. } => (psn, Op::Acknowledge(ack(msn)), Payload::None, true),
            Response::Nak(Nak { psn, msn, syndrome }) => {
                (psn, Op::Acknowledge(Aeth { syndrome, msn }), Payload::None, true)
            }
            Response::Selective { psn, msn } => return self.transmit_selective(cx, psn, msn, host),
            Response::Atomic { psn, msn, original, .. } => {
                (psn, Op::AtomicAcknowledge(ack(msn), original), Payload::None, true)
            }
            Response::Empty { psn, msn } => (psn, Op::ReadResponseOnly(ack(msn)), Payload::None, true),
            Response::Read { saved, sent, end, .. } => {
                let SavedKind::Read(domain, reth) = saved.kind else { return Ok(true) };
                let offset = sent as u64 * cx.config.mtu as u64;
                let len = (reth.dma_len as u64 - offset).min(cx.config.mtu as u64) as usize;
                let op = match Position::of(sent, saved.packets) {
                    Position::First => Op::ReadResponseFirst(ack(saved.msn)),
                    Position::Middle => Op::ReadResponseMiddle,
                    Position::Last => Op::ReadResponseLast(ack(saved.msn)),
                    Position::Only => Op::ReadResponseOnly(ack(saved.msn)),
                };
                let va = reth.va.wrapping_add(offset);
                let payload = if len == 0 {
                    Payload::None
                } else {
                    Payload::Remote { domain, rkey: reth.rkey, va, len }
                };
                (saved.first + sent, op, payload, sent + 1 == end)
            }
        };
        let mut bth = cx.bth(psn);
        bth.pad = Pad::for_payload(payload.length());
        let headers = &Headers { bth, body: body(cx, op) };
        let chosen;
        let path = match cx.spreads {
            false => &cx.attr.path,
            true => {
                chosen = self.path_of(cx, now, paths, response, psn);
                &chosen
            }
        };
        host.transmit(Transmit { path, headers, payload, icrc: IcrcForm::Standard })?;
        if let Some(Response::Read { sent, .. }) = self.responses.queue.front_mut() {
            *sent += 1;
        }
        Ok(done)
    }
}

impl<D> Responder<D> {
    /// Reports what has come from `expected` on.
    #[cold]
    fn transmit_selective<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        expected: Psn,
        msn: Msn,
        host: &mut H,
    ) -> Result<bool, TransmitError> {
        let (bytes, len) = self.reorder.arrived(expected, self.epsn, cx.config.mtu).to_bytes();
        let headers = &Headers { bth: cx.bth(expected), body: Body::SelectiveAck(Aeth::ack(msn)) };
        let payload = Payload::Bytes(&bytes[..len]);
        let path = if cx.spreads { self.ack_ports.next(cx) } else { cx.attr.path };
        host.transmit(Transmit { path: &path, headers, payload, icrc: IcrcForm::Standard })?;
        host.count(Counter::SendSelectiveAck);
        Ok(true)
    }
}

fn body(cx: &Context, op: Op) -> Body {
    let xrc = match cx.service {
        QpType::XrcInitiator | QpType::XrcTarget => XrcBody::response(op),
        _ => None,
    };
    xrc.map_or(Body::Rc(op), Body::Xrc)
}

#[cfg(test)]
mod tests;
