//! Requests that have come before their turn (selective recovery, decision 41).
//!
//! They are kept, and executed when everything before them has been, by the same stages as all others. So nothing that a
//! request does is seen out of order: neither in memory nor in completions. What is not kept is dropped, and the peer sends it
//! again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use softrnic_wire::{Op, Psn, REORDER_WINDOW, Srqn};

use super::responses::Response;
use super::stages::op_is_saved;
use super::{Request, Responder};
use crate::context::{Context, Outcome};
use crate::counters::Counter;
use crate::host::Host;
use crate::planted::Fault;
use crate::window_bits::WindowBits;

/// What a packet that is kept costs besides its payload, in bytes of the NIC's budget.
const PER_PACKET: usize = 128;

/// A request that waits for its turn.
struct Held {
    op: Op,
    srqn: Option<Srqn>,
    ack_req: bool,
    solicited: bool,
    payload: Vec<u8>,
}

impl Held {
    /// What it takes of the budget.
    fn cost(&self) -> usize {
        PER_PACKET + self.payload.len()
    }

    /// How many PSNs it has.
    fn span(&self, mtu: u32) -> u32 {
        match self.op {
            Op::ReadRequest(reth) => reth.dma_len.div_ceil(mtu).max(1),
            _ => 1,
        }
    }
}

/// The requests that wait for their turn. Without any, it owns no memory.
#[derive(Default)]
pub(super) struct Reorder {
    /// By PSN, from that of `first` on.
    slots: VecDeque<Option<Held>>,
    first: Psn,
}

/// Why a request is not kept.
enum NotKept {
    /// It is there already.
    Twice,
    /// It is beyond the window.
    TooFar,
    /// There is no memory for it.
    NoMemory,
}

impl Reorder {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// One past the last PSN that is kept.
    fn end(&self) -> Psn {
        self.first + self.slots.len() as u32
    }

    /// Keeps a request, `expected` being the PSN whose turn it is.
    fn keep<H: Host>(&mut self, expected: Psn, request: &Request<'_>, host: &mut H) -> Result<(), NotKept> {
        if self.is_empty() {
            self.first = expected;
        }
        let at = request.psn.distance_from(self.first) as usize;
        if at >= REORDER_WINDOW {
            return Err(NotKept::TooFar);
        }
        if self.slots.get(at).is_some_and(Option::is_some) {
            return Err(NotKept::Twice);
        }
        let mut payload = Vec::new();
        let more = (at + 1).saturating_sub(self.slots.len());
        let cost = PER_PACKET + request.payload.len();
        if self.slots.try_reserve(more).is_err()
            || payload.try_reserve_exact(request.payload.len()).is_err()
            || !host.reserve_held(cost)
        {
            return Err(NotKept::NoMemory);
        }
        payload.extend_from_slice(request.payload);
        self.slots.extend((0..more).map(|_| None));
        let Request { op, srqn, ack_req, solicited, .. } = *request;
        self.slots[at] = Some(Held { op: *op, srqn, ack_req, solicited, payload });
        Ok(())
    }

    /// Takes the request whose turn it is, and forgets those before it.
    fn take<H: Host>(&mut self, expected: Psn, host: &mut H) -> Option<Held> {
        while self.first.is_before(expected)
            && let Some(slot) = self.slots.pop_front()
        {
            self.first = self.first.next();
            release(slot, host);
        }
        let held = match self.slots.front_mut() {
            Some(slot) if self.first == expected => slot.take(),
            _ => None,
        };
        if held.is_some() {
            self.slots.pop_front();
            self.first = self.first.next();
        }
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
        held.inspect(|held| host.release_held(held.cost()))
    }

    /// Forgets everything.
    pub fn clear<H: Host>(&mut self, host: &mut H) {
        for slot in core::mem::take(&mut self.slots) {
            release(slot, host);
        }
    }

    /// Which packets from `from` on have come, if everything before `expected` has.
    pub fn arrived(&self, from: Psn, expected: Psn, mtu: u32) -> WindowBits {
        let mut bits = WindowBits::default();
        let done = expected.distance_from(from).clamp(0, REORDER_WINDOW as i32) as u32;
        for at in 0..done {
            bits.set(at);
        }
        for (index, held) in self.slots.iter().enumerate() {
            let Some(held) = held else { continue };
            let place = (self.first + index as u32).distance_from(from);
            if place < 0 {
                continue;
            }
            for at in 0..held.span(mtu).min(REORDER_WINDOW as u32) {
                bits.set(place as u32 + at);
            }
        }
        bits
    }
}

fn release<H: Host>(slot: Option<Held>, host: &mut H) {
    if let Some(held) = slot {
        host.release_held(held.cost());
    }
}

impl<D> Responder<D> {
    /// A request ahead of its turn, from a peer that recovers selectively: kept, and reported. `false` if there is no memory
    /// for it; then it is as if the peer did not.
    pub(super) fn keep_for_later<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        request: &Request<'_>,
        host: &mut H,
    ) -> bool {
        let opens_gap = self.reorder.is_empty() || request.psn.is_after(self.reorder.end());
        match self.reorder.keep(self.epsn, request, host) {
            Ok(()) => host.count(Counter::KeptForLater),
            Err(NotKept::Twice) => host.count(Counter::DuplicateRequest),
            Err(NotKept::TooFar) => {
                host.count(Counter::DropReorderWindow);
                return true;
            }
            Err(NotKept::NoMemory) => {
                host.count(Counter::DropReorderMemory);
                return false;
            }
        }
        if opens_gap || request.ack_req {
            self.report_gaps(cx);
        }
        true
    }

    /// Tells the peer what has come, unless it waits for a receive: then it sends everything again.
    pub(super) fn report_gaps(&mut self, cx: &Context) {
        if !self.nak_sent && !cx.config.has(Fault::SilentAtGaps) {
            self.responses.push_selective(self.epsn, self.msn);
        }
    }

    /// Executes what was kept, as far as it is its turn now.
    pub(super) fn replay<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) -> Outcome {
        while let Some(held) = self.reorder.take(self.epsn, host) {
            if cx.config.has(Fault::ForgetsKept) {
                continue;
            }
            if self.responses.is_full() {
                host.count(Counter::DropBusy);
                self.reorder.clear(host);
                return Outcome::Continue;
            }
            let Held { op, srqn, ack_req, solicited, payload } = &held;
            let request = Request {
                psn: self.epsn,
                op,
                srqn: *srqn,
                ack_req: *ack_req,
                solicited: *solicited,
                payload,
            };
            if let Err(refusal) = self.execute(cx, &request, host) {
                return self.refuse(cx, request.psn, refusal, request.attempt(), host);
            }
            if self.reorder.is_empty() && !op_is_saved(op) {
                self.responses.push(Response::ack(self.epsn - 1, self.msn));
            }
        }
        if !self.reorder.is_empty() {
            self.report_gaps(cx);
        }
        Outcome::Continue
    }
}
