//! Looking into the NICs of running processes.
//!
//! Every device offers a Unix socket in a directory that only its user can enter ([`directory`]). Whoever
//! connects is given one [`Snapshot`] as JSON, taken at that moment by the progress thread; then the connection
//! is closed. So looking costs the data path nothing while nobody looks, and what is seen is consistent.

mod look;
mod meaning;
mod server;
mod snapshot;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use look::{Look, Silent, look, running};
pub(crate) use meaning::link_counters;
pub use meaning::meaning;
pub(crate) use server::StatsSocket;
pub use snapshot::{PeerSnapshot, QpSnapshot, Snapshot};

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
    check_private(&path)?;
    Ok(path)
}

/// Whether a directory is ours and nobody else's.
fn check_private(path: &Path) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(path)?;
    if metadata.is_dir() && metadata.uid() == user() && metadata.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not private", path.display())))
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
