//! The progress thread: serves peers of a process that calls nothing, and keeps the deadlines.
//!
//! While callers poll it leaves the link's descriptor alone: a thread that blocks there is woken for every
//! datagram that a spinning caller is about to take, which costs the caller 1.3 to 1.8 times its latency.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use softrnic_wire::Time;

use super::{CALLER_GRACE, GATHER_LIMIT, Nic};
use crate::stats::StatsSocket;

/// After serving packets that nobody polled for, the thread looks again for this long before it blocks.
const SPIN: Duration = Duration::from_micros(50);

/// The running thread; stops when dropped.
pub struct Progress {
    nic: Arc<Nic>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread runs in: a forked child has none to stop.
    process: u32,
}

impl Progress {
    /// Starts the thread, with all signals blocked: the application's handlers run on its own threads.
    pub(super) fn spawn(nic: Arc<Nic>) -> io::Result<Progress> {
        let own = nic.clone();
        let signals = BlockedSignals::new();
        let thread = std::thread::Builder::new().name("softrnic".into()).spawn(move || own.run())?;
        drop(signals);
        Ok(Progress { nic, thread: Some(thread), process: std::process::id() })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.nic.stopping.store(true, Ordering::SeqCst);
        self.nic.kick.kick();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the panic hook; the device is fatal then.
            let _ = thread.join();
        }
    }
}

impl Nic {
    fn run(&self) {
        let mut spin_until = Time::ZERO;
        let mut rest_until = Time::ZERO;
        while !self.stopping.load(Ordering::SeqCst) {
            let now = self.now();
            let wake =
                if now < spin_until { Wake { due: true, link: true } } else { self.sleep(now, rest_until) };
            rest_until = Time::ZERO;
            if !wake.due && !wake.link {
                continue;
            }
            match self.serve() {
                Some(0) => {}
                Some(_) if wake.link => spin_until = self.now() + SPIN,
                Some(_) => {}
                // Somebody else drives the NIC and does what is due. Looking on would only take its processor.
                None => {
                    spin_until = Time::ZERO;
                    rest_until = self.now() + GATHER_LIMIT;
                }
            }
        }
    }

    /// Services the NIC, and returns how many datagrams came; `None` if somebody else is at it, or the device
    /// has failed.
    fn serve(&self) -> Option<usize> {
        match self.core.try_lock() {
            Ok(Some(guard)) => Some(self.drive(guard).received),
            Ok(None) | Err(_) => None,
        }
    }

    /// Blocks until something may be due, and in any case until `rest_until` unless it is kicked.
    fn sleep(&self, now: Time, rest_until: Time) -> Wake {
        let last_poll = Time::from_nanos(self.last_poll.load(Ordering::SeqCst));
        let callers_poll = now.since(last_poll) < CALLER_GRACE;
        // Those who poll run the timers as well, so that a deadline can wait until they would have polled.
        let earliest = if callers_poll { rest_until.max(last_poll + CALLER_GRACE) } else { rest_until };
        let until =
            Time::from_nanos(self.deadline.load(Ordering::SeqCst)).max(earliest).min(self.gathered_until());
        let until = if callers_poll { until.min(last_poll + CALLER_GRACE) } else { until };
        // Nobody may be driving any more when the rest is over.
        let until = if rest_until > now { until.min(rest_until) } else { until };
        self.asleep_until.store(until.as_nanos(), Ordering::SeqCst);
        if !self.kick.prepare_sleep() {
            self.asleep_until.store(0, Ordering::SeqCst);
            return Wake { due: true, link: false };
        }
        // Who moved the deadline before it could see how long this thread sleeps has not kicked.
        let moved =
            Time::from_nanos(self.deadline.load(Ordering::SeqCst)).max(earliest).min(self.gathered_until());
        let missed = moved < until;
        let timeout =
            if missed { Some(Duration::ZERO) } else { (until != Time::NEVER).then(|| until.since(now)) };
        let link = self.link_fd.filter(|_| !callers_poll && rest_until <= now);
        let kick = Some(self.kick.as_fd().as_raw_fd());
        let stats = self.stats.as_ref().map(StatsSocket::descriptor);
        let [kicked, readable, port, asked] = wait([kick, link, self.port_fd, stats], timeout);
        self.kick.clear();
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        self.asleep_until.store(0, Ordering::SeqCst);
        if port {
            self.refresh_port();
        }
        if asked {
            self.answer_stats();
        }
        let now = self.now();
        let due = kicked
            || self.gathered_until() <= now
            || Time::from_nanos(self.deadline.load(Ordering::SeqCst)) <= now;
        Wake { due, link: readable }
    }

    /// When gathered posts have waited long enough.
    fn gathered_until(&self) -> Time {
        match self.gathered_since.load(Ordering::SeqCst) {
            0 => Time::NEVER,
            since => Time::from_nanos(since) + GATHER_LIMIT,
        }
    }
}

struct Wake {
    /// Kicked, or a deadline has come.
    due: bool,
    /// The link has datagrams.
    link: bool,
}

/// Waits until one of the descriptors is readable; says which.
fn wait(descriptors: [Option<i32>; 4], timeout: Option<Duration>) -> [bool; 4] {
    let mut fds =
        descriptors.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let timespec = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    });
    let timespec = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the descriptors outlive the call, the array and the time are ours, and no signal mask is given.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timespec,
            std::ptr::null::<libc::sigset_t>(),
            8,
        )
    };
    fds.map(|fd| ready > 0 && fd.revents != 0)
}

/// Blocks all signals of this thread, so that a thread spawned meanwhile starts with them blocked.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> BlockedSignals {
        // SAFETY: plain data that the calls fill before it is read.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            BlockedSignals(old)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores the mask that was in force before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}
