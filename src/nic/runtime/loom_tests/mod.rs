//! Every interleaving of the protocols, and beside each a broken variant in which loom must find the failure.

mod arming;
mod doorbells;
mod kick;
mod lock;
mod naive;
mod queue;

use loom::thread::JoinHandle;

/// Explores a model completely, or up to `preemptions` switches of a thread that could have gone on.
pub(crate) fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Sleeps until `readable`: at the latest, that must be so when all others are done.
pub(crate) fn sleep(others: &mut Vec<JoinHandle<()>>, readable: impl Fn() -> bool) {
    if !readable() {
        join(std::mem::take(others));
        assert!(readable(), "asleep for ever");
    }
}

pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
