//! Event channels with a descriptor that applications poll.
//!
//! Behind it is an eventfd used as a semaphore: its count is the number of events, and each reader decrements it before
//! taking one event. Reading it is the only blocking call, and the only cancellation point, here. No lock is
//! held there, and a cancelled reader has taken nothing.
//!
//! An eventfd is always writable, but the kernel's event descriptors never are; a server that polls for both would
//! spin. So applications get an epoll instance that watches the eventfd: it is readable while the eventfd is, and never
//! writable. They choose whether a reader waits, with `O_NONBLOCK` on that descriptor.
//!
//! Cancellation unwinds the stack by force. It passes through Rust frames, and through a function of the C ABI that has
//! nothing to drop, but a `catch_unwind` on the way aborts the process. So a C library that offers the call
//! [waits](EventChannel::wait) outside its panic boundary, and [takes](EventChannel::take) inside.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::EventfdFlags;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::OFlags;

use super::eventfd::{EventFd, wait_for_token};

/// A queue of events from the NIC to the application.
pub struct EventChannel<E> {
    tokens: EventFd,
    /// The descriptor that applications poll.
    shown: Shown,
    /// The NIC takes no lock to send.
    sender: Sender<E>,
    sent: Receiver<E>,
    /// The lock of the reading side.
    reading: Mutex<Reading<E>>,
}

/// Every event, here or in `sent`, has a token in the eventfd, or with a reader that is about to take an event.
struct Reading<E> {
    /// Events older than those in `sent` that have not been looked at.
    older: VecDeque<E>,
    /// Tokens that readers hold for drained events. Each is consumed by the next reader: a reader that took another
    /// event instead would leave its own token behind, and the descriptor readable without an event.
    void: usize,
}

impl<E> Reading<E> {
    fn take_oldest(&mut self, sent: &Receiver<E>) -> Option<E> {
        if self.void > 0 {
            self.void -= 1;
            return None;
        }
        self.older.pop_front().or_else(|| sent.try_recv().ok())
    }
}

impl<E> EventChannel<E> {
    /// An empty channel, whose descriptor blocks.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new() -> io::Result<EventChannel<E>> {
        let tokens = EventFd::new(EventfdFlags::SEMAPHORE)?;
        let shown = Shown::new(tokens.as_fd())?;
        let reading = Reading { older: VecDeque::new(), void: 0 };
        let (sender, sent) = unbounded();
        Ok(EventChannel { tokens, shown, sender, sent, reading: Mutex::new(reading) })
    }

    /// Appends an event. Takes no lock, never blocks, and is not a cancellation point. Called by one thread at a time:
    /// the holder of the NIC.
    pub fn send(&self, event: E) {
        // It cannot fail: the receiver is here too.
        let _sent = self.sender.send(event);
        self.tokens.add_one();
    }

    /// Takes the oldest event, and waits for it if there is none, unless the application has set `O_NONBLOCK` on the
    /// descriptor. `taken` is called with the event before another thread can [drain](Self::drain_matching): it counts
    /// what must be acknowledged.
    ///
    /// A cancellation point, like [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of `read`: `EAGAIN` if there is no event and the descriptor does not block, `EINTR` after a signal.
    pub fn recv(&self, taken: impl FnOnce(&E)) -> io::Result<E> {
        loop {
            self.wait()?;
            let mut reading = self.reading();
            if let Some(event) = reading.take_oldest(&self.sent) {
                taken(&event);
                return Ok(event);
            }
        }
    }

    /// The first half of [`recv`](Self::recv): returns with the right to [take](Self::take) one event.
    ///
    /// A cancellation point: call it with no lock held.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn wait(&self) -> io::Result<()> {
        if self.never_waits()? {
            let taken = self.tokens.try_take();
            return if taken { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EAGAIN)) };
        }
        wait_for_token(self.tokens.as_fd().as_raw_fd())
    }

    /// Whether the application has set `O_NONBLOCK` on the descriptor.
    ///
    /// # Errors
    /// It has closed the descriptor.
    pub fn never_waits(&self) -> io::Result<bool> {
        Ok(rustix::fs::fcntl_getfl(self)?.contains(OFlags::NONBLOCK))
    }

    /// The second half of [`recv`](Self::recv), called once after each `Ok` of [`wait`](Self::wait). Not a cancellation
    /// point. `None` if the event was drained in between: wait again.
    pub fn take(&self, taken: impl FnOnce(&E)) -> Option<E> {
        let mut reading = self.reading();
        let event = reading.take_oldest(&self.sent)?;
        taken(&event);
        Some(event)
    }

    /// Whether there are events. Another reader may be faster.
    pub fn has_events(&self) -> bool {
        !self.sent.is_empty() || !self.reading().older.is_empty()
    }

    /// Removes the events that match, those of an object that is being destroyed, and returns their number. Afterwards
    /// the descriptor is readable only if there are other events.
    ///
    /// The caller ensures that no more of them are sent: the NIC has released the object.
    pub fn drain_matching(&self, mut matches: impl FnMut(&E) -> bool) -> usize {
        let mut reading = self.reading();
        let Reading { older, void } = &mut *reading;
        older.extend(self.sent.try_iter());
        let before = older.len();
        older.retain(|event| !matches(event));
        let removed = before - older.len();
        // A token that is not in the eventfd is with a reader.
        *void += (0..removed).filter(|_| !self.tokens.try_take()).count();
        removed
    }

    fn reading(&self) -> MutexGuard<'_, Reading<E>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the bell of a link rings, or takes note that it has. A cancellation point: call it with no lock held.
///
/// # Errors
/// `EINTR` after a signal, `EAGAIN` if somebody has set `O_NONBLOCK`.
pub fn wait_for_bell(bell: RawFd) -> io::Result<()> {
    wait_for_token(bell)
}

/// The descriptor that applications poll: readable while there are events. Its flags belong to the application.
impl<E> AsFd for EventChannel<E> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `Shown` closes the descriptor when it is dropped, with `self`.
        unsafe { BorrowedFd::borrow_raw(self.shown.0) }
    }
}

/// A descriptor that is readable while another is, and never writable.
struct Shown(RawFd);

impl Shown {
    fn new(watched: BorrowedFd<'_>) -> io::Result<Shown> {
        let made = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&made, watched, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Shown(made.into_raw_fd()))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: takes no pointers; the descriptor is owned by this value, which is being dropped. `close` is not
        // used, since it is a cancellation point.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Counts events given to the application and not yet acknowledged, for each object that events are about.
#[derive(Debug, Default)]
pub struct AckCounter {
    unacknowledged: Mutex<Unacknowledged>,
    all_acknowledged: Condvar,
}

#[derive(Debug, Default)]
struct Unacknowledged {
    events: u64,
    /// Threads in [`AckCounter::wait`]: without any, waking them would be a needless system call.
    waiting: u32,
}

impl AckCounter {
    /// Nothing has been delivered.
    pub fn new() -> AckCounter {
        AckCounter::default()
    }

    /// The application is given an event.
    pub fn delivered(&self) {
        self.lock().events += 1;
    }

    /// The application acknowledges this many; more than were delivered count as all.
    pub fn acknowledge(&self, events: u32) {
        let mut state = self.lock();
        state.events = state.events.saturating_sub(events.into());
        if state.events == 0 && state.waiting > 0 {
            self.all_acknowledged.notify_all();
        }
    }

    /// How many were delivered and not acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.lock().events
    }

    /// Waits until everything delivered has been acknowledged. Not a cancellation point.
    pub fn wait(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.events > 0 {
            state = self.all_acknowledged.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Unacknowledged> {
        self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
