//! The NIC lock and its doorbell, in one word.
//!
//! The thread that holds the lock does the NIC's work, and work can appear at any moment while it is held. So the word
//! has two bits: HELD, and PENDING for "work was added since the holder last looked". A poster first makes its work
//! visible, then sets both bits in one step. Either HELD was clear, and it has become the holder, or it was set, and
//! the holder cannot release the lock before it has seen PENDING, because it only releases by exchanging a word without
//! PENDING.
//!
//! # Why no work is left behind
//!
//! Every access that matters is a read-modify-write of the one word, and those have a total order. Take the poster's
//! (P) and the holder's: it consumes PENDING (C), looks for work, and releases (R).
//!
//! - P before C: C reads what P wrote, or what later read-modify-writes made of it, and acquires; so the poster's work
//!   happened before the holder looks.
//! - P between C and R: R finds PENDING and fails; the holder consumes it and looks again.
//! - P after R: P finds HELD clear, and the poster becomes the holder.
//!
//! There is no fourth case. Releasing the lock is a release and taking it an acquire, which orders the accesses to the
//! value. Neither a fence nor sequential consistency is needed, since nothing depends on a second word.
//!
//! A thread that takes the lock also takes PENDING, and becomes responsible for it: the [`NicGuard`] remembers it, and
//! if it is dropped without having been asked [for it](NicGuard::take_pending), leaves PENDING set and kicks the
//! progress thread. So it is never wrong to just drop a guard; it is only slower.
//!
//! # Waiting
//!
//! Posters and pollers never wait. Control operations do: each adds a waiter to the count in the word's upper bits, and
//! a release with waiters wakes one of them. A waiter sleeps only if the word is still what it saw with HELD set, so a
//! release either changes the word before it sleeps or finds it asleep. Pollers give way to waiters; posters do not,
//! and their holds are short.
//!
//! # Cancellation
//!
//! A thread that is cancelled while it holds the NIC holds it for ever, since destructors do not run. So there must be
//! no cancellation point between taking and releasing the lock: a thread that holds a guard makes its system calls
//! through `syscall()`, as the futex and the kick do here.

use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::atomic::AtomicU64 as Counter;

use super::futex::Futex;
use super::kick::Kick;
use crate::atomics::atomic::Ordering;
use crate::atomics::{Arc, UnsafeCell};

/// A holder panicked, and the NIC may be in any state. The lock is never taken again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned;

impl std::fmt::Display for Poisoned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the device failed: a thread panicked while it was driving it")
    }
}

impl std::error::Error for Poisoned {}

/// A NIC that one thread at a time drives.
pub struct NicLock<T> {
    word: Futex,
    kick: Arc<Kick>,
    id: u64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, of which there is one at a time (the bit HELD), so sharing the
// lock sends the value between threads and never shares it.
unsafe impl<T: Send> Sync for NicLock<T> {}

impl<T> NicLock<T> {
    /// `kick` wakes the thread that takes over when a holder releases with work left.
    pub fn new(value: T, kick: Arc<Kick>) -> NicLock<T> {
        static NEXT_ID: Counter = Counter::new(0);
        NicLock {
            word: Futex::new(0),
            kick,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            value: UnsafeCell::new(value),
        }
    }

    /// For a poster that has just made work visible and holds no other lock: it becomes the holder, with PENDING, or
    /// else (`None`) the present holder will see the work.
    ///
    /// # Errors
    /// [`Poisoned`].
    pub fn ring(&self) -> Result<Option<NicGuard<'_, T>>, Poisoned> {
        if self.word.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(Some(self.guard(true)));
        }
        let before = self.word.fetch_or(HELD | PENDING, Ordering::Release);
        if before & HELD != 0 {
            return if before & POISONED != 0 { Err(Poisoned) } else { Ok(None) };
        }
        self.word.fetch_and(!PENDING, Ordering::Acquire);
        Ok(Some(self.guard(true)))
    }

    /// For a poller, which wants the link serviced but brings no work: it becomes the holder, or else (`None`) another
    /// thread is servicing it already, or waits to. Then it leaves no mark, having no work of its own to lose.
    ///
    /// # Errors
    /// [`Poisoned`].
    pub fn try_lock(&self) -> Result<Option<NicGuard<'_, T>>, Poisoned> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & HELD == 0 && word < WAITER {
            match self.take(word, 0) {
                Ok(guard) => return Ok(Some(guard)),
                Err(now) => word = now,
            }
        }
        if word & POISONED != 0 { Err(Poisoned) } else { Ok(None) }
    }

    /// Whether a thread is driving the NIC: a hint, which is out of date as soon as it is read.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & HELD != 0
    }

    /// For control operations and the progress thread: waits until it is the holder.
    ///
    /// # Errors
    /// [`Poisoned`], also when that happens while waiting.
    pub fn lock(&self) -> Result<NicGuard<'_, T>, Poisoned> {
        for _ in 0..SPINS {
            if let Some(guard) = self.try_lock()? {
                return Ok(guard);
            }
            std::hint::spin_loop();
        }
        let mut word = self.word.fetch_add(WAITER, Ordering::Relaxed) + WAITER;
        loop {
            if word & POISONED != 0 {
                self.word.fetch_sub(WAITER, Ordering::Relaxed);
                return Err(Poisoned);
            }
            if word & HELD != 0 {
                self.word.wait(word);
                word = self.word.load(Ordering::Relaxed);
                continue;
            }
            match self.take(word, WAITER) {
                Ok(guard) => return Ok(guard),
                Err(now) => word = now,
            }
        }
    }

    /// Makes a guard again, after [`NicGuard::detach`].
    ///
    /// # Panics
    /// The token belongs to another lock.
    pub fn attach(&self, held: Detached) -> NicGuard<'_, T> {
        assert_eq!(held.id, self.id, "the token is another lock's");
        self.guard(held.pending)
    }

    /// Takes the lock from the state `word`, which has HELD clear, with PENDING and `waiters` subtracted.
    fn take(&self, word: u32, waiters: u32) -> Result<NicGuard<'_, T>, u32> {
        let taken = ((word | HELD) & !PENDING) - waiters;
        self.word
            .compare_exchange(word, taken, Ordering::Acquire, Ordering::Relaxed)
            .map(|_| self.guard(word & PENDING != 0))
    }

    fn guard(&self, pending: bool) -> NicGuard<'_, T> {
        held::took();
        NicGuard { lock: self, pending, panicking: std::thread::panicking(), exclusive: PhantomData }
    }
}

/// The right to drive the NIC. Releasing is a protocol, see [the module](self): use [`release`](Self::release), or
/// [`take_pending`](Self::take_pending) and [`finish`](Self::finish) in a loop. Dropping it passes unfinished work to
/// the progress thread.
///
/// A holder that unwinds poisons the lock.
#[must_use = "dropping the guard lets go of the NIC"]
pub struct NicGuard<'a, T> {
    lock: &'a NicLock<T>,
    /// PENDING was consumed, and work has not been looked for since.
    pending: bool,
    /// The thread was already unwinding when it took the lock.
    panicking: bool,
    exclusive: PhantomData<&'a mut T>,
}

impl<'a, T> NicGuard<'a, T> {
    /// Whether doorbells may have been rung that this holder has not drained. It must drain them now.
    pub fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.pending)
    }

    /// Releases the lock, if no work has come in the meantime.
    ///
    /// # Errors
    /// There is work: the guard is returned, and [`take_pending`](Self::take_pending) returns true.
    pub fn finish(mut self) -> Result<(), NicGuard<'a, T>> {
        let lock = self.lock;
        let mut word = HELD;
        loop {
            if self.pending {
                return Err(self);
            }
            if word & PENDING != 0 {
                lock.word.fetch_and(!PENDING, Ordering::Acquire);
                self.pending = true;
                continue;
            }
            match lock.word.compare_exchange_weak(word, word & !HELD, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        std::mem::forget(self);
        held::let_go();
        if word >= WAITER {
            lock.word.wake_one();
        }
        Ok(())
    }

    /// Releases the lock although there is work, because this hold has been long enough. PENDING stays set for the next
    /// holder, and the progress thread is kicked so that there is one.
    pub fn hand_over(mut self) {
        self.pending = true;
    }

    /// Repeats until nothing is pending, then releases the lock. `service` drains the doorbells and does the work; when
    /// it breaks, because the bound of a hold is reached, the rest is [handed over](Self::hand_over).
    pub fn release(mut self, mut service: impl FnMut(&mut T) -> ControlFlow<()>) {
        loop {
            if self.take_pending() && service(&mut self).is_break() {
                return self.hand_over();
            }
            match self.finish() {
                Ok(()) => return,
                Err(guard) => self = guard,
            }
        }
    }

    /// Keeps the NIC held without a guard, until [`NicLock::attach`]: across a fork, after which the parent releases it
    /// and the child takes the NIC apart.
    pub fn detach(self) -> Detached {
        let held = Detached { id: self.lock.id, pending: self.pending };
        std::mem::forget(self);
        held::let_go();
        held
    }

    /// Never releases the lock: the device has failed, which all waiting and later threads are told.
    pub fn poison(mut self) {
        self.mark_poisoned();
        std::mem::forget(self);
        held::let_go();
    }

    /// Releases the lock in one step, leaving PENDING to others.
    fn let_go(&mut self) {
        let word = &self.lock.word;
        let mut before = word.load(Ordering::Relaxed);
        let after = loop {
            let after = (before & !HELD) | if self.pending { PENDING } else { 0 };
            match word.compare_exchange_weak(before, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break after,
                Err(now) => before = now,
            }
        };
        if after >= WAITER {
            word.wake_one();
        }
        if after & PENDING != 0 {
            self.lock.kick.kick();
        }
    }

    /// The lock stays held for ever, and all threads are told.
    fn mark_poisoned(&mut self) {
        self.lock.word.fetch_or(POISONED, Ordering::Release);
        self.lock.word.wake_all();
        self.lock.kick.kick();
    }
}

impl<T> Drop for NicGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicking {
            self.mark_poisoned()
        } else {
            self.let_go()
        }
        held::let_go();
    }
}

impl<T> Deref for NicGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time (the bit HELD), and this one is borrowed for as long as the reference.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for NicGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time (the bit HELD), and this one is mutably borrowed for as long as the
        // reference.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

/// Whether this thread has a guard of any NIC, as far as debug builds know: a test asks in its allocator.
pub fn held_by_this_thread() -> bool {
    held::by_this_thread()
}

#[cfg(all(debug_assertions, not(loom)))]
mod held {
    use std::cell::Cell;

    thread_local! {
        /// Guards taken less those released; a guard that changes threads counts for the first and against the second.
        /// Never allocated and never dropped, so it can be read at any moment.
        static GUARDS: Cell<isize> = const { Cell::new(0) };
    }

    pub(super) fn took() {
        GUARDS.set(GUARDS.get() + 1);
    }

    pub(super) fn let_go() {
        GUARDS.set(GUARDS.get() - 1);
    }

    pub(super) fn by_this_thread() -> bool {
        GUARDS.get() > 0
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod held {
    pub(super) fn took() {}

    pub(super) fn let_go() {}

    pub(super) fn by_this_thread() -> bool {
        false
    }
}

/// A NIC held without a guard. If this is lost, the NIC stays held.
#[derive(Debug)]
#[must_use = "the NIC stays held until this is attached again"]
pub struct Detached {
    id: u64,
    pending: bool,
}

const HELD: u32 = 1;
const PENDING: u32 = 2;
/// Always with HELD, so only threads that find the lock held need to check it.
const POISONED: u32 = 4;
/// One waiter; this bit and those above it are their number.
const WAITER: u32 = 8;

/// How often a control operation checks before it sleeps: about as long as a bounded hold of a few packets.
const SPINS: usize = if cfg!(loom) { 1 } else { 100 };
