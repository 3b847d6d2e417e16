//! A running NIC: the engine and its link behind the NIC lock, driven by the threads that call, and by the progress
//! thread when none does. `progress` decides which thread drives when. Each rule has a test in `tests/driving.rs`, in
//! virtual time:
//! - a post on an idle QP leaves at once, and so does the first one after a message has arrived, which is likely its
//!   answer, if few are outstanding; posts on a busy QP gather until the next poll or a full batch, and leave within a
//!   tick of the thread even if no thread calls;
//! - a poll that finds nothing services the link, and so does one that comes some time after the last service;
//! - a completion is visible before its ACK leaves, and both happen in the same call. The ACK of one that a poll finds waits
//!   for the next post or poll, likely a moment away, so that it leaves with the answer
//!   (`transport/responder/delayed_ack.rs`), or where it is shown at once, so that it wakes a sleeping peer with the answer. It
//!   leaves by itself if no call comes, before control operations, and when the process exits;
//! - a caller that waits for an event spins, sleeps where peers wake it (`waiter.rs`), or leaves the link to the thread,
//!   by how long the last wait took;
//! - a hold of the NIC is bounded: after some rounds the rest is left to the progress thread.

#[cfg_attr(not(feature = "capture"), path = "captures/absent.rs")]
mod captures;
mod clock;
mod driving;
mod events;
mod fork;
mod gone;
mod port;
mod process;
mod recording;
mod snapshot;
mod spec;
#[cfg(test)]
mod tests;
mod thread;
mod waiter;

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use softrnic_link::{Capabilities, Link};
use softrnic_transport::WindowConfig;
use softrnic_wire::Time;

pub use captures::OpenCapture;
pub use clock::Clock;
pub use events::{AsyncEvent, EventKind, EventSink, EventSource};
pub use recording::{Recording, file_count, file_size, snap_len};
pub use spec::{DeviceSpec, LinkKind, OpenError, OpenedLink, SpecError};

use crate::progress::policy::Policy;
use crate::progress::shared_flags::SharedFlags;
use crate::progress::tuning::YIELD_AFTER;
#[cfg(doc)]
use crate::progress::tuning::{self, ROUNDS_PER_HOLD};
pub(crate) use driving::PeerLooks;
use events::EventRoutes;
pub use fork::{Opening, on_fork_in_child, opening};
pub use port::{Attachment, Port};
pub use process::Process;
use softrnic_engine::{Budget, Engine, EngineConfig, ProcessDiagnoses};
use softrnic_stats::{Snapshot, StatsSocket};
use softrnic_sync::doorbells::DoorbellSet;
use softrnic_sync::kick::Kick;
use softrnic_sync::lock::{NicLock, Poisoned};
pub use thread::Progress;
pub(crate) use waiter::{Bell, Waiter, WaiterId};

/// What the NIC lock protects.
pub struct Core {
    /// Objects and protocol.
    pub engine: Engine,
    /// The link to the network.
    pub link: Box<dyn Link>,
    /// The state of the port, as given by the network below.
    pub port: Port,
    pub(crate) policy: Policy,
    pub(crate) routes: EventRoutes,
    /// Receives events of connections.
    pub connections: Option<Arc<dyn ConnectionSink>>,
    /// The waiter that owns the wake descriptor of the link, if there is one.
    pub(crate) bell_of: Option<WaiterId>,
}

/// Receives events of connections from the thread that holds the NIC: it only stores them.
pub trait ConnectionSink: Send + Sync {
    /// An event of a connection.
    fn put(&self, event: softrnic_cm::Event);

    /// The device has lost its interface for good.
    fn removed(&self);

    /// That was all for now.
    fn wake(&self);
}

/// A NIC shared by the threads of a process.
pub struct Nic {
    core: NicLock<Core>,
    doorbells: DoorbellSet,
    kick: Arc<Kick>,
    clock: Clock,
    link_fd: Option<RawFd>,
    /// On which a caller that waits for an event sleeps.
    bell: Option<Arc<Bell>>,
    port_fd: Option<RawFd>,
    members_fd: Option<RawFd>,
    /// Where other processes can look into this NIC; without it (no private directory), they cannot.
    stats: Option<StatsSocket>,
    name: String,
    /// For registrations, which are checked without the engine.
    memory_config: softrnic_memory::Config,
    flags: SharedFlags,
    /// The progress thread is to look at the processes of peers.
    peers_are_silent: AtomicBool,
    /// How long a caller polls in vain before it yields.
    yield_after: Duration,
}

/// What the NICs of this process have refused, for each other.
static OF_THIS_PROCESS: LazyLock<Arc<ProcessDiagnoses>> = LazyLock::new(Arc::default);

impl Nic {
    /// Starts an engine and a link, with a progress thread. `attachment` is the interface to follow, if any; `name` is
    /// the device's name in statistics.
    ///
    /// # Errors
    /// No descriptor or no thread could be created.
    pub fn start(
        config: EngineConfig,
        link: Box<dyn Link>,
        attachment: Option<Attachment>,
        name: &str,
    ) -> std::io::Result<(Arc<Nic>, Progress)> {
        let nic = Nic::assemble(config, link, attachment, name, Clock::start())?;
        if let Ok(mut core) = nic.core.lock() {
            core.engine.processes().begin();
        }
        let progress = Progress::spawn(nic.clone())?;
        Ok((nic, progress))
    }

    /// A NIC whose progress thread has not been started.
    pub(crate) fn assemble(
        config: EngineConfig,
        mut link: Box<dyn Link>,
        attachment: Option<Attachment>,
        name: &str,
        clock: Clock,
    ) -> std::io::Result<Arc<Nic>> {
        let link_fd = link.descriptor();
        let bell = link.caller_bell().and_then(Bell::copy_of).map(Arc::new);
        let members_fd = link.sharing().map(|sharing| sharing.descriptor());
        let config = EngineConfig { window: bounded(config.window, link.capabilities()), ..config };
        let mut engine = Engine::new(config);
        if link.sharing().is_some_and(|sharing| sharing.processes().len() > 1) {
            engine.share_address();
        }
        engine.diagnoses().share(OF_THIS_PROCESS.clone());
        let kick = Arc::new(Kick::new()?);
        let ip_mtu = link.capabilities().ip_mtu;
        let mut port = match attachment {
            Some(attachment) => Port::follow(attachment, ip_mtu, &mut engine)?,
            None => Port::fixed(ip_mtu),
        };
        if let Some(addresses) = port.take_addresses() {
            link.readdress(&addresses);
        }
        let port_fd = port.descriptor();
        let core = Core {
            engine,
            link,
            port,
            policy: Policy::default(),
            routes: EventRoutes::default(),
            connections: None,
            bell_of: None,
        };
        let nic = Arc::new(Nic {
            core: NicLock::new(core, kick.clone()),
            doorbells: DoorbellSet::new(config.caps.max_qp),
            kick,
            clock,
            link_fd,
            bell,
            port_fd,
            members_fd,
            stats: StatsSocket::open(name).inspect_err(|error| tracing::debug!(%error, "no statistics")).ok(),
            name: name.to_owned(),
            memory_config: config.memory(),
            flags: SharedFlags::new(),
            peers_are_silent: AtomicBool::new(false),
            // On a single processor, a spinning thread keeps all others from running.
            yield_after: match std::thread::available_parallelism() {
                Ok(count) if count.get() == 1 => Duration::ZERO,
                _ => YIELD_AFTER,
            },
        });
        fork::register(Arc::downgrade(&nic));
        Ok(nic)
    }

    /// The configuration of the engine's memory table.
    pub fn memory_config(&self) -> &softrnic_memory::Config {
        &self.memory_config
    }

    /// The current time on the device's clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Answers statistics requests, in a thread of its own.
    pub(crate) fn answer_stats(&self, stop: BorrowedFd<'_>) {
        if let Some(stats) = &self.stats {
            stats.serve(stop, || self.now(), || self.snapshot());
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let mut snapshot = Snapshot::of(&self.name);
        let mut guard = self.core.lock().ok()?;
        snapshot::take(&mut snapshot, self.now().as_nanos(), self.wakeups(), &mut guard);
        while snapshot::take_qps(&mut snapshot, &guard) {
            drop(guard);
            guard = self.core.lock().ok()?;
        }
        let mut after = None;
        loop {
            after = snapshot::take_connections(&mut snapshot, &guard, after);
            drop(guard);
            if after.is_none() {
                return Some(snapshot);
            }
            guard = self.core.lock().ok()?;
        }
    }

    /// Something about the port has changed.
    pub(crate) fn refresh_port(&self) {
        let Ok(mut guard) = self.core.lock() else { return };
        let Core { engine, link, port, connections, .. } = &mut *guard;
        port.refresh(engine);
        if let Some(addresses) = port.take_addresses() {
            link.readdress(&addresses);
        }
        if port.take_removal()
            && let Some(sink) = connections
        {
            sink.removed();
            sink.wake();
        }
        self.drive(self.now(), guard, Budget::default());
    }

    /// Other processes may want to share the address.
    pub(crate) fn let_members_in(&self) {
        if let Ok(mut guard) = self.core.lock() {
            if let Some(sharing) = guard.link.sharing() {
                sharing.attend();
                guard.engine.share_address();
            }
            self.drive(self.now(), guard, Budget::default());
        }
    }

    /// How often the progress thread woke: an idle device lets it sleep.
    pub fn wakeups(&self) -> u64 {
        self.flags.wakeups()
    }

    /// Whether the device has failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.core.try_lock(), Err(Poisoned))
    }

    /// The state that threads share without the lock.
    pub(crate) fn flags(&self) -> &SharedFlags {
        &self.flags
    }

    /// Wakes the progress thread.
    pub(crate) fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    /// Readable when datagrams have come.
    pub(crate) fn link_fd(&self) -> Option<RawFd> {
        self.link_fd
    }

    /// Readable when the port has changed.
    pub(crate) fn port_fd(&self) -> Option<RawFd> {
        self.port_fd
    }

    /// Readable when other processes may want to share the address.
    pub(crate) fn members_fd(&self) -> Option<RawFd> {
        self.members_fd
    }

    /// Where other processes can look into this NIC.
    pub(crate) fn stats(&self) -> Option<&StatsSocket> {
        self.stats.as_ref()
    }
}

/// No more in flight to a peer, and READ from it, than our own receive buffer is likely to hold, given that most of it
/// arrives coalesced: the peer's buffer is likely the same. A window that grows until the peer drops would end in a
/// go-back-N several hundred times a second.
fn bounded(window: WindowConfig, link: &Capabilities) -> WindowConfig {
    let held = link.receive_buffer.saturating_mul(2) as u64;
    WindowConfig { max: window.max.min(held.max(window.initial)), ..window }
}

/// All counters with their names: the transport's (named as rxe's hw_counters where they mean the same), datagrams
/// dropped by reason, those of connections, and the link's.
pub(crate) fn counters(core: &Core, wakeups: u64) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let transport = core.engine.counters().map(|(counter, value)| (counter.name(), value));
    let drops = core.engine.drops().map(|(reason, value)| (reason.name(), value));
    let connections = core.engine.management_counters().map(|(counter, value)| (counter.name(), value));
    let link = softrnic_stats::link_counters(core.link.counters());
    let own = [("link_downed", core.port.downs()), ("progress_wakeups", wakeups)];
    transport.chain(drops).chain(connections).chain(link).chain(own)
}
