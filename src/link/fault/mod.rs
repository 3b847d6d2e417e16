//! A layer that drops, duplicates, reorders, delays and corrupts datagrams on purpose.
//!
//! It wraps any link. What it does is determined by a [`FaultSpec`], including its seed, and the datagrams that pass.
//! The link below is told to send each datagram on its own: one that is dropped or delayed must not change the IPv4 IDs
//! of its neighbours, which their ICRCs cover. A datagram that leaves with another ID than it was built for gets a new
//! ICRC, unless it is to be corrupt.
//!
//! A [capture](crate::capture) below is told what is done to which datagram ([`FaultNotes`]).

mod hold;
mod notes;
mod spec;

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use softrnic_wire::{Mad, Opcode, Operation, Psn, Time, Transport, UdpFacts};

use crate::rng::Rng;
use crate::{
    Capabilities, Datagram, Flow, FrameAudit, HeaderId, Link, LinkCounters, Overrun, Reach, Sharing, Sleeper,
    TxError, TxSlot,
};

pub use notes::FaultNotes;
pub use spec::{Action, Direction, FaultSpec, FaultSpecError, GRAMMAR, OpcodeSet, Rule};

use hold::HoldQueue;

/// See the [module](self).
pub struct FaultLink<L> {
    inner: L,
    capabilities: Capabilities,
    rules: Rules,
    pending: Option<(Flow, UdpFacts)>,
    tx: HoldQueue<HeldFrame>,
    /// A datagram that was released while the link below was full.
    stuck: Option<HeldFrame>,
    rx: HoldQueue<HeldDatagram>,
    injected: u64,
    notes: Option<FaultNotes>,
}

impl<L: Link> FaultLink<L> {
    /// Applies the faults of `spec` to `inner`.
    pub fn new(mut inner: L, spec: &FaultSpec) -> FaultLink<L> {
        inner.stop_segmenting();
        let mut capabilities = inner.capabilities().clone();
        capabilities.segments = 1;
        capabilities.mode.push_str(&format!(" with faults {spec}"));
        FaultLink {
            inner,
            capabilities,
            rules: Rules::new(spec),
            pending: None,
            tx: HoldQueue::new(),
            stuck: None,
            rx: HoldQueue::new(),
            injected: 0,
            notes: None,
        }
    }

    /// Tells a capture below what is done to each datagram.
    #[must_use]
    pub fn with_notes(self, notes: FaultNotes) -> FaultLink<L> {
        FaultLink { notes: Some(notes), ..self }
    }

    /// The link below.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Sends held datagrams that are due; returns whether there were any.
    fn release_tx(&mut self, now: Time) -> bool {
        let mut released = false;
        while let Some(frame) = self.stuck.take().or_else(|| self.tx.release(now)) {
            if let Err(frame) = emit(&mut self.inner, now, frame, self.notes.as_ref()) {
                self.stuck = Some(frame);
                break;
            }
            released = true;
        }
        released
    }
}

impl<L: Link> Link for FaultLink<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reserve(&mut self, now: Time, flow: &Flow, len: usize) -> Result<TxSlot<'_>, TxError> {
        let slot = self.inner.reserve(now, flow, len)?;
        self.pending = Some((*flow, slot.facts));
        Ok(slot)
    }

    fn reserved(&self) -> &[u8] {
        self.inner.reserved()
    }

    fn commit(&mut self, now: Time) {
        let Some((flow, facts)) = self.pending.take() else { return };
        let bytes = self.inner.reserved();
        let decision = self.rules.decide(Direction::Tx, bytes);
        self.injected += u64::from(decision.is_some());
        let notes = self.notes.as_ref();
        let frame = |note| HeldFrame { flow, facts: Some(facts), bytes: bytes.to_vec(), note };
        match decision {
            None => self.inner.commit(now),
            Some((Action::Drop, note)) => {
                // A slot that is reserved and never committed is as good as lost.
                notes.inspect(|notes| notes.put(&note));
                return;
            }
            Some((Action::Duplicate, note)) => {
                let copy = frame(note);
                self.inner.commit(now);
                if let Err(copy) = emit(&mut self.inner, now, copy, notes) {
                    self.tx.hold_until(now, copy);
                }
            }
            Some((Action::Corrupt, note)) => {
                let mut frame = HeldFrame { facts: None, ..frame(note) };
                self.rules.noise.corrupt(&mut frame.bytes);
                if let Err(frame) = emit(&mut self.inner, now, frame, notes) {
                    self.tx.hold_until(now, frame);
                }
            }
            Some((Action::Reorder(depth), note)) => {
                let frame = frame(note);
                self.tx.hold_for(now, depth, frame);
                return;
            }
            Some((Action::Delay(by), note)) => {
                let frame = frame(note);
                self.tx.hold_until(now + by, frame);
                return;
            }
        }
        self.tx.pass();
        self.release_tx(now);
    }

    fn show(&mut self) {
        self.inner.show();
    }

    fn flush(&mut self, now: Time) {
        self.pending = None;
        self.release_tx(now);
        self.inner.flush(now);
        if self.stuck.is_some() && self.release_tx(now) {
            self.inner.flush(now);
        }
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        // A caller that wakes for our timeout may only receive.
        if self.tx.next_time().is_some_and(|time| time <= now) {
            self.flush(now);
        }
        if !self.rules.any(Direction::Rx) {
            return self.inner.receive(now, budget, sink);
        }
        let FaultLink { inner, rules, rx, injected, notes, .. } = self;
        while let Some(held) = rx.release(now) {
            sink(held.as_datagram());
        }
        inner.receive(now, budget, &mut |datagram| {
            let Some((action, note)) = rules.decide(Direction::Rx, datagram.bytes) else {
                sink(datagram);
                return pass(rx, now, sink);
            };
            *injected += 1;
            if let Some(notes) = notes {
                notes.put(&note);
            }
            match action {
                Action::Drop => return,
                Action::Duplicate => {
                    sink(datagram);
                    sink(datagram);
                }
                Action::Corrupt => {
                    let mut held = HeldDatagram::new(&datagram);
                    rules.noise.corrupt(&mut held.bytes);
                    sink(held.as_datagram());
                }
                Action::Reorder(depth) => return rx.hold_for(now, depth, HeldDatagram::new(&datagram)),
                Action::Delay(by) => return rx.hold_until(now + by, HeldDatagram::new(&datagram)),
            }
            pass(rx, now, sink);
        })
    }

    fn receives_in_memory(&self, now: Time) -> bool {
        self.inner.receives_in_memory(now)
    }

    fn sends_in_memory(&mut self, now: Time, flow: &Flow) -> bool {
        self.inner.sends_in_memory(now, flow)
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        self.inner.has_room(now, flow, len)
    }

    fn poll_timeout(&self) -> Option<Time> {
        // What is due does not leave before the link below has room again.
        let held = if self.stuck.is_some() { None } else { self.tx.next_time() };
        [self.inner.poll_timeout(), held, self.rx.next_time()].into_iter().flatten().min()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }

    fn watch(&mut self, sleeper: Sleeper) -> bool {
        self.inner.watch(sleeper)
    }

    fn caller_bell(&self) -> Option<RawFd> {
        self.inner.caller_bell()
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.inner.leave(group)
    }

    fn counters(&self) -> LinkCounters {
        let inner = self.inner.counters();
        LinkCounters { faults_injected: inner.faults_injected + self.injected, ..inner }
    }

    fn reaches(&self) -> Vec<Reach> {
        self.inner.reaches()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        self.inner.sharing()
    }

    fn readdress(&mut self, addresses: &[IpAddr]) {
        self.inner.readdress(addresses);
    }

    fn packet_memory(&self) -> Option<FrameAudit> {
        self.inner.packet_memory()
    }

    fn show_headers(&mut self) {
        self.inner.show_headers();
    }
}

/// One has passed, and those that waited for that follow.
fn pass(rx: &mut HoldQueue<HeldDatagram>, now: Time, sink: &mut dyn FnMut(Datagram<'_>)) {
    rx.pass();
    while let Some(held) = rx.release(now) {
        sink(held.as_datagram());
    }
}

/// A datagram that leaves later than it was committed.
struct HeldFrame {
    flow: Flow,
    /// What its ICRC was computed for; `None` if the ICRC must stay wrong.
    facts: Option<UdpFacts>,
    bytes: Vec<u8>,
    note: Arc<str>,
}

/// Queues a held datagram; returns it if the link is full.
fn emit(
    inner: &mut impl Link,
    now: Time,
    frame: HeldFrame,
    notes: Option<&FaultNotes>,
) -> Result<(), HeldFrame> {
    let slot = match inner.reserve(now, &frame.flow, frame.bytes.len()) {
        Ok(slot) => slot,
        Err(TxError::Full) => return Err(frame),
        // It was possible before, so the network has changed: lost like any other datagram.
        Err(TxError::TooLong | TxError::Unreachable) => return Ok(()),
    };
    slot.bytes.copy_from_slice(&frame.bytes);
    if frame.facts.is_some_and(|made_for| made_for != slot.facts) {
        softrnic_wire::seal(&slot.facts, slot.bytes);
    }
    if let Some(notes) = notes {
        notes.put(&frame.note);
    }
    inner.commit(now);
    Ok(())
}

/// A received datagram that outlives the call that delivered it.
struct HeldDatagram {
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    tos: u8,
    ttl: u8,
    id: HeaderId,
    ip_header: Option<Vec<u8>>,
    bytes: Vec<u8>,
}

impl HeldDatagram {
    fn new(datagram: &Datagram<'_>) -> HeldDatagram {
        HeldDatagram {
            src: datagram.src,
            dst: datagram.dst,
            sport: datagram.sport,
            tos: datagram.tos,
            ttl: datagram.ttl,
            id: datagram.id,
            ip_header: datagram.ip_header.map(<[u8]>::to_vec),
            bytes: datagram.bytes.to_vec(),
        }
    }

    fn as_datagram(&self) -> Datagram<'_> {
        Datagram {
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            tos: self.tos,
            ttl: self.ttl,
            id: self.id,
            ip_header: self.ip_header.as_deref(),
            bytes: &self.bytes,
        }
    }
}

/// The rules of a spec, with their random numbers and counts.
struct Rules {
    rules: Vec<ActiveRule>,
    noise: Rng,
}

struct ActiveRule {
    rule: Rule,
    note: Arc<str>,
    rng: Rng,
    matched: u64,
}

impl Rules {
    fn new(spec: &FaultSpec) -> Rules {
        let active = |(index, rule): (usize, &Rule)| ActiveRule {
            rule: rule.clone(),
            note: notes::text(index + 1, rule),
            rng: Rng::stream(spec.seed, &(index as u64).to_le_bytes()),
            matched: 0,
        };
        Rules {
            rules: spec.rules.iter().enumerate().map(active).collect(),
            noise: Rng::stream(spec.seed, b"noise"),
        }
    }

    fn any(&self, direction: Direction) -> bool {
        self.rules.iter().any(|active| active.rule.direction == direction)
    }

    /// What happens to this datagram, and the note about that. Every rule counts and draws, even after one has decided,
    /// so that rules do not affect each other.
    fn decide(&mut self, direction: Direction, bytes: &[u8]) -> Option<(Action, Arc<str>)> {
        let mut decision = None;
        for (index, active) in self.rules.iter_mut().enumerate() {
            if active.rule.direction == direction && active.applies(bytes) {
                decision = decision.or(Some(index));
            }
        }
        let ActiveRule { rule, note, .. } = &self.rules[decision?];
        (rule.action != Action::Delay(Duration::ZERO)).then(|| (rule.action, Arc::clone(note)))
    }
}

impl ActiveRule {
    fn applies(&mut self, bytes: &[u8]) -> bool {
        let Rule { opcodes, qpn, psn, rate, nth, .. } = &self.rule;
        if (opcodes.is_some() || qpn.is_some() || psn.is_some()) && !is_selected(&self.rule, bytes) {
            return false;
        }
        self.matched += 1;
        if nth.as_ref().is_some_and(|nth| !nth.contains(&self.matched)) {
            return false;
        }
        rate.is_none_or(|rate| self.rng.chance(rate))
    }
}

/// Whether the datagram has the rule's opcode, QPN and PSN. Looks only at the BTH, and at the MAD at its fixed offset
/// in connection management messages, so that datagrams that no parser accepts are found too.
fn is_selected(rule: &Rule, bytes: &[u8]) -> bool {
    let Some([opcode, _, _, _, _, q0, q1, q2, _, p0, p1, p2]) = bytes.first_chunk() else { return false };
    let qpn = u32::from_be_bytes([0, *q0, *q1, *q2]);
    let psn = Psn::new(u32::from_be_bytes([0, *p0, *p1, *p2]));
    rule.opcodes.as_ref().is_none_or(|opcodes| {
        opcodes.contains(*opcode) || opcodes.has_messages() && is_message_of(opcodes, bytes)
    }) && rule.qpn.is_none_or(|wanted| wanted.get() == qpn)
        && rule.psn.is_none_or(|(first, last)| {
            // Counted from the start of the range, which may wrap.
            let offset = |psn: Psn| psn.get().wrapping_sub(first.get()) & 0xFF_FFFF;
            offset(psn) <= offset(last)
        })
}

/// Whether a datagram carries one of these connection management messages.
fn is_message_of(opcodes: &OpcodeSet, bytes: &[u8]) -> bool {
    let Some(opcode) = bytes.first().and_then(|byte| Opcode::from_byte(*byte)) else { return false };
    let Some((headers, payload)) = bytes.split_at_checked(opcode.headers_len()) else { return false };
    (opcode.transport(), opcode.operation()) == (Transport::Ud, Operation::SendOnly)
        && headers[5..8] == [0, 0, 1]
        && Mad::read(payload)
            .is_some_and(|mad| mad.is_cm_send() && opcodes.contains_message(mad.attribute_id))
}
