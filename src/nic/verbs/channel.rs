//! Completion channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use softrnic_wire::Time;

use crate::device::Nic;
use crate::runtime::channel::EventChannel;
use crate::runtime::notify::Notify;

/// Where armed completion queues report. Events carry the token that their CQ was made with.
pub struct CompletionChannel {
    events: Arc<EventChannel<u64>>,
    /// Not kept alive by this: a channel may be left when its device is closed.
    nic: Weak<Nic>,
    /// When a reader began to wait, on the device's clock; 0 when none has since an event was taken.
    waits_since: AtomicU64,
}

/// Tells a channel about one CQ.
pub(crate) struct ChannelNotify {
    events: Arc<EventChannel<u64>>,
    token: u64,
}

impl Notify for ChannelNotify {
    fn completion(&self) {
        self.events.send(self.token);
    }
}

impl CompletionChannel {
    pub(crate) fn new(nic: Weak<Nic>) -> io::Result<CompletionChannel> {
        Ok(CompletionChannel { events: Arc::new(EventChannel::new()?), nic, waits_since: AtomicU64::new(0) })
    }

    /// Takes the next event, and waits for it unless the descriptor is non-blocking: the token of the CQ.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn event(&self) -> io::Result<u64> {
        loop {
            self.spin();
            self.wait()?;
            if let Some(token) = self.take(|_| {}) {
                return Ok(token);
            }
        }
    }

    /// Spins for a moment and serves the NIC, if the last wait was short. Call before [`wait`](Self::wait), which
    /// works without it, and wakes up more slowly.
    pub fn spin(&self) {
        if let Some(nic) = self.nic.upgrade() {
            let begun = nic.now().as_nanos();
            let found = nic.spin_for_event(|| self.events.has_events());
            self.waits_since.store(if found { 0 } else { begun }, Ordering::Relaxed);
        }
    }

    /// The first half of [`CompletionChannel::event`], the only one that blocks and that can be cancelled. Whoever
    /// waits with it keeps nothing that is to be dropped.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn wait(&self) -> io::Result<()> {
        self.events.wait()
    }

    /// The second half, once after each `Ok` of the first; `taken` sees the token before the CQ can go away. `None` if
    /// that has happened: wait again.
    pub fn take(&self, taken: impl FnOnce(&u64)) -> Option<u64> {
        let event = self.events.take(taken)?;
        let begun = self.waits_since.load(Ordering::Relaxed);
        if begun != 0
            && let Some(nic) = self.nic.upgrade()
        {
            self.waits_since.store(0, Ordering::Relaxed);
            nic.event_came(nic.now().since(Time::from_nanos(begun)));
        }
        Some(event)
    }

    /// Removes the events of a CQ that is being destroyed.
    pub fn forget(&self, token: u64) {
        self.events.drain_matching(|event| *event == token);
    }

    pub(crate) fn notify(&self, token: u64) -> Arc<dyn Notify> {
        Arc::new(ChannelNotify { events: self.events.clone(), token })
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
