//! A layer that drops, duplicates, reorders, delays and corrupts datagrams on purpose.
//!
//! It wraps any link. What it does is determined by a [`FaultSpec`], including its seed, and the datagrams that pass.
//! The link below is told to send each datagram on its own: one that is dropped or delayed must not change the IPv4 IDs
//! of its neighbours, which their ICRCs cover. A datagram that leaves with another ID than it was built for gets a new
//! ICRC, unless it is to be corrupt.
//!
//! The same layer is where a port goes down on command ([`PortGate`]). What is injected can be changed at any time
//! ([`Faults`]).
//!
//! A [capture](crate::capture) below is told what is done to which datagram ([`FaultNotes`]).

mod command;
mod discard;
mod hold;
mod notes;
mod port;
mod port_rule;
mod rules;
mod spec;
mod tally;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use softrnic_wire::{ICRC_LEN, Time, UdpFacts};

use crate::{
    Capabilities, Datagram, Flow, HeaderId, Link, LinkCounters, Overrun, TxError, TxSlot, delegate_link,
};

pub use command::{LinkCommand, spelled};
pub use notes::FaultNotes;
pub use port::{Blackhole, PortChange, PortGate};
pub use port_rule::{PortRule, bits_per_second};
pub use rules::Rules;
pub use spec::{Action, Direction, FaultSpec, FaultSpecError, GRAMMAR, OpcodeSet, Rule};
pub use tally::FaultTally;

use discard::DiscardBuffer;
use hold::HoldQueue;

/// What is done to the datagrams of a link on purpose, and can be changed while it is used.
pub trait Faults {
    /// Its port, as far as it is commanded. What is to happen some time after the device was opened counts from the first
    /// call on.
    fn port(&mut self, now: Time) -> &mut PortGate;

    /// What is injected.
    fn spec(&self) -> &FaultSpec;

    /// Injects this from now on: times count from now, rules count from 1, and random numbers begin again. What was held
    /// back leaves when it would have left.
    fn inject(&mut self, now: Time, spec: &FaultSpec);
}

/// See the [module](self).
pub struct FaultLink<L> {
    inner: L,
    capabilities: Capabilities,
    spec: FaultSpec,
    rules: Rules,
    /// Since when these are injected; not yet, if nothing has passed.
    since: Option<Time>,
    port: PortGate,
    /// Where datagrams are written that do not pass the port.
    discard: DiscardBuffer,
    /// The port is slow, and something was to be sent: when to try again.
    busy_until: Option<Time>,
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
        let capabilities = capabilities_with(&mut inner, spec);
        FaultLink {
            inner,
            capabilities,
            spec: spec.clone(),
            rules: Rules::new(spec),
            since: None,
            port: PortGate::default(),
            discard: DiscardBuffer::default(),
            busy_until: None,
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

    /// How often each rule applied, so far and later.
    pub fn tally(&self) -> FaultTally {
        self.rules.tally.clone()
    }

    /// The link below.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    fn begin(&mut self, now: Time) {
        if self.since.is_none() {
            self.since = Some(now);
            self.port.follow(now, &self.spec.port);
        }
    }

    /// The port changes as was scheduled. What was sent before leaves before.
    fn advance(&mut self, now: Time) {
        self.begin(now);
        if self.port.advance(now) {
            self.inner.flush(now);
        }
    }

    /// Sends held datagrams that are due; returns whether there were any.
    fn release_tx(&mut self, now: Time) -> bool {
        let mut released = false;
        while let Some(frame) = self.stuck.take().or_else(|| self.tx.release(now)) {
            if self.port.blocks(now, Direction::Tx, frame.flow.dst).is_some() {
                self.port.drop_sent();
                continue;
            }
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
        self.advance(now);
        self.discard.clear();
        if let Some(until) = self.port.busy_until(now) {
            self.busy_until = Some(until);
            return Err(TxError::Full);
        }
        // A capture below is to see it all the same.
        if self.port.blocks(now, Direction::Tx, flow.dst).is_some() && self.notes.is_none() {
            return match len <= self.capabilities.max_datagram {
                true => self.discard.reserve(flow, len),
                false => Err(TxError::TooLong),
            };
        }
        let slot = self.inner.reserve(now, flow, len)?;
        self.pending = Some((*flow, slot.facts));
        Ok(slot)
    }

    fn reserved(&self) -> &[u8] {
        self.discard.reserved().unwrap_or_else(|| self.inner.reserved())
    }

    fn commit(&mut self, now: Time) {
        if self.discard.clear() {
            self.port.drop_sent();
            return;
        }
        let Some((flow, facts)) = self.pending.take() else { return };
        if let Some(blocked) = self.port.blocks(now, Direction::Tx, flow.dst) {
            self.port.drop_sent();
            // A slot that is reserved and never committed is as good as lost.
            self.notes.as_ref().inspect(|notes| notes.put_blocked(blocked));
            return;
        }
        let bytes = self.inner.reserved();
        self.port.sent(now, bytes.len());
        let age = self.since.map_or(Duration::ZERO, |since| now.since(since));
        let decision = self.rules.decide(age, Direction::Tx, flow.dst, bytes);
        self.injected += u64::from(decision.is_some());
        let notes = self.notes.as_ref();
        let frame = |note| HeldFrame { flow, facts: Some(facts), bytes: bytes.to_vec(), note };
        match decision {
            None => self.inner.commit(now),
            Some((Action::Drop, note)) => {
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
                self.rules.corrupt(&mut frame.bytes);
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

    fn flush(&mut self, now: Time) {
        self.advance(now);
        self.pending = None;
        self.discard.clear();
        self.busy_until = self.busy_until.filter(|until| *until > now);
        self.release_tx(now);
        self.inner.flush(now);
        if self.stuck.is_some() && self.release_tx(now) {
            self.inner.flush(now);
        }
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked() || self.busy_until.is_some()
    }

    fn receive(&mut self, now: Time, budget: usize, sink: &mut dyn FnMut(Datagram<'_>)) -> Overrun {
        // A caller that wakes for our timeout may only receive.
        if self.tx.next_time().is_some_and(|time| time <= now) {
            self.flush(now);
        }
        self.advance(now);
        let FaultLink { inner, rules, since, rx, injected, notes, port, .. } = self;
        if port.is_shut(now).is_some() {
            while rx.release(now).is_some() {
                port.drop_received();
            }
        }
        while let Some(held) = rx.release(now) {
            sink(held.as_datagram());
        }
        if port.is_open(now) && !rules.any(Direction::Rx) {
            return inner.receive(now, budget, sink);
        }
        let age = since.map_or(Duration::ZERO, |since| now.since(since));
        inner.receive(now, budget, &mut |datagram| {
            if let Some(blocked) = port.blocks(now, Direction::Rx, datagram.src) {
                port.drop_received();
                notes.as_ref().inspect(|notes| notes.put_blocked(blocked));
                return;
            }
            let Some((action, note)) = rules.decide(age, Direction::Rx, datagram.src, datagram.bytes) else {
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
                    let mut held = HeldDatagram::sealed(&datagram);
                    rules.corrupt(&mut held.bytes);
                    sink(held.as_datagram());
                }
                Action::Reorder(depth) => return rx.hold_for(now, depth, HeldDatagram::new(&datagram)),
                Action::Delay(by) => return rx.hold_until(now + by, HeldDatagram::new(&datagram)),
            }
            pass(rx, now, sink);
        })
    }

    fn sends_in_memory(&mut self, now: Time, flow: &Flow) -> bool {
        self.port.blocks(now, Direction::Tx, flow.dst).is_none() && self.inner.sends_in_memory(now, flow)
    }

    fn is_quiet(&mut self, now: Time) -> bool {
        self.poll_timeout().is_none_or(|time| time > now) && self.inner.is_quiet(now)
    }

    fn has_room(&mut self, now: Time, flow: &Flow, len: usize) -> bool {
        self.port.blocks(now, Direction::Tx, flow.dst).is_some() || self.inner.has_room(now, flow, len)
    }

    fn poll_timeout(&self) -> Option<Time> {
        // What is due does not leave before the link below has room again.
        let held = if self.stuck.is_some() { None } else { self.tx.next_time() };
        let own = [held, self.rx.next_time(), self.port.next_change(), self.busy_until];
        own.into_iter().flatten().chain(self.inner.poll_timeout()).min()
    }

    fn counters(&self) -> LinkCounters {
        let inner = self.inner.counters();
        let [sent, received] = self.port.dropped();
        LinkCounters {
            faults_injected: inner.faults_injected + self.injected,
            port_tx_dropped: inner.port_tx_dropped + sent,
            port_rx_dropped: inner.port_rx_dropped + received,
            ..inner
        }
    }

    fn faults(&mut self) -> Option<&mut dyn Faults> {
        Some(self)
    }

    delegate_link!(self => self.inner;
        show receives_in_memory descriptor watch caller_wake_fd join leave reaches sharing carrier readdress
        packet_memory keep_icrcs leave_payloads show_headers
    );
}

impl<L: Link> Faults for FaultLink<L> {
    fn port(&mut self, now: Time) -> &mut PortGate {
        self.begin(now);
        &mut self.port
    }

    fn spec(&self) -> &FaultSpec {
        &self.spec
    }

    fn inject(&mut self, now: Time, spec: &FaultSpec) {
        self.advance(now);
        self.port.end_rules(now);
        self.capabilities = capabilities_with(&mut self.inner, spec);
        self.rules = Rules::new(spec);
        self.spec = spec.clone();
        self.since = None;
        self.advance(now);
    }
}

/// What a link can do while faults are injected.
fn capabilities_with(inner: &mut impl Link, spec: &FaultSpec) -> Capabilities {
    if !spec.rules.is_empty() {
        inner.stop_segmenting();
        // What is corrupted must be found to be.
        inner.keep_icrcs();
    }
    let mut capabilities = inner.capabilities().clone();
    if !spec.rules.is_empty() {
        capabilities.segments = 1;
        capabilities.mode.push_str(&format!(" with faults {spec}"));
    }
    capabilities
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
    has_icrc: bool,
}

impl HeldDatagram {
    fn new(datagram: &Datagram<'_>) -> HeldDatagram {
        debug_assert!(datagram.record.is_none(), "whoever changes packets keeps ICRCs");
        HeldDatagram {
            src: datagram.src,
            dst: datagram.dst,
            sport: datagram.sport,
            tos: datagram.tos,
            ttl: datagram.ttl,
            id: datagram.id,
            ip_header: datagram.ip_header.map(<[u8]>::to_vec),
            bytes: datagram.bytes.to_vec(),
            has_icrc: datagram.has_icrc,
        }
    }

    /// With its ICRC, so that damage shows.
    fn sealed(datagram: &Datagram<'_>) -> HeldDatagram {
        let mut held = HeldDatagram::new(datagram);
        if let (false, Some(facts), true) = (held.has_icrc, datagram.facts(), held.bytes.len() >= ICRC_LEN) {
            softrnic_wire::seal(&facts, &mut held.bytes);
        }
        held.has_icrc = true;
        held
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
            has_icrc: self.has_icrc,
            record: None,
        }
    }
}
