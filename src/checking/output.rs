//! Writing reports: by the thread of the program that meets a finding, by a thread of our own where none does, and at exit.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use softrnic_check::{Finding, Summary, Symbols, Trace};
use softrnic_sys::BlockedSignals;
use softrnic_sys::Uncancelled;

use super::settings::{self, Leaks};
use super::{FOUND, State, connections, is_on, waits, with};

/// Findings in a report for machines.
const MOST: usize = 10_000;

/// What writes the reports of this process. A child gets its own: another thread of the parent may have held the locks.
static OUTPUT: AtomicPtr<Output> = AtomicPtr::new(std::ptr::null_mut());

#[derive(Default)]
struct Output {
    /// Reports for machines. Held while something is written, so that reports do not mix.
    reports: Mutex<Vec<serde_json::Value>>,
    /// Whether something was found since the thread looked.
    found: Mutex<bool>,
    wake: Condvar,
}

fn output() -> Option<&'static Output> {
    // SAFETY: null, or a box that was leaked: nobody ever frees one.
    unsafe { OUTPUT.load(Ordering::Acquire).as_ref() }
}

/// Nothing was written yet in this process.
pub(crate) fn begin() {
    OUTPUT.store(Box::into_raw(Box::default()), Ordering::Release);
}

/// Starts the thread that writes what no thread of the program comes to write.
pub(crate) fn start() {
    let _signals = BlockedSignals::new();
    let _ = std::thread::Builder::new().name("softrnic-check".into()).spawn(|| {
        let Some(output) = output() else { return };
        loop {
            let mut found = output.found.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *found) {
                let waited = output.wake.wait_timeout(found, waits::PERIOD);
                let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                found = back;
                if timeout.timed_out() {
                    drop(found);
                    // What is found sets the flag.
                    look();
                    found = output.found.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
            drop(found);
            // The program is about to poll the completion, and writes the report itself before it goes on.
            std::thread::sleep(Duration::from_millis(20));
            super::write();
        }
    });
}

/// Looks at what no call of the program shows.
fn look() {
    waits::look();
    connections::look();
}

/// Something was found.
pub(crate) fn wake() {
    let Some(output) = output() else { return };
    *output.found.lock().unwrap_or_else(PoisonError::into_inner) = true;
    output.wake.notify_one();
}

/// Writes what was found and not written yet.
pub(crate) fn write() {
    let _uncancelled = Uncancelled::new();
    let Some(mut reports) = writing() else { return };
    write_under(&mut reports);
}

fn writing() -> Option<MutexGuard<'static, Vec<serde_json::Value>>> {
    output().map(|output| output.reports.lock().unwrap_or_else(PoisonError::into_inner))
}

fn write_under(reports: &mut Vec<serde_json::Value>) {
    FOUND.store(false, Ordering::Release);
    let taken = with(|state| {
        let findings = state.checker.take();
        let stacks = findings.iter().flat_map(|finding| &finding.parts).map(|part| part.trace);
        let stacks: Vec<_> = stacks.filter_map(|trace| stack(state, trace)).collect();
        (findings, stacks)
    });
    let Some((findings, stacks)) = taken else { return };
    let resolved = softrnic_stacks::resolve(&stacks);
    for finding in findings {
        one(&finding, &resolved, reports);
    }
}

/// Where the oldest request of a QP was posted, and what it is.
pub fn oldest(qpn: u32) -> Option<String> {
    let (request, trace, stack) = with(|state| {
        let oldest = state.checker.oldest(qpn)?;
        let (request, trace) = (oldest.to_string(), oldest.posted);
        let (trace, stack) = stack(state, trace)?;
        Some((request, trace, stack))
    })??;
    let resolved = softrnic_stacks::resolve(&[(trace, stack)]);
    let calls = resolved.frames(trace).into_iter().map(|frame| format!("{} {}", frame.function, frame.place));
    Some(format!("the {request} by {}", calls.collect::<Vec<_>>().join(" < ")))
}

fn stack(state: &State, trace: Trace) -> Option<(Trace, softrnic_stacks::Stack)> {
    let stack = state.traces.stack(trace)?.clone();
    Some((trace, stack))
}

fn one(finding: &Finding, symbols: &dyn Symbols, reports: &mut Vec<serde_json::Value>) {
    let settings = settings::get();
    if settings.suppressions.cover(finding, symbols) {
        with(|state| state.checker.suppress(finding));
        return;
    }
    put(&finding.text(&prefix(), symbols));
    if settings.json.is_some() && reports.len() < MOST {
        reports.push(finding.json(symbols));
    }
    if settings.halts {
        finish(reports);
        // SAFETY: ends the process; nothing of it is used afterwards.
        unsafe { libc::_exit(settings.exit_code.unwrap_or(1)) };
    }
}

fn prefix() -> String {
    format!("=={}== ", std::process::id())
}

/// Writes the summary, and the report for machines.
fn finish(reports: &[serde_json::Value]) -> Summary {
    let Some(summary) = with(|state| state.checker.summary().clone()) else { return Summary::default() };
    let settings = settings::get();
    put(&summary.text(&prefix()));
    let seed = softrnic_sys::environment::text("SOFTRNIC_ADVERSARIAL");
    if let Some(seed) = &seed {
        put(&format!("{}adversarial NIC, seed {seed}; to repeat: --adversarial={seed}\n", prefix()));
    }
    if let Some(file) = &settings.json {
        let report = serde_json::json!({
            "pid": std::process::id(),
            "program": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
            "adversarial": seed,
            "findings": reports,
            "summary": summary.json(),
        });
        if let Err(error) = std::fs::write(file, format!("{report:#}\n")) {
            put(&format!("{}cannot write {}: {error}\n", prefix(), file.display()));
        }
    }
    summary
}

/// The process ends, and its own handlers and destructors have run.
extern "C" fn at_exit() {
    // What the threads of a device that is open still do is of no interest.
    if !is_on() {
        return;
    }
    let _uncancelled = Uncancelled::new();
    let settings = settings::get();
    waits::at_exit();
    connections::at_exit();
    let Some(mut reports) = writing() else { return };
    with(|state| match settings.leaks {
        Leaks::No => state.checker.end_without_leaks(),
        leaks => state.checker.end(leaks == Leaks::Full),
    });
    write_under(&mut reports);
    let summary = finish(&reports);
    if summary.errors() > 0
        && let Some(code) = settings.exit_code
    {
        // SAFETY: flushes what the program has printed, which the C library would do next, and ends the process.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(code);
        }
    }
}

/// Runs after the destructors of the program, and of every library that uses this one.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Writes text to the log, or to stderr.
fn put(text: &str) {
    static LOG: OnceLock<Option<File>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let path = settings::get().log.as_ref()?;
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened
            .inspect_err(|error| {
                to(libc::STDERR_FILENO, &format!("softrnic: cannot open {}: {error}\n", path.display()))
            })
            .ok()
    });
    to(log.as_ref().map_or(libc::STDERR_FILENO, AsRawFd::as_raw_fd), text);
}

fn to(fd: libc::c_int, text: &str) {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        // SAFETY: the kernel reads the bytes. Not through Rust's lock on stderr, which a forked child may find held.
        let written = unsafe { libc::syscall(libc::SYS_write, fd, left.as_ptr(), left.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => left = &left[written..],
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
