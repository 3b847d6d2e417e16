//! How a thread shares its processor with others.

use std::time::Duration;

/// Asks the scheduler for short slices. Under EEVDF (Linux 6.12), a thread with a shorter slice gets the processor at
/// once when it wakes, even from an application that spins on memory which this thread will write. Older kernels ignore
/// the request, and the wake-up waits its turn.
pub fn ask_for_short_slices(slice: Duration) {
    /// `SCHED_FLAG_KEEP_POLICY`. With a real-time policy the call fails, and the policy stays as it is.
    const KEEP_POLICY: u64 = 8;
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // SAFETY: asks for a number; it fails only for threads of others.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: 0,
        flags: KEEP_POLICY,
        nice,
        priority: 0,
        runtime: slice.as_nanos() as u64,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure has the size that it states, and lives through the call, which reads it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
