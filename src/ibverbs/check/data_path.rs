//! The functions of the data path, with a checker beside them.

use std::ffi::c_int;

use softrnic_check::{Completion, Kind, Queue, Request};
use softrnic_memory::write_if_mapped;
use softrnic_nic::verbs::{Cqe, SendRequest, Status};
use softrnic_transport::WcOpcode;

use super::calls::{call, said};
use super::{State, enter, of_receive, of_send, sum, why, with, write};
use crate::abi::*;
use crate::cq;
use crate::errno::Errno;
use crate::ffi_boundary::{Plain, guard_data_path};
use crate::object::live;
use crate::post;
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// See [`post::post_send`].
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut first_bad = std::ptr::null_mut();
    // SAFETY: null, or a QP of ours that the application keeps for the call.
    let object = unsafe { QpObject::live(qp) }.ok();
    let queue = object.map(|qp| Queue::Send(qp.nic.qpn().get()));
    let recorded = guarded(|| {
        let (Some(queue), Some(object)) = (queue, object) else { return 0 };
        let mut requests = Vec::new();
        let mut next = wr;
        // SAFETY: the application's list, valid for the call and ended by null.
        while let Some(wr) = unsafe { next.as_ref() } {
            let mut request = post::blank_send();
            // SAFETY: a request of the application's; what it points to is valid for the call.
            if unsafe { post::fill_send(&mut request, object, wr) }.is_err() {
                break;
            }
            requests.push(of_send(&request));
            next = wr.next;
        }
        record(queue, requests)
    });
    enter();
    // SAFETY: what the application has passed, and room for a pointer.
    let status = unsafe { post::post_send(qp, wr, &mut first_bad) };
    if status != 0 {
        if !bad.is_null() {
            // SAFETY: not null, so the application has room for a pointer there.
            unsafe { *bad = first_bad };
        }
        // SAFETY: the application's list, valid for the call and ended by null.
        let accepted = unsafe { position(wr, first_bad, |wr| wr.next) };
        guarded(|| not_posted("ibv_post_send", queue, recorded, accepted, Errno(status)));
    }
    status
}

/// See [`post::post_recv`].
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: null, or a QP of ours that the application keeps for the call.
    let object = unsafe { QpObject::live(qp) }.ok();
    let queue = object.map(|qp| Queue::Receive(qp.nic.qpn().get()));
    let most = object.map_or(0, |qp| qp.nic.options().max_recv_sge);
    let is_first = guarded(|| object.is_some_and(super::late::is_first));
    let post = |first_bad: *mut *mut ibv_recv_wr| {
        // Once there is a receive, the NIC answers no longer that there is none.
        let before = guarded(|| object.filter(|_| is_first).map_or(0, super::late::refused));
        // SAFETY: what the application has passed, and room for a pointer.
        let status = unsafe { post::post_recv(qp, wr, first_bad) };
        guarded(|| object.filter(|_| before > 0).into_iter().for_each(|qp| super::late::found(qp, before)));
        status
    };
    // SAFETY: the application's list and pointer, and a QP as `post_recv` takes it.
    unsafe { receives("ibv_post_recv", queue, most, wr, bad, post) }
}

/// See [`cq::req_notify_cq`].
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    guarded(|| {
        let lines = softrnic_stacks::lines();
        with(|state| {
            let trace = state.traces.here(lines);
            state.checker.armed(cq.addr(), trace);
        });
    });
    // SAFETY: what the application has passed.
    unsafe { cq::req_notify_cq(cq, solicited_only) }
}

/// See [`post::post_srq_recv`].
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: null, or an SRQ of ours that the application keeps for the call.
    let most = unsafe { live::<SrqObject>(srq) }.map_or(0, |srq| srq.max_sge);
    let queue = Some(Queue::Shared(srq.addr()));
    // SAFETY: the application's list and pointer, and an SRQ as `post_srq_recv` takes it.
    unsafe {
        receives("ibv_post_srq_recv", queue, most, wr, bad, |first_bad| {
            post::post_srq_recv(srq, wr, first_bad)
        })
    }
}

/// Records receives, and posts them.
///
/// # Safety
/// `wr` begins a list that is ended by null, of requests with as many elements as they say; `bad` is null or has room for a
/// pointer.
unsafe fn receives(
    verb: &str,
    queue: Option<Queue>,
    most: usize,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl FnOnce(*mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    let recorded = guarded(|| {
        let Some(queue) = queue else { return 0 };
        let mut requests = Vec::new();
        let mut next = wr;
        // SAFETY: null, or a request of the list, as the caller promises.
        while let Some(wr) = unsafe { next.as_ref() } {
            let mut request = post::blank_recv();
            // SAFETY: its elements can be read, as the caller promises.
            if unsafe { post::fill_recv(&mut request, wr, most) }.is_err() {
                break;
            }
            requests.push(of_receive(&request));
            next = wr.next;
        }
        record(queue, requests)
    });
    enter();
    let mut first_bad = std::ptr::null_mut();
    let status = post(&mut first_bad);
    if status != 0 {
        if !bad.is_null() {
            // SAFETY: not null, so there is room for a pointer, as the caller promises.
            unsafe { *bad = first_bad };
        }
        // SAFETY: the list is ended by null, as the caller promises.
        let accepted = unsafe { position(wr, first_bad, |wr| wr.next) };
        guarded(|| not_posted(verb, queue, recorded, accepted, Errno(status)));
    }
    status
}

/// See [`cq::poll_cq`].
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: what the application has passed.
    let found = unsafe { cq::poll_cq(cq, most, wc) };
    if found > 0 {
        guarded(|| {
            // SAFETY: so many completions have just been written there, and only the caller knows of them.
            let found = unsafe { std::slice::from_raw_parts_mut(wc, found as usize) };
            with(|state| {
                state.checker.polled(cq.addr());
                for wc in &*found {
                    let receive = wc.opcode >= WcOpcode::Recv as u32;
                    let failed = wc.status != Status::Success as u32;
                    let filled = (!failed && wc.opcode == WcOpcode::Recv as u32).then_some(wc.byte_len);
                    let completion = Completion { wr_id: wc.wr_id, qpn: wc.qp_num, receive, failed, filled };
                    completed(state, completion);
                }
            });
            found.iter_mut().filter(|wc| wc.status != Status::Success as u32).for_each(undefine);
        });
    }
    guarded(write);
    found
}

/// A completion of `ibv_start_poll` or `ibv_next_poll`.
pub(crate) fn polled(cq: usize, cqe: &Cqe) {
    let receive = matches!(cqe.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    let failed = cqe.status != Status::Success;
    let filled = (!failed && cqe.opcode == WcOpcode::Recv).then_some(cqe.byte_len);
    let completion = Completion { wr_id: cqe.wr_id, qpn: cqe.qpn.get(), receive, failed, filled };
    with(|state| {
        state.checker.polled(cq);
        completed(state, completion);
    });
    write();
}

/// What stands where nothing is defined.
const NOTHING: u8 = 0x5A;

/// Fills the fields that mean nothing in a failed completion, so that a program that reads them does not happen to work.
fn undefine(wc: &mut ibv_wc) {
    let ibv_wc { wr_id, status, qp_num, vendor_err, .. } = *wc;
    // SAFETY: integers, and a union of integers: any bytes are valid.
    *wc = unsafe { std::mem::transmute::<[u8; size_of::<ibv_wc>()], ibv_wc>([NOTHING; size_of::<ibv_wc>()]) };
    (wc.wr_id, wc.status, wc.qp_num, wc.vendor_err) = (wr_id, status, qp_num, vendor_err);
}

fn completed(state: &mut State, completion: Completion) {
    // SAFETY: the bytes were registered when the request was posted.
    let receive = state.checker.completed(completion, |request| unsafe { sum(request) });
    if let (Some((queue, receive)), Some(length)) = (receive, completion.filled)
        && let Some((addr, length)) = state.checker.behind(queue, &receive, length.into())
    {
        // SAFETY: bytes of a receive that is complete, in a region that is registered for writing, as the receive was.
        unsafe { write_if_mapped(addr as usize, &[NOTHING; 64][..length as usize]) };
    }
}

/// Requests of `ibv_wr_complete` that are about to be posted.
pub(crate) fn building(qp: &QpObject, requests: &[SendRequest]) -> usize {
    enter();
    record(Queue::Send(qp.nic.qpn().get()), requests.iter().map(of_send).collect())
}

/// They were refused, all of them.
pub(crate) fn not_built(qp: &QpObject, recorded: usize, errno: Errno) {
    not_posted("ibv_wr_complete", Some(Queue::Send(qp.nic.qpn().get())), recorded, 0, errno);
}

/// Tells that requests are about to be posted: before they are, since they may fail at once.
fn record(queue: Queue, requests: Vec<Request>) -> usize {
    let count = requests.len();
    let lines = softrnic_stacks::lines();
    with(|state| {
        let posted = state.traces.here(lines);
        for request in requests {
            let request = Request { posted, ..request };
            // SAFETY: the bytes are registered, as was just found.
            let sum = state.checker.keeps_bytes(queue, &request).then(|| unsafe { sum(&request) }).flatten();
            state.checker.post(queue, Request { sum, ..request });
        }
    });
    count
}

/// All but the first `accepted` of what was recorded were refused.
fn not_posted(verb: &str, queue: Option<Queue>, recorded: usize, accepted: usize, errno: Errno) {
    let why = why();
    let Some(queue) = queue else { return };
    let lines = softrnic_stacks::lines();
    with(|state| {
        state.checker.withdraw(queue, recorded.saturating_sub(accepted));
        let call = call(state, verb, lines);
        match errno {
            Errno::NOMEM => state.checker.full(queue, call),
            Errno::INVAL => state.checker.refused(Kind::RefusedRequest, said(verb, errno, why), call, None),
            _ => {}
        }
    });
}

/// The place of a request in its list.
///
/// # Safety
/// The list is ended by null, and `next` leads from each to the next.
unsafe fn position<T>(first: *mut T, at: *mut T, next: impl Fn(&T) -> *mut T) -> usize {
    let (mut count, mut wr) = (0, first);
    while wr != at {
        // SAFETY: a request of the list, as the caller promises.
        let Some(this) = (unsafe { wr.as_ref() }) else { break };
        count += 1;
        wr = next(this);
    }
    count
}

/// Runs what the checker does, which neither unwinds into C nor changes `errno`.
fn guarded<T: Default>(work: impl FnOnce() -> T) -> T {
    guard_data_path::<Plain<T>>(|| Ok(Plain(work())))
}
