//! Opens a capture file safely where other users may have put something in its place.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens the file, or creates one that only its owner can read. Does not truncate it.
///
/// Refuses what another user has put there: a symbolic link or second hard link would make us overwrite a file of our
/// own, and a pipe or file of theirs would show them the packets. A pipe of our own is accepted if it has a reader.
/// Only root can have put anything else there, such as `/dev/null`.
///
/// # Errors
/// Those of the system calls, and the refusals above.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let opened = match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path),
        // Nobody else can have made it.
        created => return created.and_then(blocking),
    };
    let refused = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link, and captures do not follow symbolic links"),
        Some(libc::ENXIO) => io::Error::new(ErrorKind::NotConnected, "it is a pipe without a reader"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_char_device() {
        if !softrnic_sys::is_user(metadata.uid(), rustix::process::geteuid().as_raw()) {
            return Err(refused("it belongs to another user, who could read or change it"));
        }
        if metadata.is_file() && metadata.nlink() > 1 {
            return Err(refused("it has another name (hard link), so another file could be overwritten"));
        }
        if !metadata.is_file() && !kind.is_fifo() {
            return Err(refused("it is not a file"));
        }
    }
    blocking(file)
}

/// The writer thread may wait for the reader of a pipe.
fn blocking(file: File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&file, flags)?;
    Ok(file)
}
