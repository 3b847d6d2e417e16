//! Two processes out of one, and the line between them.
//!
//! The program forks before it has made a thread or opened a device, so the child is as good as a new process.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::options::Places;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The longest that one loop may take; then the signal ends both processes.
const WAIT_TIMEOUT: u32 = 150;

/// The other process, seen from one of them.
pub struct Line(UnixStream);

impl Line {
    /// Sends a few numbers.
    pub fn say(&mut self, words: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(self.0.write_all(&bytes)?)
    }

    /// Waits for as many numbers.
    pub fn hear<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 8];
            self.0.read_exact(&mut bytes).map_err(|_| "the other process has ended")?;
            *word = u64::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// Tells the other process to end what it does.
    pub fn stop(&mut self) -> Result<()> {
        self.say(&[0])
    }

    /// Whether the other process has said [`Line::stop`] or is gone.
    pub fn stopped(&mut self) -> Result<bool> {
        self.0.set_nonblocking(true)?;
        let mut word = [0; 8];
        let read = self.0.read(&mut word);
        self.0.set_nonblocking(false)?;
        match read {
            Ok(0) => Err("the other process has ended".into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A child process, which is waited for when this is dropped.
pub struct Child {
    pid: libc::pid_t,
    pub line: Line,
}

impl Child {
    /// Forks; the child does `work`, in network namespace `netns` if given, and ends.
    ///
    /// Must be called while the process has one thread.
    pub fn fork(netns: Option<&str>, work: impl FnOnce(Line) -> Result<()>) -> Result<Child> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: there is one thread, so the child's copy of everything is consistent.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error().into());
        }
        if pid > 0 {
            return Ok(Child { pid, line: Line(ours) });
        }
        drop(ours);
        // SAFETY: neither call takes a pointer.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::alarm(WAIT_TIMEOUT);
        }
        let status = match enter(netns).and_then(|()| work(Line(theirs))) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("softrnic-bench: error: {error}");
                1
            }
        };
        std::process::exit(status)
    }

    /// Waits for the child, which must succeed.
    pub fn finish(mut self) -> Result<()> {
        match self.wait() {
            0 => Ok(()),
            _ => Err("the other process has failed".into()),
        }
    }

    fn wait(&mut self) -> libc::c_int {
        let mut status = 0;
        let pid = std::mem::take(&mut self.pid);
        if pid > 0 {
            // SAFETY: a child of ours that has not been waited for.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
        }
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: a child of ours that has not been waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

/// Runs `receiver` in a child and `sender` here, each in its namespace; returns what `sender` does.
pub fn pair<T>(
    places: &Places,
    receiver: impl FnOnce(Line) -> Result<()>,
    sender: impl FnOnce(&mut Line) -> Result<T>,
) -> Result<T> {
    limit_time();
    let mut child = Child::fork(places.receiver_netns.as_deref(), receiver)?;
    enter(places.sender_netns.as_deref())?;
    let outcome = sender(&mut child.line)?;
    child.finish()?;
    Ok(outcome)
}

/// Ends this process after a while, whatever it does.
pub fn limit_time() {
    // SAFETY: takes no pointer.
    unsafe { libc::alarm(WAIT_TIMEOUT) };
}

fn enter(netns: Option<&str>) -> Result<()> {
    let Some(name) = netns else { return Ok(()) };
    let file = File::open(format!("/run/netns/{name}"))
        .map_err(|error| format!("network namespace {name}: {error}"))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(format!("cannot enter {name}: {}", io::Error::last_os_error()).into());
    }
    Ok(())
}

/// What this process has used of the processors so far.
pub fn cpu_time() -> Duration {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    // SAFETY: plain C data, for which all zero is valid, and which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
