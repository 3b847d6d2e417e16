//! What a QP has in flight, and how much of that counts in the window to its peer.
//!
//! The window counts only what a peer answers. A QP that gets no answers returns its bytes to the window and only
//! probes: the peer's QP may be gone while others of that peer go on.

use softrnic_wire::{Psn, Time};

use super::Requester;
use super::send_queue::PACKET_OVERHEAD;
use crate::context::Context;
use crate::host::Host;
use crate::qp::Stop;
use crate::tuning::PROBE_PACKETS;

/// How a QP stands with its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing has been answered yet.
    New,
    /// The peer answers.
    Answered,
    /// The peer has stopped answering, or makes us wait: nothing counts in the window, and only a probe may be in
    /// flight, however much room there is.
    Silent,
}

/// What the next packet, or READ request, needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The PSN behind it and its responses.
    pub to: Psn,
    /// Bytes of it and its responses.
    pub cost: u64,
}

impl<D> Requester<D> {
    /// Bytes counted in the window to the peer.
    pub fn charged(&self) -> u64 {
        match self.standing {
            Standing::Silent => 0,
            Standing::New | Standing::Answered => self.queue.in_flight,
        }
    }

    pub fn is_probing(&self) -> bool {
        self.standing == Standing::Silent
    }

    /// Whether what is next may be sent. A QP that has nothing in flight and was never answered need not wait for the
    /// window: the QPs that fill it may never be answered either.
    pub fn enter_window<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        need: Need,
        host: &mut H,
    ) -> Result<(), Stop> {
        if !self.is_probing() {
            if host.peer().window.is_open() {
                return Ok(());
            }
            match self.standing {
                _ if self.queue.is_outstanding() => return Err(Stop::Window),
                Standing::New => self.standing = Standing::Silent,
                _ if self.is_little(cx, need) && host.peer().window.has_reserve() => return Ok(()),
                _ => return Err(Stop::Window),
            }
        }
        if self.queue.cursor.distance_from(self.queue.una) as u32 >= PROBE_PACKETS {
            Err(Stop::Idle)
        } else {
            Ok(())
        }
    }

    /// Whether a single packet is all that the request still needs. More waits for the window: the first packet of a long
    /// message would gain nothing, and cut the run that the rest is sent in.
    fn is_little(&self, cx: &Context, need: Need) -> bool {
        let entry = &self.queue.entries[self.queue.at];
        need.to == entry.first + entry.packets && need.cost <= cx.config.mtu as u64 + PACKET_OVERHEAD
    }

    /// Counts what has just been sent.
    pub fn charge<H: Host<Data = D>>(&mut self, cost: u64, host: &mut H) {
        if !self.is_probing() {
            host.peer().window.charge(cost);
        }
    }

    /// The peer has answered, and `freed` bytes are no longer in flight.
    pub fn note_answer<H: Host<Data = D>>(&mut self, now: Time, freed: u64, host: &mut H) {
        if self.is_probing() {
            host.peer().window.charge(self.queue.in_flight + freed);
        }
        self.standing = Standing::Answered;
        host.peer().window.on_progress(now, freed);
        if core::mem::take(&mut self.lost_alone) {
            host.peer().window.on_loss(now);
        }
    }

    /// Nothing has come back for what was sent last. If no other QP was answered since then, the network has lost it.
    /// Otherwise the peer's QP may be gone, and the network has lost it only if an answer comes after all.
    pub fn suspect_loss<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        self.lost_alone = host.peer().window.progressed_after(self.waits_since);
        if !self.lost_alone {
            host.peer().window.on_loss(now);
        }
    }

    /// The peer does not answer.
    pub fn fall_silent<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.peer().window.release(self.charged());
        self.standing = Standing::Silent;
    }

    /// Goes back to the oldest unacknowledged PSN: what was sent after it is no longer in flight.
    pub fn recall_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.peer().window.release(self.charged());
        self.forget_arrivals();
        self.queue.rewind();
    }

    /// Abandons everything in flight.
    pub fn drop_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.peer().window.release(self.charged());
        self.forget_arrivals();
        self.queue.in_flight = 0;
    }
}
