//! Slow motion: on a fabric that runs slower than the clock, a program's time runs slower by the same factor.
//!
//! `softrnic fabric exec` sets `SOFTRNIC_SLOW` to that factor. Then the clocks that a program reads by the C library, and
//! the processor's time stamp counter, are slowed from the moment at which libibverbs opens the first device. What the
//! NIC reads are the same clocks. Waits of the program's own are not slowed: a second of `sleep` takes a second of the
//! wall clock. Waits until a point in time end when that much time of the wall clock has passed.
//!
//! **A program that waits by reading a clock** is hardly slowed either: from [`time::IN_A_ROW`] reads on with no look at the
//! network in between, its time passes at most ten times slower, until it looks at the network again. Programs measure the
//! frequency of the counter so, for a fifth of a second.
//!
//! Without the variable, each function here calls the next one of its name.

mod clocks;
#[cfg(not(test))]
#[cfg_attr(not(target_arch = "x86_64"), path = "slow/no_counter.rs")]
mod counter;
#[cfg(not(test))]
mod programs;
mod time;

/// The counter of the processor, as it is.
fn counter_now() -> u64 {
    #[cfg(not(test))]
    return counter::now();
    #[cfg(test)]
    0
}

#[cfg(not(test))]
mod start {
    use std::ffi::CStr;
    use std::sync::atomic::AtomicU64;

    use super::{counter, programs, time};

    #[used]
    #[unsafe(link_section = ".init_array")]
    static START: extern "C" fn() = start;

    /// When the library is loaded: the counter can be trapped in all threads only before there are any.
    extern "C" fn start() {
        if let Some(factor) = factor()
            && counter::trap()
        {
            time::prepare(factor);
            programs::prepare();
        }
    }

    fn factor() -> Option<u64> {
        // SAFETY: reads a number that the process was given when it started; takes no pointers.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return None;
        }
        // SAFETY: the name is a C string, and no other thread can change the environment yet.
        let value = unsafe { libc::getenv(c"SOFTRNIC_SLOW".as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: not null, so a C string.
        let text = unsafe { CStr::from_ptr(value) }.to_str().ok()?;
        text.parse().ok().filter(|factor| (2..=time::MOST).contains(factor))
    }

    /// Called by the verbs library (`sys/pace.rs`) when it opens a device on a slow fabric. `looks` counts looks at the
    /// network. Returns whether time is slowed by that factor now.
    #[unsafe(no_mangle)]
    extern "C" fn softrnic_interpose_slow_down(factor: u64, looks: &'static AtomicU64) -> bool {
        time::slow_down(factor, looks)
    }
}
