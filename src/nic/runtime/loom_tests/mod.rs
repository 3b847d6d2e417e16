//! Every interleaving of the protocols, and beside each a broken variant in which loom must find the failure.

mod arming;
mod doorbells;
mod kick;
mod lock;
mod naive;
mod queue;

/// Explores a model completely, or up to `preemptions` switches of a thread that could have gone on.
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn join<const N: usize>(threads: [loom::thread::JoinHandle<()>; N]) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
