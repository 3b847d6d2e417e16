//! The pace of this process's time: on a fabric in slow motion, its clocks are slowed.
//!
//! Clocks are slowed for the whole process, by the library that `softrnic run` preloads (`src/interpose/slow.rs`), so the
//! NIC's timers follow the fabric by themselves. Waits are the kernel's, which knows nothing of that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// By how much time is slowed.
static FACTOR: AtomicU32 = AtomicU32::new(1);

/// Slows the clocks of this process by a factor. `looks` counts looks at the network. Returns whether they are slowed so
/// now: the process must have been started for that, and its time has one pace.
pub fn slow_down(factor: u32, looks: &'static AtomicU64) -> bool {
    type SlowDown = unsafe extern "C" fn(u64, &'static AtomicU64) -> bool;
    let before = FACTOR.load(Ordering::Relaxed);
    if before != 1 || factor == 1 {
        return before == factor;
    }
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softrnic_interpose_slow_down".as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: the function of that name has this type (`interpose/slow.rs`); preloaded libraries stay.
    let slowed = unsafe { std::mem::transmute::<*mut libc::c_void, SlowDown>(found)(factor.into(), looks) };
    if slowed {
        FACTOR.store(factor, Ordering::Relaxed);
    }
    slowed
}

/// How long it takes by the wall clock until this much time has passed here.
pub fn by_the_wall(time: Duration) -> Duration {
    time.saturating_mul(FACTOR.load(Ordering::Relaxed))
}

/// How much time passes here while this much passes by the wall clock.
pub fn from_the_wall(time: Duration) -> Duration {
    match FACTOR.load(Ordering::Relaxed) {
        1 => time,
        factor => time / factor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_not_started_for_it_is_not_slowed() {
        static LOOKS: AtomicU64 = AtomicU64::new(0);
        assert!(slow_down(1, &LOOKS) && !slow_down(100, &LOOKS));
        let second = Duration::from_secs(1);
        assert_eq!((by_the_wall(second), from_the_wall(second)), (second, second));
    }
}
