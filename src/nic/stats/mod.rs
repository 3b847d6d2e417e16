//! Looking into the NICs of running processes.
//!
//! Every device offers a Unix socket in a directory that only its user can enter ([`directory`]). Whoever
//! connects is given one [`Snapshot`] as JSON, taken at that moment by the progress thread; then the connection
//! is closed. So looking costs the data path nothing while nobody looks, and what is seen is consistent.

mod server;
mod snapshot;

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use server::StatsSocket;
pub use snapshot::{PeerSnapshot, QpSnapshot, Snapshot};

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The largest snapshot that is read: a hundred thousand QPs and more.
const MAX_SNAPSHOT: u64 = 64 << 20;

/// Where the sockets of this user's devices are: `$XDG_RUNTIME_DIR/softrnic`, or `/tmp/softrnic-UID` where there is
/// no such directory.
pub fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir()) {
        Some(runtime) => PathBuf::from(runtime).join("softrnic"),
        None => PathBuf::from(format!("/tmp/softrnic-{}", user())),
    }
}

/// Makes the directory, or checks that it is ours and nobody else's.
///
/// # Errors
/// It cannot be made, or others can enter it.
pub fn private_directory() -> io::Result<PathBuf> {
    let path = directory();
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let metadata = std::fs::symlink_metadata(&path)?;
    if metadata.is_dir() && metadata.uid() == user() && metadata.mode() & 0o077 == 0 {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not private", path.display())))
    }
}

/// Snapshots of all devices of this user's running processes, by process and name. Sockets that nobody answers
/// any more, left by processes that were killed, are removed.
///
/// # Errors
/// The directory cannot be read; that it is not there means that nothing runs.
pub fn running() -> io::Result<Vec<Snapshot>> {
    let entries = match std::fs::read_dir(directory()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut snapshots = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match read(&path) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Nobody listens there: the process is gone. Somebody else may have removed it meanwhile.
                let _ = std::fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    snapshots.sort_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
    Ok(snapshots)
}

/// One device's snapshot.
///
/// # Errors
/// Nobody answers, or not in time, or not sensibly.
pub fn read(socket: &Path) -> io::Result<Snapshot> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(MAX_SNAPSHOT).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

fn user() -> u32 {
    // SAFETY: always succeeds and touches no memory of ours.
    unsafe { libc::geteuid() }
}
