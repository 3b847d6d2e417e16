//! Processors whose counter cannot be trapped: time is not slowed there.

/// Nothing traps.
pub fn set_trap(_traps: bool) {}

/// No counter.
pub fn now() -> u64 {
    0
}

/// It cannot be.
pub fn trap() -> bool {
    false
}
