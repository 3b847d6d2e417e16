//! The capture files of this process. Devices with the same path share one file; processes never do.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use softrnic_link::Link;
use softrnic_link::capture::{Capture, CaptureOptions, open_file};

use super::clock::Clock;

/// A capture that is being written, as long as a device uses it.
pub struct OpenCapture {
    capture: Capture,
    process: u32,
    /// Keeps other processes from writing the file.
    _lock: File,
}

impl OpenCapture {
    /// Records what passes through `link`, as the traffic of `device`.
    pub(super) fn record(&self, link: Box<dyn Link>, device: &str) -> Box<dyn Link> {
        Box::new(self.capture.wrap(link, device))
    }
}

static OPEN: Mutex<Option<HashMap<PathBuf, Weak<OpenCapture>>>> = Mutex::new(None);

/// The capture at `path`. If another running process writes that file, this process's id is added to the name.
///
/// # Errors
/// The file cannot be written.
pub(super) fn open(path: &str) -> io::Result<Arc<OpenCapture>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_with(HashMap::new);
    let process = std::process::id();
    // What a forked child inherits belongs to its parent.
    let known = open.get(Path::new(path)).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| known.process == process) {
        return Ok(known);
    }
    let (file, path_of_file) = claim(path)?;
    let options = CaptureOptions { epoch: Some(Clock::start().epoch()), ..CaptureOptions::default() };
    let lock = file.try_clone()?;
    let capture = Capture::to(file, path_of_file, options)?;
    let opened = Arc::new(OpenCapture { capture, process, _lock: lock });
    open.insert(path.into(), Arc::downgrade(&opened));
    Ok(opened)
}

/// Locks the file, or one with this process's id in its name.
fn claim(path: &str) -> io::Result<(File, PathBuf)> {
    let number = std::process::id().to_string();
    let wanted = PathBuf::from(path.replace("%p", &number));
    if let Some(lock) = lock(&wanted)? {
        return Ok((lock, wanted));
    }
    let mut name = wanted.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".{number}"));
    if let Some(extension) = wanted.extension() {
        name.push(".");
        name.push(extension);
    }
    let own = wanted.with_file_name(name);
    match lock(&own)? {
        Some(lock) => Ok((lock, own)),
        None => Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it")),
    }
}

fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_file(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_a_process_share_a_file_and_processes_do_not() {
        let folder = std::env::temp_dir().join(format!("softrnic-captures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let path = folder.join("all.pcapng");
        let text = path.to_str().expect("text");
        let first = open(text).expect("opens");
        assert!(Arc::ptr_eq(&first, &open(text).expect("opens")));
        drop(first);
        let again = open(text).expect("opens anew");
        assert_eq!(again.capture.path(), path);

        let foreign = folder.join("foreign.pcapng");
        let _held = lock(&foreign).expect("opens").expect("free");
        let own = open(foreign.to_str().expect("text")).expect("opens under another name");
        assert_eq!(own.capture.path(), folder.join(format!("foreign.{}.pcapng", std::process::id())));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
