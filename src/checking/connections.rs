//! What a program does wrong with the connection manager: seen from the commands of librdmacm, and once a second.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::time::Instant;

use softrnic_check::{Part, Trace};
use softrnic_cma::Event;
use softrnic_ucma::{About, Asked};

use super::waits::{PERIOD, this_thread};
use super::{because, verb, with};

/// The most private data of a request and of an acceptance in RDMA_PS_TCP (rdma_connect(3), rdma_accept(3)).
const CONNECT_PRIVATE: usize = 56;
const ACCEPT_PRIVATE: usize = 196;

/// Counts the requests for connections that found no room, on all devices.
pub(super) static DROPPED: OnceLock<fn() -> u64> = OnceLock::new();

/// What is known of identifiers.
#[derive(Default)]
pub(super) struct Connections {
    listeners: HashMap<u32, Listener>,
    /// Events that were taken, by the identifier that they count for.
    taken: HashMap<u32, u32>,
    /// Threads that destroy an identifier.
    destroying: HashMap<libc::pid_t, Destroying>,
    /// Requests that were dropped for lack of room, as far as that was told.
    dropped: u64,
}

struct Listener {
    channel: c_int,
    backlog: i32,
    call: Trace,
    /// Nobody had taken its first request when somebody looked.
    was_full: bool,
    /// Somebody has taken a request, or it was told that nobody does.
    is_settled: bool,
}

#[derive(Clone, Copy)]
struct Destroying {
    since: Instant,
    /// The end of the stack of the call that destroys it.
    top: usize,
    events: u32,
    call: Trace,
}

/// A command is about to be executed.
#[cold]
pub fn asks(channel: c_int, asked: &Asked) {
    verb(asked.function());
    if let About::Destroy { .. } = asked.about() {
        // While it is known which listener has dropped requests.
        look_at_dropped();
    }
    let lines = softrnic_stacks::lines();
    match asked.about() {
        About::Connect { private } if private > CONNECT_PRIVATE => {
            because(&format_args!(
                "{private} bytes of private data, of at most {CONNECT_PRIVATE} in RDMA_PS_TCP"
            ));
        }
        About::Accept { private, .. } if private > ACCEPT_PRIVATE => {
            because(&format_args!(
                "{private} bytes of private data, of at most {ACCEPT_PRIVATE} in RDMA_PS_TCP"
            ));
        }
        _ => {}
    }
    with(|state| {
        let call = state.traces.here(lines);
        let known = &mut state.connections;
        known.destroying.remove(&this_thread());
        match asked.about() {
            About::Listen { id, backlog } => {
                let listener = Listener { channel, backlog, call, was_full: false, is_settled: false };
                known.listeners.insert(id, listener);
            }
            About::Accept { qpn, .. } => state.checker.accepted(qpn, call),
            About::Destroy { id } => {
                known.listeners.remove(&id);
                if let Some(events) = known.taken.remove(&id) {
                    let marker = 0_usize;
                    let top = (&raw const marker).addr() + SEEN;
                    let destroying = Destroying { since: Instant::now(), top, events, call };
                    known.destroying.insert(this_thread(), destroying);
                }
            }
            About::Connect { .. } | About::Other => {}
        }
    });
}

/// An event was taken.
#[cold]
pub fn takes(event: &Event) {
    let owner = event.listener.as_ref().unwrap_or(&event.id).number();
    with(|state| {
        *state.connections.taken.entry(owner).or_default() += 1;
        if event.listener.is_some()
            && let Some(listener) = state.connections.listeners.get_mut(&owner)
        {
            listener.is_settled = true;
        }
    });
}

/// A channel is closed.
#[cold]
pub fn closes(channel: c_int) {
    with(|state| state.connections.listeners.retain(|_, listener| listener.channel != channel));
}

/// Looks at what waits.
pub(super) fn look() {
    with(|state| {
        for listener in state.connections.listeners.values_mut().filter(|listener| !listener.is_settled) {
            let is_full = is_readable(listener.channel);
            if is_full && listener.was_full {
                listener.is_settled = true;
                let call = Part { says: "rdma_listen was called".into(), trace: listener.call };
                state.checker.unserved(call);
            }
            listener.was_full = is_full;
        }
    });
    look_at_destroying();
    look_at_dropped();
}

/// The program ends.
pub(super) fn at_exit() {
    look_at_dropped();
}

fn look_at_dropped() {
    let dropped = DROPPED.get().map_or(0, |count| count());
    with(|state| {
        let known = &mut state.connections;
        if dropped > known.dropped && known.dropped == 0 {
            let calls = known.listeners.values().map(|listener| Part {
                says: format!("rdma_listen was called with a backlog of {}", listener.backlog),
                trace: listener.call,
            });
            state.checker.crowded(dropped, calls.collect());
        }
        known.dropped = known.dropped.max(dropped);
    });
}

fn look_at_destroying() {
    let long: Vec<(libc::pid_t, Destroying)> = with(|state| {
        let known = state.connections.destroying.iter().filter(|(_, it)| it.since.elapsed() >= PERIOD);
        known.map(|(thread, destroying)| (*thread, *destroying)).collect()
    })
    .unwrap_or_default();
    for (thread, destroying) in long {
        let hangs = waits_in(thread, destroying.top, c"rdma_destroy_id");
        with(|state| {
            if state.connections.destroying.remove(&thread).is_some() && hangs {
                let call = Part { says: "rdma_destroy_id was called".into(), trace: destroying.call };
                state.checker.unacked(destroying.events, call);
            }
        });
    }
}

fn is_readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which the kernel fills; it does not wait.
    unsafe { libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &NOW, std::ptr::null::<c_void>(), 0) == 1 }
}

const NOW: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Bytes of the stack above a command where the calls of librdmacm are that wrote it.
const SEEN: usize = 4096;
/// Bytes of a function's code.
const FUNCTION: usize = 1024;

/// Whether a thread sleeps on a futex inside of a function: its return address is among what the thread has on its stack below
/// `top`.
fn waits_in(thread: libc::pid_t, top: usize, function: &CStr) -> bool {
    // SAFETY: looks a name up among those of the process.
    let begin = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) }.addr();
    let Ok(text) = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")) else { return false };
    let mut words = text.split_ascii_whitespace();
    let is_futex = words.next().and_then(|number| number.parse().ok()) == Some(libc::SYS_futex);
    let stack = words.nth(6).and_then(|word| usize::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let Some(stack) = stack.filter(|stack| begin != 0 && is_futex && *stack < top && top - stack < 2 * SEEN)
    else {
        return false;
    };
    let mut bytes = [0_u8; 2 * SEEN];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: top - stack };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(stack), iov_len: top - stack };
    // SAFETY: the kernel writes to `bytes`, which is long enough, and reads memory of this process; what is not there, it refuses.
    let read = unsafe { libc::process_vm_readv(std::process::id() as libc::pid_t, &local, 1, &remote, 1, 0) };
    let read = usize::try_from(read).unwrap_or(0);
    let mut on_stack = bytes[..read].chunks_exact(size_of::<usize>());
    on_stack.any(|word| {
        let address = usize::from_ne_bytes(word.try_into().unwrap_or_default());
        (begin..begin + FUNCTION).contains(&address)
    })
}
