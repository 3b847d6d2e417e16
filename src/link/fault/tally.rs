//! How often the rules of a link applied, for whoever tells the user when it ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FaultSpec;

/// Shared between a [`FaultLink`](super::FaultLink) and whoever outlives it.
#[derive(Clone, Debug)]
pub struct FaultTally(Arc<[Entry]>);

#[derive(Debug)]
struct Entry {
    rule: String,
    /// Packets in its direction, and those that met all of its conditions.
    seen: AtomicU64,
    matched: AtomicU64,
}

impl FaultTally {
    pub(super) fn new(spec: &FaultSpec) -> FaultTally {
        let entry = |rule: &super::Rule| Entry {
            rule: rule.to_string(),
            seen: AtomicU64::new(0),
            matched: AtomicU64::new(0),
        };
        FaultTally(spec.rules.iter().map(entry).collect())
    }

    pub(super) fn count(&self, index: usize, matched: bool) {
        self.0[index].seen.fetch_add(1, Ordering::Relaxed);
        self.0[index].matched.fetch_add(matched.into(), Ordering::Relaxed);
    }

    /// A line for each rule.
    pub fn lines(&self) -> impl Iterator<Item = impl fmt::Display> {
        self.0.iter().enumerate().map(|(index, entry)| {
            let [matched, seen] = [&entry.matched, &entry.seen].map(|count| count.load(Ordering::Relaxed));
            format!("rule {}, {}: matched {matched} of {seen} packets", index + 1, entry.rule)
        })
    }
}
