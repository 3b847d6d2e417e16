//! The environment variables that SoftRNIC reads inside an application.
//!
//! A program that gains privileges when it starts (setuid, setgid, file capabilities) inherits the environment of a user
//! who may not have these privileges. The kernel reports this (`AT_SECURE`, `getauxval(3)`), and SoftRNIC then ignores
//! the environment. The interposer reads its variable itself: such a program does not preload it.

use std::ffi::OsString;
use std::path::PathBuf;

/// The value of a variable, unless it is unset or empty, or the environment is not to be trusted.
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
