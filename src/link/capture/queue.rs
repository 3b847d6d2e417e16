//! The queue between the data path and the writer.
//!
//! What waits is in batches. The data path appends to the last of them while the writer empties the first, so that there is
//! room again as soon as the writer has emptied one: a link that pauses for longer than its peers wait loses its
//! connections. The lock is held for a copy or while batches change hands, never while a file is written.
//!
//! The queue never refuses a datagram that has passed, unless it is allowed to lose some. It says when it is full, and
//! whoever fills it then stops: what one call brings at most after that fits in [`SLACK`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::frame::Meta;

/// How long the writer lets datagrams gather after the first, so that it wakes rarely.
const GATHER: Duration = Duration::from_millis(2);

/// Batches in a full queue.
const BATCHES: usize = 16;

/// Bytes that may come on top of a full queue without an allocation: 256 datagrams of 4 KiB, which one call receives.
const SLACK: usize = 1 << 20;
/// Their number, if they are shorter.
const SLACK_RECORDS: usize = 512;

/// An interface of the file.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) description: String,
    /// Datagrams of it that are missing in the file.
    pub(super) lost: Arc<AtomicU64>,
}

/// One datagram in a [`Batch`].
pub(super) struct Record {
    pub(super) meta: Meta,
    /// Bytes of it in the batch.
    pub(super) kept: usize,
    /// What a fault did to it.
    pub(super) note: Option<Arc<str>>,
    /// Datagrams lost between the one before and this.
    pub(super) lost_before: u64,
}

/// What the writer takes at once.
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) bytes: Vec<u8>,
    /// Interfaces that are new since the batch before; records may be theirs.
    pub(super) interfaces: Vec<Interface>,
}

impl Batch {
    fn with_capacity(bytes: usize) -> Batch {
        Batch {
            records: Vec::with_capacity(record_limit(bytes) + SLACK_RECORDS),
            bytes: Vec::with_capacity(bytes + SLACK),
            interfaces: Vec::new(),
        }
    }

    fn reaches(&self, bytes: usize) -> bool {
        self.bytes.len() >= bytes || self.records.len() >= record_limit(bytes)
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.interfaces.is_empty()
    }

    fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.interfaces.clear();
    }
}

/// As many as there are when most datagrams are small.
const fn record_limit(bytes: usize) -> usize {
    bytes / 128 + 1
}

/// What the writer is to do next.
pub(super) enum Work {
    /// Write the batch and flush the file.
    Write(Batch),
    /// The same, and then end the file.
    Finish(Batch),
}

pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer waits for it.
    work: Condvar,
    /// Those who want something written wait for it.
    progress: Condvar,
    /// Bytes of a batch that is to be written.
    batch_bytes: usize,
    loses: bool,
    /// Whether the state [is full](State::is_full), for the data path to ask without the lock. Changed under it.
    full: AtomicBool,
    /// Counts what the writer has handed to the system, so that slow can be told from stuck.
    writes: AtomicU64,
    process: u32,
}

struct State {
    filling: Batch,
    /// Batches of full size, oldest first.
    filled: VecDeque<Batch>,
    spare: Vec<Batch>,
    interfaces: u32,
    /// Batches that somebody waits for, those that the writer has taken, and those that are in the file.
    wanted: u64,
    taken: u64,
    written: u64,
    stopping: bool,
    finished: bool,
    error: Option<String>,
}

impl State {
    /// Passes on what has been filled, if it has the size of a batch and another one is free.
    fn pass_on(&mut self, batch_bytes: usize) -> bool {
        let is_filled = self.filling.reaches(batch_bytes);
        if is_filled && let Some(empty) = self.spare.pop() {
            self.filled.push_back(std::mem::replace(&mut self.filling, empty));
        }
        is_filled
    }

    fn is_full(&self, batch_bytes: usize) -> bool {
        self.spare.is_empty() && self.filling.reaches(batch_bytes)
    }
}

impl Queue {
    /// A queue that is full with `capacity` bytes. If it `loses`, what comes then is lost.
    pub(super) fn new(capacity: usize, loses: bool) -> Queue {
        let batch_bytes = capacity / BATCHES;
        // One more is being written.
        let mut spare: Vec<Batch> = (0..=BATCHES).map(|_| Batch::with_capacity(batch_bytes)).collect();
        let state = State {
            filling: spare.remove(0),
            filled: VecDeque::with_capacity(BATCHES),
            spare,
            interfaces: 0,
            wanted: 0,
            taken: 0,
            written: 0,
            stopping: false,
            finished: false,
            error: None,
        };
        Queue {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            batch_bytes,
            loses,
            full: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            process: std::process::id(),
        }
    }

    /// Whether this process, and not a parent it was forked from, opened the file.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the number of the interface in the file.
    pub(super) fn add_interface(&self, interface: Interface) -> u32 {
        let mut state = self.lock();
        let index = state.interfaces;
        state.interfaces += 1;
        state.filling.interfaces.push(interface);
        self.work.notify_one();
        index
    }

    /// Whether the data path is to wait for the writer.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) && !self.loses
    }

    /// Waits for the writer, while the queue is full. For callers that hold no lock.
    pub(super) fn wait_for_room(&self) {
        let state = self.lock();
        let full = |_: &mut State| self.is_full();
        drop(self.progress.wait_while(state, full).unwrap_or_else(|e| e.into_inner()));
    }

    /// Appends the first bytes of a datagram; false if it is lost to the file.
    pub(super) fn push(&self, meta: Meta, kept: &[u8], note: Option<Arc<str>>, lost_before: u64) -> bool {
        let mut state = self.lock();
        if state.stopping || state.error.is_some() || (self.loses && state.is_full(self.batch_bytes)) {
            return false;
        }
        let is_first = state.filling.is_empty() && state.filled.is_empty();
        let filling = &mut state.filling;
        filling.bytes.extend_from_slice(kept);
        filling.records.push(Record { meta, kept: kept.len(), note, lost_before });
        let is_filled = state.pass_on(self.batch_bytes);
        if state.is_full(self.batch_bytes) {
            self.full.store(true, Ordering::Relaxed);
        }
        drop(state);
        if is_first || is_filled {
            self.work.notify_one();
        }
        true
    }

    /// Waits until what was pushed so far is in the file.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let mut state = self.lock();
        let goal = state.taken + state.filled.len() as u64 + 1;
        state.wanted = state.wanted.max(goal);
        self.work.notify_one();
        let waiting = |state: &mut State| state.written < goal && !state.finished && state.error.is_none();
        let (state, _) =
            self.progress.wait_timeout_while(state, timeout, waiting).unwrap_or_else(|e| e.into_inner());
        state.error.is_none() && (state.written >= goal || state.finished)
    }

    /// Ends the file; false when the writer made no progress for `timeout`.
    pub(super) fn finish(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        // The caller may be a process that exits from a signal handler, in the middle of a push.
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(e)) => break e.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return false,
            }
        };
        state.stopping = true;
        self.full.store(false, Ordering::Relaxed);
        self.work.notify_one();
        loop {
            let written = self.writes.load(Ordering::Relaxed);
            let waiting = |state: &mut State| !state.finished;
            let waited = self.progress.wait_timeout_while(state, timeout, waiting);
            state = waited.unwrap_or_else(|e| e.into_inner()).0;
            if state.finished || self.writes.load(Ordering::Relaxed) == written {
                return state.finished;
            }
        }
    }

    pub(super) fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    /// For the writer: waits for something to do. `done` is the batch before.
    pub(super) fn take(&self, done: Option<Batch>) -> Work {
        let mut state = self.lock();
        if let Some(mut done) = done {
            done.clear();
            state.spare.push(done);
            state.written = state.taken;
            self.make_room(&mut state);
        }
        let idle =
            |s: &mut State| s.filled.is_empty() && s.filling.is_empty() && s.wanted <= s.taken && !s.stopping;
        state = self.work.wait_while(state, idle).unwrap_or_else(|e| e.into_inner());
        let gather = |s: &mut State| s.filled.is_empty() && s.wanted <= s.taken && !s.stopping;
        let gathered = self.work.wait_timeout_while(state, GATHER, gather);
        state = gathered.unwrap_or_else(|e| e.into_inner()).0;
        state.taken += 1;
        let is_last = state.stopping && state.filled.is_empty();
        let batch = match state.filled.pop_front() {
            Some(batch) => batch,
            None => {
                let empty = state.spare.pop().unwrap_or_else(|| Batch::with_capacity(self.batch_bytes));
                std::mem::replace(&mut state.filling, empty)
            }
        };
        if is_last { Work::Finish(batch) } else { Work::Write(batch) }
    }

    /// A batch is free.
    fn make_room(&self, state: &mut State) {
        state.pass_on(self.batch_bytes);
        self.full.store(false, Ordering::Relaxed);
        self.progress.notify_all();
    }

    /// For the writer: the system has taken something.
    pub(super) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// For the writer: the file cannot be written any more. Nobody waits for room after that.
    pub(super) fn fail(&self, error: String) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        self.full.store(false, Ordering::Relaxed);
        self.progress.notify_all();
    }

    /// For the writer: the file is complete.
    pub(super) fn finished(&self) {
        let mut state = self.lock();
        state.written = state.taken;
        state.finished = true;
        self.progress.notify_all();
    }

    /// Nothing that can panic happens under the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}
