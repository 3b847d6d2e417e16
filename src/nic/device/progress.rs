//! The progress thread: serves peers of a process that calls nothing, and keeps the deadlines.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use softrnic_wire::Time;

use super::watch::Watch;
use super::{GATHER_LIMIT, LONGEST_LOOK, Nic};
use crate::engine::{Budget, Caller, Step};
use crate::stats::Answering;

/// After serving packets of an application that calls nothing, the thread looks again for this long before it
/// blocks.
const SPIN: Duration = Duration::from_micros(50);

/// How long the thread remembers that posts were gathered.
const GATHER_MEMORY: Duration = Duration::from_millis(2);

/// An application that has not called for this long is taken to be waiting for something else.
const PASSIVE: Duration = Duration::from_millis(2);

/// A thread that is too busy to sleep looks this often whether there is anything else to attend to.
const ATTEND: Duration = Duration::from_millis(10);

/// The shortest slice that the scheduler grants.
const SLICE: Duration = Duration::from_micros(100);

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
        // A thread needs memory to begin, and ends the process if there is none. It has begun when the device is open.
        let begun = Arc::new(Barrier::new(2));
        let begins = begun.clone();
        let thread = std::thread::Builder::new().name("softrnic".into()).spawn(move || {
            begins.wait();
            own.run();
        })?;
        begun.wait();
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

/// What the thread attends to besides the NIC.
#[derive(Default)]
struct Others {
    answering: Answering,
    /// Until when they can wait if the thread does not sleep.
    due: Time,
}

impl Nic {
    fn run(self: &Arc<Nic>) {
        ask_for_short_slices();
        let mut watch = Watch::new();
        let mut others = Others::default();
        let mut spin_until = Time::ZERO;
        let mut rest_until = Time::ZERO;
        while !self.stopping.load(Ordering::SeqCst) {
            let now = self.now();
            if others.due <= now {
                self.attend(&mut others, now);
            }
            let wake = if now < spin_until {
                Wake::LINK
            } else {
                self.sleep(now, &mut watch, rest_until, &mut others)
            };
            rest_until = Time::ZERO;
            if !wake.due && !wake.link {
                continue;
            }
            let served = self.serve();
            let now = self.now();
            match served {
                Some(step) if step.received == 0 => {}
                // An application that polls would have found these.
                Some(step) if !step.requests && self.polls(now) => {}
                Some(_) => {
                    watch.served();
                    if wake.link && self.is_passive(now) {
                        spin_until = now + SPIN;
                    }
                    continue;
                }
                // Somebody else drives the NIC and does what is due. Looking on would only take its processor.
                None => rest_until = now + GATHER_LIMIT,
            }
            if wake.link && now >= spin_until {
                watch.in_vain(now);
            }
        }
        others.answering.stop();
    }

    /// Looks after the others although the NIC leaves no time to sleep.
    fn attend(self: &Arc<Nic>, others: &mut Others, now: Time) {
        let asked = self.stats_fd(others, now).ok();
        let [port, asked] = wait([self.port_fd, asked], Some(Duration::ZERO));
        self.attend_to(others, now, port, asked);
    }

    /// The socket to be watched for those who look, or from when on it is.
    fn stats_fd(&self, others: &mut Others, now: Time) -> Result<i32, Time> {
        let from = others.answering.watches_from();
        let stats = self.stats.as_ref().ok_or(Time::NEVER)?;
        if from <= now { Ok(stats.descriptor()) } else { Err(from) }
    }

    fn attend_to(self: &Arc<Nic>, others: &mut Others, now: Time, port: bool, asked: bool) {
        others.due = now + ATTEND;
        if port {
            self.refresh_port();
        }
        if asked {
            let nic = Arc::clone(self);
            others.answering.start(now, &self.kick, move |stop| nic.answer_stats(stop));
        }
    }

    /// Services the NIC; `None` if somebody else is at it, or the device has failed.
    fn serve(&self) -> Option<Step> {
        match self.core.try_lock() {
            Ok(Some(guard)) => {
                let budget = Budget { caller: Caller::Thread, ..Budget::default() };
                Some(self.drive(self.now(), guard, budget))
            }
            Ok(None) | Err(_) => None,
        }
    }

    /// Whether the application polls.
    fn polls(&self, now: Time) -> bool {
        now.since(Time::from_nanos(self.last_poll.load(Ordering::Relaxed))) < GATHER_LIMIT
    }

    /// Whether the application calls nothing, so that nobody needs the processor that spinning takes.
    fn is_passive(&self, now: Time) -> bool {
        let last_call = self.last_poll.load(Ordering::Relaxed).max(self.last_post.load(Ordering::Relaxed));
        now.since(Time::from_nanos(last_call)) > PASSIVE
    }

    /// Blocks until something may be due, and in any case until `rest_until` unless it is kicked.
    fn sleep(self: &Arc<Nic>, now: Time, watch: &mut Watch, rest_until: Time, others: &mut Others) -> Wake {
        let last_poll = Time::from_nanos(self.last_poll.load(Ordering::SeqCst));
        // Whoever drives the NIC for long has not stopped.
        if watch.reconsider(now, if self.core.is_held() { now } else { last_poll }) {
            self.eagerness.missed();
        }
        self.watching.store(watch.away_until().is_none(), Ordering::SeqCst);
        if self.handed_over.swap(false, Ordering::SeqCst) {
            watch.watch();
            self.look_every(GATHER_LIMIT);
            self.watching.store(true, Ordering::SeqCst);
        }
        let stats = self.stats_fd(others, now);
        let until = self.wake_time(now, watch, rest_until).min(stats.err().unwrap_or(Time::NEVER));
        self.asleep_until.store(until.as_nanos(), Ordering::SeqCst);
        if !self.kick.prepare_sleep() {
            self.asleep_until.store(0, Ordering::SeqCst);
            return Wake { due: true, link: false };
        }
        // Who moved a deadline before it could see how long this thread sleeps has not kicked.
        let missed = self.wake_time(now, watch, rest_until) < until;
        let timeout =
            if missed { Some(Duration::ZERO) } else { (until != Time::NEVER).then(|| until.since(now)) };
        let link = self.link_fd.filter(|_| watch.away_until().is_none() && rest_until <= now);
        let kick = Some(self.kick.as_fd().as_raw_fd());
        let [kicked, readable, port, asked] = wait([kick, link, self.port_fd, stats.ok()], timeout);
        self.kick.clear(kicked);
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        self.asleep_until.store(0, Ordering::SeqCst);
        let now = self.now();
        self.attend_to(others, now, port, asked);
        let now = if port || asked { self.now() } else { now };
        if link.is_some() && !readable && self.polls(now) {
            watch.silent(now);
        } else {
            watch.heard();
        }
        let overdue = self.gathered_until() <= now;
        if overdue {
            self.look_every(GATHER_LIMIT);
        } else if until <= now {
            self.look_every((self.look() * 2).min(LONGEST_LOOK));
        }
        Wake { due: kicked || overdue || self.next_deadline() <= now, link: readable }
    }

    /// Until when to sleep. Callers who poll run the timers as well, so that while the thread looks away a
    /// deadline can wait until it looks again.
    fn wake_time(&self, now: Time, watch: &Watch, rest_until: Time) -> Time {
        let next = watch.away_until().unwrap_or_else(|| self.next_deadline()).min(self.gathered_until());
        // Who gathers once does so again: looking every so often saves them a system call each time.
        let gathers = now.since(Time::from_nanos(self.last_gather.load(Ordering::Relaxed))) < GATHER_MEMORY;
        let next = if gathers { next.min(now + self.look()) } else { next };
        // Whether it is needed at all shows only after a while.
        let judges = watch.away_until().is_none() && self.polls(now);
        let next = if judges { next.min(now + LONGEST_LOOK) } else { next };
        // Nobody may be driving any more when the rest is over.
        if rest_until > now { rest_until } else { next }
    }

    fn look_every(&self, interval: Duration) {
        self.look.store(interval.as_nanos() as u64, Ordering::Relaxed);
    }

    /// When gathered posts have waited long enough.
    fn gathered_until(&self) -> Time {
        match self.gathered_since.load(Ordering::SeqCst) {
            0 => Time::NEVER,
            since => Time::from_nanos(since) + self.look(),
        }
    }
}

impl Wake {
    /// As if the link had woken the thread.
    const LINK: Wake = Wake { due: false, link: true };
}

struct Wake {
    /// Kicked, or a deadline has come.
    due: bool,
    /// The link has datagrams.
    link: bool,
}

/// Waits until one of the descriptors is readable; says which.
fn wait<const N: usize>(descriptors: [Option<i32>; N], timeout: Option<Duration>) -> [bool; N] {
    let mut fds =
        descriptors.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let timespec = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    });
    let timespec = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array, of the length that is said, and the time are ours and live through the call; there is no mask.
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

/// Asks the scheduler for short turns. Under EEVDF (Linux 6.12) a thread with a shorter slice takes the processor
/// at once when it wakes, even from an application that spins on its memory until this thread has written there.
/// Older kernels ignore it, and the wake-up waits its turn.
fn ask_for_short_slices() {
    /// `SCHED_FLAG_KEEP_POLICY`. A real-time policy then refuses what follows, and stays as it is.
    const KEEP_POLICY: u64 = 8;
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: 0,
        flags: KEEP_POLICY,
        nice: own_nice(),
        priority: 0,
        runtime: SLICE.as_nanos() as u64,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure has the size that it says, and lives through the call, which reads it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// The nice value of this thread, which it keeps.
fn own_nice() -> i32 {
    // SAFETY: takes no pointers. Fails only for others' threads; -1 is a value like any other.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Blocks all signals of this thread, so that a thread spawned meanwhile starts with them blocked.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(crate) fn new() -> BlockedSignals {
        // SAFETY: zeros are a value of both sets, which live through the calls that fill them.
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
        // SAFETY: the mask that `new` has saved, which lives through the call; none is asked for.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}
