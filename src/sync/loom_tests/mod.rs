//! Every interleaving of the protocols, and beside each a broken variant in which loom must find the failure.

mod arming;
mod doorbells;
mod kick;
mod lanes;
mod lock;
mod naive;
mod queue;

use loom::thread::JoinHandle;

use crate::models::explore;

/// Sleeps until `readable`: at the latest, that must be so when all others are done.
fn sleep(others: &mut Vec<JoinHandle<()>>, readable: impl Fn() -> bool) {
    if !readable() {
        join(std::mem::take(others));
        assert!(readable(), "asleep for ever");
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
