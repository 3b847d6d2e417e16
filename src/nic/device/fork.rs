//! Fork. The child inherits copies of the NICs and of their descriptors, but none of the threads, and the peers know
//! only one of the two processes. So every NIC stands still during a fork, and the child then drops its copies: the
//! descriptors are closed, objects that it still holds fail, and a device that it opens is a new one.
//!
//! Locks of single objects are not stopped: another thread of the parent may hold any of them, and in the child it
//! would never be released. So a verb checks which process the object belongs to ([`Process`](super::Process)) before
//! it takes one.

use std::sync::{Mutex, MutexGuard, Once, PoisonError, Weak};

use super::{Core, Nic, Process, process};
use softrnic_engine::Budget;
use softrnic_sync::lock::Detached;

static NICS: Mutex<Vec<Weak<Nic>>> = Mutex::new(Vec::new());

/// Held while a device is opened, and during a fork.
static OPENING: Mutex<()> = Mutex::new(());

/// What the handlers hold from before the fork until after it.
struct Held {
    opening: MutexGuard<'static, ()>,
    nics: MutexGuard<'static, Vec<Weak<Nic>>>,
    cores: Vec<(std::sync::Arc<Nic>, Option<Detached>)>,
}

/// Only the forking thread accesses it, between the handlers.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

// SAFETY: only the guards are not `Send`; they are taken and released by the thread that forks, or by its copy in the
// child (`prepare`, `parent`, `child`).
unsafe impl Send for Held {}

/// Registers a NIC that must stand still during a fork.
pub(super) fn register(nic: Weak<Nic>) {
    handle_forks();
    let mut nics = lock(&NICS);
    nics.retain(|known| known.strong_count() > 0);
    nics.push(nic);
}

/// Registers the handlers of forks.
fn handle_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        process::watch();
        // SAFETY: functions that live as long as the program (the C libraries are never unloaded).
        unsafe {
            libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
            libc::atexit(leave);
        }
    });
}

/// Keeps forks out while the devices of the process change.
pub fn opening() -> Opening {
    handle_forks();
    Opening(lock(&OPENING))
}

/// While it lives, the process does not fork.
#[must_use = "forks are kept away while it lives"]
pub struct Opening(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

/// Called in the child once its copies are gone.
static FORGET: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Calls `forget` in the child of every fork, to drop what refers to the parent's NICs. The caller keeps forks out, so
/// that no child finds the list locked.
pub fn on_fork_in_child(_: &Opening, forget: fn()) {
    let mut known = lock(&FORGET);
    if !known.contains(&forget) {
        known.push(forget);
    }
}

extern "C" fn prepare() {
    let opening = lock(&OPENING);
    let nics = lock(&NICS);
    let cores = nics
        .iter()
        .filter_map(Weak::upgrade)
        .map(|nic| {
            let held = nic.core.lock().ok().map(|guard| guard.detach());
            (nic, held)
        })
        .collect();
    *lock(&HELD) = Some(Held { opening, nics, cores });
}

/// Called when the process exits: sends what waits to leave with something else, and takes away what others would find.
extern "C" fn leave() {
    // A child whose fork ran no handlers still has the parent's descriptors.
    if !Process::current().is_in_order() {
        return;
    }
    // Another thread may be opening a device, or this one may be what it has interrupted.
    let Ok(nics) = NICS.try_lock() else { return };
    for nic in nics.iter().filter_map(Weak::upgrade) {
        if let Some(stats) = nic.stats() {
            stats.remove();
        }
        nic.leave();
        nic.faults().take();
        // Its last reference may be this one, and threads must not be joined here.
        std::mem::forget(nic);
    }
}

extern "C" fn parent() {
    let Some(held) = lock(&HELD).take() else { return };
    for (nic, core) in held.cores {
        if let Some(core) = core {
            nic.drive(nic.now(), nic.core.attach(core), Budget::default());
        }
    }
}

extern "C" fn child() {
    let Some(mut held) = lock(&HELD).take() else { return };
    for (nic, core) in held.cores.drain(..) {
        if let Some(core) = core {
            let mut guard = nic.core.attach(core);
            guard.leave_to_parent();
            guard.poison();
        }
        // The thread that would join the progress thread is in the parent; its handle must not be dropped here.
        std::mem::forget(nic);
    }
    held.nics.clear();
    let Held { opening, nics, .. } = held;
    drop((nics, opening));
    process::begin_child();
    for forget in lock(&FORGET).iter() {
        forget();
    }
}

impl Core {
    /// Closes the inherited descriptors. The objects stay, useless, until the child drops them.
    fn leave_to_parent(&mut self) {
        self.link = Box::new(super::null_link::NullLink::default());
        self.port = super::Port::fixed(0);
    }
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
