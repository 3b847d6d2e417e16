//! The manager's thread: takes in what happens to connections, answers those who ask in the registry, and keeps the
//! deadlines. It sleeps unless something does.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::incoming::Inbox;
use super::manager::Inner;
use super::state::State;
use super::watch::Watch;
use crate::runtime::kick::Kick;

pub(super) fn run(manager: &Inner, kick: &Kick, inbox: &Inbox, watch: &Watch) {
    while !manager.is_stopping() {
        {
            let mut state = manager.lock();
            while let Some((place, event)) = inbox.0.pop() {
                state.on_event(place, event);
            }
            state.serve();
        }
        if kick.prepare_sleep() {
            let readable = sleep(manager, kick, watch);
            kick.clear(readable);
        }
    }
}

impl State {
    /// Does what can be done now.
    fn serve(&mut self) {
        let now = self.now();
        self.run_lookups(now);
        self.registry.accept(now);
        let mut registry = std::mem::take(&mut self.registry);
        registry.serve(now, |name, destination, asker| self.device_for(name, destination, asker));
        self.registry = registry;
        for peer in self.registry.lifelines.hung_up() {
            self.lose_peer(peer);
        }
    }

    /// The process of a peer has ended.
    fn lose_peer(&mut self, peer: std::net::IpAddr) {
        for place in 0..self.devices.len() {
            let _gone = self.with_cm(place, |management, now| management.cm().lose_peer(now, peer));
        }
    }
}

/// Waits for the kick, a descriptor or a deadline. Whether it was the kick.
fn sleep(manager: &Inner, kick: &Kick, watch: &Watch) -> bool {
    let until = {
        let state = manager.lock();
        let timers = [state.registry.next_timer(), state.lookups.next_timer()];
        timers.into_iter().flatten().min().map(|until| until.since(state.now()))
    };
    let kicked = kick.as_fd();
    let mut fds = vec![PollFd::new(&kicked, PollFlags::IN)];
    let watched = watch.descriptor();
    fds.extend(watched.as_ref().map(|watched| PollFd::new(watched, PollFlags::IN)));
    let timeout = until.map(|until| Timespec {
        tv_sec: until.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: until.subsec_nanos().into(),
    });
    let _ready = poll(&mut fds, timeout.as_ref());
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}
