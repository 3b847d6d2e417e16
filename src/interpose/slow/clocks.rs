//! The functions that read clocks, and those that wait until a point in time.

use std::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};

use super::time;

/// A point in time, or a length, in nanoseconds.
fn nanos(time: &timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn set(time: &mut timespec, nanos: i128) {
    time.tv_sec = nanos.div_euclid(1_000_000_000) as libc::time_t;
    time.tv_nsec = nanos.rem_euclid(1_000_000_000) as _;
}

/// A clock as the kernel has it. By a system call: where there is one in user space, it reads the counter, which traps.
fn wall(id: clockid_t) -> Option<timespec> {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure, which lives through the call.
    let status = unsafe { libc::syscall(libc::SYS_clock_gettime, id, &raw mut time) };
    (status == 0).then_some(time)
}

/// The monotonic clock, in nanoseconds.
pub fn monotonic() -> u64 {
    wall(libc::CLOCK_MONOTONIC).map_or(0, |time| nanos(&time) as u64)
}

/// Whether a clock measures time that passes, rather than the work of a processor.
fn passes(id: clockid_t) -> bool {
    matches!(
        id,
        libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
            | libc::CLOCK_TAI
    )
}

/// A clock as the program has it.
fn own(id: clockid_t) -> Option<timespec> {
    let mut time = wall(id)?;
    if passes(id) {
        #[cfg(not(test))]
        super::programs::stays();
        time::note_read();
        let now = if id == libc::CLOCK_MONOTONIC { nanos(&time) as u64 } else { monotonic() };
        let lagging = nanos(&time) - i128::from(time::lag_at(now));
        set(&mut time, lagging);
    }
    Some(time)
}

/// The point in time of the wall clock that is as far away as `deadline` is by the program's clock.
fn by_the_wall(mut deadline: timespec) -> timespec {
    let later = nanos(&deadline) + i128::from(time::lag_at(monotonic()));
    set(&mut deadline, later);
    deadline
}

#[cfg(not(test))]
mod functions {
    use super::*;
    use crate::next::{fail, next};

    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(id: clockid_t, into: *mut timespec) -> c_int {
        type Function = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
        if time::is_prepared() && passes(id) {
            let Some(time) = own(id) else { return fail(libc::EINVAL) };
            // SAFETY: the application's structure, as the C library's function requires.
            unsafe { *into = time };
            return 0;
        }
        let Some(next) = next!(clock_gettime, Function) else { return fail(libc::ENOSYS) };
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        unsafe { next(id, into) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn gettimeofday(into: *mut libc::timeval, zone: *mut c_void) -> c_int {
        type Function = unsafe extern "C" fn(*mut libc::timeval, *mut c_void) -> c_int;
        if time::is_prepared()
            && zone.is_null()
            && !into.is_null()
            && let Some(time) = own(libc::CLOCK_REALTIME)
        {
            // SAFETY: not null, so the application's structure.
            unsafe { *into = libc::timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1000 } };
            return 0;
        }
        let Some(next) = next!(gettimeofday, Function) else { return fail(libc::ENOSYS) };
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        unsafe { next(into, zone) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn time(into: *mut libc::time_t) -> libc::time_t {
        type Function = unsafe extern "C" fn(*mut libc::time_t) -> libc::time_t;
        if super::time::is_prepared()
            && let Some(time) = own(libc::CLOCK_REALTIME)
        {
            if !into.is_null() {
                // SAFETY: not null, so the application's variable.
                unsafe { *into = time.tv_sec };
            }
            return time.tv_sec;
        }
        let Some(next) = next!(time, Function) else { return fail(libc::ENOSYS) };
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        unsafe { next(into) }
    }

    const TIMER_ABSTIME: c_int = 1;

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn clock_nanosleep(
        id: clockid_t,
        flags: c_int,
        time: *const timespec,
        left: *mut timespec,
    ) -> c_int {
        type Function =
            unsafe extern "C-unwind" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
        let Some(next) = next!(clock_nanosleep, Function) else { return libc::ENOSYS };
        if super::time::is_prepared() && flags & TIMER_ABSTIME != 0 && passes(id) && !time.is_null() {
            // SAFETY: not null, so the application's structure.
            let until = by_the_wall(unsafe { *time });
            // SAFETY: the next function of this name; what it reads lives through the call.
            return unsafe { next(id, flags, &raw const until, left) };
        }
        // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
        unsafe { next(id, flags, time, left) }
    }

    /// Defines functions that wait until a point in time, and return an error number.
    macro_rules! wait_until {
        ($(fn $name:ident($($arg:ident: $type:ty),*; until) or $failed:expr;)*) => {$(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type,)* until: *const timespec) -> c_int {
                type Function = unsafe extern "C-unwind" fn($($type,)* *const timespec) -> c_int;
                let Some(next) = next!($name, Function) else { return $failed };
                if !time::is_prepared() || until.is_null() {
                    // SAFETY: the next function of this name, with the application's arguments.
                    return unsafe { next($($arg,)* until) };
                }
                // SAFETY: not null, so the application's structure.
                let until = by_the_wall(unsafe { *until });
                // SAFETY: the next function of this name; what it reads lives through the call.
                unsafe { next($($arg,)* &raw const until) }
            }
        )*};
    }

    wait_until! {
        fn pthread_cond_timedwait(condition: *mut c_void, mutex: *mut c_void; until) or libc::ENOSYS;
        fn pthread_cond_clockwait(condition: *mut c_void, mutex: *mut c_void, id: clockid_t; until) or libc::ENOSYS;
        fn pthread_mutex_timedlock(mutex: *mut c_void; until) or libc::ENOSYS;
        fn pthread_mutex_clocklock(mutex: *mut c_void, id: clockid_t; until) or libc::ENOSYS;
        fn sem_timedwait(semaphore: *mut c_void; until) or fail(libc::ENOSYS);
        fn sem_clockwait(semaphore: *mut c_void, id: clockid_t; until) or fail(libc::ENOSYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_are_whole() {
        let mut time = timespec { tv_sec: 1, tv_nsec: 5 };
        let before = nanos(&time) - 2_000_000_000;
        set(&mut time, before);
        assert_eq!((time.tv_sec, time.tv_nsec, nanos(&time)), (-1, 5, before));
    }

    #[test]
    fn processor_time_is_left_alone() {
        assert!(passes(libc::CLOCK_MONOTONIC) && !passes(libc::CLOCK_PROCESS_CPUTIME_ID));
        assert!(own(libc::CLOCK_THREAD_CPUTIME_ID).is_some() && wall(-1).is_none());
    }
}
