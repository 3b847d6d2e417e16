//! Callers that wait for an event and serve the link meanwhile: a peer wakes such a caller by the link's bell, instead of
//! the progress thread, which would have to wake it in turn. One at a time has the bell.
//!
//! # Why no event is slept over
//!
//! A caller decides to sleep while it holds the NIC: it has no event, the link has nothing, and from now on peers ring. So
//! does whoever sends it an event: that one finds the mark that the caller sleeps, and rings. The bell counts, so that it
//! may be rung before the caller blocks.
//!
//! # A caller that never returns
//!
//! It was cancelled, or left by `longjmp`. Nobody else gets the bell then, since its reader might be there after all, and a
//! ring must not go to another one. The progress thread takes over what peers ring for after a tick of silence.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softrnic_link::Sleeper;
use softrnic_wire::Time;

use super::{Core, Nic};
use crate::progress::policy::Event;
use softrnic_engine::{Budget, Caller};

/// A caller that still finds something to do after so many steps leaves it to the progress thread.
const MOST_STEPS: usize = 8;

/// The eventfd of a link on which a caller blocks.
pub struct Bell(OwnedFd);

impl Bell {
    /// A descriptor of our own, since channels may outlive the link. `None` if there is none free.
    pub fn copy_of(bell: RawFd) -> Option<Bell> {
        // SAFETY: the link has just named it, and lives through the call.
        let bell = unsafe { BorrowedFd::borrow_raw(bell) };
        rustix::io::fcntl_dupfd_cloexec(bell, 0).ok().map(Bell)
    }

    fn ring(&self) {
        let _rung = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// What a caller reads in its sleep.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Names a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaiterId(u64);

impl WaiterId {
    const NOBODY: WaiterId = WaiterId(0);
}

/// Where callers wait for the events of one channel.
pub struct Waiter {
    id: WaiterId,
    bell: Option<Arc<Bell>>,
    /// A caller sleeps on the bell, until it has told otherwise. The NIC lock protects it.
    sleeps: AtomicBool,
}

impl Waiter {
    /// Nobody waits.
    pub fn at(nic: Option<&Nic>) -> Waiter {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = WaiterId(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        Waiter { id, bell: nic.and_then(|nic| nic.bell.clone()), sleeps: AtomicBool::new(false) }
    }

    /// Whether a caller sleeps on the bell, or was cancelled there.
    pub fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// The event that is waited for has been sent. Called by the holder of the NIC.
    pub fn wake(&self) {
        if self.sleeps()
            && let Some(bell) = &self.bell
        {
            bell.ring();
        }
    }
}

impl Nic {
    /// A caller is about to wait for an event, or has `slept` on the bell. Serves the link, and lets peers ring for this
    /// caller from now on, if there is nothing to do and no event is `found`. Returns the bell on which it then sleeps;
    /// after that, it calls this again.
    pub fn sleep_on_bell(&self, waiter: &Waiter, slept: bool, found: impl Fn() -> bool) -> Option<Arc<Bell>> {
        let bell = waiter.bell.as_ref()?;
        // Another thread that waits for events of the same channel is somebody else.
        let mut owns = slept;
        let mut caller = Caller::Poll;
        for _ in 0..MOST_STEPS {
            if !self.flags.serves() {
                break;
            }
            let guard = self.core.lock().ok()?;
            if owns {
                // It is awake, and need not be rung for what it finds by itself.
                waiter.sleeps.store(false, Ordering::Relaxed);
            }
            let now = self.now();
            self.flags.polled(now);
            let (mut sleeps, mut done) = (false, false);
            let budget = Budget { caller, ..Budget::default() };
            // An ACK that waits for a reply has nothing to wait for while the caller sleeps.
            caller = Caller::Control;
            self.drive_with(now, guard, budget, |core, now, step| {
                let wakes_at = core.policy.plan().wake_at;
                done = found() || !(owns || core.bell_of.is_none());
                // What has been received may be owed an ACK, which leaves with the next step.
                let is_over = step.received == 0 && !step.more && !core.engine.holds_acks();
                sleeps = !done && is_over && !core.link.watch(Sleeper::Caller);
                if sleeps {
                    owns = true;
                    core.bell_of = Some(waiter.id);
                    waiter.sleeps.store(true, Ordering::Relaxed);
                    core.policy.on(Event::Sleeps, now);
                    self.flags.unwatch();
                } else {
                    if std::mem::take(&mut owns) {
                        core.release_bell(waiter, now);
                    }
                    let deadline = super::driving::deadline(core);
                    core.policy.on(Event::Driven { posted: false, deadline }, now);
                }
                if core.policy.plan().wake_at < wakes_at {
                    self.kick.kick();
                }
            });
            if sleeps {
                return Some(bell.clone());
            }
            if done {
                return None;
            }
        }
        if owns {
            self.rise(waiter);
        }
        None
    }

    /// The caller that sleeps on the bell does not any more.
    pub fn rise(&self, waiter: &Waiter) {
        if let Ok(mut guard) = self.core.lock() {
            let now = self.now();
            guard.release_bell(waiter, now);
            self.drive(now, guard, Budget::default());
        }
    }

    /// Nobody is to sleep on the bell any more: it is broken, since a peer has set `O_NONBLOCK`.
    pub fn give_up_bell(&self, waiter: &Waiter) {
        if let Ok(mut guard) = self.core.lock() {
            let now = self.now();
            guard.release_bell(waiter, now);
            guard.bell_of = Some(WaiterId::NOBODY);
            self.drive(now, guard, Budget::default());
        }
    }
}

impl Core {
    /// Until somebody sleeps again, callers are expected to look by themselves; if they do not, the progress thread finds
    /// that at its next tick.
    fn release_bell(&mut self, waiter: &Waiter, now: Time) {
        if self.bell_of == Some(waiter.id) {
            self.bell_of = None;
            waiter.sleeps.store(false, Ordering::Relaxed);
            if self.policy.plan().rings_caller {
                self.link.watch(Sleeper::Nobody);
            }
            self.policy.on(Event::Rises, now);
        }
    }
}
