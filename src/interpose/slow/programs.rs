//! Other programs that a slowed program starts. That the counter traps is a property of a thread that `execve` keeps, and a
//! program that has just begun has no handler for it. So it is given up before.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::counter::set_trap;
use super::time;
use crate::next::{fail, next};

/// A child has been forked, and may be about to become another program.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// A child of `fork` gives the trap up, until it reads a clock.
pub fn prepare() {
    // SAFETY: the handler belongs to this library, which stays loaded.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    GIVEN_UP.store(true, Ordering::Relaxed);
    set_trap(false);
}

/// A clock is read: a child that does so stays the same program.
pub fn stays() {
    if GIVEN_UP.load(Ordering::Relaxed) && GIVEN_UP.swap(false, Ordering::Relaxed) {
        set_trap(true);
    }
}

/// Defines functions that start another program, or become one.
macro_rules! start {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty, or $failed:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            let Some(next) = next!($name, Function) else { return $failed };
            if !time::is_prepared() {
                // SAFETY: the next function of this name, with the application's arguments, which meet its contract.
                return unsafe { next($($arg),*) };
            }
            set_trap(false);
            // SAFETY: as before.
            let result = unsafe { next($($arg),*) };
            set_trap(true);
            result
        }
    )*};
}

type Strings = *const *const c_char;

start! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int, or fail(libc::ENOSYS);
    fn execv(path: *const c_char, arguments: Strings) -> c_int, or fail(libc::ENOSYS);
    fn execvp(file: *const c_char, arguments: Strings) -> c_int, or fail(libc::ENOSYS);
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int, or fail(libc::ENOSYS);
    fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int, or fail(libc::ENOSYS);
    fn posix_spawn(
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings,
        environment: Strings
    ) -> c_int, or libc::ENOSYS;
    fn posix_spawnp(
        pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings,
        environment: Strings
    ) -> c_int, or libc::ENOSYS;
    fn system(command: *const c_char) -> c_int, or fail(libc::ENOSYS);
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE, or fail(libc::ENOSYS);
}
