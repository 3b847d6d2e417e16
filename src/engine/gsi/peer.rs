//! What SoftRNICs ask each other about connected queue pairs, by datagrams of a vendor class to QP 1 (decision 38).
//!
//! A question is about one pair of queue pairs. Who asks for a pair that is not connected so gets no answer, so nothing is
//! told to anybody but the peer. Other peers ignore the class, and are not asked: they number queue pairs from the bottom, and
//! SoftRNICs do not. Nothing waits for an answer, and nothing is repeated by a timer; whoever asks asks again when
//! there is a new reason.

use std::collections::VecDeque;
use std::time::Duration;

use softrnic_cm::Route;
use softrnic_link::ProcessSlot;
use softrnic_transport::{Counter, QpState, QpType};
use softrnic_wire::{
    Capabilities, MAD_LEN, PeerStatus, Qpn, REORDER_WINDOW, Time, VendorAttribute, VendorMad,
};

use crate::objects::{QpKey, QpSlot, ReceiveQueue};
use crate::{DropReason, Engine};

/// Questions that a peer address may leave unanswered before it is asked no more.
const MAX_UNANSWERED: u8 = 4;

/// Questions that one QP asks without an answer, and the time between two.
const MAX_QUESTIONS: u8 = 4;
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(1);

/// Datagrams that may wait to be sent.
const MAX_WAITING: usize = 64;

/// Questions are answered at this rate, and that many more at a time.
const BETWEEN_ANSWERS: Duration = Duration::from_micros(100);
const ANSWERS_AT_A_TIME: u32 = 64;

/// What a QP has asked the NIC of its peer, and what that has said.
#[derive(Clone, Copy, Default)]
pub struct PeerNic {
    /// How often it was asked since its last answer.
    asked: u8,
    /// When it was asked last, which is the transaction id too.
    at: Time,
    /// What it can do.
    capabilities: Option<Capabilities>,
    /// It has answered, and so knows what this NIC can do.
    is_told: bool,
    /// How its end of the connection is, and when it said so.
    status: Option<(Time, PeerStatus)>,
}

impl PeerNic {
    /// Whether there is a reason to ask what it can do.
    fn wants_question(&self, spreads: bool) -> bool {
        self.capabilities.is_none_or(|theirs| spreads && theirs.paths && !self.is_told)
    }
}

/// Datagrams between SoftRNICs, and what was counted.
#[derive(Default)]
pub struct PeerDatagrams {
    pub waiting: VecDeque<(Route, ProcessSlot, Box<[u8; MAD_LEN]>)>,
    pub sent: u64,
    pub received: u64,
    pub unrelated: u64,
    /// Until when answers are used up in advance.
    answered_until: Time,
}

impl PeerDatagrams {
    fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    fn push(&mut self, route: Route, vendor: &VendorMad, transaction_id: u64) {
        let mut bytes = Box::new([0; MAD_LEN]);
        vendor.emit_mad(transaction_id, &mut bytes);
        self.waiting.push_back((route, ProcessSlot::of(vendor.to), bytes));
    }

    /// Whether one more question is answered.
    fn may_answer(&mut self, now: Time) -> bool {
        let from = self.answered_until.max(now);
        let may = self.has_room() && from.since(now) < BETWEEN_ANSWERS * ANSWERS_AT_A_TIME;
        if may {
            self.answered_until = from + BETWEEN_ANSWERS;
        }
        may
    }
}

impl Engine {
    /// Asks the NIC at the other end of a QP what it can do, unless it was asked just now, or often enough, or cannot be a
    /// SoftRNIC. Returns whether it was asked.
    pub fn ask_peer(&mut self, now: Time, key: QpKey) -> bool {
        self.ask(now, key, VendorAttribute::Capabilities(self.capabilities()))
    }

    /// Asks the NIC at the other end of a QP how its end is, as [`ask_peer`](Self::ask_peer) does.
    pub fn ask_status(&mut self, now: Time, qpn: Qpn) -> bool {
        let Some(key) = self.by_number.get(&qpn).copied() else { return false };
        self.ask(now, key, VendorAttribute::Status(PeerStatus::default()))
    }

    /// What the NIC at the other end of a QP has said last of its end, and when.
    pub fn peer_status(&self, qpn: Qpn) -> Option<(Time, PeerStatus)> {
        let slot = self.qps.get(*self.by_number.get(&qpn)?)?;
        slot.io.peer_nic.as_ref()?.status
    }

    fn ask(&mut self, now: Time, key: QpKey, attribute: VendorAttribute) -> bool {
        let Some(slot) = self.qps.get_mut(key) else { return false };
        let Some(management) = &mut self.management else { return false };
        let (attr, nic) = (slot.qp.attr(), slot.io.peer_nic.get_or_insert_default());
        let too_soon = nic.at > Time::ZERO && now < nic.at + BETWEEN_QUESTIONS;
        let may_ask = is_connected(slot.qp.service(), slot.qp.state())
            && (attr.dest_qpn > Qpn::LAST_OF_RXE || nic.capabilities.is_some())
            && nic.asked < MAX_QUESTIONS
            && !too_soon
            && management.peer.has_room();
        if !may_ask || !self.peers.note_question(slot.io.peer, MAX_UNANSWERED) {
            return false;
        }
        (nic.asked, nic.at) = (nic.asked + 1, now);
        // It may agree, and its answer be lost.
        self.shared.comes_in_any_order = true;
        let question = VendorMad { answers: false, to: attr.dest_qpn, from: slot.io.qpn, attribute };
        let route = Route { local: attr.path.src, remote: attr.path.dst };
        management.peer.push(route, &question, now.as_nanos());
        self.management_active = true;
        true
    }

    /// Asks the peers of QPs that have lost something, unless they have said what they can do.
    #[cold]
    pub(crate) fn ask_peers(&mut self, now: Time) {
        let mut losers = std::mem::take(&mut self.shared.losers);
        for key in losers.drain(..) {
            let nic = self.qps.get(key).and_then(|slot| slot.io.peer_nic.as_ref());
            let spreads = self.config.transport.paths > 1;
            if nic.is_none_or(|nic| nic.wants_question(spreads)) {
                self.ask_peer(now, key);
            }
        }
        self.shared.losers = losers;
    }

    /// What this NIC can do.
    fn capabilities(&self) -> Capabilities {
        let selective_recovery = self.config.transport.selective_recovery;
        Capabilities {
            version: Capabilities::VERSION,
            selective_recovery,
            paths: selective_recovery
                && self.config.transport.paths > 1
                && self.config.transport.early_retransmission,
            reorder_window: REORDER_WINDOW as u16,
        }
    }

    /// How a QP is.
    fn status(&self, slot: &QpSlot) -> PeerStatus {
        let status = slot.qp.status();
        let receives = match &slot.io.receives {
            ReceiveQueue::Own(ring) => ring.len(),
            ReceiveQueue::Shared(key) => self.srqs.get(*key).map_or(0, |srq| srq.ring.len()),
            ReceiveQueue::None => 0,
        };
        PeerStatus {
            version: PeerStatus::VERSION,
            state: status.state as u8,
            expected_psn: status.expected_psn,
            rnr_naks: slot.io.counts.rnr_sent as u32,
            receives: receives as u32,
            requests: status.queued_sends as u32,
        }
    }

    /// A datagram of another SoftRNIC.
    pub(super) fn on_vendor(
        &mut self,
        now: Time,
        route: Route,
        vendor: &VendorMad,
        transaction_id: u64,
    ) -> Result<(), DropReason> {
        let key = self.by_number.get(&vendor.to).copied();
        let slot = key.and_then(|key| self.qps.get(key)).filter(|slot| is_peer(slot, route, vendor));
        let answer = slot.map(|slot| match vendor.attribute {
            VendorAttribute::Capabilities(_) => VendorAttribute::Capabilities(self.capabilities()),
            VendorAttribute::Status(_) => VendorAttribute::Status(self.status(slot)),
        });
        let Some(management) = &mut self.management else { return Err(DropReason::SpecialQp) };
        management.peer.received += 1;
        let (Some(key), Some(answer)) = (key, answer) else {
            management.peer.unrelated += 1;
            return Ok(());
        };
        let slot = &mut self.qps[key];
        let nic = slot.io.peer_nic.get_or_insert_default();
        let was_asked = nic.asked > 0 && nic.at.as_nanos() == transaction_id;
        if vendor.answers && !was_asked {
            management.peer.unrelated += 1;
            return Ok(());
        }
        if vendor.answers {
            nic.asked = 0;
        }
        match vendor.attribute {
            VendorAttribute::Capabilities(theirs) => {
                nic.capabilities = Some(theirs);
                nic.is_told |= vendor.answers;
                let spreads = agree(now, slot, theirs, vendor.answers);
                self.shared.counters[Counter::PathsAgreed as usize] += u64::from(spreads);
                self.shared.comes_in_any_order = true;
            }
            VendorAttribute::Status(theirs) if vendor.answers => nic.status = Some((now, theirs)),
            VendorAttribute::Status(_) => {}
        }
        if vendor.answers {
            self.peers.note_answer(slot.io.peer);
        } else if management.peer.may_answer(now) {
            let answer = VendorMad { answers: true, to: vendor.from, from: vendor.to, attribute: answer };
            management.peer.push(route, &answer, transaction_id);
        }
        self.management_active = true;
        Ok(())
    }
}

/// What both ends can do, they do from now on. Returns whether the QP begins to spread its packets.
fn agree(now: Time, slot: &mut QpSlot, theirs: Capabilities, is_told: bool) -> bool {
    if !theirs.selective_recovery || usize::from(theirs.reorder_window) < REORDER_WINDOW {
        return false;
    }
    slot.qp.agree_on_selective_recovery();
    // Whoever has only asked does not know yet what comes.
    theirs.paths && slot.qp.agree_on_paths(now, is_told)
}

fn is_connected(service: QpType, state: QpState) -> bool {
    service == QpType::Rc && matches!(state, QpState::Rtr | QpState::Rts | QpState::Sqd)
}

/// Whether a QP is connected to the one that the sender names. One that has failed still says how it is.
fn is_peer(slot: &QpSlot, route: Route, vendor: &VendorMad) -> bool {
    let (service, state, attr) = (slot.qp.service(), slot.qp.state(), slot.qp.attr());
    let is_told_of_failures = matches!(vendor.attribute, VendorAttribute::Status(_));
    (is_connected(service, state) || is_told_of_failures && service == QpType::Rc && state == QpState::Err)
        && attr.dest_qpn == vendor.from
        && (attr.path.src, attr.path.dst) == (route.local, route.remote)
}

#[cfg(test)]
mod tests;
