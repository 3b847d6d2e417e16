//! Fork and exit. A child has copies of the parent's identifiers but none of its threads, so it starts without any
//! identifiers. During a fork every manager stands still, stopped before the NICs: that is the order of the locks.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use softrnic_cm::State as At;
use softrnic_sys::{Uncancelled, pace};

use super::manager::{Held, Inner};
use softrnic_nic::device::{Process, opening};

/// At exit, how long peers may take to agree that a connection ends: three repeats of a lost DREQ.
const FAREWELL: Duration = Duration::from_millis(400);
const LOOK: Duration = Duration::from_millis(1);

static MANAGERS: Mutex<Vec<&'static Inner>> = Mutex::new(Vec::new());

/// What the handlers hold from before the fork until after it.
struct All {
    #[expect(dead_code, reason = "held")]
    managers: MutexGuard<'static, Vec<&'static Inner>>,
    held: Vec<Held>,
}

/// Only the forking thread accesses it, between the handlers.
static HELD: Mutex<Option<All>> = Mutex::new(None);

// SAFETY: only the guards are not `Send`; they are taken and released by the thread that forks, or by its copy in the
// child (`prepare`, `parent`, `child`).
unsafe impl Send for All {}

/// Registers a manager that must stand still during a fork.
pub(super) fn register(manager: &'static Inner) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Handlers registered later are called first before a fork: those of the NICs are registered from here on.
        drop(opening());
        // SAFETY: functions that live as long as the program (the C libraries are never unloaded).
        unsafe {
            libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
            libc::atexit(leave);
        }
    });
    lock(&MANAGERS).push(manager);
}

extern "C" fn prepare() {
    let managers = lock(&MANAGERS);
    let held = managers.iter().map(|manager| manager.hold()).collect();
    *lock(&HELD) = Some(All { managers, held });
}

extern "C" fn parent() {
    drop(lock(&HELD).take());
}

extern "C" fn child() {
    let Some(mut all) = lock(&HELD).take() else { return };
    all.held.iter_mut().for_each(Held::begin_anew);
}

/// Called when the process exits: tells its peers, as the kernel would.
extern "C" fn leave() {
    let _uncancelled = Uncancelled::new();
    if !Process::current().is_in_order() {
        return;
    }
    let Ok(managers) = MANAGERS.try_lock() else { return };
    let managers: Vec<&Inner> = managers.clone();
    let until = Instant::now() + pace::from_the_wall(FAREWELL);
    for manager in &managers {
        manager.lock().disconnect_all();
    }
    while managers.iter().any(|manager| manager.lock().is_disconnecting()) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}

impl super::state::State {
    fn disconnect_all(&self) {
        for &(device_index, comm) in self.connections.keys() {
            let _told = self.with_cm(device_index, |management, now| match management.cm().state(comm) {
                Some(At::Established | At::DreqRcvd) => drop(management.cm().disconnect(now, comm, &[])),
                Some(At::ReqSent | At::ReqRcvd | At::RepSent | At::RepRcvd) => {
                    management.cm().destroy(now, comm);
                }
                _ => {}
            });
        }
    }

    fn is_disconnecting(&self) -> bool {
        let of =
            |device_index| self.with_cm(device_index, |management, _| management.cm().is_disconnecting());
        (0..self.devices.len()).any(|device_index| of(device_index).unwrap_or(false))
    }
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
