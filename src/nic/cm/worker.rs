//! The manager's thread: handles what happens to connections, answers clients of the registry, and keeps the deadlines.
//! Otherwise it sleeps.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_wire::Time;

use super::incoming::{Happened, Inbox};
use super::manager::Inner;
use super::state::State;
use super::watch::Watch;
use crate::runtime::kick::Kick;

pub(super) fn run(manager: &Inner, kick: &Kick, inbox: &Inbox, watch: &Watch) {
    let mut woken = Woken::default();
    while !manager.is_stopping() {
        let events: Vec<(usize, Happened)> = std::iter::from_fn(|| inbox.0.pop()).collect();
        // Another process may already have the address of one that has ended. The end of the old one must be handled
        // first.
        woken.by_descriptor |= !events.is_empty() && watch.is_ready();
        {
            let mut state = manager.lock();
            if woken.by_descriptor {
                state.lose_ended_peers();
            }
            for (place, happened) in events {
                state.on_happened(place, happened);
            }
            if woken.by_descriptor || state.next_timer().is_some_and(|due| due <= state.now()) {
                state.serve();
            }
        }
        let sleeps = kick.prepare_sleep();
        woken = wait(manager, kick, watch, sleeps);
        if sleeps {
            kick.clear(woken.by_kick);
        }
    }
}

#[derive(Default)]
struct Woken {
    by_kick: bool,
    by_descriptor: bool,
}

impl State {
    fn next_timer(&self) -> Option<Time> {
        [self.registry.next_timer(), self.lookups.next_timer()].into_iter().flatten().min()
    }

    /// Does what can be done now.
    fn serve(&mut self) {
        let now = self.now();
        self.run_lookups(now);
        let mut registry = std::mem::take(&mut self.registry);
        registry.serve(now, |name, destination, asker| self.device_for(name, destination, asker));
        self.registry = registry;
    }

    /// Ends the connections with processes that have ended.
    pub fn lose_ended_peers(&mut self) {
        for peer in self.registry.lifelines.hung_up() {
            for place in 0..self.devices.len() {
                let Ok(known) = self.with_cm(place, |management, _| management.cm().with_peer(peer)) else {
                    continue;
                };
                // The link is read after each control operation: the last packets of those processes come first.
                let _gone = self.with_cm(place, |management, now| management.cm().lose(now, &known));
            }
        }
    }
}

/// Waits for the kick, a descriptor or a deadline, or only checks.
fn wait(manager: &Inner, kick: &Kick, watch: &Watch, sleeps: bool) -> Woken {
    let until = {
        let state = manager.lock();
        state.next_timer().map(|until| until.since(state.now()))
    };
    let timeout = if sleeps { until } else { Some(Duration::ZERO) };
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let kicked = kick.as_fd();
    let mut fds = vec![PollFd::new(&kicked, PollFlags::IN)];
    let watched = watch.descriptor();
    fds.extend(watched.as_ref().map(|watched| PollFd::new(watched, PollFlags::IN)));
    let _ready = poll(&mut fds, timeout.as_ref());
    let is_ready = |at: usize| fds.get(at).is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty());
    Woken { by_kick: is_ready(0), by_descriptor: is_ready(1) }
}
