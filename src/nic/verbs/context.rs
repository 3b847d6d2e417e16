//! An open device.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use softrnic_link::FrameAudit;
use softrnic_link::{Capabilities, LinkCounters};
use softrnic_memory::PdId;
use softrnic_transport::Counter;
use softrnic_wire::{Gid, Time};

use super::address::{AddressHandle, AddressVector};
use super::channel::CompletionChannel;
use super::cq::Cq;
use super::error::Error;
use super::pd::Pd;
use super::port::PortAttributes;
use super::running::Running;
use crate::device::{AsyncEvent, DeviceSpec, EventKind, EventSink, EventSource, Nic};
use softrnic_engine::{DeviceCaps, SrdSource, XrcdKey};
use softrnic_sync::channel::EventChannel;

/// Identifies a context within the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContextId(u64);

/// An open device: creates objects and receives asynchronous events. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    id: ContextId,
    device: Arc<Running>,
    events: Arc<Events>,
}

/// The asynchronous events of a context.
pub(crate) struct Events(EventChannel<AsyncEvent>);

impl EventSink for Events {
    fn event(&self, event: AsyncEvent) {
        self.0.send(event);
    }
}

impl Context {
    /// Opens a device. Contexts of the same device name in one process share its NIC.
    ///
    /// # Errors
    /// The link cannot be opened.
    pub fn open(spec: &DeviceSpec) -> Result<Context, Error> {
        Context::on(Running::open(spec)?)
    }

    /// A context of a running device.
    ///
    /// # Errors
    /// No descriptor is free, or the device has failed.
    pub fn on(device: Arc<Running>) -> Result<Context, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let events = Arc::new(Events(EventChannel::new()?));
        let sink: Arc<dyn EventSink> = events.clone();
        device.nic.control(|core, _| core.routes.join(sink))?;
        let id = ContextId(NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Context { inner: Arc::new(Inner { id, device, events }) })
    }

    /// Opens the first device that the environment names (`SOFTRNIC_DEVICES`), or one on a free loopback address.
    ///
    /// # Errors
    /// The environment cannot be parsed, or the link cannot be opened.
    pub fn open_default() -> Result<Context, Error> {
        let specs = DeviceSpec::from_env()?;
        Context::open(&specs[0])
    }

    /// The id of this context.
    pub fn id(&self) -> ContextId {
        self.inner.id
    }

    /// The device.
    pub fn device(&self) -> &Running {
        &self.inner.device
    }

    /// The device's first address, the GID at index 0 of a device on one address.
    pub fn address(&self) -> IpAddr {
        self.inner.device.address()
    }

    /// The current time on the clock of completion timestamps.
    pub fn now(&self) -> Time {
        self.nic().now()
    }

    /// What the device can do.
    pub fn caps(&self) -> DeviceCaps {
        self.inner.device.caps
    }

    /// The state of port 1, the only one.
    ///
    /// # Errors
    /// The device has failed.
    pub fn port(&self) -> Result<PortAttributes, Error> {
        Ok(self.nic().control(|core, _| PortAttributes::of(&core.port, &core.engine))?)
    }

    /// What the QPs of the device have counted since it was opened.
    ///
    /// # Errors
    /// The device has failed.
    pub fn counter(&self, counter: Counter) -> Result<u64, Error> {
        let count = |(known, count)| (known == counter).then_some(count);
        Ok(self.nic().control(|core, _| core.engine.counters().find_map(count))?.unwrap_or(0))
    }

    /// What the link can do, and the mode that it obtained.
    ///
    /// # Errors
    /// The device has failed.
    pub fn link_capabilities(&self) -> Result<Capabilities, Error> {
        Ok(self.nic().control(|core, _| core.link.capabilities().clone())?)
    }

    /// What the link has moved and lost since the device was opened.
    ///
    /// # Errors
    /// The device has failed.
    pub fn link_counters(&self) -> Result<LinkCounters, Error> {
        Ok(self.nic().control(|core, _| core.link.counters())?)
    }

    /// The processes that share the device's address, if others may: this one, and those that have it open.
    ///
    /// # Errors
    /// The device has failed.
    pub fn processes(&self) -> Result<Option<Vec<u32>>, Error> {
        Ok(self.nic().control(|core, _| core.link.sharing().map(|sharing| sharing.processes()))?)
    }

    /// Where all packet memory of the link is, if it accounts for any.
    ///
    /// # Errors
    /// The device has failed.
    pub fn packet_memory(&self) -> Result<Option<FrameAudit>, Error> {
        Ok(self.nic().control(|core, _| core.link.packet_memory())?)
    }

    /// The GID at an index of the table; zero if there is none.
    ///
    /// # Errors
    /// The device has failed.
    pub fn gid(&self, index: usize) -> Result<Gid, Error> {
        Ok(self.nic().control(|core, _| core.engine.gids().shown(index))?)
    }

    /// Whether the GID at an index of the table is for RoCE v1, as those at even indices are of devices that have these.
    ///
    /// # Errors
    /// The device has failed.
    pub fn is_gid_v1(&self, index: usize) -> Result<bool, Error> {
        Ok(self.nic().control(|core, _| core.engine.gids().is_v1(index))?)
    }

    /// The index of the interface that has an address of this device; none for those of loopback interfaces.
    ///
    /// # Errors
    /// The device has failed.
    pub fn interface_of(&self, address: IpAddr) -> Result<Option<u32>, Error> {
        Ok(self.nic().control(|core, _| core.port.interface_of(address))?)
    }

    /// One past the last index of the GID table that may be in use.
    ///
    /// # Errors
    /// The device has failed.
    pub fn gids_used(&self) -> Result<usize, Error> {
        Ok(self.nic().control(|core, _| core.engine.gids().shown_len())?)
    }

    /// Resolves an address vector once, for any number of datagrams.
    ///
    /// # Errors
    /// The GID table has no such entry, the destination is of another address family, or there are `max_ah` already.
    pub(crate) fn create_ah(&self, pd: PdId, address: &AddressVector) -> Result<AddressHandle, Error> {
        let counted = self.inner.device.handles.take()?;
        let mut handle =
            self.nic().control(|core, _| AddressHandle::new(address, core.engine.gids(), counted))??;
        if self.has_short_numbers() {
            handle.number(self, pd)?;
        }
        Ok(handle)
    }

    /// The address of a sender for which there is no handle, by a completion of a QP of SRD.
    ///
    /// # Errors
    /// The device has failed.
    pub fn stranger(&self, source: SrdSource) -> Result<Option<Gid>, Error> {
        let found = self.nic().control(|core, _| core.engine.stranger(source.stranger))?;
        Ok(found.filter(|_| source.handle.is_none()).map(Gid::from))
    }

    /// Takes the device out of service because its state is in doubt: this context gets `DeviceFatal`, and every verb
    /// of every context fails from now on.
    pub fn fail(&self) {
        let fail = || self.nic().control(|_, _| std::panic::resume_unwind(Box::new("device failed")));
        // The NIC is poisoned when its holder unwinds. It may be so already.
        let _: std::thread::Result<Result<(), _>> =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(fail));
        self.inner.events.event(AsyncEvent { kind: EventKind::DeviceFatal, source: EventSource::Device });
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn alloc_pd(&self) -> Result<Arc<Pd>, Error> {
        Pd::new(self.clone())
    }

    /// Creates a channel for completion events.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn create_channel(&self) -> Result<Arc<CompletionChannel>, Error> {
        Ok(Arc::new(CompletionChannel::new(Arc::downgrade(&self.inner.device.nic))?))
    }

    /// Creates a completion queue with at least `depth` entries, which reports to `channel` when armed.
    ///
    /// # Errors
    /// `depth` is 0 or exceeds the device's limit.
    pub fn create_cq(
        &self,
        depth: usize,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Cq>, Error> {
        Cq::new(self.clone(), depth, channel.cloned(), None)
    }

    /// Creates an XRC domain.
    ///
    /// # Errors
    /// The device has failed.
    pub fn alloc_xrcd(&self) -> Result<XrcdKey, Error> {
        Ok(self.nic().control(|core, _| core.engine.create_xrcd())??)
    }

    /// Destroys an XRC domain.
    ///
    /// # Errors
    /// It is in use.
    pub fn dealloc_xrcd(&self, xrcd: XrcdKey) -> Result<(), Error> {
        Ok(self.nic().control(|core, _| core.engine.destroy_xrcd(xrcd))??)
    }

    /// Takes the next asynchronous event, and waits for it unless the descriptor is non-blocking.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn async_event(&self) -> std::io::Result<AsyncEvent> {
        self.inner.events.0.recv(|_| {})
    }

    /// The first half of [`Context::async_event`], the only one that blocks and can be cancelled. The caller holds
    /// nothing that needs dropping.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` after a signal.
    pub fn wait_async_event(&self) -> std::io::Result<()> {
        self.inner.events.0.wait()
    }

    /// The second half, called once after each `Ok` of the first; `taken` gets the event before its object can be
    /// destroyed. `None` if that has happened: wait again.
    pub fn take_async_event(&self, taken: impl FnOnce(&AsyncEvent)) -> Option<AsyncEvent> {
        self.inner.events.0.take(taken)
    }

    /// Removes the events about an object that is being destroyed.
    pub fn forget_events(&self, matches: impl FnMut(&AsyncEvent) -> bool) {
        self.inner.events.0.drain_matching(matches);
    }

    /// The descriptor that is readable while asynchronous events wait.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.0.as_fd()
    }

    /// The NIC that it is a context of, for what the verbs do not offer.
    pub fn nic(&self) -> &Nic {
        &self.inner.device.nic
    }

    pub(crate) fn sink(&self) -> Arc<dyn EventSink> {
        self.inner.events.clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let sink: Arc<dyn EventSink> = self.events.clone();
        // A device that has failed has nothing more to report.
        let _ = self.device.nic.control(|core, _| core.routes.leave(&sink));
    }
}
