//! Completion channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use crate::device::Nic;
use crate::runtime::channel::EventChannel;
use crate::runtime::notify::Notify;

/// Where armed completion queues report. Events carry the token that their CQ was made with.
pub struct CompletionChannel {
    events: Arc<EventChannel<u64>>,
    /// Not kept alive by this: a channel may be left when its device is closed.
    nic: Weak<Nic>,
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
        Ok(CompletionChannel { events: Arc::new(EventChannel::new()?), nic })
    }

    /// Takes the next event, and waits for it unless the descriptor is non-blocking: the token of the CQ.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn event(&self) -> io::Result<u64> {
        self.look_on();
        self.events.recv(|_| {})
    }

    /// Looks on for a moment and serves the NIC, where waiting so has paid lately. Call before [`wait`](Self::wait),
    /// which works without it, and wakes up more slowly.
    pub fn look_on(&self) {
        if let Some(nic) = self.nic.upgrade() {
            nic.look_on(|| self.events.has_events());
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
        self.events.take(taken)
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
