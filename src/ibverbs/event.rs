//! Events: completion channels and asynchronous events.
//!
//! The two functions that wait do so outside [`guard`](crate::guard): they can be cancelled, and a cancelled thread
//! must not unwind through a `catch_unwind`. They are `extern "C-unwind"`, since a cancelled thread unwinds through
//! them. They own nothing and hold no lock while they wait.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use softrnic_nic::verbs::{Block, CompletionChannel, Context, ContextId, EventKind, EventSource};
use softrnic_sync::channel::AckCounter;

use crate::abi::*;
use crate::c_view::Shown;
use crate::check;
use crate::context::Ctx;
use crate::cq::CqObject;
use crate::errno::Errno;
use crate::ffi_boundary::{Outcome, Silent, borrow, call, guard};
use crate::object::{Kind, ObjectSlot, Seal, find, find_last, object, retire};
use crate::qp::QpObject;
use crate::registry::{Target, registry};
use crate::srq::SrqObject;

/// A completion channel as C sees it, and what it stands for.
#[repr(C)]
pub(crate) struct ChannelObject {
    ibv: Shown<ibv_comp_channel>,
    seal: Seal,
    pub(crate) nic: Arc<CompletionChannel>,
}

object!(ChannelObject, Channel, ibv_comp_channel);

impl ChannelObject {
    pub(crate) fn of<'a>(channel: *mut ibv_comp_channel) -> Result<&'a ChannelObject, Errno> {
        find(channel)
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: a field of a live object, which is written only when it is made (`verbs.h`).
        unsafe { (*self.ibv.get()).context }
    }

    /// Number of CQs that report here; a public field, but only ours to change.
    pub(crate) fn users(&self) -> &AtomicI32 {
        // SAFETY: a field of `self`, accessed in no other way here.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.ibv.get()).refcnt) }
    }
}

/// From now on asynchronous events of `source` name `object`. The object's slot has reserved room for the entry.
pub(crate) fn add_target(of: ContextId, source: EventSource, object: *mut c_void, acks: &Arc<AckCounter>) {
    let target = Target { object: object.expose_provenance(), acks: acks.clone() };
    registry().targets.insert((of, source), target);
}

/// The object is being destroyed: its events are no longer delivered.
pub(crate) fn remove_target(of: ContextId, source: EventSource) {
    registry().targets.remove(&(of, source));
}

/// The object of an event, which counts as delivered. None if it is being destroyed.
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    guard::<*mut ibv_comp_channel>(call!(ibv_create_comp_channel, context), move || {
        let ctx = Ctx::of(context)?;
        let slot = ObjectSlot::new()?;
        let nic = ctx.nic()?.create_channel()?;
        let fd = nic.as_fd().as_raw_fd();
        let ibv = Shown::new(ibv_comp_channel { context, fd, refcnt: 0 });
        Ok(slot.publish(ChannelObject { ibv, seal: Seal::new(Kind::Channel), nic }))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    guard::<()>(call!(ibv_destroy_comp_channel, channel), move || {
        if find_last::<ChannelObject>(channel)?.users().load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: just found, without users; the application, which destroys it, no longer uses it.
        drop(unsafe { retire::<ChannelObject>(channel) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32) {
    guard::<Silent>(call!(ibv_ack_cq_events, cq, nevents), move || {
        // SAFETY: null, or a CQ of ours that the application keeps for the call.
        let cq = unsafe { CqObject::live(cq)? };
        // SAFETY: a counter of a CQ that lives, as was just found; nothing else writes there.
        unsafe { count(&raw mut (*cq.ibv.get()).comp_events_completed, nevents) };
        cq.completion_acks.acknowledge(nevents);
        Ok(Silent)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    guard::<Silent>(call!(ibv_ack_async_event, event), move || {
        // SAFETY: an event of the application's, valid for the call.
        let event = unsafe { borrow(event)? };
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                // SAFETY: an event of this type names a CQ (`verbs.h`); any bits are a pointer, which is looked up.
                let cq = CqObject::of(unsafe { event.element.cq })?;
                // SAFETY: a counter of a CQ that lives, as was just found; nothing else writes there.
                unsafe { count(&raw mut (*cq.ibv.get()).async_events_completed, 1) };
                cq.async_acks.acknowledge(1);
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: an event of this type names a QP (`verbs.h`); any bits are a pointer, which is looked up.
                let qp = QpObject::of(unsafe { event.element.qp })?;
                // SAFETY: a counter of a QP that lives, as was just found; nothing else writes there.
                unsafe { count(&raw mut (*qp.ibv.get()).qp_base.events_completed, 1) };
                qp.acks.acknowledge(1);
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                // SAFETY: an event of this type names an SRQ (`verbs.h`); any bits are a pointer, which is looked up.
                let srq = SrqObject::of(unsafe { event.element.srq })?;
                // SAFETY: a counter of an SRQ that lives, as was just found; nothing else writes there.
                unsafe { count(&raw mut (*srq.ibv.get()).events_completed, 1) };
                srq.acks.acknowledge(1);
            }
            _ => {}
        }
        Ok(Silent)
    })
}

/// Counts acknowledged events in a public field.
///
/// # Safety
/// The counter is in a live object, and accessed here alone.
unsafe fn count(counter: *mut u32, events: u32) {
    // SAFETY: as the caller promises.
    unsafe { AtomicU32::from_ptr(counter) }.fetch_add(events, Ordering::Relaxed);
}

/// The result of trying to take an event.
enum Taken {
    Event,
    /// The object of the event has been destroyed: wait again.
    Gone,
}

impl Outcome for Taken {
    type C = Option<c_int>;
    fn into_c(result: Result<Taken, Errno>) -> Option<c_int> {
        match result {
            Ok(Taken::Event) => Some(0),
            Ok(Taken::Gone) => None,
            Err(errno) => Some(failed(errno)),
        }
    }
}

/// The object on which an event is awaited.
struct Source<'a, T>(&'a T);

impl<'a, T> Outcome for Source<'a, T> {
    type C = Option<&'a T>;
    fn into_c(result: Result<Self, Errno>) -> Option<&'a T> {
        result.map_or_else(|errno| (failed(errno), None).1, |Source(source)| Some(source))
    }
}

/// What to wait for.
struct Ready(Block);

impl Outcome for Ready {
    type C = Option<Ready>;
    fn into_c(result: Result<Self, Errno>) -> Option<Ready> {
        result.map_or_else(|errno| (failed(errno), None).1, Some)
    }
}

fn failed(errno: Errno) -> c_int {
    errno.set();
    -1
}

/// Waits for the next completion event. It can be cancelled in `wait`: nothing here may need dropping.
///
/// # Safety
/// `cq` and `cq_context` are null or have room for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    if cq.is_null() || cq_context.is_null() {
        return failed(Errno::invalid("cq or cq_context is null"));
    }
    let call = call!(ibv_get_cq_event, channel, cq, cq_context);
    let Some(object) = guard(call, || Ok(Source(ChannelObject::of(channel)?))) else { return -1 };
    let mut after = None;
    let is_checked = check::is_on();
    if is_checked {
        guard(call, || {
            check::waits::begin(&object.nic);
            Ok(Silent)
        });
    }
    loop {
        let Some(Ready(block)) = guard(call, || Ok(Ready(object.nic.before_wait(after)))) else { return -1 };
        after = Some(block);
        match object.nic.wait(block) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                guard(call, || {
                    object.nic.stop_waiting(block);
                    if is_checked {
                        check::waits::end();
                    }
                    Ok(Silent)
                });
                return failed(error.into());
            }
        }
        // SAFETY: not null, so the application has room for a pointer at each.
        if let Some(done) = guard(call, || Ok(unsafe { take_completion(object, cq, cq_context) })) {
            if is_checked {
                guard(call, || {
                    check::waits::end();
                    Ok(Silent)
                });
            }
            return done;
        }
    }
}

/// # Safety
/// There is room for a pointer at `cq` and `cq_context`.
unsafe fn take_completion(
    channel: &ChannelObject,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Taken {
    let taken = channel.nic.take(|&token| {
        // SAFETY: tokens are addresses of CQs. The events of a CQ that is being destroyed are drained under the lock
        // held here, before it is freed.
        unsafe { &*cq_of(token) }.completion_acks.delivered();
    });
    let Some(token) = taken else { return Taken::Gone };
    let found = cq_of(token);
    // SAFETY: room for a pointer at each, as the caller promises; destroying the CQ waits until this event, which
    // counts as delivered, is acknowledged.
    unsafe {
        *cq = found.cast();
        *cq_context = (*found).context_of_application();
    }
    Taken::Event
}

/// The CQ of a token.
fn cq_of(token: u64) -> *mut CqObject {
    std::ptr::with_exposed_provenance_mut(token as usize)
}

/// Waits for the next asynchronous event. It can be cancelled in `wait_async_event`: nothing here may need dropping.
///
/// # Safety
/// `event` is null or has room for an event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    if event.is_null() {
        return failed(Errno::invalid("event is null"));
    }
    let call = call!(ibv_get_async_event, context, event);
    let Some(nic) = guard(call, || Ok(Source(Ctx::of(context)?.nic()?))) else { return -1 };
    loop {
        if let Err(error) = nic.wait_async_event() {
            return failed(error.into());
        }
        // SAFETY: not null, so the application has room for an event there.
        if let Some(done) = guard(call, || Ok(unsafe { take_async(nic, event) })) {
            return done;
        }
    }
}

/// # Safety
/// There is room for an event at `event`.
unsafe fn take_async(nic: &Context, event: *mut ibv_async_event) -> Taken {
    let mut element = None;
    let taken = nic.take_async_event(|event| element = deliver(nic.id(), event.source));
    let (Some(taken), Some(element)) = (taken, element) else { return Taken::Gone };
    // SAFETY: room for an event, as the caller promises.
    unsafe { *event = ibv_async_event { element, event_type: number(taken.kind) } };
    Taken::Event
}

fn number(kind: EventKind) -> u32 {
    kind as i32 as u32
}
