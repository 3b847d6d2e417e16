//! Threads that wait for events of completion queues: those that wait although there are completions.
//!
//! A thread that waits cannot look, so another one does, once a second. Threads of the program may poll the queue meanwhile, so
//! it must have held the same number of completions all the time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrnic_check::{Part, Trace};
use softrnic_nic::verbs::{CompletionChannel, Cq, Status};

use super::{State, cqs, is_on, with};

/// How often to look, and how long a thread waits until that is strange.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// A thread that waits.
#[derive(Clone)]
pub(super) struct Wait {
    channel: Arc<CompletionChannel>,
    since: Instant,
    call: Trace,
    /// What its queues held when somebody looked: address and number.
    held: Vec<(usize, usize)>,
}

pub(super) fn this_thread() -> libc::pid_t {
    // The C library has a function for it since glibc 2.30, and releases run on older ones.
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// This thread is about to wait for an event.
#[cold]
pub fn begin(channel: &Arc<CompletionChannel>) {
    let lines = softrnic_stacks::lines();
    with(|state: &mut State| {
        let call = state.traces.here(lines);
        let wait = Wait { channel: channel.clone(), since: Instant::now(), call, held: Vec::new() };
        state.waits.insert(this_thread(), wait);
    });
}

/// It waits no longer.
#[cold]
pub fn end() {
    with(|state| state.waits.remove(&this_thread()));
}

/// Looks at those that wait.
pub(super) fn look() {
    let waits: Vec<(libc::pid_t, Wait)> = with(|state| {
        // One that was cancelled waits no longer, and could not say so.
        state.waits.retain(|thread, _| Path::new(&format!("/proc/self/task/{thread}")).exists());
        state.waits.iter().map(|(thread, wait)| (*thread, wait.clone())).collect()
    })
    .unwrap_or_default();
    if waits.is_empty() {
        return;
    }
    let cqs = cqs::all();
    let is_strange = |wait: &Wait| wait.since.elapsed() >= PERIOD && !wait.channel.has_events();
    for (thread, wait) in waits.into_iter().filter(|(_, wait)| is_strange(wait)) {
        let is_its = |cq: &Cq| cq.channel().is_some_and(|channel| Arc::ptr_eq(channel, &wait.channel));
        let its = cqs.iter().filter(|(_, cq)| is_its(cq)).map(|(address, cq)| (*address, cq.waiting()));
        let held: Vec<(usize, usize)> = its.filter(|(_, waiting)| *waiting > 0).collect();
        with(|state| {
            let Some(known) = state.waits.get_mut(&thread).filter(|known| known.since == wait.since) else {
                return;
            };
            known.held.clone_from(&held);
            for (cq, waiting) in held.iter().filter(|one| wait.held.contains(one)) {
                let call = Part { says: "ibv_get_cq_event was called".into(), trace: wait.call };
                state.checker.missed(*cq, *waiting, call);
            }
        });
    }
}

/// A CQ is about to be destroyed: completions that nobody will poll. Those that were flushed say nothing.
#[cold]
pub fn destroys(address: usize, cq: &Cq) {
    if !is_on() || with(|state| state.checker.is_unpolled(address)) != Some(true) {
        return;
    }
    let mut completions = 0;
    cq.poll_with(usize::MAX, |cqe| completions += usize::from(cqe.status != Status::Flushed));
    if completions > 0 {
        with(|state| state.checker.unpolled(address, completions));
    }
}

/// The program ends.
pub(super) fn at_exit() {
    for (address, cq) in cqs::all() {
        if with(|state| state.checker.is_unpolled(address)) == Some(true) && cq.waiting() > 0 {
            with(|state| state.checker.unpolled(address, cq.waiting()));
        }
    }
}
