//! Whether the process of a peer of this machine runs: a signal or a debugger may have stopped it, or it waits for a
//! processor or a disk.

use std::collections::HashMap;
use std::fs::read_dir;
use std::hash::Hash;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open, readlink};

/// Processes that are remembered.
const MOST: usize = 4096;

/// Threads of a process that are looked at.
const MOST_THREADS: usize = 64;

/// A look at a process says little of how it was so long before.
const OUT_OF_DATE: Duration = Duration::from_secs(1);

/// A process that would run and has not run for this long is kept waiting. The kernel's turns are shorter where few want
/// to run.
const LONG_WAIT: Duration = Duration::from_millis(10);

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

/// Why a process cannot answer, although it has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It would run, but others have all processors, or a disk is slow.
    KeptWaiting,
    /// It would run, and one look does not tell whether it does.
    Perhaps,
}

/// A process. Its number alone may be given to another one.
#[derive(Clone, Copy)]
struct Process {
    pid: i32,
    started: u64,
    /// The processor time of all its threads, and when that was first seen.
    ran: u64,
    ran_at: Instant,
    /// When it was last looked at, and whether that told nothing.
    seen_at: Instant,
    doubts: bool,
    /// What was last said of it.
    told: Option<Halt>,
}

/// What the kernel says about a process or a thread.
struct Status {
    state: u8,
    /// Of all threads, in clock ticks.
    ran: u64,
    started: u64,
}

impl<K: Eq + Hash> ProcessLooks<K> {
    /// Why a process cannot answer. `find` says its number, if it is not known yet. `None` also if it is not found.
    ///
    /// That a process is kept waiting shows at the second look: its processor time has not changed since the first. Whoever
    /// looks may have waited as long for the same processor, so at the first look one that would run is given a second.
    pub fn halt(&mut self, of: K, find: impl FnOnce() -> Option<i32>) -> Option<Halt> {
        let now = Instant::now();
        if let Some(process) = self.known.get_mut(&of)
            && let Some(status) = Status::of_process(process.pid)
            && status.started == process.started
        {
            return process.halt(&status, now);
        }
        self.known.remove(&of);
        let pid = find().filter(|_| sees_own_namespace())?;
        let Status { state, ran, started } = Status::of_process(pid)?;
        let is_remembered = self.known.len() < MOST;
        if is_remembered {
            self.known.insert(
                of,
                Process { pid, started, ran, ran_at: now, seen_at: now, doubts: true, told: None },
            );
        }
        if is_stopped_state(state) {
            return Some(Halt::Stopped);
        }
        (is_remembered && would_run(pid)).then_some(Halt::Perhaps)
    }

    /// Whether what a look has found is to be said: it is certain, and differs from what was said before.
    pub fn is_news(&mut self, of: &K, halt: Option<Halt>) -> bool {
        let Some(process) = self.known.get_mut(of).filter(|_| halt != Some(Halt::Perhaps)) else {
            return false;
        };
        std::mem::replace(&mut process.told, halt) != halt
    }
}

impl Process {
    fn halt(&mut self, status: &Status, now: Instant) -> Option<Halt> {
        let is_late = now.duration_since(std::mem::replace(&mut self.seen_at, now)) >= OUT_OF_DATE;
        let has_run = status.ran != self.ran;
        if has_run {
            (self.ran, self.ran_at) = (status.ran, now);
        }
        if is_stopped_state(status.state) {
            return Some(Halt::Stopped);
        }
        // Every other look counts, however long lies between them.
        self.doubts = is_late && has_run && !self.doubts && would_run(self.pid);
        if self.doubts {
            return Some(Halt::Perhaps);
        }
        let waits = now.duration_since(self.ran_at) >= LONG_WAIT && would_run(self.pid);
        waits.then_some(Halt::KeptWaiting)
    }
}

/// Whether a process is stopped; `false` also if it is in another PID namespace.
pub fn is_stopped(pid: i32) -> bool {
    sees_own_namespace() && Status::of_process(pid).is_some_and(|status| is_stopped_state(status.state))
}

/// Whether the numbers below `/proc` are those of this PID namespace.
fn sees_own_namespace() -> bool {
    let own = std::process::id().to_string();
    readlink("/proc/self", Vec::new()).is_ok_and(|shown| shown.as_bytes() == own.as_bytes())
}

/// Whether a thread of a process runs, or would run if there was a processor for it or a disk was faster.
fn would_run(pid: i32) -> bool {
    let Ok(threads) = read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().take(MOST_THREADS).any(|thread| {
        let path = thread.path().join("stat");
        path.to_str().and_then(Status::read).is_some_and(|status| matches!(status.state, b'R' | b'D'))
    })
}

/// Stopped by a signal, or by a debugger.
fn is_stopped_state(state: u8) -> bool {
    matches!(state, b'T' | b't')
}

impl Status {
    fn of_process(pid: i32) -> Option<Status> {
        Status::read(&format!("/proc/{pid}/stat"))
    }

    /// Reads a file as `/proc/PID/stat` (proc_pid_stat(5)).
    fn read(path: &str) -> Option<Status> {
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 1024];
        let len = rustix::io::read(&file, &mut text).ok()?;
        Status::parse(&text[..len])
    }

    /// The program's name, in parentheses, may itself contain them.
    fn parse(text: &[u8]) -> Option<Status> {
        let behind = text.iter().rposition(|&byte| byte == b')')? + 1;
        let fields: Vec<&str> = str::from_utf8(&text[behind..]).ok()?.split_ascii_whitespace().collect();
        // The manual counts from 1, and two fields are before these.
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at| field(at)?.parse::<u64>().ok();
        let state = *field(3)?.as_bytes().first()?;
        Some(Status { state, ran: number(14)?.saturating_add(number(15)?), started: number(22)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        let text = b"7 (a) T (b) t 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 2 0 4711 9 8";
        let status = Status::parse(text).expect("a status");
        assert!(is_stopped_state(status.state));
        assert_eq!((status.ran, status.started), (42, 4711));
        let running = Status::parse(b"7 (T) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 4711 9 8");
        assert!(!is_stopped_state(running.expect("a status").state));
        assert!(Status::parse(b"7 (a) T 1").is_none());
        assert!(Status::parse(b"").is_none());
    }

    #[test]
    fn this_process_runs() {
        let own = std::process::id() as i32;
        assert!(!is_stopped(own));
        assert!(sees_own_namespace());
        assert!(would_run(own), "this thread");
    }

    #[test]
    fn a_process_that_is_kept_waiting_would_run_and_does_not_for_long() {
        let (pid, start) = (std::process::id() as i32, Instant::now());
        let mut process =
            Process { pid, started: 0, ran: 5, ran_at: start, seen_at: start, doubts: true, told: None };
        let status = |state, ran| Status { state, ran, started: 0 };
        let soon = start + LONG_WAIT / 2;
        assert_eq!(process.halt(&status(b'R', 5), soon), None, "it may have its turn soon");
        let later = start + LONG_WAIT;
        assert_eq!(process.halt(&status(b'R', 5), later), Some(Halt::KeptWaiting));
        assert_eq!(process.halt(&status(b'R', 6), later), None, "it has run");
        assert_eq!(process.halt(&status(b'R', 6), later + LONG_WAIT / 2), None);
        assert_eq!(process.halt(&status(b't', 6), later), Some(Halt::Stopped));
        let much_later = later + OUT_OF_DATE;
        assert_eq!(
            process.halt(&status(b'R', 9), much_later),
            Some(Halt::Perhaps),
            "it has run since, but when?"
        );
        assert_eq!(process.halt(&status(b'R', 10), much_later + OUT_OF_DATE), None, "it runs");
    }

    /// Our own thread, which looks, may have waited for the same processor: so the first look may be the last.
    #[test]
    fn a_process_that_would_run_gets_a_second_look() {
        let own = || Some(std::process::id() as i32);
        let (mut looks, begin) = (ProcessLooks::default(), Instant::now());
        let first = looks.halt(0, own);
        assert_eq!(first, Some(Halt::Perhaps), "this thread would run");
        assert!(!looks.is_news(&0, first));
        while looks.halt(0, || None).is_some() {
            assert!(begin.elapsed() < Duration::from_secs(60), "this thread runs");
        }
    }

    #[test]
    fn what_a_look_has_found_is_said_once() {
        let mut looks = ProcessLooks::default();
        looks.halt(0, || Some(std::process::id() as i32));
        let found = [
            Some(Halt::Stopped),
            Some(Halt::Stopped),
            Some(Halt::Perhaps),
            Some(Halt::KeptWaiting),
            None,
            None,
        ];
        assert_eq!(found.map(|halt| looks.is_news(&0, halt)), [true, false, false, true, true, false]);
        assert!(!looks.is_news(&1, Some(Halt::Stopped)), "nobody has looked at it");
    }

    #[test]
    fn what_cannot_be_remembered_is_not_waited_for() {
        let own = || Some(std::process::id() as i32);
        let mut looks = ProcessLooks::default();
        for number in 0..MOST {
            looks.halt(number, own);
        }
        assert_eq!(looks.halt(MOST, own), None, "every look would be the first");
    }
}
