//! Opening a capture file where others may have put something in its place.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens the file, or makes one that nobody else can read; leaves alone what is in it.
///
/// What another user has put there is refused: a symbolic or second hard link would have us overwrite a file of our
/// own, and a pipe or a file of theirs would show them the packets. A pipe of our own is fine as long as it is read.
/// What is no file, such as `/dev/null`, only root can have put there.
///
/// # Errors
/// Those of the system, and the refusals above.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let refused = |why: &str| io::Error::new(ErrorKind::PermissionDenied, why);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link, which a capture does not follow"),
        Some(libc::ENXIO) => io::Error::new(ErrorKind::NotConnected, "it is a pipe that nobody reads"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_char_device() {
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused("it belongs to another user, who could read or change it"));
        }
        if metadata.is_file() && metadata.nlink() > 1 {
            return Err(refused(
                "it has another name too, so that a file would be overwritten that is not meant",
            ));
        }
        if !metadata.is_file() && !kind.is_fifo() {
            return Err(refused("it is no file"));
        }
    }
    // The thread that writes may wait for who reads a pipe.
    let blocking = rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&file, blocking)?;
    Ok(file)
}
