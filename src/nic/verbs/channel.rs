//! Completion channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use softrnic_wire::Time;

use crate::device::Nic;
use crate::runtime::channel::EventChannel;
use crate::runtime::notify::Notify;

/// Where armed completion queues report. An event carries the token of its CQ.
pub struct CompletionChannel {
    events: Arc<EventChannel<u64>>,
    /// Weak: a channel may outlive its device.
    nic: Weak<Nic>,
    /// When a reader started to wait, on the device's clock; 0 if none has since the last event was taken.
    waits_since: AtomicU64,
}

/// Notifies a channel about one CQ.
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

    /// Takes the next event, the token of a CQ, and waits for it unless the descriptor is non-blocking.
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

    /// Spins for a moment and serves the NIC, if the last wait was short. Call it before [`wait`](Self::wait), which
    /// works without it, but wakes up more slowly.
    pub fn spin(&self) {
        if let Some(nic) = self.nic.upgrade() {
            let begun = nic.now().as_nanos();
            let found = nic.spin_for_event(|| self.events.has_events());
            self.waits_since.store(if found { 0 } else { begun }, Ordering::Relaxed);
        }
    }

    /// The first half of [`CompletionChannel::event`], the only one that blocks and can be cancelled. The caller holds
    /// nothing that needs dropping.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn wait(&self) -> io::Result<()> {
        self.events.wait()
    }

    /// The second half, called once after each `Ok` of the first; `taken` gets the token before the CQ can be
    /// destroyed. `None` if that has happened: wait again.
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
