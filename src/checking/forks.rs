//! Forks while memory is registered.

use std::sync::atomic::{AtomicBool, Ordering};

use softrnic_check::Part;

use super::{is_on, with, write};

/// The program has called `ibv_fork_init`, or has asked whether it need.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// It does.
pub fn prepared() {
    PREPARED.store(true, Ordering::Relaxed);
}

/// It is about to fork.
pub(super) extern "C" fn before() {
    // The environment variables of rdma-core stand for the call.
    let named = |name| softrnic_sys::environment::variable(name).is_some();
    if !is_on() || PREPARED.load(Ordering::Relaxed) || named("IBV_FORK_SAFE") || named("RDMAV_FORK_SAFE") {
        return;
    }
    let lines = softrnic_stacks::lines();
    with(|state| {
        let call = Part { says: "fork was called".into(), trace: state.traces.here(lines) };
        state.checker.forks(call);
    });
    write();
}
