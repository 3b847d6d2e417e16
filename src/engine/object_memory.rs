//! The memory of objects, allocated before they are created and freed after they are destroyed.
//!
//! The application decides how much memory that is, and a caller with an engine behind a lock must not hold it while
//! the kernel finds so much, or takes it back. So parts are allocated before, and remains are dropped after.

use std::mem::MaybeUninit;

use super::completion::Cqe;
use super::control::{ControlError, QpInit, ReceiveSource};
use super::data::{RecvRequest, SendRequest};
use super::objects::QpSlot;
use softrnic_sync::queue::{
    CompletionRing, CompletionRingNic, RecvRing, RecvRingNic, SeenSlots, SendRing, SendRingNic,
    completion_ring, recv_ring, send_ring, send_ring_freed_by_polling,
};
use softrnic_sync::ring::OutOfMemory;

impl From<OutOfMemory> for ControlError {
    fn from(OutOfMemory: OutOfMemory) -> ControlError {
        ControlError::NoMemory
    }
}

/// Parts of a completion queue.
pub struct CqMemory {
    pub(super) app: CompletionRing<Cqe>,
    pub(super) nic: CompletionRingNic<Cqe>,
}

impl CqMemory {
    /// For `capacity` entries.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(capacity: usize) -> Result<CqMemory, ControlError> {
        let (app, nic) = completion_ring(capacity)?;
        Ok(CqMemory { app, nic })
    }
}

/// Parts of a shared receive queue.
pub struct SrqMemory {
    pub(super) app: RecvRing<RecvRequest>,
    pub(super) nic: RecvRingNic<RecvRequest>,
}

impl SrqMemory {
    /// For `max_wr` entries.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(max_wr: usize) -> Result<SrqMemory, ControlError> {
        let (app, nic) = recv_ring(max_wr)?;
        Ok(SrqMemory { app, nic })
    }
}

/// Parts of a queue pair.
pub struct QpMemory {
    pub(super) sends: (SendRing<SendRequest>, SendRingNic<SendRequest>),
    pub(super) seen: Option<SeenSlots>,
    pub(super) receives: Option<(RecvRing<RecvRequest>, RecvRingNic<RecvRequest>)>,
    pub(super) place: Box<MaybeUninit<QpSlot>>,
}

impl QpMemory {
    /// For the queues that `init` asks for.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(init: &QpInit) -> Result<QpMemory, ControlError> {
        let receives = match init.receive {
            ReceiveSource::Own(places) => Some(recv_ring(places)?),
            _ => None,
        };
        Ok(QpMemory { sends: send_ring(init.max_send_wr)?, seen: None, receives, place: Box::new_uninit() })
    }

    /// The same for a QP whose send slots are free once a completion that shows so was polled.
    ///
    /// # Errors
    /// There is no memory.
    pub fn freed_by_polling(init: &QpInit) -> Result<QpMemory, ControlError> {
        let (app, nic, seen) = send_ring_freed_by_polling(init.max_send_wr)?;
        Ok(QpMemory { sends: (app, nic), seen: Some(seen), ..QpMemory::new(init)? })
    }
}

/// The memory of an object that was destroyed, or of a queue that was resized, freed when this is dropped.
#[expect(dead_code, reason = "held to be dropped")]
pub struct DeferredFree(pub(super) Remnant);

#[expect(dead_code, reason = "held to be dropped")]
pub(super) enum Remnant {
    Cq(CompletionRingNic<Cqe>),
    Srq(RecvRingNic<RecvRequest>),
    Qp(Box<QpSlot>),
}
