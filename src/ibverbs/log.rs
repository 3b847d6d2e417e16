//! Logging: off, unless `SOFTRNIC_LOG` names a level.

use std::io;

use softrnic_sys::environment;
use tracing::level_filters::LevelFilter;

/// Sends log messages at `SOFTRNIC_LOG` or above (error, warn, info, debug, trace) to stderr.
pub(crate) fn start() {
    let Some(level) = environment::text("SOFTRNIC_LOG").and_then(|level| level.parse::<LevelFilter>().ok())
    else {
        return;
    };
    // Another copy of this library may have been first; then its subscriber stays.
    let _ =
        tracing_subscriber::fmt().with_max_level(level).with_writer(|| Stderr).with_ansi(false).try_init();
}

/// The descriptor, without Rust's lock: a child whose parent was logging at the fork would wait for ever.
struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the kernel reads the bytes. Through `syscall`, since the caller may hold the NIC, and must not be
        // cancelled.
        let written =
            unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, bytes.as_ptr(), bytes.len()) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
