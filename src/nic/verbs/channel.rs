//! Completion channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use softrnic_wire::Time;

use crate::device::{Nic, Waiter};
use softrnic_sync::channel::{EventChannel, wait_for_bell};
use softrnic_sync::notify::Notify;

/// Where armed completion queues report. An event carries the token of its CQ.
pub struct CompletionChannel {
    events: Arc<EventChannel<u64>>,
    /// Weak: a channel may outlive its device.
    nic: Weak<Nic>,
    waiter: Arc<Waiter>,
    /// When a reader started to wait, on the device's clock; 0 if none has since the last event was taken.
    waits_since: AtomicU64,
}

/// Notifies a channel about one CQ.
pub(crate) struct ChannelNotify {
    events: Arc<EventChannel<u64>>,
    waiter: Arc<Waiter>,
    token: u64,
}

/// What a reader is about to block on.
#[derive(Clone, Copy, Debug)]
pub enum Block {
    /// The channel, which then has an event.
    OnChannel,
    /// A bell of the device's, until there is something to do.
    OnBell(RawFd),
}

impl Notify for ChannelNotify {
    fn completion(&self) {
        self.events.send(self.token);
        self.waiter.wake();
    }
}

impl CompletionChannel {
    pub(crate) fn new(nic: Weak<Nic>) -> io::Result<CompletionChannel> {
        let waiter = Arc::new(Waiter::at(nic.upgrade().as_deref()));
        Ok(CompletionChannel {
            events: Arc::new(EventChannel::new()?),
            nic,
            waiter,
            waits_since: AtomicU64::new(0),
        })
    }

    /// Takes the next event, the token of a CQ, and waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn event(&self) -> io::Result<u64> {
        let mut block = self.before_wait(None);
        loop {
            let came = self.wait(block).inspect_err(|_| self.stop_waiting(block))?;
            if came && let Some(token) = self.take(|_| {}) {
                return Ok(token);
            }
            block = self.before_wait(Some(block));
        }
    }

    /// Serves the NIC before a [wait](Self::wait), and returns what to block on: if the last waits were short, the reader
    /// spins for a moment, or sleeps where a peer wakes it at once. `after` is what it has just blocked on, if it goes on
    /// waiting.
    pub fn before_wait(&self, after: Option<Block>) -> Block {
        let Some(nic) = self.nic.upgrade() else { return Block::OnChannel };
        let found = || self.events.has_events();
        let slept = matches!(after, Some(Block::OnBell(_)));
        if !slept {
            let begun = nic.now().as_nanos();
            let spun = nic.spin_for_event(found);
            self.waits_since.store(if spun { 0 } else { begun }, Ordering::Relaxed);
            if spun {
                return Block::OnChannel;
            }
        }
        let may_sleep = || nic.flags().serves() && matches!(self.events.never_waits(), Ok(false));
        if (slept || may_sleep())
            && let Some(bell) = nic.sleep_on_bell(&self.waiter, slept, found)
        {
            return Block::OnBell(bell.descriptor());
        }
        if !found() {
            nic.hand_over();
        }
        Block::OnChannel
    }

    /// The first half of [`CompletionChannel::event`], the only one that blocks and can be cancelled. The caller holds
    /// nothing that needs dropping. Returns whether to [take](Self::take) an event; if not, the caller begins again.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal; then the caller [stops waiting](Self::stop_waiting).
    pub fn wait(&self, block: Block) -> io::Result<bool> {
        match block {
            Block::OnChannel => self.events.wait().map(|()| true),
            Block::OnBell(bell) => match wait_for_bell(bell) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(nic) = self.nic.upgrade() {
                        nic.give_up_bell(&self.waiter);
                    }
                    Ok(false)
                }
                rung => rung.map(|()| false),
            },
        }
    }

    /// The reader does not go on waiting.
    pub fn stop_waiting(&self, block: Block) {
        if let Block::OnBell(_) = block
            && let Some(nic) = self.nic.upgrade()
        {
            nic.rise(&self.waiter);
        }
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

    /// Whether an event waits to be taken.
    pub fn has_events(&self) -> bool {
        self.events.has_events()
    }

    /// Removes the events of a CQ that is being destroyed.
    pub fn forget(&self, token: u64) {
        self.events.drain_matching(|event| *event == token);
    }

    pub(crate) fn notify(&self, token: u64) -> Arc<dyn Notify> {
        Arc::new(ChannelNotify { events: self.events.clone(), waiter: self.waiter.clone(), token })
    }
}

/// A reader that was cancelled has not stopped by itself.
impl Drop for CompletionChannel {
    fn drop(&mut self) {
        if self.waiter.sleeps()
            && let Some(nic) = self.nic.upgrade()
        {
            nic.rise(&self.waiter);
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
