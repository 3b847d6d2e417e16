//! The manager of a process: all identifiers, channels and ports behind one lock, and the thread that waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Sender, unbounded};
use softrnic_mapping::Thread;
use softrnic_sys::BlockedSignals;

use super::devices::Devices;
use super::error::Error;
use super::fork;
use super::incoming::{Incoming, Sink};
use super::serving::Serving;
use super::state::{Device, State};
use super::watch::Watch;
use super::worker;
use softrnic_nic::device::{ConnectionSink, Process};
use softrnic_nic::verbs::Context;
use softrnic_sync::kick::Kick;

/// Owns the identifiers, channels and ports of a process. One per process.
pub struct Manager {
    devices: Box<dyn Devices>,
    inner: &'static Inner,
}

/// What the thread and a fork need to reach. There is one per process, and it is never freed.
pub(super) struct Inner {
    state: Mutex<State>,
    worker: Mutex<Option<Worker>>,
    stopping: AtomicBool,
}

/// The thread, what wakes it, and what it is sent.
struct Worker {
    process: Process,
    serving: Arc<Serving>,
    incoming: Sender<Incoming>,
    thread: Option<Thread>,
}

impl Manager {
    /// A manager without identifiers. It costs nothing until the first one is created. In the child of a fork it is
    /// empty again.
    pub fn new(devices: Box<dyn Devices>) -> Arc<Manager> {
        let inner: &'static Inner = Box::leak(Box::new(Inner {
            state: Mutex::new(State::new()),
            worker: Mutex::new(None),
            stopping: AtomicBool::new(false),
        }));
        fork::register(inner);
        Arc::new(Manager { devices, inner })
    }

    /// The devices.
    pub fn devices(&self) -> &dyn Devices {
        &*self.devices
    }

    /// Locks the state. What an identifier or channel of `process` names exists only in that process, and the lock can
    /// only be trusted there.
    pub(super) fn lock(&self, process: Process) -> Result<MutexGuard<'static, State>, Error> {
        let here = Process::current();
        if here != process || !here.is_in_order() {
            return Err(Error::Gone);
        }
        Ok(self.inner.lock())
    }

    /// Opens the devices that are not open yet, and starts the thread. Called without the lock.
    pub(super) fn open_devices(&self, process: Process) -> Result<(), Error> {
        let (serving, incoming) = self.inner.worker(process)?;
        {
            let mut state = self.lock(process)?;
            state.registry.watch = serving.watch.clone();
            state.lookups.watch = serving.watch.clone();
        }
        for device_index in 0..self.devices.count() {
            if self.lock(process)?.devices.get(device_index).is_some_and(Option::is_some) {
                continue;
            }
            let context = match self.devices.open(device_index) {
                Ok(context) => context,
                Err(error) => {
                    tracing::warn!(device_index, %error, "cannot open a device for connections");
                    continue;
                }
            };
            let identity = self.devices.identity(device_index);
            let sink: Arc<dyn ConnectionSink> = Arc::new(Sink {
                device_index,
                incoming: incoming.clone(),
                serving: serving.clone(),
                manager: self.inner,
            });
            let mut state = self.lock(process)?;
            if state.devices.len() <= device_index {
                state.devices.resize_with(device_index + 1, || None);
            }
            if state.devices[device_index].is_none() {
                let served = context.nic().control(|core, _| core.connections = Some(sink));
                served.map_err(|_| Error::Gone)?;
                // A process is on one network: that of its first device.
                if device_index == 0 {
                    state.registry.network = context.device().network();
                }
                state.devices[device_index] = Some(Device { identity, context });
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.inner.lock())
    }

    /// A thread waits for an event of a channel: serves for a moment what the manager's thread would. Returns whether there
    /// is one.
    pub(super) fn spin(&self, process: Process, channel: u64) -> bool {
        let Some(serving) = self.inner.serving(process) else { return false };
        let devices: Vec<Context> = {
            let Ok(state) = self.lock(process) else { return false };
            state.devices.iter().flatten().map(|device| device.context.clone()).collect()
        };
        serving.spin(self.inner, &devices, || self.inner.lock().has_events(channel))
    }

    /// Tells the thread that it has something new to wait for.
    pub(super) fn wake(&self) {
        self.inner.wake();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

impl Inner {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn workers(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(worker) = &*self.workers() {
            worker.serving.wake();
        }
    }

    /// The thread of this process, started when first needed.
    fn worker(&'static self, process: Process) -> Result<(Arc<Serving>, Sender<Incoming>), Error> {
        let mut slot = self.workers();
        if let Some(worker) = slot.as_ref().filter(|worker| worker.process == process) {
            return Ok((worker.serving.clone(), worker.incoming.clone()));
        }
        let (incoming, received) = unbounded();
        let kick = Kick::new().map_err(|_| Error::NoDescriptor)?;
        let watch = Watch::new().map_err(|_| Error::NoDescriptor)?;
        let serving = Arc::new(Serving::new(kick, received, watch));
        let own = serving.clone();
        let signals = BlockedSignals::new();
        let thread = Thread::spawn(c"softrnic-cm", move || worker::run(self, &own));
        drop(signals);
        let thread = Some(thread.map_err(|_| Error::NoMemory)?);
        *slot = Some(Worker { process, serving: serving.clone(), incoming: incoming.clone(), thread });
        Ok((serving, incoming))
    }

    /// What the thread of this process serves, if there is one.
    fn serving(&self, process: Process) -> Option<Arc<Serving>> {
        let slot = self.workers();
        slot.as_ref().filter(|worker| worker.process == process).map(|worker| worker.serving.clone())
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let Some(mut worker) = self.workers().take() else { return };
        worker.serving.kick.kick();
        if worker.process == Process::current() {
            if let Some(thread) = worker.thread.take() {
                thread.join();
            }
            let mut state = self.lock();
            state.shut_all();
            *state = State::new();
        } else {
            std::mem::forget(worker);
        }
    }

    /// Stops the manager for a fork.
    pub fn hold(&'static self) -> Held {
        Held { worker: self.workers(), state: self.lock() }
    }
}

/// A manager that is stopped for a fork.
pub(super) struct Held {
    worker: MutexGuard<'static, Option<Worker>>,
    state: MutexGuard<'static, State>,
}

impl Held {
    /// In the child of a fork, which has none of the threads: starts afresh. The descriptors are the parent's, and are
    /// closed here, so that its names and lifelines end with the parent.
    pub fn begin_anew(&mut self) {
        if let Some(worker) = self.worker.take() {
            std::mem::forget(worker.thread);
        }
        let new = self.state.restart();
        let mut old = std::mem::replace(&mut *self.state, new);
        // Dropping the devices would wait for threads that do not exist here.
        std::mem::forget(std::mem::take(&mut old.devices));
    }
}

#[cfg(test)]
mod tests;
