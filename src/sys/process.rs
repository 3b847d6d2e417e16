//! Whether the process of a peer of this machine is stopped: by a signal, or by a debugger.

use std::collections::HashMap;
use std::hash::Hash;

use rustix::fs::{Mode, OFlags, open, readlink};

/// Processes that are remembered.
const MOST: usize = 4096;

/// Looks at processes, by whatever key their peers know them. Each look takes system calls, so it is nothing for a thread
/// that holds a NIC.
pub struct ProcessLooks<K> {
    /// Finding a process may leave a trace at it, so that happens once.
    known: HashMap<K, Process>,
}

impl<K> Default for ProcessLooks<K> {
    fn default() -> ProcessLooks<K> {
        ProcessLooks { known: HashMap::new() }
    }
}

/// A process. Its number alone may be given to another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    started: u64,
}

/// What the kernel says about a process.
struct Status {
    state: u8,
    started: u64,
}

impl<K: Eq + Hash> ProcessLooks<K> {
    /// Whether a process is stopped. `find` says its number, if it is not known yet. `false` also if it is not found.
    pub fn is_stopped(&mut self, of: K, find: impl FnOnce() -> Option<i32>) -> bool {
        if let Some(process) = self.known.get(&of)
            && let Some(status) = Status::of(process.pid)
            && status.started == process.started
        {
            return status.is_stopped();
        }
        self.known.remove(&of);
        let Some(pid) = find().filter(|_| sees_own_namespace()) else { return false };
        let Some(status) = Status::of(pid) else { return false };
        if self.known.len() < MOST {
            self.known.insert(of, Process { pid, started: status.started });
        }
        status.is_stopped()
    }
}

/// Whether the numbers below `/proc` are those of this PID namespace.
fn sees_own_namespace() -> bool {
    let own = std::process::id().to_string();
    readlink("/proc/self", Vec::new()).is_ok_and(|shown| shown.as_bytes() == own.as_bytes())
}

impl Status {
    /// Reads `/proc/PID/stat` (proc_pid_stat(5)).
    fn of(pid: i32) -> Option<Status> {
        let file = open(format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 1024];
        let len = rustix::io::read(&file, &mut text).ok()?;
        Status::parse(&text[..len])
    }

    /// The program's name, in parentheses, may itself contain them.
    fn parse(text: &[u8]) -> Option<Status> {
        let behind = text.iter().rposition(|&byte| byte == b')')? + 1;
        let mut fields = str::from_utf8(&text[behind..]).ok()?.split_ascii_whitespace();
        // Fields 3 and 22.
        let state = *fields.next()?.as_bytes().first()?;
        let started = fields.nth(18)?.parse().ok()?;
        Some(Status { state, started })
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        let text = b"7 (a) T (b) t 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 4711 9 8";
        let status = Status::parse(text).expect("a status");
        assert!(status.is_stopped());
        assert_eq!(status.started, 4711);
        let running = Status::parse(b"7 (T) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 4711 9 8");
        assert!(!running.expect("a status").is_stopped());
        assert!(Status::parse(b"7 (a) T 1").is_none());
        assert!(Status::parse(b"").is_none());
    }

    #[test]
    fn this_process_runs() {
        let own = Status::of(std::process::id() as i32).expect("a status");
        assert!(!own.is_stopped());
        assert!(sees_own_namespace());
    }
}
