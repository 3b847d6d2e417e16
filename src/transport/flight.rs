//! What a QP has in flight, and what of it the window to its peer counts.
//!
//! The window is for what a peer answers. A QP that is not answered gives its bytes back and only probes, since its
//! silence may be its own: the QP that it is connected to may be gone, while others of that peer go on.

use softrnic_wire::Time;

use crate::host::Host;
use crate::qp::{Qp, Stop};
use crate::send_queue::PACKET_OVERHEAD;

/// So many packets, or one READ request, probe a peer that does not answer.
const PROBE_PACKETS: u32 = 2;

/// How a QP stands with its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Nothing was answered yet.
    New,
    /// The peer answers.
    Answered,
    /// The peer has stopped to answer, or lets us wait: nothing counts in the window, and only a probe may be in
    /// flight, whatever room there is.
    Silent,
}

impl<D> Qp<D> {
    /// Bytes that the window to the peer counts.
    pub(crate) fn charged(&self) -> u64 {
        match self.requester.standing {
            Standing::Silent => 0,
            Standing::New | Standing::Answered => self.sq.in_flight,
        }
    }

    pub(crate) fn is_probing(&self) -> bool {
        self.requester.standing == Standing::Silent
    }

    /// Whether what costs `cost` may be sent. A QP that has nothing in flight and was never answered need not wait for
    /// the window: those that fill it may never be answered either.
    pub(crate) fn enter_window<H: Host<Data = D>>(&mut self, cost: u64, host: &mut H) -> Result<(), Stop> {
        if !self.is_probing() {
            if host.window().is_open() {
                return Ok(());
            }
            match self.requester.standing {
                _ if self.sq.is_outstanding() => return Err(Stop::Window),
                Standing::New => self.requester.standing = Standing::Silent,
                _ if cost <= self.config.mtu as u64 + PACKET_OVERHEAD && host.window().has_reserve() => {
                    return Ok(());
                }
                _ => return Err(Stop::Window),
            }
        }
        if self.sq.cursor.distance_from(self.sq.una) as u32 >= PROBE_PACKETS {
            Err(Stop::Idle)
        } else {
            Ok(())
        }
    }

    /// Counts what has just left.
    pub(crate) fn charge<H: Host<Data = D>>(&mut self, cost: u64, host: &mut H) {
        if !self.is_probing() {
            host.window().charge(cost);
        }
    }

    /// The peer has answered, and `freed` bytes are no longer in flight.
    pub(crate) fn note_answer<H: Host<Data = D>>(&mut self, now: Time, freed: u64, host: &mut H) {
        if self.is_probing() {
            host.window().charge(self.sq.in_flight + freed);
        }
        self.requester.standing = Standing::Answered;
        host.window().on_progress(now, freed);
        if std::mem::take(&mut self.requester.lost_alone) {
            host.window().on_loss(now);
        }
    }

    /// Nothing has come back for what was sent last. If nobody else was answered since, the way has lost it. Else the
    /// peer's QP may be gone, and the way has lost it only if an answer comes after all.
    pub(crate) fn suspect_loss<H: Host<Data = D>>(&mut self, now: Time, host: &mut H) {
        self.requester.lost_alone = host.window().progressed_after(self.requester.waits_since);
        if !self.requester.lost_alone {
            host.window().on_loss(now);
        }
    }

    /// The peer does not answer.
    pub(crate) fn fall_silent<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.window().release(self.charged());
        self.requester.standing = Standing::Silent;
    }

    /// Goes back to the oldest unacknowledged PSN: what was behind it is not in flight any more.
    pub(crate) fn recall_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.window().release(self.charged());
        self.sq.rewind();
    }

    /// Gives up whatever is in flight.
    pub(crate) fn drop_flight<H: Host<Data = D>>(&mut self, host: &mut H) {
        host.window().release(self.charged());
        self.sq.in_flight = 0;
    }
}
