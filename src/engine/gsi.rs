//! QP 1: management datagrams, and the connection manager that handles them (IBTA 13.5).
//!
//! It is not a QP of verbs. What it receives goes to the connection manager at once, whose messages leave at the end of
//! the step. On a device without connections this costs two comparisons per step.

mod peer;

use std::collections::VecDeque;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use softrnic_cm::{Cm, CmError, CommId, Config, Event, Listen, ListenerId, Outgoing, Route};
use softrnic_link::{Datagram, Flow, Link, ProcessSlot, TxError};
use softrnic_wire::{
    Body, Bth, CmBody, Deth, Gid, Headers, MAD_LEN, Mad, Packet, Psn, Qkey, Qpn, ServiceId, Time,
    rxe_qpn_to_sport, seal,
};

use super::seed::{Purpose, Seed};
use super::{DropReason, Engine, Step};

use peer::PeerDatagrams;
pub use peer::PeerNic;

/// The Q_Key of QP 1 (IBTA 10.2.5).
const GSI_QKEY: Qkey = Qkey(0x8001_0000);

/// TTL of management datagrams, the same as for all unicast packets.
const TTL: u8 = 64;

/// Answers that may wait to be sent. While they cannot be sent, further requests are dropped.
const MAX_OUTGOING: usize = 1024;

/// Datagrams sent in one step.
const QUANTUM: usize = 64;

/// How long a request for a service without a listener waits, and how many do. A server that serves one client after
/// the other listens anew in between; its next client should not be refused for that.
const LISTENER_WAIT: Duration = Duration::from_millis(200);
const MAX_PARKED: usize = 64;

/// The connection manager of a device, with its input and output.
pub struct Management {
    cm: Cm,
    /// The GUID by which peers know the device.
    ca_guid: u64,
    /// PSN of the next datagram. Receivers do not check it.
    psn: Psn,
    /// The message that the link had no room for.
    unsent: Option<Outgoing>,
    /// What goes between SoftRNICs.
    peer: PeerDatagrams,
    parked: VecDeque<Parked>,
    /// The generation of the GID table that the connection manager knows.
    gids: u64,
    unreachable: u64,
}

/// A request that waits for a listener.
struct Parked {
    until: Time,
    service: ServiceId,
    route: Route,
    payload: Box<[u8; MAD_LEN]>,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// The counters of QP 1.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum GsiCounter { $($(#[doc = $doc])* $variant,)* }

        impl GsiCounter {
            /// All counters.
            pub const ALL: &'static [GsiCounter] = &[$(GsiCounter::$variant,)*];

            /// Its name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(GsiCounter::$variant => $name,)* }
            }

            /// What it counts, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(GsiCounter::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

counters! {
    /// Connection management messages received.
    Received = "cm_rx_msgs",
    /// Connection management messages sent, repeats included.
    Sent = "cm_tx_msgs",
    /// Connection management messages sent again because no answer came.
    Repeated = "cm_tx_retries",
    /// Connection management messages received more than once.
    Duplicates = "cm_rx_duplicates",
    /// Connection requests refused without asking an application.
    Refused = "cm_refused",
    /// Datagrams to QP 1 that are not connection management messages, or are of another version.
    Malformed = "drop_cm_malformed",
    /// Connection management messages that name no connection, or one that does not expect them.
    Unexpected = "drop_cm_unexpected",
    /// Connection requests dropped while too many others waited for an answer.
    Backlog = "drop_cm_backlog",
    /// Connection management messages for which there was no route.
    Unreachable = "cm_tx_unreachable",
    /// Questions and answers of other SoftRNICs about a QP that is connected to one of theirs.
    PeerReceived = "peer_rx_msgs",
    /// Questions and answers to other SoftRNICs.
    PeerSent = "peer_tx_msgs",
    /// Those that are about no QP that is connected so, or answer nothing that was asked.
    PeerUnrelated = "drop_peer_unrelated",
}

impl Management {
    fn new(ca_guid: u64, seed: Seed, slot: Option<ProcessSlot>) -> Management {
        let mut random = ChaCha20Rng::from_seed(seed.of(Purpose::Connections));
        let psn = Psn::new(0);
        // Answers name a communication id: it shows which process of an address they are for.
        let id = move || {
            let random = random.next_u32();
            slot.map_or(random, |slot| slot.comm_id(random))
        };
        Management {
            cm: Cm::new(Config::new(ca_guid), id),
            ca_guid,
            psn,
            unsent: None,
            peer: PeerDatagrams::default(),
            parked: VecDeque::new(),
            gids: u64::MAX,
            unreachable: 0,
        }
    }

    /// The GUID by which peers know the device.
    pub fn ca_guid(&self) -> u64 {
        self.ca_guid
    }

    /// The connection manager.
    pub fn cm(&mut self) -> &mut Cm {
        &mut self.cm
    }

    /// Accepts requests for a service from now on, including those that waited for it.
    ///
    /// # Errors
    /// The service has a listener already.
    pub fn listen(&mut self, now: Time, listen: Listen) -> Result<ListenerId, CmError> {
        let listener = self.cm.listen(listen)?;
        let parked = std::mem::take(&mut self.parked);
        for parked in parked {
            if parked.service == listen.service {
                self.cm.on_mad(now, parked.route, &*parked.payload);
            } else {
                self.parked.push_back(parked);
            }
        }
        Ok(listener)
    }

    /// The counters.
    pub fn counters(&self) -> impl Iterator<Item = (GsiCounter, u64)> + '_ {
        let cm = self.cm.counters();
        let value = move |counter| match counter {
            GsiCounter::Received => cm.received,
            GsiCounter::Sent => cm.sent,
            GsiCounter::Repeated => cm.repeated,
            GsiCounter::Duplicates => cm.duplicates,
            GsiCounter::Refused => cm.refused,
            GsiCounter::Malformed => cm.drop_malformed,
            GsiCounter::Unexpected => cm.drop_unexpected,
            GsiCounter::Backlog => cm.drop_backlog,
            GsiCounter::Unreachable => self.unreachable,
            GsiCounter::PeerReceived => self.peer.received,
            GsiCounter::PeerSent => self.peer.sent,
            GsiCounter::PeerUnrelated => self.peer.unrelated,
        };
        GsiCounter::ALL.iter().map(move |&counter| (counter, value(counter)))
    }

    fn on_mad(&mut self, now: Time, route: Route, payload: &[u8]) {
        match self.unserved(payload) {
            Some((service, bytes)) => self.park(now, route, service, bytes),
            None => self.cm.on_mad(now, route, payload),
        }
    }

    /// The service that a request asks for, if it has no listener and the request may wait.
    fn unserved(&self, payload: &[u8]) -> Option<(ServiceId, Box<[u8; MAD_LEN]>)> {
        let bytes: &[u8; MAD_LEN] = payload.try_into().ok()?;
        let message = Mad::read(bytes).filter(Mad::is_cm_send)?.cm()?;
        let service = match message.body() {
            CmBody::Req(req) => req.service,
            CmBody::SidrReq(req) => req.service,
            _ => return None,
        };
        let waits = !self.cm.listens(service) && self.parked.len() < MAX_PARKED;
        waits.then(|| (service, Box::new(*bytes)))
    }

    fn park(&mut self, now: Time, route: Route, service: ServiceId, payload: Box<[u8; MAD_LEN]>) {
        let is_repeat = |parked: &Parked| parked.route == route && parked.payload == payload;
        if !self.parked.iter().any(is_repeat) {
            self.parked.push_back(Parked { until: now + LISTENER_WAIT, service, route, payload });
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.cm.on_timeout(now);
        while self.parked.front().is_some_and(|parked| parked.until <= now) {
            if let Some(parked) = self.parked.pop_front() {
                self.cm.on_mad(now, parked.route, &*parked.payload);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.cm.poll_timeout(), self.parked.front().map(|parked| parked.until)].into_iter().flatten().min()
    }

    /// Sends what waits. `false` if there is more.
    fn transmit(&mut self, now: Time, link: &mut dyn Link, step: &mut Step) -> bool {
        for _ in 0..QUANTUM {
            let Some(outgoing) = self.unsent.take().or_else(|| self.cm.poll_transmit()) else {
                return self.transmit_to_peers(now, link, step);
            };
            match self.send(now, link, outgoing.route, None, &outgoing.bytes) {
                Ok(()) => step.sent += 1,
                Err(TxError::Full) => {
                    self.unsent = Some(outgoing);
                    return false;
                }
                // To the connection manager the message was lost in the network: it will try again.
                Err(TxError::TooLong | TxError::Unreachable) => self.unreachable += 1,
            }
        }
        step.more = true;
        false
    }

    /// Sends what waits for other SoftRNICs. `false` if there is more.
    fn transmit_to_peers(&mut self, now: Time, link: &mut dyn Link, step: &mut Step) -> bool {
        while let Some((route, slot, bytes)) = self.peer.waiting.pop_front() {
            match self.send(now, link, route, Some(slot), &bytes) {
                Ok(()) => {
                    step.sent += 1;
                    self.peer.sent += 1;
                }
                Err(TxError::Full) => {
                    self.peer.waiting.push_front((route, slot, bytes));
                    return false;
                }
                Err(TxError::TooLong | TxError::Unreachable) => self.unreachable += 1,
            }
        }
        true
    }

    fn send(
        &mut self,
        now: Time,
        link: &mut dyn Link,
        route: Route,
        slot: Option<ProcessSlot>,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), TxError> {
        let deth = Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI };
        let bth = Bth { ack_req: true, ..Bth::new(Qpn::GSI, self.psn) };
        let headers = Headers { bth, body: Body::Ud { deth, imm: None } };
        let Route { local: src, remote: dst } = route;
        let flow = Flow { src, dst, sport: rxe_qpn_to_sport(Qpn::GSI), slot, tos: 0, ttl: TTL };
        let len = headers.transport_len(MAD_LEN);
        if !link.has_room(now, &flow, len) {
            return Err(TxError::Full);
        }
        let slot = link.reserve(now, &flow, len)?;
        let at = headers.emit(slot.bytes);
        slot.bytes[at..at + MAD_LEN].copy_from_slice(mad);
        seal(&slot.facts, slot.bytes);
        link.commit(now);
        self.psn = self.psn.next();
        Ok(())
    }
}

impl Engine {
    /// Serves QP 1 from now on, with this node GUID.
    pub fn serve_management(&mut self, ca_guid: u64) {
        self.management = Some(Box::new(Management::new(ca_guid, self.config.seed, self.config.slot)));
        self.shared.asks_peers = self.config.transport.selective_recovery;
    }

    /// QP 1, if it is served. Requests made through it take effect with the next step.
    pub fn management(&mut self) -> Option<&mut Management> {
        let management = self.management.as_deref_mut()?;
        self.management_active = true;
        Some(management)
    }

    /// The connections with numbers above this one, or all, in numerical order.
    pub fn connections(&self, after: Option<CommId>) -> impl Iterator<Item = softrnic_cm::Status> + '_ {
        self.management.iter().flat_map(move |management| management.cm.connections(after))
    }

    /// The counters of QP 1.
    pub fn management_counters(&self) -> impl Iterator<Item = (GsiCounter, u64)> + '_ {
        self.management.iter().flat_map(|management| management.counters())
    }

    /// Takes the events of connections.
    pub fn take_connection_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.management.as_mut()?.cm.poll_event())
    }

    pub(super) fn on_management(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        let Body::Ud { deth, imm: None } = packet.body else { return Err(DropReason::SpecialQp) };
        let management = self.management.as_deref_mut().ok_or(DropReason::SpecialQp)?;
        if deth.qkey != GSI_QKEY {
            return Err(DropReason::GsiQkey);
        }
        if datagram.dst.is_multicast() {
            return Err(DropReason::Multicast);
        }
        let route = Route { local: datagram.dst, remote: datagram.src };
        if let Some(mad) = Mad::read(packet.payload)
            && let Some(vendor) = mad.vendor()
        {
            return self.on_vendor(now, route, &vendor, mad.transaction_id);
        }
        if management.cm.usage().outgoing >= MAX_OUTGOING {
            return Err(DropReason::GsiFull);
        }
        if management.gids != self.gids.generation() {
            management.gids = self.gids.generation();
            let gids: Vec<Gid> = self.gids.addresses().map(Gid::from).collect();
            management.cm.set_gids(&gids);
        }
        management.on_mad(now, route, packet.payload);
        self.management_active = true;
        Ok(())
    }

    pub(super) fn on_management_timeout(&mut self, now: Time) {
        if let Some(management) = &mut self.management {
            management.on_timeout(now);
            self.management_active = true;
        }
    }

    pub(super) fn transmit_management(&mut self, now: Time, link: &mut dyn Link, step: &mut Step) {
        let Some(management) = &mut self.management else { return };
        self.management_active = !management.transmit(now, link, step);
        self.management_timer = management.poll_timeout().unwrap_or(Time::NEVER);
        step.connections |= management.cm.has_events();
    }
}

#[cfg(test)]
mod tests;
