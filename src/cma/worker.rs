//! The manager's thread: handles what happens to connections, answers clients of the registry, and keeps the deadlines.
//! Otherwise it sleeps.

use softrnic_cm::CommId;
use softrnic_link::ProcessSlot;
use softrnic_wire::Time;

use super::manager::Inner;
use super::registry::PeerDevice;
use super::serving::Serving;
use super::state::State;

pub(super) fn run(manager: &Inner, serving: &Serving) {
    let mut is_readable = false;
    while !manager.is_stopping() {
        serving.handle(manager, is_readable);
        is_readable = serving.sleep(manager);
    }
}

impl State {
    pub fn next_timer(&self) -> Option<Time> {
        [self.registry.next_timer(), self.lookups.next_timer()].into_iter().flatten().min()
    }

    /// Does what can be done now.
    pub fn serve(&mut self) {
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
