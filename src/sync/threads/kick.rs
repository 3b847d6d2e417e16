//! Wakes the progress thread.
//!
//! A system call for each kick would be too expensive: only a sleeping thread needs one, and only the first time. So
//! the thread announces that it is going to sleep, in the word that kickers swap. A kicker that finds the announcement
//! writes to the eventfd; any other has left a mark that keeps the thread from going to sleep, or that it finds when it
//! wakes.
//!
//! On waking, the thread first withdraws its announcement and then empties the eventfd. After the first step no kicker
//! starts to write, and what has been written belongs to marks that the thread has found, so emptying loses nothing. A
//! kicker that is slow to write causes one needless wake-up later.

#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

#[cfg(not(loom))]
use rustix::event::EventfdFlags;

use super::eventfd::EventFd;
use crate::atomics::atomic::{AtomicU8, Ordering};

/// How other threads wake the progress thread. One thread sleeps; any number kick.
pub struct Kick {
    state: AtomicU8,
    event: EventFd,
}

impl Kick {
    /// The thread does not sleep and has not been kicked.
    ///
    /// # Errors
    /// There is no free descriptor.
    #[cfg(not(loom))]
    pub fn new() -> io::Result<Kick> {
        Ok(Kick { state: AtomicU8::new(AWAKE), event: EventFd::new(EventfdFlags::NONBLOCK)? })
    }

    /// The thread does not sleep and has not been kicked.
    #[cfg(loom)]
    pub fn model() -> Kick {
        Kick { state: AtomicU8::new(AWAKE), event: EventFd::model() }
    }

    /// Makes the progress thread look for work once more: it sees what the caller did before. Not a cancellation point,
    /// never blocks, and makes a system call only if the thread sleeps.
    pub fn kick(&self) {
        if self.state.swap(KICKED, Ordering::AcqRel) == ASLEEP {
            self.event.add_one();
        }
    }

    /// The progress thread is about to sleep on [the descriptor](Self::as_fd); false if it has been kicked since it
    /// last [looked](Self::clear), and must look for work first.
    ///
    /// After true, call [`clear`](Self::clear) on waking, whatever the reason, before looking for work.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let slept = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !slept {
            self.state.swap(AWAKE, Ordering::AcqRel);
        }
        slept
    }

    /// The progress thread is awake, and will look for work after this. `readable` is whether it found the descriptor
    /// readable: if it did not and there is no mark, there is nothing to empty, and no system call.
    pub fn clear(&self, readable: bool) {
        if self.state.swap(AWAKE, Ordering::AcqRel) == KICKED || readable {
            self.event.empty();
        }
    }

    /// Whether the thread that sleeps on the descriptor would wake.
    #[cfg(loom)]
    pub fn is_readable(&self) -> bool {
        self.event.is_readable()
    }
}

/// What the progress thread waits for: readable if it was kicked while it slept.
#[cfg(not(loom))]
impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const KICKED: u8 = 2;
