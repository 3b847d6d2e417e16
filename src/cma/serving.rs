//! Who handles what comes: the manager's thread, or an application that waits for an event meanwhile.
//!
//! Each message of a connection would wake the thread, and the thread the application. So an application that is about to
//! block first serves the NICs, the registry and the lookups itself for a moment, if that is likely to pay; what it waits for
//! is mostly a few messages away. The thread leaves them alone while that goes on, and looks every [`TICK`].
//!
//! Nothing is left behind: `ticks` is set only while the thread sleeps for a tick at most, and is cleared before it looks.
//! Whoever finds it set has queued something that the thread sees at the latest then.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_nic::verbs::Context;
use softrnic_sync::kick::Kick;
use softrnic_sys::pace;

use super::incoming::Incoming;
use super::manager::Inner;
use super::watch::Watch;

/// How long the thread leaves everything to applications that wait, before it looks whether they still do.
const TICK: Duration = Duration::from_millis(1);

/// How long an application serves before it blocks, if its last wait was shorter. The peer makes a queue pair meanwhile.
pub(super) const SPIN: Duration = Duration::from_micros(500);

/// A round of serving that took longer than this was interrupted: other threads want the processor. An application that
/// sleeps gets it back sooner than one that spins, so for the [`REST`] nobody serves.
const INTERRUPTED: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(100);

/// What wakes the manager's thread, and what it is sent.
pub(super) struct Serving {
    pub kick: Kick,
    incoming: Receiver<Incoming>,
    pub watch: Watch,
    /// An application has served since the thread last looked.
    by_caller: AtomicBool,
    /// The thread sleeps, and wakes soon by itself.
    ticks: AtomicBool,
    /// Until when applications do not serve, in nanoseconds of the first device's clock.
    rests_until: AtomicU64,
}

impl Serving {
    pub fn new(kick: Kick, incoming: Receiver<Incoming>, watch: Watch) -> Serving {
        Serving {
            kick,
            incoming,
            watch,
            by_caller: AtomicBool::new(false),
            ticks: AtomicBool::new(false),
            rests_until: AtomicU64::new(0),
        }
    }

    /// Something has been queued, or there is another deadline: the thread must look.
    pub fn wake(&self) {
        // A read-modify-write, so that a thread that clears it later sees what was queued before.
        if !self.ticks.fetch_or(false, Ordering::AcqRel) {
            self.kick.kick();
        }
    }

    /// Handles what has come. `is_readable` is whether a watched descriptor was readable.
    pub fn handle(&self, manager: &Inner, mut is_readable: bool) {
        let mut state = manager.lock();
        // Under the lock, so that events are handled in the order in which they came, whoever takes them.
        let events: Vec<Incoming> = self.incoming.try_iter().collect();
        // Another process may already have the address of one that has ended. The end of the old one must be handled
        // first.
        is_readable |= !events.is_empty() && self.watch.is_ready();
        if is_readable {
            state.lose_ended_peers();
        }
        for (device_index, happened) in events {
            state.on_happened(device_index, happened);
        }
        if is_readable || state.next_timer().is_some_and(|due| due <= state.now()) {
            state.serve();
        }
    }

    /// The thread waits for the kick, a descriptor or a deadline. Returns whether a descriptor is readable.
    pub fn sleep(&self, manager: &Inner) -> bool {
        let ticks = self.by_caller.swap(false, Ordering::AcqRel);
        self.ticks.swap(ticks, Ordering::AcqRel);
        let sleeps = self.kick.prepare_sleep();
        let until = {
            let state = manager.lock();
            state.next_timer().map(|until| until.since(state.now()))
        };
        let until = if ticks { Some(until.map_or(TICK, |until| until.min(TICK))) } else { until };
        let timeout = if sleeps { until.map(pace::by_the_wall) } else { Some(Duration::ZERO) };
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let kicked = self.kick.as_fd();
        let mut fds = vec![PollFd::new(&kicked, PollFlags::IN)];
        let watched = self.watch.descriptor().filter(|_| !ticks);
        fds.extend(watched.as_ref().map(|watched| PollFd::new(watched, PollFlags::IN)));
        let _ready = poll(&mut fds, timeout.as_ref());
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty());
        let (by_kick, is_readable) = (is_ready(0), is_ready(1));
        self.ticks.swap(false, Ordering::AcqRel);
        if sleeps {
            self.kick.clear(by_kick);
        }
        is_readable
    }

    /// An application waits until `found`: serves for a moment. Returns whether it was found.
    pub fn spin(&self, manager: &Inner, devices: &[Context], found: impl Fn() -> bool) -> bool {
        let Some(clock) = devices.first().map(Context::nic) else { return false };
        let mut now = clock.now();
        if now.as_nanos() < self.rests_until.load(Ordering::Relaxed) {
            return false;
        }
        let end = now + pace::from_the_wall(SPIN);
        while now < end {
            self.by_caller.store(true, Ordering::Release);
            for device in devices {
                device.nic().on_poll(false);
            }
            let is_readable = self.watch.is_ready();
            if is_readable || !self.incoming.is_empty() {
                self.handle(manager, is_readable);
            }
            if found() {
                return true;
            }
            let begun = std::mem::replace(&mut now, clock.now());
            if now.since(begun) > pace::from_the_wall(INTERRUPTED) {
                let rest = now + pace::from_the_wall(REST);
                self.rests_until.store(rest.as_nanos(), Ordering::Relaxed);
                break;
            }
        }
        self.hand_over(devices);
        false
    }

    /// The application blocks: the threads have to serve at once.
    fn hand_over(&self, devices: &[Context]) {
        self.by_caller.store(false, Ordering::Release);
        self.kick.kick();
        for device in devices {
            device.nic().hand_over();
        }
    }
}
