//! The progress thread, which carries out plans.
//!
//! It sleeps, spins and takes turns at the NIC as the [`Policy`](super::policy::Policy) says, and decides nothing
//! itself. It also watches the port, the statistics socket, and for processes that want to share the address, and looks
//! whether peers that do not answer are stopped.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use softrnic_mapping::Thread as NativeThread;
use softrnic_sys::{BlockedSignals, ask_for_short_slices, pace};
use softrnic_wire::Time;

use super::{Nic, PeerLooks};
use crate::progress::policy::Plan;
use crate::progress::tuning::{ATTEND, ATTEND_MEMBERS, SLICE};
use softrnic_stats::Answering;

/// The running thread; stops when dropped.
pub struct Progress {
    nic: Arc<Nic>,
    thread: Option<NativeThread>,
    /// The process in which the thread runs: a forked child has no thread to stop.
    process: u32,
}

impl Progress {
    /// Starts the thread with all signals blocked: the application's handlers run on its own threads.
    pub(crate) fn spawn(nic: Arc<Nic>) -> io::Result<Progress> {
        let own = nic.clone();
        let signals = BlockedSignals::new();
        // A thread needs memory to start, and aborts the process if there is none. So it has started once the device is
        // open.
        let begun = Arc::new(Barrier::new(2));
        let begins = begun.clone();
        let thread = NativeThread::spawn(c"softrnic", move || {
            begins.wait();
            let turns = Turns::at(own.clone());
            Thread {
                nic: own,
                turns,
                answering: Answering::default(),
                looks: PeerLooks::default(),
                attend_at: Time::ZERO,
                members_from: Time::ZERO,
            }
            .run();
        })?;
        begun.wait();
        drop(signals);
        Ok(Progress { nic, thread: Some(thread), process: std::process::id() })
    }

    /// For tests that take the thread's turns themselves.
    #[cfg(test)]
    pub(crate) fn without_thread(nic: Arc<Nic>) -> Progress {
        Progress { nic, thread: None, process: std::process::id() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.nic.flags().stop();
        self.nic.kick().kick();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread; the device is fatal then.
            thread.join();
        }
    }
}

/// Turns at a NIC, and what to do between them.
pub(crate) struct Turns {
    nic: Arc<Nic>,
    pub plan: Plan,
    /// The link was handed over, and there has been no turn since.
    handed_over: bool,
}

impl Turns {
    pub fn at(nic: Arc<Nic>) -> Turns {
        Turns { nic, plan: Plan::START, handed_over: false }
    }

    /// Takes a turn, after waking for it or instead of sleeping.
    pub fn take(&mut self, by_link: bool) {
        self.handed_over |= self.nic.flags().wake();
        match self.nic.take_turn(by_link, self.handed_over) {
            Some(plan) => {
                self.plan = plan;
                self.handed_over = false;
            }
            None => self.plan = self.plan.rest(self.nic.now(), self.handed_over),
        }
    }
}

struct Thread {
    nic: Arc<Nic>,
    turns: Turns,
    answering: Answering,
    looks: PeerLooks,
    /// When to attend to the port and the statistics if it has not slept until then.
    attend_at: Time,
    /// From when on to attend to the processes that share the address.
    members_from: Time,
}

/// Why the thread woke.
struct Woken {
    /// Whether it is the NIC's turn.
    for_turn: bool,
    by_link: bool,
}

impl Thread {
    fn run(mut self) {
        ask_for_short_slices(SLICE);
        while !self.nic.flags().is_stopping() {
            let now = self.nic.now();
            if self.attend_at <= now {
                self.attend(now);
            }
            if self.nic.port_changes_at() <= now {
                self.nic.change_port();
            }
            self.nic.look_at_silent_peers(&mut self.looks);
            // The turn at the end of spinning begins the watch.
            if self.turns.plan.spin_until != Time::ZERO {
                self.turns.take(true);
                continue;
            }
            let woken = self.sleep(now, self.turns.plan);
            if woken.for_turn {
                self.turns.take(woken.by_link);
            }
        }
        self.answering.stop();
    }

    /// Sleeps until the plan calls for a turn, a thread kicks, or something needs attention.
    fn sleep(&mut self, now: Time, plan: Plan) -> Woken {
        let nic = Arc::clone(&self.nic);
        nic.flags().sleep(plan, now);
        if !nic.kick().prepare_sleep() {
            return Woken { for_turn: true, by_link: false };
        }
        let stats = self.stats_fd(now);
        let members = self.members_fd(now);
        let later = [stats.err(), members.err(), Some(nic.port_changes_at())].into_iter().flatten();
        let until = later.fold(plan.wake_at, Time::min);
        let timeout = (until != Time::NEVER).then(|| until.since(now));
        let link = nic.link_fd().filter(|_| plan.watch_link);
        let kick = nic.kick().as_fd().as_raw_fd();
        let attended = [nic.port_fd(), members.ok(), stats.ok()];
        let [kicked, by_link, port, joined, asked] =
            wait([Some(kick), link, attended[0], attended[1], attended[2]], timeout);
        nic.kick().clear(kicked);
        nic.flags().count_wakeup();
        let now = nic.now();
        self.attend_to(now, port, joined, asked);
        Woken { for_turn: kicked || by_link || plan.wake_at <= now, by_link }
    }

    /// Attends to the port and the statistics when the NIC leaves no time to sleep.
    fn attend(&mut self, now: Time) {
        let asked = self.stats_fd(now).ok();
        let [port, joined, asked] =
            wait([self.nic.port_fd(), self.members_fd(now).ok(), asked], Some(Duration::ZERO));
        self.attend_to(now, port, joined, asked);
    }

    /// The statistics socket if it is to be watched now, or the time from which it is.
    fn stats_fd(&mut self, now: Time) -> Result<i32, Time> {
        let from = self.answering.watches_from();
        let stats = self.nic.stats().ok_or(Time::NEVER)?;
        if from <= now { Ok(stats.descriptor()) } else { Err(from) }
    }

    /// Likewise the descriptor for processes that want to share the address.
    fn members_fd(&self, now: Time) -> Result<i32, Time> {
        let members = self.nic.members_fd().ok_or(Time::NEVER)?;
        if self.members_from <= now { Ok(members) } else { Err(self.members_from) }
    }

    fn attend_to(&mut self, now: Time, port: bool, joined: bool, asked: bool) {
        self.attend_at = now + ATTEND;
        if port {
            self.nic.refresh_port();
        }
        if joined {
            self.nic.let_members_in();
            self.members_from = now + ATTEND_MEMBERS;
        }
        if asked {
            let nic = Arc::clone(&self.nic);
            self.answering.start(now, self.nic.kick(), move |stop| nic.answer_stats(stop));
        }
    }
}

/// Waits until one of the descriptors is readable; returns which.
fn wait<const N: usize>(descriptors: [Option<i32>; N], timeout: Option<Duration>) -> [bool; N] {
    let mut fds =
        descriptors.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    let timespec = timeout.map(pace::by_the_wall).map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    });
    let timespec = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array, of the given length, and the time live through the call; there is no mask.
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
