//! The socket of a device.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use super::{Snapshot, private_directory};

/// A reader that takes its snapshot slower than this loses it.
const PATIENCE: Duration = Duration::from_millis(200);

/// Where a device answers those who want to look. Removed when dropped, except by a forked child.
pub(crate) struct StatsSocket {
    listener: UnixListener,
    path: PathBuf,
    process: u32,
}

impl StatsSocket {
    pub fn open(device: &str) -> io::Result<StatsSocket> {
        let process = std::process::id();
        let directory = private_directory()?;
        let path = directory.join(format!("{process}-{device}.sock"));
        // Between bind and listen a socket refuses connections, as one does whose process is gone: it takes its
        // name when it listens.
        let unnamed = directory.join(format!("{process}-{device}.new"));
        // A leftover of an earlier process with our number.
        let _ = std::fs::remove_file(&unnamed);
        let listener = UnixListener::bind(&unnamed)?;
        listener.set_nonblocking(true)?;
        std::fs::rename(&unnamed, &path)?;
        Ok(StatsSocket { listener, path, process })
    }

    pub fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Answers everybody who has connected.
    pub fn answer(&self, mut snapshot: impl FnMut() -> Option<Snapshot>) {
        while let Ok((stream, _)) = self.listener.accept() {
            let Some(snapshot) = snapshot() else { return };
            // Whoever has gone away, or does not read, misses it.
            let _ = send(stream, &snapshot);
        }
    }
}

fn send(mut stream: UnixStream, snapshot: &Snapshot) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&serde_json::to_vec(snapshot)?)
}

impl Drop for StatsSocket {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
