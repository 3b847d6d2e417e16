//! Opening, disturbing and closing connections.

use std::collections::HashMap;
use std::time::Duration;

use softrnic_engine::{QpHandle, QpInit, ReceiveSource, SrqInit};
use softrnic_transport::{QpState, QpType};
use softrnic_wire::Psn;

use super::endpoint::{Endpoint, Word};
use super::{Event, Profile, SharedQueue, SharedWord, Site, Traffic};
use crate::arena::{Arena, Span};
use crate::world::Node;

/// Words of its own that each end has in the peer's memory.
const WORDS: usize = 3;

/// No completion is held for longer.
const MOST_HELD: Duration = Duration::from_millis(10);

/// Places of a shared receive queue.
const SHARED_PLACES: usize = 8;

impl Site {
    pub(super) fn new(node: &mut Node, longest: usize) -> Site {
        let cqs: Vec<_> = (0..3).map(|_| node.create_cq(1 << 14)).collect();
        let xrcd = node.engine.create_xrcd().expect("an XRC domain");
        let pd = node.pd;
        let mut shared = |xrc| {
            let init = SrqInit { pd, max_wr: SHARED_PLACES, xrc };
            let srq = node.engine.create_srq(init).expect("an SRQ");
            SharedQueue {
                key: srq.key,
                srqn: srq.srqn,
                ring: srq.receives,
                posted: HashMap::new(),
                capacity: longest,
                refill_due: false,
            }
        };
        let (srq, xrc_srq) = (shared(None), shared(Some((xrcd, cqs[0]))));
        let span = zero_word(&mut node.arena);
        let word = SharedWord { span, added: 0, unsure: 0, seen: Default::default() };
        Site { cqs, srq, xrcd, xrc_srq, word }
    }
}

/// A word that holds 0 and that the NIC may change.
fn zero_word(arena: &mut Arena) -> Span {
    let span = arena.take(8, 8).expect("room for a word");
    arena.write(span, &[0; 8]);
    arena.expose(span);
    span
}

impl Traffic {
    pub(super) fn open(&mut self, index: usize) {
        let plan = self.connections[index].plan;
        let services = match plan.service {
            QpType::XrcInitiator => [QpType::XrcInitiator, QpType::XrcTarget],
            service => [service, service],
        };
        let kept = self.connections[index].kept.take();
        let handles =
            kept.unwrap_or_else(|| [0, 1].map(|end| self.create(plan.nodes[end], services[end], index)));
        self.connections[index].qpns = [handles[0].qpn, handles[1].qpn];
        let agreement = plan.agreement;
        let psns = [0, 1].map(|_| self.first_psn());
        for end in 0..2 {
            let (from, to) = (plan.nodes[end], plan.nodes[1 - end]);
            let dest = handles[1 - end].qpn;
            let attr = self.world.attributes(from, to, dest, &agreement, (psns[end], psns[1 - end]));
            self.world.bring_up(from, handles[end].key, services[end], &attr);
            self.by_qpn.insert((from, handles[end].qpn), (index, end));
        }
        let mut side = 0;
        let ends = handles.map(|handle| {
            let sends = services[side] != QpType::XrcTarget;
            let budget = if sends { plan.messages } else { 0 };
            let mut end = Endpoint::new(plan.nodes[side], handle, services[side], budget);
            if matches!(plan.service, QpType::Rc | QpType::XrcInitiator) && sends {
                let peer = &mut self.world.nodes[plan.nodes[1 - side]].arena;
                end.words = (0..WORDS).map(|_| Word { span: zero_word(peer), values: [0].into() }).collect();
            }
            side += 1;
            self.add_window(&mut end);
            end
        });
        let connection = &mut self.connections[index];
        connection.ends = Some(ends);
        connection.disturbed = false;
        connection.closing = false;
        for end in 0..2 {
            self.soon(20, Event::Receive(index, end));
            self.soon(50, Event::Post(index, end));
        }
        if !plan.robust && self.rng.chance(0.5) {
            self.soon(plan.pause_us * 20, Event::Disturb(index, self.connections[index].lives));
        }
    }

    fn create(&mut self, node: usize, service: QpType, index: usize) -> QpHandle {
        let plan = self.connections[index].plan;
        let site = &self.sites[node];
        let receive = match service {
            QpType::XrcTarget => ReceiveSource::Xrc(site.xrcd),
            QpType::XrcInitiator => ReceiveSource::None,
            _ if plan.shared => ReceiveSource::Shared(site.srq.key),
            _ => ReceiveSource::Own(plan.receives),
        };
        let (send_cq, recv_cq) = (self.rng.pick(&site.cqs), self.rng.pick(&site.cqs));
        let node = &mut self.world.nodes[node];
        let init = QpInit { service, pd: node.pd, send_cq, recv_cq, max_send_wr: plan.depth, receive };
        node.engine.create_qp(init).expect("a QP")
    }

    /// Often one from which the numbers soon begin again.
    fn first_psn(&mut self) -> Psn {
        let random = self.rng.next() as u32;
        Psn::new(if self.rng.chance(0.5) { 0xFF_FFFF - random % 64 } else { random })
    }

    /// Ends connections that have sent everything, or that have failed.
    pub(super) fn close_finished(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let Some(ends) = &connection.ends else { continue };
            if connection.closing {
                continue;
            }
            let failed = ends.iter().any(Endpoint::has_failed);
            let done = ends.iter().all(|end| end.budget == 0 && end.outstanding.is_empty());
            if failed || done {
                let lives = connection.lives;
                self.connections[index].closing = true;
                // Time for the last messages to arrive, and for the peer to notice.
                self.soon(if failed { 5_000 } else { 500 }, Event::Close(index, lives));
            }
        }
    }

    /// An application that dies, resets its QP or puts it into the error state.
    pub(super) fn disturb(&mut self, index: usize) {
        let end = self.rng.below(2);
        let Some(ends) = &self.connections[index].ends else { return };
        if self.connections[index].closing {
            return;
        }
        let (node, key) = (ends[end].node, ends[end].qp.key);
        self.connections[index].disturbed = true;
        match self.rng.below(4) {
            0 => self.world.go(node, key, QpState::Err),
            1 => {
                self.world.go(node, key, QpState::Reset);
                self.forget(index, end);
            }
            // It may have failed at this very moment.
            2 if self.world.nodes[node].state(key) == QpState::Err => {}
            2 => {
                self.world.go(node, key, QpState::Sqd);
                self.drain(index, end);
            }
            _ => {
                let now = self.world.now;
                self.world.nodes[node].engine.destroy_qp(now, key).expect("destroyed");
                self.forget(index, end);
            }
        }
        let life = self.connections[index].lives;
        self.soon(50_000, Event::Close(index, life));
    }

    /// SQD and back, while packets are under way: nothing may be lost.
    fn drain(&mut self, index: usize, end: usize) {
        let Some(ends) = &self.connections[index].ends else { return };
        let (node, key) = (ends[end].node, ends[end].qp.key);
        self.world.settle();
        self.poll();
        if self.world.nodes[node].state(key) == QpState::Sqd {
            self.world.go(node, key, QpState::Rts);
        }
    }

    /// The application drops everything that one end waits for: its QP was reset or destroyed.
    fn forget(&mut self, index: usize, side: usize) {
        // Completions that came before are still there to be had.
        self.poll();
        let Some(ends) = &mut self.connections[index].ends else { return };
        let end = &mut ends[side];
        end.gone = true;
        end.budget = 0;
        let outstanding = std::mem::take(&mut end.outstanding);
        let receives = std::mem::take(&mut end.receives);
        let (node, peer) = (end.node, ends[1 - side].node);
        let mut limbo = Vec::new();
        for posted in outstanding {
            limbo.extend(self.abandon(node, peer, posted));
        }
        for span in receives.into_iter().flat_map(|receive| receive.buffer) {
            self.world.nodes[node].arena.give_back(span);
        }
        if let Some(ends) = &mut self.connections[index].ends {
            ends[side].limbo.extend(limbo);
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        let plan = self.connections[index].plan;
        let Some(ends) = &self.connections[index].ends else { return };
        let keys = [(ends[0].node, ends[0].qp.key), (ends[1].node, ends[1].qp.key)];
        let alive = keys.map(|(node, key)| self.world.nodes[node].engine.query_qp(key).is_ok());
        for ((node, key), _) in keys.into_iter().zip(alive).filter(|(_, alive)| *alive) {
            if self.world.nodes[node].state(key) != QpState::Reset {
                self.world.go(node, key, QpState::Err);
            }
        }
        self.world.settle();
        self.connections[index].disturbed = true;
        self.poll();
        if self.profile == Profile::Adversarial {
            let limit = self.world.now + MOST_HELD;
            while self.world.advance(limit) {
                self.poll();
            }
        }
        let Some(mut ends) = self.connections[index].ends.take() else { return };
        for side in 0..2 {
            // Requests that were not to be signaled, have succeeded, and have none behind them that says so.
            while let Some(posted) = ends[side].outstanding.pop_front() {
                assert!(
                    !posted.signaled && ends[side].send_error.is_none(),
                    "{} was not flushed",
                    posted.wr_id
                );
                self.succeed(side, &mut ends, posted);
            }
            let retired = ends[side].qp.sends.outstanding() == 0 || self.profile == Profile::Adversarial;
            assert!(!alive[side] || retired, "not all sends were retired");
        }
        // Late datagrams may reach whatever has the same number.
        let connected = !matches!(plan.service, QpType::Uc | QpType::Ud);
        let again =
            connected && alive == [true; 2] && self.connections[index].lives > 0 && self.rng.chance(0.5);
        for (end, alive) in ends.iter().zip(alive) {
            assert_eq!(end.receives.len(), 0, "receives were not flushed");
            if again {
                self.world.go(end.node, end.qp.key, QpState::Reset);
            } else if alive {
                let now = self.world.now;
                self.world.nodes[end.node].engine.destroy_qp(now, end.qp.key).expect("destroyed");
            }
            self.by_qpn.remove(&(end.node, end.qp.qpn));
        }
        self.release(&ends);
        self.world.settle();
        let connection = &mut self.connections[index];
        if again {
            connection.kept = Some(ends.map(|end| end.qp));
        }
        if connection.lives > 0 {
            connection.lives -= 1;
            // A QP that is used again waits until what was sent to it has arrived or is lost (timewait).
            let wait = if again { Duration::from_millis(20) } else { Duration::ZERO };
            self.at(wait, Event::Open(index));
        }
    }

    /// Nothing of a connection can be written any more.
    fn release(&mut self, ends: &[Endpoint; 2]) {
        for (side, end) in ends.iter().enumerate() {
            self.remove_window(end);
            let peer = &mut self.world.nodes[ends[1 - side].node].arena;
            for word in &end.words {
                let value = u64::from_ne_bytes(peer.read(word.span).try_into().expect("eight bytes"));
                assert!(
                    word.values.contains(&value),
                    "a word holds {value:#x}, not any of {:x?}",
                    word.values
                );
                peer.settle_unknown(word.span);
                peer.give_back(word.span);
            }
            for &span in &end.limbo {
                peer.give_back(span);
            }
        }
    }
}
