//! Requests that have come before their turn (selective recovery, decision 41).
//!
//! They are kept, and executed when everything before them has been, by the same stages as all others. So nothing that a
//! request does is seen out of order: neither in memory nor in completions. What is not kept is dropped, and the peer sends it
//! again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use softrnic_wire::{Body, Bth, Op, Packet, Psn, Qpn, REORDER_WINDOW};

use super::{Request, Responder};
use crate::context::Context;
use crate::counters::Counter;
use crate::host::Host;
use crate::planted::Fault;
use crate::window_bits::WindowBits;

/// What a packet that is kept costs besides its payload, in bytes of the NIC's budget.
const PER_PACKET: usize = 128;

/// A request that waits for its turn.
pub(crate) struct Kept {
    pub op: Op,
    psn: Psn,
    ack_req: bool,
    solicited: bool,
    payload: Vec<u8>,
}

impl Kept {
    /// Its packet, which has been found to be for `qpn`.
    pub fn packet(&self, qpn: Qpn) -> Packet<'_> {
        let Kept { op, psn, ack_req, solicited, ref payload } = *self;
        let bth = Bth { ack_req, solicited, ..Bth::new(qpn, psn) };
        Packet { bth, body: Body::Rc(op), payload, icrc: 0 }
    }

    /// What it takes of the budget.
    fn cost(&self) -> usize {
        PER_PACKET + self.payload.len()
    }

    /// Its payload's buffer, when it has been executed.
    pub fn into_buffer(self) -> Vec<u8> {
        self.payload
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
    slots: VecDeque<Option<Kept>>,
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
        let more = (at + 1).saturating_sub(self.slots.len());
        let cost = PER_PACKET + request.payload.len();
        if self.slots.try_reserve(more).is_err() || !host.reserve_held(cost) {
            return Err(NotKept::NoMemory);
        }
        let mut payload = if request.payload.is_empty() { Vec::new() } else { host.take_buffer() };
        if payload.try_reserve_exact(request.payload.len()).is_err() {
            host.release_held(cost);
            return Err(NotKept::NoMemory);
        }
        host.read_received(request.payload, &mut payload);
        self.slots.extend((0..more).map(|_| None));
        let Request { op, psn, ack_req, solicited, .. } = *request;
        self.slots[at] = Some(Kept { op: *op, psn, ack_req, solicited, payload });
        Ok(())
    }

    /// Forgets the requests before `expected`, whose turn it is.
    fn forget_before<H: Host>(&mut self, expected: Psn, host: &mut H) {
        while self.first.is_before(expected)
            && let Some(slot) = self.slots.pop_front()
        {
            self.first = self.first.next();
            release(slot, host);
        }
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
    }

    /// Whether the request whose turn it is has come.
    fn has(&self, expected: Psn) -> bool {
        self.first == expected && self.slots.front().is_some_and(Option::is_some)
    }

    /// Takes that request.
    fn take<H: Host>(&mut self, expected: Psn, host: &mut H) -> Option<Kept> {
        let kept = if self.has(expected) { self.slots.pop_front().flatten() } else { None };
        if let Some(kept) = &kept {
            host.release_held(kept.cost());
            self.first = self.first.next();
            // A vector without any has no memory.
            self.forget_before(expected, host);
        }
        kept
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

fn release<H: Host>(slot: Option<Kept>, host: &mut H) {
    if let Some(held) = slot {
        host.release_held(held.cost());
        host.return_buffer(held.into_buffer());
    }
}

impl<D> Responder<D> {
    /// A request ahead of its turn, from a peer that recovers selectively: kept, and reported. `false` if there is no memory
    /// for it; then it is as if the peer did not.
    #[cold]
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

    /// Whether requests wait for their turn.
    pub fn has_kept(&self) -> bool {
        !self.reorder.is_empty()
    }

    /// The kept request whose turn it is. The last one is acknowledged, whether or not it asks for that.
    pub fn next_kept<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) -> Option<Kept> {
        if self.responses.is_full() {
            return None;
        }
        let mut kept = self.reorder.take(self.epsn, host)?;
        while cx.config.has(Fault::ForgetsKept) {
            kept = self.reorder.take(self.epsn, host)?;
        }
        kept.ack_req |= self.reorder.is_empty();
        Some(kept)
    }

    /// A request was executed before others that have come: tells the peer what is still missing.
    #[cold]
    pub(super) fn after_executing<H: Host<Data = D>>(&mut self, cx: &Context, host: &mut H) {
        self.reorder.forget_before(self.epsn, host);
        if self.has_kept() && !self.reorder.has(self.epsn) {
            self.report_gaps(cx);
        }
    }
}
