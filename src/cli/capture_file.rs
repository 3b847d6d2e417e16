//! Capture files as arguments: a path, or `-` for standard input; and the progress of reading them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use softrnic_inspect::capture::Reader;

use crate::failure::{Doing, Failure, Result};

/// What to read.
pub struct CaptureFile {
    path: PathBuf,
    /// Standard input, copied so that it can be read twice.
    copied: Option<File>,
}

impl CaptureFile {
    pub fn new(path: PathBuf) -> CaptureFile {
        CaptureFile { path, copied: None }
    }

    pub fn is_stdin(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        match self.path.file_name() {
            Some(name) if !self.is_stdin() => name.to_string_lossy().into_owned(),
            _ => "standard input".to_owned(),
        }
    }

    /// Ensures that the capture can be opened more than once.
    pub fn keep(&mut self) -> Result {
        if self.is_stdin() && self.copied.is_none() {
            let mut copy = unnamed_file()?;
            io::copy(&mut io::stdin().lock(), &mut copy).doing(|| "cannot read standard input".into())?;
            self.copied = Some(copy);
        }
        Ok(())
    }

    /// Starts reading. If there is a terminal, a line shows the progress.
    pub fn open(&self, what: &'static str) -> Result<(Reader<Box<dyn Read>>, ReadProgress)> {
        let (reader, size) = self.reader()?;
        Ok((reader, ReadProgress::new(what, size)))
    }

    /// Its beginning, and how many bytes it has; 0 if that is unknown.
    pub fn reader(&self) -> Result<(Reader<Box<dyn Read>>, u64)> {
        let (source, size): (Box<dyn Read>, u64) = match &self.copied {
            Some(copy) => {
                let mut copy = copy.try_clone()?;
                copy.rewind()?;
                let size = copy.metadata()?.len();
                (Box::new(copy), size)
            }
            None if self.is_stdin() => (Box::new(io::stdin()), 0),
            None => {
                let file = File::open(&self.path).doing(|| format!("cannot open {}", self.path.display()))?;
                let size = file.metadata()?.len();
                (Box::new(file), size)
            }
        };
        let reader = Reader::new(source).doing(|| self.name())?;
        Ok((reader, size))
    }
}

/// A file without a name, which disappears when it is closed. While it has one, others see it, but cannot open it.
fn unnamed_file() -> Result<File> {
    let path = std::env::temp_dir().join(format!("softrnic-{}-{:016x}", std::process::id(), random()?));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.doing(|| format!("cannot create {}", path.display()))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(format!("the system gives no random numbers: {error}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A line that shows the progress of reading; removed when dropped.
pub struct ReadProgress {
    what: &'static str,
    size: u64,
    shown: bool,
    drawn: bool,
    next: Instant,
}

const EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 24;

impl ReadProgress {
    /// If packets scroll over the same terminal, they are progress enough.
    pub fn new(what: &'static str, size: u64) -> ReadProgress {
        let shown = size > 0 && io::stderr().is_terminal() && !io::stdout().is_terminal();
        ReadProgress { what, size, shown, drawn: false, next: Instant::now() + EVERY }
    }

    /// Reports that this many bytes have been read.
    pub fn at(&mut self, offset: u64) {
        if !self.shown || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        self.drawn = true;
        let share = (offset as f64 / self.size as f64).clamp(0.0, 1.0);
        let filled = (share * WIDTH as f64) as usize;
        let bar = format!("{:█<filled$}{:░<empty$}", "", "", empty = WIDTH - filled);
        // A terminal that cannot be written to is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[2K{bar} {:.0} % {}", share * 100.0, self.what);
    }
}

impl Drop for ReadProgress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn other_users_cannot_read_the_copy_of_a_pipe() {
        assert_eq!(unnamed_file().expect("a file").metadata().expect("open").mode() & 0o777, 0o600);
    }
}
