//! The capture files of this process. Devices with the same path share one file; processes never do.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use softrnic_link::Link;
use softrnic_link::capture::{Capture, CaptureOptions, Ring, WhenFull, first_file, open_file};
use softrnic_link::fault::FaultNotes;

use super::clock::Clock;
use super::recording::Recording;

/// A capture that is being written, as long as a device uses it.
pub struct OpenCapture {
    capture: Capture,
    process: u32,
}

impl OpenCapture {
    /// Records what passes through `link`, as the traffic of `device`, with notes about faults above it.
    pub(super) fn record(&self, link: Box<dyn Link>, device: &str, notes: FaultNotes) -> Box<dyn Link> {
        Box::new(self.capture.wrap(link, device).with_notes(notes))
    }
}

static OPEN: Mutex<Option<HashMap<PathBuf, Weak<OpenCapture>>>> = Mutex::new(None);

/// The capture that a recording asks for. If another running process writes its file, this process's id is added to the
/// name.
///
/// # Errors
/// The file cannot be written.
pub(super) fn open(recording: &Recording) -> io::Result<Arc<OpenCapture>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_with(HashMap::new);
    let process = std::process::id();
    // What a forked child inherits belongs to its parent.
    let known = open.get(Path::new(&recording.path)).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| known.process == process) {
        return Ok(known);
    }
    let options = CaptureOptions {
        epoch: Some(Clock::start().epoch()),
        when_full: if recording.lossy { WhenFull::Lose } else { WhenFull::Pause },
        snap_len: recording.snap_len,
        ring: recording.file_bytes.map(|file_bytes| Ring { file_bytes, files: recording.files }),
        ..CaptureOptions::default()
    };
    // The file that is being written keeps its lock, so that no other process writes it.
    let (file, path) = claim(&recording.path, options.ring)?;
    let capture = Capture::to(file, path, options)?;
    let opened = Arc::new(OpenCapture { capture, process });
    open.insert(recording.path.clone().into(), Arc::downgrade(&opened));
    Ok(opened)
}

/// Locks the first file of a capture, or of one with this process's id in its name. Returns the name of the capture too.
/// In a ring, the first file may be deleted and its lock gone, so the id has to tell processes apart.
fn claim(path: &str, ring: Option<Ring>) -> io::Result<(File, PathBuf)> {
    let number = std::process::id().to_string();
    let wanted = PathBuf::from(path.replace("%p", &number));
    let may_be_wanted = ring.is_none() || path.contains("%p");
    if may_be_wanted && let Some(lock) = lock(&first_file(&wanted, ring))? {
        return Ok((lock, wanted));
    }
    let mut name = wanted.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".{number}"));
    if let Some(extension) = wanted.extension() {
        name.push(".");
        name.push(extension);
    }
    let own = wanted.with_file_name(name);
    match lock(&first_file(&own, ring))? {
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
        let all = Recording::from(path.to_str().expect("text"));
        let first = open(&all).expect("opens");
        assert!(Arc::ptr_eq(&first, &open(&all).expect("opens")));
        drop(first);
        let again = open(&all).expect("opens anew");
        assert_eq!(again.capture.path(), path);

        let foreign = folder.join("foreign.pcapng");
        let _held = lock(&foreign).expect("opens").expect("free");
        let own = open(&Recording::from(foreign.to_str().expect("text"))).expect("opens under another name");
        assert_eq!(own.capture.path(), folder.join(format!("foreign.{}.pcapng", std::process::id())));

        let mut ring = Recording::from(folder.join("ring.pcapng").to_str().expect("text"));
        ring.file_bytes = Some(1_000_000);
        let ring = open(&ring).expect("opens");
        assert_eq!(ring.capture.path(), folder.join(format!("ring.{}.pcapng", std::process::id())));
        assert!(folder.join(format!("ring.{}_00001.pcapng", std::process::id())).exists());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
