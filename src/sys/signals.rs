//! Threads of the NIC's own take no signals of the application.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks the signals of this thread while it lives: a thread that is spawned meanwhile starts with them blocked, so the
/// application's handlers run on the application's threads.
///
/// Not SIGSEGV and SIGBUS. The NIC handles those of its own accesses to registered memory, and the kernel ends a process
/// that blocks the signal of a fault without asking a handler.
pub struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    /// Blocks them from now on.
    pub fn new() -> BlockedSignals {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets live through the calls. `sigfillset` initialises `all`, and `pthread_sigmask` fills `before`: it
        // fails for no valid set.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in [libc::SIGSEGV, libc::SIGBUS] {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals(before.assume_init())
        }
    }
}

impl Default for BlockedSignals {
    fn default() -> BlockedSignals {
        BlockedSignals::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask that `new` saved, which lives through the call; the old one is not requested.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: libc::c_int) -> bool {
        let mut now = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: no set is given; the current one is written to `now`, which is read afterwards.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_that_is_spawned_meanwhile_blocks_all_but_faults() {
        let signals = BlockedSignals::new();
        let seen =
            std::thread::spawn(|| [libc::SIGTERM, libc::SIGUSR1, libc::SIGSEGV, libc::SIGBUS].map(blocked));
        assert_eq!(seen.join().expect("no panic"), [true, true, false, false]);
        drop(signals);
        assert!(!blocked(libc::SIGUSR1));
    }
}
