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

mod adversary;
#[cfg_attr(not(feature = "capture"), path = "captures/absent.rs")]
mod captures;
mod clock;
mod commanded;
mod driving;
mod events;
mod faults;
mod fork;
mod hardware;
mod null_link;
mod port;
mod process;
mod rails;
mod recording;
mod resources;
mod snapshot;
mod spec;
mod speed;
#[cfg(test)]
mod tests;
mod thread;
mod waiter;

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use softrnic_link::fault::FaultTally;
use softrnic_link::{Capabilities, Link};
use softrnic_transport::WindowConfig;
use softrnic_wire::{Qpn, Time};

pub use softrnic_engine::{Act, CqKey, Watch};

pub use adversary::AdversarySeed;
pub use captures::OpenCapture;
pub use clock::Clock;
pub use events::{AsyncEvent, EventKind, EventSink, EventSource};
pub use softrnic_fabric_link::{Network, NetworkName};
pub use softrnic_models::Model;

pub use recording::{Recording, file_count, file_size, snap_len};
pub use spec::{DeviceSpec, LinkKind, OpenError, OpenedLink, SpecError};
pub use speed::PortSpeed;

use crate::progress::policy::Policy;
use crate::progress::shared_flags::SharedFlags;
use crate::progress::tuning::YIELD_AFTER;
#[cfg(doc)]
use crate::progress::tuning::{self, ROUNDS_PER_HOLD};
pub(crate) use driving::PeerLooks;
use events::EventRoutes;
pub use fork::{Opening, on_fork_in_child, opening};
pub use hardware::{Hardware, PciAddress, PciPath};
pub use port::{Attachment, Port, PortObserver, PortState, ShownPort};
pub use process::Process;
use softrnic_engine::{Budget, Engine, EngineConfig, ProcessDiagnoses};
pub use softrnic_stats::CmIdSnapshot;
use softrnic_stats::{Detail, QpSnapshot, Snapshot, StatsSocket};
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

    /// The interface of the device has another hardware address.
    fn readdressed(&self);

    /// That was all for now.
    fn wake(&self);

    /// The identifiers on this device. Called without the NIC.
    fn identifiers(&self) -> Vec<CmIdSnapshot> {
        Vec::new()
    }
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
    /// Held by whoever changes the port.
    port_turn: Mutex<()>,
    /// When a change of the port is due that was commanded; nanoseconds.
    port_changes_at: AtomicU64,
    /// Who learns of these changes first.
    port_observer: OnceLock<Option<Box<dyn PortObserver>>>,
    members_fd: Option<RawFd>,
    /// Where other processes can look into this NIC; without it (no private directory), they cannot.
    stats: Option<StatsSocket>,
    /// Told when this ends.
    faults: Mutex<Option<faults::FaultReport>>,
    name: String,
    /// Among those that the process has had.
    number: u64,
    /// For registrations, which are checked without the engine.
    memory_config: softrnic_memory::Config,
    flags: SharedFlags,
    /// The progress thread is to look at the processes of peers.
    peers_are_silent: AtomicBool,
    /// How long a caller polls in vain before it yields.
    yield_after: Duration,
}

/// QPs of which it is said where their oldest request was posted.
const MOST_WAITING: usize = 64;

/// What the NICs of this process have refused, for each other.
static OF_THIS_PROCESS: LazyLock<Arc<ProcessDiagnoses>> = LazyLock::new(Arc::default);

/// Has every failure of the NICs of this process told to `watch`, by the thread that drives the NIC and holds it.
pub fn watch_failures(watch: Box<dyn Watch>) {
    OF_THIS_PROCESS.watch(watch);
}

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
        // What is to happen to the port counts from now.
        nic.change_port();
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
        let bell = link.caller_wake_fd().and_then(Bell::copy_of).map(Arc::new);
        let members_fd = link.sharing().map(|sharing| sharing.descriptor());
        let config = EngineConfig { window: bounded(config.window, link.capabilities()), ..config };
        if config.leaves_payloads() {
            link.leave_payloads();
        }
        let mut engine = Engine::new(config);
        if link.sharing().is_some_and(|sharing| sharing.processes().len() > 1) {
            engine.share_address();
        }
        let number = engine.share_diagnoses(OF_THIS_PROCESS.clone());
        let kick = Arc::new(Kick::new()?);
        let ip_mtu = link.capabilities().ip_mtu;
        let mut port = match attachment {
            Some(attachment) => Port::follow(attachment, ip_mtu, &mut engine)?,
            None => Port::fixed(ip_mtu),
        };
        if let Some(addresses) = port.take_addresses() {
            link.readdress(&addresses);
        }
        let carrier = link.carrier();
        if carrier.is_some_and(|carrier| !carrier.is_up) {
            port.begin_without_carrier();
        }
        let port_fd = port.descriptor().or(carrier.map(|carrier| carrier.descriptor));
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
            port_turn: Mutex::new(()),
            port_changes_at: AtomicU64::new(Time::NEVER.as_nanos()),
            port_observer: OnceLock::new(),
            members_fd,
            stats: StatsSocket::open(name).inspect_err(|error| tracing::debug!(%error, "no statistics")).ok(),
            faults: Mutex::new(None),
            name: name.to_owned(),
            number,
            memory_config: config.memory(),
            flags: SharedFlags::new(),
            peers_are_silent: AtomicBool::new(false),
            // On a single processor, a spinning thread keeps all others from running.
            yield_after: match std::thread::available_parallelism() {
                Ok(count) if count.get() == 1 => Duration::ZERO,
                _ => softrnic_sys::pace::from_the_wall(YIELD_AFTER),
            },
        });
        fork::register(Arc::downgrade(&nic));
        Ok(nic)
    }

    /// Which of the NICs it is that the process has had.
    pub fn number(&self) -> u64 {
        self.number
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
            let command = |text: &str| {
                let command = text.parse()?;
                self.command(&command).map_err(|Poisoned| "the device has failed".to_owned())
            };
            // Clients wait by the wall clock, also where the time of this process is slowed.
            let wall = || Time::ZERO + softrnic_sys::pace::by_the_wall(self.now().since(Time::ZERO));
            stats.serve(stop, wall, |detail| self.snapshot(detail), command);
        }
    }

    /// Has somebody learn of all changes of the port before their events are raised: the first for whom this is called.
    pub fn observe_port(&self, observer: impl FnOnce() -> Option<Box<dyn PortObserver>>) {
        self.port_observer.get_or_init(observer);
    }

    fn snapshot(&self, detail: Detail) -> Option<Snapshot> {
        let mut snapshot = self.usual_snapshot()?;
        match detail {
            Detail::Usual => {}
            Detail::Close => {
                waiting(&mut snapshot).for_each(|qp| qp.posted = OF_THIS_PROCESS.posted(Qpn::new(qp.qpn)));
                snapshot.resources = resources::take(self);
            }
            Detail::Asking => {
                let qpns: Vec<Qpn> = waiting(&mut snapshot).map(|qp| Qpn::new(qp.qpn)).collect();
                let said = self.control(|core, now| snapshot::ask_peers(core, now, &qpns)).ok()?;
                waiting(&mut snapshot).zip(said).for_each(|(qp, said)| qp.peer_says = said);
            }
        }
        Some(snapshot)
    }

    fn usual_snapshot(&self) -> Option<Snapshot> {
        let mut snapshot = Snapshot::of(&self.name);
        let Ok(mut guard) = self.core.lock() else {
            snapshot.port.state = "FAILED".to_owned();
            return Some(snapshot);
        };
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

    /// Says what the faults have done, when the device closes or the process exits.
    pub(crate) fn report_faults(&self, tally: FaultTally) {
        *self.faults() = Some(faults::FaultReport::new(tally, &self.name));
    }

    fn faults(&self) -> MutexGuard<'_, Option<faults::FaultReport>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other processes may want to share the address.
    pub(crate) fn let_members_in(&self) {
        let backlogs = match self.core.lock() {
            Ok(mut guard) => guard.link.sharing().map(|sharing| sharing.attend()).unwrap_or_default(),
            Err(_) => return,
        };
        backlogs.iter().for_each(|backlog| backlog.accept_some());
        if let Ok(mut guard) = self.core.lock() {
            if let Some(sharing) = guard.link.sharing() {
                sharing.let_in();
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

/// Its first queue pairs with requests that are not complete.
fn waiting(snapshot: &mut Snapshot) -> impl Iterator<Item = &mut QpSnapshot> {
    snapshot.qps.iter_mut().filter(|qp| qp.queued_sends > 0).take(MOST_WAITING)
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
    // Of a device without SRD, these would all be 0.
    let srd = core.engine.srd_counters();
    let peers = srd.as_ref().map(|(peers, _)| ("srd_connections", *peers as u64));
    let srd =
        srd.into_iter().flat_map(|(_, counters)| counters.map(|(counter, value)| (counter.name(), value)));
    transport.chain(drops).chain(connections).chain(peers).chain(srd).chain(link).chain(own)
}
