//! The process's environment, for everything that runs inside an application.
//!
//! A program that gains privileges when it is started (setuid, setgid, file capabilities) keeps the environment of a
//! user who may not have them. The kernel reports that (`AT_SECURE`, `getauxval(3)`), and the environment is then not
//! trusted.

use std::ffi::OsString;
use std::path::PathBuf;

/// The value of a variable that is set, not empty, and may be trusted.
pub fn variable(name: &str) -> Option<OsString> {
    (!gains_privileges()).then(|| std::env::var_os(name)).flatten().filter(|value| !value.is_empty())
}

/// [`variable`], if it is text.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// [`variable`], as a path.
pub fn path(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from)
}

/// Whether this program has more privileges than the user that started it.
fn gains_privileges() -> bool {
    // SAFETY: reads a number that the kernel gave the process when it started; takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
