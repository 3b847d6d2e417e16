//! Event channels: the events of identifiers, and a descriptor that says whether there are any.
//!
//! The descriptor is an eventfd used as a semaphore, which counts the queued events. A reader decrements it, which is
//! the only blocking call, and then takes an event.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::error::Error;
use super::event::Event;
use super::id::Id;
use super::manager::Manager;
use super::params::IdKind;
use super::serving::SPIN;
use softrnic_nic::device::Process;
use softrnic_sync::tokens;
use softrnic_sys::pace;
use softrnic_wire::Time;

/// A queue of events. Cheap to clone.
#[derive(Clone)]
pub struct EventChannel {
    manager: Arc<Manager>,
    process: Process,
    key: u64,
    descriptor: RawFd,
    /// A copy to wait on: another thread may close the application's while one begins to wait, and then the number is
    /// another file's.
    waited: Arc<OwnedFd>,
    waits: Arc<Waits>,
}

/// How the last wait went. Threads that wait at the same time may overwrite each other's.
#[derive(Default)]
struct Waits {
    /// It was long, so the next one blocks at once.
    are_long: AtomicBool,
    /// When the one that blocks now began, in nanoseconds of the manager's clock; 0 if none does.
    since: AtomicU64,
}

impl EventChannel {
    /// An empty channel. The caller owns the descriptor, and closes it with [`EventChannel::close`], or directly after
    /// [`EventChannel::shut`].
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new(manager: &Arc<Manager>) -> Result<EventChannel, Error> {
        let process = Process::current();
        let (key, descriptor) = manager.lock(process)?.add_channel()?;
        let Some(waited) = tokens::copy(descriptor) else {
            manager.lock(process)?.shut(key);
            tokens::close(descriptor);
            return Err(Error::NoDescriptor);
        };
        Ok(EventChannel {
            manager: manager.clone(),
            process,
            key,
            descriptor,
            waited: Arc::new(waited),
            waits: Arc::default(),
        })
    }

    /// The descriptor: readable while events wait. The application may switch `O_NONBLOCK` on and off.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Destroys the channel's identifiers, sending each peer what it is owed, and releases the descriptor, which the
    /// caller closes after this. Does nothing in a forked child.
    pub fn shut(&self) {
        if let Ok(mut state) = self.manager.lock(self.process) {
            state.shut(self.key);
        }
    }

    /// [Shuts](EventChannel::shut) the channel and closes the descriptor. No copy of the channel may be used
    /// afterwards.
    pub fn close(self) {
        self.shut();
        tokens::close(self.descriptor);
    }

    pub(super) fn key(&self) -> u64 {
        self.key
    }

    /// Creates an identifier. Its events carry `context`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for services that a port space does not have, [`Error::NoMemory`], [`Error::Gone`].
    pub fn create_id(&self, kind: IdKind, context: u64) -> Result<Id, Error> {
        let (number, generation) = self.manager.lock(self.process)?.add_id(self.key, kind, context)?;
        Ok(Id::new(&self.manager, self.process, number, generation))
    }

    /// The identifier with this number.
    ///
    /// # Errors
    /// [`Error::UnknownId`], [`Error::Invalid`] if it belongs to another channel, [`Error::Gone`] in a forked child.
    pub fn id(&self, number: u32) -> Result<Id, Error> {
        let state = self.manager.lock(self.process)?;
        let entry = state.entry(number)?;
        if entry.channel != self.key {
            return Err(Error::Invalid);
        }
        Ok(Id::new(&self.manager, self.process, number, entry.generation))
    }

    /// Takes the next event, and waits for it unless the descriptor is non-blocking. A cancellation point.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR` after a signal, `EIO` in a forked child.
    pub fn event(&self) -> io::Result<Event> {
        loop {
            self.before_wait();
            self.wait()?;
            if let Some(event) = self.take() {
                return Ok(event);
            }
        }
    }

    /// Serves the NICs before a [wait](Self::wait): if the last one was short, an event is likely to come before this
    /// thread could sleep and wake again.
    pub fn before_wait(&self) {
        let Ok(state) = self.manager.lock(self.process) else { return };
        if state.has_events(self.key) {
            self.waits.since.store(0, Ordering::Relaxed);
            return;
        }
        let begun = state.now().as_nanos();
        drop(state);
        let may_spin = !self.waits.are_long.load(Ordering::Relaxed) && self.never_waits() == Some(false);
        let found = may_spin && self.manager.spin(self.process, self.key);
        self.waits.since.store(if found { 0 } else { begun }, Ordering::Relaxed);
    }

    /// Whether the application has switched `O_NONBLOCK` on.
    fn never_waits(&self) -> Option<bool> {
        let flags = rustix::fs::fcntl_getfl(&self.waited).ok()?;
        Some(flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// A wait has ended with an event.
    fn note_wait(&self, now: Time) {
        let since = self.waits.since.swap(0, Ordering::Relaxed);
        let was_long = since != 0 && now.since(Time::from_nanos(since)) >= pace::from_the_wall(SPIN);
        self.waits.are_long.store(was_long, Ordering::Relaxed);
    }

    /// The first half of [`EventChannel::event`], the only one that blocks and can be cancelled: it holds no locks.
    ///
    /// # Errors
    /// As for `event`.
    pub fn wait(&self) -> io::Result<()> {
        if self.process != Process::current() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        tokens::wait(self.waited.as_fd())
    }

    /// The second half, called once after each `Ok` of the first. `None` if the event went away with its identifier:
    /// wait again. Once taken, the event counts as reported.
    pub fn take(&self) -> Option<Event> {
        let mut state = self.manager.lock(self.process).ok()?;
        self.note_wait(state.now());
        let event = state.take(self.key)?;
        let name = |number: u32| {
            let entry = state.entry(number).ok()?;
            Some(Id::new(&self.manager, self.process, number, entry.generation))
        };
        let owner = name(event.owner)?;
        let (id, listener) = match event.request {
            Some(request) => (name(request)?, Some(owner)),
            None => (owner, None),
        };
        Some(Event {
            kind: event.kind,
            status: event.status,
            context: event.context,
            number: event.group.unwrap_or(id.number()),
            id,
            listener,
            data: event.data,
            ece: event.ece,
        })
    }

    /// Leaves a group, by its number ([`Id::join_multicast`]). Its unreported events are dropped. Returns how many of
    /// its events were reported.
    ///
    /// # Errors
    /// [`Error::UnknownId`], [`Error::Invalid`] if it belongs to another channel.
    pub fn leave_multicast(&self, number: u32) -> Result<u32, Error> {
        self.manager.lock(self.process)?.leave_multicast(self.key, number)
    }
}
