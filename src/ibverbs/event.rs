//! Events: completion channels and asynchronous events.
//!
//! The two functions that wait here are not inside [`guard`](crate::guard): they can be cancelled, and a
//! cancelled thread must not meet a `catch_unwind`. They own nothing and hold no lock while they wait.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use softrnic_nic::runtime::channel::AckCounter;
use softrnic_nic::verbs::{CompletionChannel, ContextId, EventKind, EventSource};

use crate::abi::*;
use crate::context::Ctx;
use crate::cq::CqObject;
use crate::errno::Errno;
use crate::guard::{Silent, borrow, export};
use crate::qp::QpObject;
use crate::registry::{Target, registry};
use crate::shown::Shown;
use crate::srq::SrqObject;

/// A completion channel as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct ChannelObject {
    ibv: Shown<ibv_comp_channel>,
    pub(crate) nic: Arc<CompletionChannel>,
}

impl ChannelObject {
    /// # Safety
    /// The pointer is null or a channel of ours.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> Result<&'a ChannelObject, Errno> {
        // SAFETY: the caller's channel, the first field of which it is.
        unsafe { borrow(channel.cast()) }
    }

    /// Number of CQs that report here; public, but only ours to change.
    pub(crate) fn users(&self) -> &AtomicI32 {
        // SAFETY: the field is aligned, and accessed in no other way.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.ibv.get()).refcnt) }
    }
}

/// From now on asynchronous events of `source` name `object`.
pub(crate) fn add_target(of: ContextId, source: EventSource, object: *mut c_void, acks: &Arc<AckCounter>) {
    let target = Target { object: object.expose_provenance(), acks: acks.clone() };
    registry().targets.insert((of, source), target);
}

/// The object is being destroyed: its events are no longer given out.
pub(crate) fn remove_target(of: ContextId, source: EventSource) {
    registry().targets.remove(&(of, source));
}

/// The object of an event, which counts as delivered. None when it is being destroyed.
fn deliver(of: ContextId, source: EventSource) -> Option<async_element> {
    match source {
        EventSource::Port | EventSource::Device => Some(async_element { port_num: 1 }),
        source => {
            let tables = registry();
            let target = tables.targets.get(&(of, source))?;
            target.acks.delivered();
            Some(async_element { qp: std::ptr::with_exposed_provenance_mut(target.object) })
        }
    }
}

export! {
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        // SAFETY: the caller's context.
        let ctx = unsafe { Ctx::of(context)? };
        let nic = ctx.nic()?.create_channel()?;
        let fd = nic.as_fd().as_raw_fd();
        let ibv = Shown::new(ibv_comp_channel { context, fd, refcnt: 0 });
        Ok(Box::into_raw(Box::new(ChannelObject { ibv, nic })).cast())
    }

    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> () {
        // SAFETY: the caller's channel.
        if unsafe { ChannelObject::of(channel)? }.users().load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: made from a box, and used no more.
        drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
        Ok(())
    }

    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32) -> Silent {
        // SAFETY: the caller's CQ.
        let cq = unsafe { CqObject::of(cq)? };
        cq.completion_acks.acknowledge(nevents);
        Ok(Silent)
    }

    fn ibv_ack_async_event(event: *mut ibv_async_event) -> Silent {
        // SAFETY: the caller's event.
        let event = unsafe { borrow(event)? };
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                // SAFETY: such an event names a CQ, which lives until its events are acknowledged.
                unsafe { CqObject::of(event.element.cq)? }.async_acks.acknowledge(1);
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: such an event names a QP, which lives until its events are acknowledged.
                unsafe { QpObject::of(event.element.qp)? }.acks.acknowledge(1);
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                // SAFETY: such an event names an SRQ, which lives until its events are acknowledged.
                unsafe { SrqObject::of(event.element.srq)? }.acks.acknowledge(1);
            }
            _ => {}
        }
        Ok(Silent)
    }
}

/// Waits for the next completion event.
///
/// # Safety
/// The pointers are the caller's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel.
    let Ok(object) = (unsafe { ChannelObject::of(channel) }) else {
        Errno::INVAL.set();
        return -1;
    };
    if cq.is_null() || cq_context.is_null() {
        Errno::INVAL.set();
        return -1;
    }
    let taken = object.nic.event_with(|&token| {
        // SAFETY: tokens are addresses of CQs, and a CQ that is being destroyed has its events drained under the
        // lock that is held here, before it goes away.
        unsafe { &*cq_of(token) }.completion_acks.delivered();
    });
    match taken {
        Ok(token) => {
            let found = cq_of(token);
            // SAFETY: the caller's pointers, and a CQ that lives until this event is acknowledged.
            unsafe {
                *cq = found.cast();
                *cq_context = (*found).context_of_application();
            }
            0
        }
        Err(error) => {
            Errno::from(error).set();
            -1
        }
    }
}

/// The CQ that a token stands for.
fn cq_of(token: u64) -> *mut CqObject {
    std::ptr::with_exposed_provenance_mut(token as usize)
}

/// Waits for the next asynchronous event.
///
/// # Safety
/// The pointers are the caller's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's context.
    let Ok(nic) = (unsafe { Ctx::of(context) }).and_then(Ctx::nic) else {
        Errno::INVAL.set();
        return -1;
    };
    if event.is_null() {
        Errno::INVAL.set();
        return -1;
    }
    let of = nic.id();
    loop {
        let mut element = None;
        let taken = nic.async_event_with(|event| element = deliver(of, event.source));
        match (taken, element) {
            (Ok(taken), Some(element)) => {
                // SAFETY: the caller's event.
                unsafe { *event = ibv_async_event { element, event_type: number(taken.kind) } };
                return 0;
            }
            // The object is on its way out.
            (Ok(_), None) => {}
            (Err(error), _) => {
                Errno::from(error).set();
                return -1;
            }
        }
    }
}

fn number(kind: EventKind) -> u32 {
    kind as i32 as u32
}
