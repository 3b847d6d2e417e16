//! Running models in loom, for the crates that build on this one too.

/// Explores a model completely, or up to `preemptions` switches of a thread that could have gone on.
pub fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}
