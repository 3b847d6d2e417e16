//! Posting sends: several with one doorbell, and the decision whether they leave at once.

use std::sync::MutexGuard;

use softrnic_engine::SendRequest;
use softrnic_sync::queue::Full;
use softrnic_transport::SendOp;

use super::{Qp, SendSide};
use crate::verbs::error::PostError;

/// Sends posted with one doorbell.
pub struct SendBatch<'a> {
    qp: &'a Qp,
    side: MutexGuard<'a, SendSide>,
    /// Requests that were outstanding before these, once there is one of these.
    outstanding: Option<usize>,
}

impl<'a> SendBatch<'a> {
    /// An empty batch, with the send queue locked.
    #[inline]
    pub(super) fn new(qp: &'a Qp) -> SendBatch<'a> {
        SendBatch { qp, side: qp.lock_sends(), outstanding: None }
    }

    /// How many requests the queue has room for.
    pub fn room(&self) -> usize {
        self.side.ring.capacity() - self.side.ring.outstanding()
    }

    /// Posts a send.
    ///
    /// # Errors
    /// The queue is full, or the request is not possible on this QP.
    #[inline(always)]
    pub fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.push_with(|| request, |_| Ok(()))
    }

    /// Posts a send that `fill` completes in its place in the queue.
    ///
    /// # Errors
    /// As [`push`](Self::push), and those of `fill`.
    #[inline(always)]
    pub fn push_with<E: From<PostError> + From<Full>>(
        &mut self,
        request: impl FnOnce() -> SendRequest,
        fill: impl FnOnce(&mut SendRequest) -> Result<(), E>,
    ) -> Result<(), E> {
        let SendSide { ring, pending } = &mut *self.side;
        let outstanding = self.outstanding.unwrap_or_else(|| ring.outstanding());
        let (mut outgoing, mut signaled) = (0, false);
        ring.push_with(request, |request| {
            fill(request)?;
            self.qp.check(request)?;
            if let SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } = request.op {
                // Like kernel rxe and rdmavt, accepts more room than the answer needs.
                request.length = 8;
            }
            outgoing = if matches!(request.op, SendOp::Read { .. }) { 0 } else { request.length };
            signaled = request.signaled;
            Ok::<(), E>(())
        })?;
        pending.add(outgoing as u64, signaled);
        self.outstanding = Some(outstanding);
        Ok(())
    }

    /// Rings the doorbell: the NIC is driven now, or the requests are gathered with those that follow.
    pub(super) fn ring(mut self) {
        let Some(outstanding) = self.outstanding else { return };
        let qp = self.qp;
        let nic = qp.context().nic();
        let leaves_now = self.side.pending.leaves_now(outstanding, nic.answers());
        // The NIC may be driven below, which must not happen with the queue's lock held.
        drop(self);
        nic.on_post(qp.key.index(), leaves_now);
    }
}
