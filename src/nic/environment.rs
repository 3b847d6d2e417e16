//! The process's environment: the one place that reads it.
//!
//! A program that gains privileges when it is started (setuid, setgid, file capabilities) keeps the environment of who
//! started it, who may not have them. The kernel says so (`AT_SECURE`, `getauxval(3)`); nothing there is believed then.

use std::ffi::OsString;
use std::path::PathBuf;

/// The value of a variable that is set, not empty, and may be believed.
pub fn variable(name: &str) -> Option<OsString> {
    (!gains_privileges()).then(|| std::env::var_os(name)).flatten().filter(|value| !value.is_empty())
}

/// [`variable`], where it is text.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// [`variable`], as a path.
pub fn path(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from)
}

/// Whether this program has more rights than who started it.
fn gains_privileges() -> bool {
    // SAFETY: reads a number that the kernel gave the process when it began; takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
