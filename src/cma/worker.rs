//! The manager's thread: handles what happens to connections, answers clients of the registry, and keeps the deadlines.
//! Otherwise it sleeps.

use std::os::fd::AsFd;
use std::time::Duration;

use crossbeam_channel::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_cm::CommId;
use softrnic_link::ProcessSlot;
use softrnic_sys::pace;
use softrnic_wire::Time;

use super::incoming::Incoming;
use super::manager::Inner;
use super::registry::PeerDevice;
use super::state::State;
use super::watch::Watch;
use softrnic_sync::kick::Kick;

pub(super) fn run(manager: &Inner, kick: &Kick, incoming: &Receiver<Incoming>, watch: &Watch) {
    let mut woken = Woken::default();
    while !manager.is_stopping() {
        let events: Vec<Incoming> = incoming.try_iter().collect();
        // Another process may already have the address of one that has ended. The end of the old one must be handled
        // first.
        woken.by_descriptor |= !events.is_empty() && watch.is_ready();
        {
            let mut state = manager.lock();
            if woken.by_descriptor {
                state.lose_ended_peers();
            }
            for (device_index, happened) in events {
                state.on_happened(device_index, happened);
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
        for home in self.registry.lifelines.hung_up() {
            for device_index in 0..self.devices.len() {
                let with_device =
                    self.with_cm(device_index, |management, _| management.cm().with_peer(home.device));
                let Ok(with_device) = with_device else { continue };
                let with_process =
                    with_device.iter().filter(|(id, remote)| self.is_with(device_index, *id, *remote, home));
                let known: Vec<CommId> = with_process.map(|(id, _)| *id).collect();
                // The link is read after each control operation: the last packets of those processes come first.
                let _gone = self.with_cm(device_index, |management, now| management.cm().lose(now, &known));
            }
        }
    }
}

impl State {
    /// Whether the other end of a connection is in the process that was at `home`, among those that share the address.
    /// It shows in the peer's communication id; before that is known, in where its listener was found.
    fn is_with(&self, device_index: usize, id: CommId, remote: u32, home: PeerDevice) -> bool {
        let Some(slot) = home.slot else { return true };
        match remote {
            0 => {
                let entry =
                    self.connections.get(&(device_index, id)).and_then(|number| self.ids.get(*number));
                entry.is_some_and(|entry| entry.home == Some(home))
            }
            remote => ProcessSlot::of_comm_id(remote) == slot,
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
    let timeout = timeout.map(pace::by_the_wall).map(|timeout| Timespec {
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
