//! The files of a capture: one, or one after the other as each is full, of which the oldest are deleted.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::file;

/// A capture that begins a new file when the last has reached a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    /// A file is full with this many bytes; its last packet may exceed them.
    pub file_bytes: u64,
    /// How many files stay, the one that is being written included; all of them if not given.
    pub files: Option<u32>,
}

/// The first file of a capture at `path`: of a ring, `trace_00001.pcapng` for `trace.pcapng`.
pub fn first_file(path: &Path, ring: Option<Ring>) -> PathBuf {
    if ring.is_some() { numbered(path, 1) } else { path.to_owned() }
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("_{number:05}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The file that is being written, and those before it.
pub(super) struct Files {
    path: PathBuf,
    ring: Option<Ring>,
    number: u64,
    /// Those that stay, oldest first.
    stay: VecDeque<PathBuf>,
}

impl Files {
    /// A capture at `path`, whose first file is open.
    pub(super) fn new(path: PathBuf, ring: Option<Ring>) -> Files {
        let stay = VecDeque::from([first_file(&path, ring)]);
        Files { path, ring, number: 1, stay }
    }

    /// Whether a file of this length is full.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        self.ring.is_some_and(|ring| bytes >= ring.file_bytes)
    }

    /// The file that is being written.
    pub(super) fn current(&self) -> &Path {
        self.stay.back().unwrap_or(&self.path)
    }

    /// Opens the next file, and deletes the oldest if there are too many.
    pub(super) fn next(&mut self) -> io::Result<File> {
        self.number += 1;
        let path = numbered(&self.path, self.number);
        let file = file::open(&path)?;
        file.set_len(0)?;
        self.stay.push_back(path);
        let most = self.ring.and_then(|ring| ring.files).map_or(usize::MAX, |files| files as usize);
        while self.stay.len() > most.max(1) {
            let Some(oldest) = self.stay.pop_front() else { break };
            // One that is not there any more needs no deleting.
            let _ = std::fs::remove_file(oldest);
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_ring_are_numbered_before_the_extension() {
        let ring = Some(Ring { file_bytes: 1000, files: None });
        let first = |path: &str| first_file(Path::new(path), ring).display().to_string();
        assert_eq!(first("/tmp/a.b/trace.pcapng"), "/tmp/a.b/trace_00001.pcapng");
        assert_eq!(first("trace"), "trace_00001");
        assert_eq!(first_file(Path::new("/tmp/trace.pcapng"), None), Path::new("/tmp/trace.pcapng"));
        assert_eq!(numbered(Path::new("a.b.pcapng"), 123_456), Path::new("a.b_123456.pcapng"));
    }
}
