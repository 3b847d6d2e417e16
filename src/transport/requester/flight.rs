//! What a QP has in flight, and what of it the window to its peer counts.
//!
//! The window is for what a peer answers. A QP that is not answered gives its bytes back and only probes, since its
//! silence may be its own: the QP that it is connected to may be gone, while others of that peer go on.

use softrnic_wire::Time;

use super::Requester;
use super::send_queue::PACKET_OVERHEAD;
use crate::context::Context;
use crate::host::Host;
use crate::qp::Stop;
use crate::tuning::PROBE_PACKETS;

/// How a QP stands with its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing was answered yet.
    New,
    /// The peer answers.
    Answered,
    /// The peer has stopped to answer, or lets us wait: nothing counts in the window, and only a probe may be in
    /// flight, whatever room there is.
    Silent,
}

impl<D> Requester<D> {
    /// Bytes that the window to the peer counts.
    pub fn charged(&self) -> u64 {
        match self.standing {
            Standing::Silent => 0,
            Standing::New | Standing::Answered => self.queue.in_flight,
        }
    }

    pub fn is_probing(&self) -> bool {
        self.standing == Standing::Silent
    }

    /// Whether what costs `cost` may be sent. A QP that has nothing in flight and was never answered need not wait for
    /// the window: those that fill it may never be answered either.
    pub fn enter_window<H: Host<Data = D>>(
        &mut self,
        cx: &Context,
        cost: u64,
        host: &mut H,
    ) -> Result<(), Stop> {
        if !self.is_probing() {
            if host.peer().window.is_open() {
                return Ok(());
            }
            match self.standing {
                _ if self.queue.is_outstanding() => return Err(Stop::Window),
                Standing::New => self.standing = Standing::Silent,
                _ if cost <= cx.config.mtu as u64 + PACKET_OVERHEAD && host.peer().window.has_reserve() => {
                    return Ok(());
                }
                _ => return Err(Stop::Window),
            }
        }
        if self.queue.cursor.distance_from(self.queue.una) as u32 >= PROBE_PACKETS {
            Err(Stop::Idle)
        } else {
            Ok(())
        }
    }

    /// Counts what has just left.
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

    /// Nothing has come back for what was sent last. If nobody else was answered since, the way has lost it. Else the
    /// peer's QP may be gone, and the way has lost it only if an answer comes after all.
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

    /// Goes back to the oldest unacknowledged PSN: what was behind it is not in flight any more.
    pub fn recall_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.peer().window.release(self.charged());
        self.queue.rewind();
    }

    /// Gives up whatever is in flight.
    pub fn drop_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.peer().window.release(self.charged());
        self.queue.in_flight = 0;
    }
}
