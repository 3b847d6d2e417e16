//! The bounded queue between the data path and the writer.
//!
//! Two buffers change places: the data path appends to one while the writer empties the other. The lock
//! is held for a copy or for the exchange, never while a file is written.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::frame::Meta;

/// How long the writer lets datagrams gather after the first, so that it wakes rarely.
const GATHER: Duration = Duration::from_millis(2);

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
    pub(super) len: usize,
    /// Datagrams lost between the one before and this.
    pub(super) lost_before: u64,
}

/// What passed between two exchanges.
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) bytes: Vec<u8>,
    /// Interfaces that are new since the batch before; records may be theirs.
    pub(super) interfaces: Vec<Interface>,
}

impl Batch {
    fn with_capacity(bytes: usize) -> Batch {
        Batch {
            records: Vec::with_capacity(record_limit(bytes)),
            bytes: Vec::with_capacity(bytes),
            interfaces: Vec::new(),
        }
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
    capacity: usize,
    process: u32,
}

struct State {
    filling: Batch,
    spare: Option<Batch>,
    interfaces: u32,
    /// Exchanges that somebody waits for, and those that are in the file.
    wanted: u64,
    taken: u64,
    written: u64,
    stopping: bool,
    finished: bool,
    error: Option<String>,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Queue {
        let state = State {
            filling: Batch::with_capacity(capacity),
            spare: Some(Batch::with_capacity(capacity)),
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
            capacity,
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

    /// Appends a datagram; false when there is no room for it.
    pub(super) fn push(&self, meta: Meta, bytes: &[u8], lost_before: u64) -> bool {
        let mut state = self.lock();
        if state.stopping || state.error.is_some() {
            return false;
        }
        let filling = &mut state.filling;
        if filling.bytes.len() + bytes.len() > self.capacity
            || filling.records.len() >= record_limit(self.capacity)
        {
            return false;
        }
        let half = self.capacity / 2;
        let first = filling.is_empty();
        let was_half_full = filling.bytes.len() >= half;
        filling.bytes.extend_from_slice(bytes);
        filling.records.push(Record { meta, len: bytes.len(), lost_before });
        let is_half_full = filling.bytes.len() >= half;
        drop(state);
        if first || (is_half_full && !was_half_full) {
            self.work.notify_one();
        }
        true
    }

    /// Waits until what was pushed so far is in the file.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let mut state = self.lock();
        // The exchange after the last one takes what is waiting now.
        let goal = state.taken + 1;
        state.wanted = state.wanted.max(goal);
        self.work.notify_one();
        let waiting = |state: &mut State| state.written < goal && !state.finished && state.error.is_none();
        let (state, _) =
            self.progress.wait_timeout_while(state, timeout, waiting).unwrap_or_else(|e| e.into_inner());
        state.error.is_none() && (state.written >= goal || state.finished)
    }

    /// Ends the file; false when that took longer than `timeout`.
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
        self.work.notify_one();
        let left = deadline.saturating_duration_since(Instant::now());
        let (state, _) = self
            .progress
            .wait_timeout_while(state, left, |state| !state.finished)
            .unwrap_or_else(|e| e.into_inner());
        state.finished
    }

    pub(super) fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    /// For the writer: waits for something to do. `done` is the batch before.
    pub(super) fn take(&self, done: Option<Batch>) -> Work {
        let mut state = self.lock();
        if let Some(mut done) = done {
            done.clear();
            state.spare = Some(done);
            state.written = state.taken;
            self.progress.notify_all();
        }
        let idle = |s: &mut State| s.filling.is_empty() && s.wanted <= s.taken && !s.stopping;
        state = self.work.wait_while(state, idle).unwrap_or_else(|e| e.into_inner());
        let half = self.capacity / 2;
        let gather = |s: &mut State| s.wanted <= s.taken && !s.stopping && s.filling.bytes.len() < half;
        let gathered = self.work.wait_timeout_while(state, GATHER, gather);
        state = gathered.unwrap_or_else(|e| e.into_inner()).0;
        state.taken += 1;
        let empty = state.spare.take().unwrap_or_else(|| Batch::with_capacity(self.capacity));
        let batch = std::mem::replace(&mut state.filling, empty);
        if state.stopping { Work::Finish(batch) } else { Work::Write(batch) }
    }

    /// For the writer: the file cannot be written any more.
    pub(super) fn fail(&self, error: String) {
        self.lock().error.get_or_insert(error);
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
