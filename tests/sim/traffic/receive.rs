//! When receives are posted, and to which queue.

use std::time::Duration;

use softrnic_engine::RecvRequest;
use softrnic_transport::{QpState, QpType};

use super::endpoint::{Receive, total};
use super::{Event, SharedQueue, Traffic};

/// What precedes a datagram in its buffer.
const GRH_LEN: usize = 40;

/// Ends whose sends take all the memory can starve each other for ever. A peer that only sees RNR NAKs for longer than
/// this, and loses some, may run out of retries.
const HUNGER: Duration = Duration::from_millis(50);

impl Traffic {
    /// An end fills its receive queue up, or asks for its shared queue to be filled up.
    pub(super) fn post_receives(&mut self, index: usize, side: usize) {
        let plan = self.connections[index].plan;
        let Some(mut ends) = self.connections[index].ends.take() else { return };
        let end = &mut ends[side];
        let (node, key, service) = (end.node, end.qp.key, end.service);
        let legal = !end.gone && self.world.nodes[node].state(key) != QpState::Reset;
        if end.qp.receives.is_some() && legal {
            let room = if service == QpType::Ud { GRH_LEN } else { 0 };
            while end.receives.len() < plan.receives {
                let Some((request, receive)) = self.receive(node, plan.longest_send + room) else {
                    if end.receives.is_empty() {
                        let since = *end.hungry_since.get_or_insert(self.world.now);
                        self.connections[index].disturbed |= self.world.now.since(since) > HUNGER;
                    }
                    break;
                };
                end.hungry_since = None;
                if !end.push_receive(request) {
                    self.give_back(node, receive.buffer);
                    break;
                }
                end.receives.push_back(receive);
                if self.rng.chance(0.3) {
                    break;
                }
            }
            self.world.nodes[node].engine.on_doorbell(self.world.now, key.index());
        }
        let missing = end.receives.len() < plan.receives && end.qp.receives.is_some() && legal;
        self.connections[index].ends = Some(ends);
        match service {
            QpType::XrcInitiator => {}
            QpType::XrcTarget => self.refill_soon(node, 1),
            _ if plan.shared => self.refill_soon(node, 0),
            _ if missing => self.soon(100, Event::Receive(index, side)),
            _ => {}
        }
    }

    pub(super) fn refill_soon(&mut self, node: usize, which: usize) {
        let queue = self.shared(node, which);
        if !std::mem::replace(&mut queue.refill_due, true) {
            self.soon(200, Event::Refill(node, which));
        }
    }

    /// Posts to a shared queue until it is full.
    pub(super) fn refill(&mut self, node: usize, which: usize) {
        self.shared(node, which).refill_due = false;
        let capacity = self.shared(node, which).capacity + GRH_LEN;
        while let Some((request, receive)) = self.receive(node, capacity) {
            let queue = self.shared(node, which);
            if queue.ring.push(request).is_err() {
                return self.give_back(node, receive.buffer);
            }
            queue.posted.insert(receive.wr_id, receive);
        }
        // Memory is short.
        self.refill_soon(node, which);
    }

    pub(super) fn shared(&mut self, node: usize, which: usize) -> &mut SharedQueue {
        let site = &mut self.sites[node];
        if which == 0 { &mut site.srq } else { &mut site.xrc_srq }
    }

    fn receive(&mut self, node: usize, len: usize) -> Option<(RecvRequest, Receive)> {
        let (data, buffer) = self.sink(node, len)?;
        let wr_id = self.next_id();
        let length = total(&buffer) as u32;
        Some((RecvRequest { wr_id, data, length }, Receive { wr_id, buffer }))
    }
}
