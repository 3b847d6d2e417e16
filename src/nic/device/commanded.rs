//! Changes of the port: those of its interface, and those that are commanded.
//!
//! Whoever sees an event of a change must find the change everywhere. So each is made in three steps: the state of the port
//! changes with the NIC held, then the files that show it, without the NIC, and then the event is raised.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use softrnic_engine::Budget;
use softrnic_link::fault::{FaultLink, FaultSpec, Faults, LinkCommand, PortChange};
use softrnic_sync::lock::Poisoned;
use softrnic_wire::Time;

use super::null_link::NullLink;
use super::{AsyncEvent, ConnectionSink, Core, EventKind, EventSource, Nic};

impl Nic {
    /// Carries out a command to the port: once this returns, its first event has been raised.
    ///
    /// # Errors
    /// The device has failed.
    pub fn command(&self, command: &LinkCommand) -> Result<(), Poisoned> {
        let mut core = self.core.lock()?;
        let now = self.now();
        let command = command.of_device(&self.name);
        with_faults(&mut core, |faults| command.apply(now, faults));
        self.drive(now, core, Budget::default());
        self.change_port();
        Ok(())
    }

    /// When the port changes, as was commanded.
    pub(crate) fn port_changes_at(&self) -> Time {
        Time::from_nanos(self.port_changes_at.load(Ordering::Relaxed))
    }

    /// Something about the interface below has changed.
    pub(crate) fn refresh_port(&self) {
        let _turn = self.port_turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A device that has failed has no port.
        let _failed = self.change(|core| {
            core.port.refresh(&mut core.engine);
            if let Some(carrier) = core.link.carrier() {
                core.port.carry(carrier.is_up);
            }
        });
    }

    /// Makes the changes of the port that were commanded and are due, one at a time.
    pub(crate) fn change_port(&self) {
        let _turn = self.port_turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.now();
            let Ok(mut core) = self.core.lock() else { return };
            let Some(faults) = core.link.faults() else { return };
            let port = faults.port(now);
            port.advance(now);
            let (change, next) = (port.take_change(), port.next_change().unwrap_or(Time::NEVER));
            self.port_changes_at.store(next.as_nanos(), Ordering::Relaxed);
            self.drive(now, core, Budget::default());
            let Some(change) = change else { return };
            match change {
                PortChange::Fatal => return self.fail(),
                PortChange::Readdressed => self.tell_connections(|sink| sink.readdressed()),
                _ => {}
            }
            if self.change(|core| core.port.obey(change)).is_err() {
                return;
            }
        }
    }

    fn tell_connections(&self, tell: impl FnOnce(&dyn ConnectionSink)) {
        if let Ok(core) = self.core.lock()
            && let Some(sink) = &core.connections
        {
            tell(&**sink);
            sink.wake();
        }
    }

    /// The device fails: its requests are flushed, every verb fails from then on, and then all contexts are told.
    fn fail(&self) {
        // It may have failed otherwise meanwhile.
        let _failed = self.change(|core| {
            core.port.obey(PortChange::Fatal);
            core.engine.fail_qps(self.now());
            if let Some(sink) = &core.connections {
                sink.removed();
                sink.wake();
            }
        });
        let Ok(core) = self.core.lock() else { return };
        let everyone = core.routes.everyone();
        core.poison();
        let event = AsyncEvent { kind: EventKind::DeviceFatal, source: EventSource::Device };
        everyone.iter().for_each(|sink| sink.event(event));
    }

    /// Changes the port, shows it, and raises the events of it.
    fn change(&self, change: impl FnOnce(&mut Core)) -> Result<(), Poisoned> {
        let mut core = self.core.lock()?;
        let before = core.port.shown();
        change(&mut core);
        let shown = core.port.shown();
        let Core { link, port, connections, .. } = &mut *core;
        if let Some(addresses) = port.take_addresses() {
            link.readdress(&addresses);
        }
        if port.take_removal()
            && let Some(sink) = connections
        {
            sink.removed();
            sink.wake();
        }
        self.drive(self.now(), core, Budget::default());
        if shown != before
            && let Some(Some(observer)) = self.port_observer.get()
        {
            observer.changed(shown);
        }
        let mut core = self.core.lock()?;
        let Core { engine, port, .. } = &mut *core;
        port.announce(engine);
        self.drive(self.now(), core, Budget::default());
        Ok(())
    }
}

/// Gives access to the layer that drops datagrams on purpose. A link without one gets it when it is first needed.
fn with_faults(core: &mut Core, access: impl FnOnce(&mut dyn Faults)) {
    if let Some(faults) = core.link.faults() {
        return access(faults);
    }
    let below = std::mem::replace(&mut core.link, Box::new(NullLink::default()));
    let mut layer = FaultLink::new(below, &FaultSpec::default());
    access(&mut layer);
    core.link = Box::new(layer);
}
