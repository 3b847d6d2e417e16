//! A checker at work in a process: its lock, its settings, the thread that looks at what no call shows, and what is written.
//!
//! `ibverbs` tells what the program does, and looks at one flag where nothing is checked. What is wrong and why is decided in
//! `softrnic-check`. Start reading here; `output.rs` writes.
//!
//! The lock here is a leaf. Whoever holds the NIC may take it, so while it is held the NIC is not called.

pub mod connections;
mod cqs;
mod forks;
mod memory;
mod output;
mod requests;
mod settings;
mod sums;
pub mod waits;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use softrnic_check::Checker;
use softrnic_stacks::Traces;

pub use cqs::{address_of, forget_cq, know_cq};
pub use forks::prepared as prepared_to_fork;
pub use memory::saw;
pub use output::oldest;
pub use requests::{of_receive, of_send};
pub use settings::named;
pub use sums::sum;

use settings::Settings;

/// Whether anything is checked.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether something was found and not written.
static FOUND: AtomicBool = AtomicBool::new(false);
/// Whether the checker needs to be told what the NIC writes.
static LOGGING: AtomicBool = AtomicBool::new(false);
/// What is known of this process. A child gets its own.
static STATE: AtomicPtr<Mutex<State>> = AtomicPtr::new(std::ptr::null_mut());

/// All of it.
#[derive(Default)]
pub struct State {
    /// What it makes of what it is told.
    pub checker: Checker,
    /// The calls that were seen.
    pub traces: Traces,
    /// Threads that wait for completions, by their numbers.
    waits: HashMap<libc::pid_t, waits::Wait>,
    /// What is known of the connection manager.
    connections: connections::Connections,
}

thread_local! {
    /// Why the verb that this thread is in will fail.
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The name of that verb, where it is another than that of the function that was called.
    static VERB: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// The object that it is to destroy.
    static ABOUT: Cell<usize> = const { Cell::new(0) };
}

/// Whether anything is checked.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether it is of interest what the NIC writes. What is posted is known before the NIC has it.
fn is_logging() -> bool {
    LOGGING.load(Ordering::Relaxed)
}

/// Begins to check, if the environment says so; before the first device is opened. `dropped` counts the requests for
/// connections that found no room.
pub fn start(dropped: fn() -> u64) {
    if !settings::is_wanted() || is_on() {
        return;
    }
    if let Err(error) = Settings::read() {
        eprintln!("softrnic: nothing is checked: {error}");
        return;
    }
    begin();
    let _ = connections::DROPPED.set(dropped);
    // SAFETY: a function that lives as long as the program: the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(forks::before), None, Some(in_child)) };
    ON.store(true, Ordering::Relaxed);
    output::start();
}

/// This process has done nothing yet, and nothing was found.
fn begin() {
    FOUND.store(false, Ordering::Relaxed);
    output::begin();
    let state = Box::into_raw(Box::new(Mutex::new(State::default())));
    STATE.store(state, Ordering::Release);
}

/// The child has none of the parent's objects, and another thread of the parent may have held the lock.
extern "C" fn in_child() {
    if is_on() {
        begin();
    }
}

/// Works on what is known. Nothing is checked any longer once that has panicked.
pub fn with<R>(work: impl FnOnce(&mut State) -> R) -> Option<R> {
    // SAFETY: null, or a box that was leaked: nobody ever frees one.
    let state = unsafe { STATE.load(Ordering::Acquire).as_ref()? };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut state);
        LOGGING.store(state.checker.is_logging(), Ordering::Relaxed);
        if state.checker.has_found() {
            FOUND.store(true, Ordering::Release);
            output::wake();
        }
        done
    }));
    done.inspect_err(|_| ON.store(false, Ordering::Relaxed)).ok()
}

/// Remembers why the verb that this thread is in will fail.
#[cold]
pub fn because(why: &dyn std::fmt::Display) {
    let _ = WHY.try_with(|kept| *kept.borrow_mut() = Some(why.to_string()));
}

/// Remembers which object the verb is about.
pub fn about(object: usize) {
    let _ = ABOUT.try_with(|kept| kept.set(object));
}

/// The object that the verb is about; 0 if none is.
pub fn subject() -> usize {
    ABOUT.try_with(Cell::get).unwrap_or(0)
}

/// How the verb is called, if it is not called as its function.
pub fn verb_name() -> Option<&'static str> {
    VERB.try_with(Cell::get).ok().flatten()
}

/// Remembers how the verb is called.
pub(crate) fn verb(name: &'static str) {
    let _ = VERB.try_with(|kept| kept.set(Some(name)));
}

/// A verb begins: what was remembered is of another.
pub fn enter() {
    let _ = VERB.try_with(|kept| kept.set(None));
    let _ = WHY.try_with(|kept| kept.borrow_mut().take());
    about(0);
}

/// Why the verb that this thread is in will fail, if that was remembered.
pub fn why() -> Option<String> {
    WHY.try_with(|kept| kept.borrow_mut().take()).ok().flatten()
}

/// Writes what was found, on a thread of the program.
pub fn write() {
    if FOUND.load(Ordering::Acquire) {
        output::write();
    }
}
