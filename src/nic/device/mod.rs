//! A NIC at work: the engine and its link behind the NIC lock, driven by whoever calls, and by the progress
//! thread when nobody does (`progress.rs`).
//!
//! The rules (each has a test in `tests.rs`):
//! - a post on an idle QP leaves at once, and so does the first one after a message has come, which is likely its
//!   answer, with [few](FEW) outstanding; posts on a busy one gather until the next poll or a full batch, and leave
//!   within [`GATHER_LIMIT`] even if nobody calls, the first time after a while of calls within
//!   [`LONGEST_LOOK`];
//! - a poll that finds nothing services the link, and so does one that comes [`SERVICE_INTERVAL`] after the
//!   last service;
//! - the ACK of a completion that a poll finds waits for the next post or poll, likely a moment away, so that it
//!   leaves with the answer, or with a later one (`transport/responder/delayed_ack.rs`); if nobody calls it leaves
//!   by itself, and so it does before control operations and when the process exits. Found by anybody else,
//!   a completion is acknowledged before it becomes visible;
//! - a hold of the NIC is bounded: past `ROUNDS_PER_HOLD` the rest is the progress thread's.

mod captures;
mod clock;
mod eager;
mod events;
mod fork;
mod gone;
mod port;
mod process;
mod progress;
mod spec;
#[cfg(test)]
mod tests;
mod watch;

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use softrnic_link::{Capabilities, Link};
use softrnic_transport::WindowConfig;
use softrnic_wire::Time;

pub use captures::OpenCapture;
pub use clock::Clock;
pub use events::{AsyncEvent, EventKind, EventSink, EventSource};
pub use spec::{DeviceSpec, LinkKind, OpenError, OpenedLink, SpecError};

use crate::engine::{Budget, Caller, Engine, EngineConfig, Step};
use crate::runtime::doorbells::DoorbellSet;
use crate::runtime::kick::Kick;
use crate::runtime::lock::{NicGuard, NicLock, Poisoned};
use crate::stats::{Snapshot, StatsSocket};
use eager::Eagerness;
use events::EventRoutes;
pub use fork::{Opening, on_fork_in_child, opening};
pub use port::{Place, Port};
pub use process::Process;
pub(crate) use progress::BlockedSignals;
pub use progress::Progress;

/// The longest that a gathered post waits when nobody polls.
pub const GATHER_LIMIT: Duration = Duration::from_micros(100);

/// The longest between two looks of the progress thread for what was gathered and not sent: it looks less and less
/// often while callers send everything themselves, since each look takes the processor of one who spins.
pub const LONGEST_LOOK: Duration = Duration::from_millis(1);

/// A poll services the link when nobody has for this long, even if it has found completions.
pub const SERVICE_INTERVAL: Duration = Duration::from_micros(50);

/// With no more requests outstanding than these, an answer leaves at once: a peer that answers may acknowledge late.
pub const FEW: usize = 8;

/// Posts that are gathered before they leave as a batch.
pub const BATCH: usize = 32;

/// Bytes that are gathered before they leave as a batch: what one segmented send carries.
pub const BATCH_BYTES: u64 = 60 << 10;

/// How long a caller polls in vain before it yields: longer than an answer takes that is on its way, and so seldom
/// that nobody notices who has the processor for himself.
const YIELD_AFTER: Duration = Duration::from_micros(12);

/// What a post does. Receiving is for those who poll: it would cost each post a system call.
const POSTED: Budget = Budget { receive: 0, transmit: 256, caller: Caller::Post };

/// Steps that one hold of the NIC may make.
const ROUNDS_PER_HOLD: usize = 8;

/// What the NIC lock protects.
pub struct Core {
    /// Objects and protocol.
    pub engine: Engine,
    /// The way to the network.
    pub link: Box<dyn Link>,
    /// Its state, as the network below has it.
    pub port: Port,
    pub(crate) routes: EventRoutes,
    /// Who wants to hear of connections.
    pub(crate) connections: Option<Arc<dyn ConnectionSink>>,
}

/// Takes what happens to connections, from whoever holds the NIC: it only puts it aside.
pub trait ConnectionSink: Send + Sync {
    /// Something has happened to a connection.
    fn put(&self, event: softrnic_cm::Event);

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
    port_fd: Option<RawFd>,
    /// Where others look into this NIC; without it (no private directory), they cannot.
    stats: Option<StatsSocket>,
    name: String,
    /// For registrations, which are judged without the engine.
    memory_config: softrnic_memory::Config,
    /// When the link was last serviced, and when an application last polled and posted; nanoseconds.
    last_service: AtomicU64,
    last_poll: AtomicU64,
    last_post: AtomicU64,
    /// Whether the progress thread watches the link, and whether it has been asked to.
    watching: AtomicBool,
    handed_over: AtomicBool,
    /// When the engine next wants to be driven.
    deadline: AtomicU64,
    /// Until when the progress thread sleeps; 0 while it is awake.
    asleep_until: AtomicU64,
    /// Since when posts are gathered that nobody has sent yet; 0 when there are none.
    gathered_since: AtomicU64,
    /// A message has come that no post may have answered.
    asked: AtomicBool,
    /// When posts were last gathered, and how often the progress thread looks for gathered ones; nanoseconds.
    last_gather: AtomicU64,
    look: AtomicU64,
    /// Whoever spins keeps everybody else from running.
    one_processor: bool,
    /// Since when polls have found nothing to do; 0 when the last one has.
    vain_since: AtomicU64,
    eagerness: Eagerness,
    stopping: AtomicBool,
    /// How often the progress thread woke.
    wakeups: AtomicU64,
}

impl Nic {
    /// Puts an engine and a link to work, with a progress thread. `place` is the interface to follow, if any;
    /// `name` is what others see it under.
    ///
    /// # Errors
    /// No descriptors or no thread could be had.
    pub fn start(
        config: EngineConfig,
        link: Box<dyn Link>,
        place: Option<Place>,
        name: &str,
    ) -> std::io::Result<(Arc<Nic>, Progress)> {
        let link_fd = link.descriptor();
        let config = EngineConfig { window: bounded(config.window, link.capabilities()), ..config };
        let mut engine = Engine::new(config);
        let kick = Arc::new(Kick::new()?);
        let ip_mtu = link.capabilities().ip_mtu;
        let port = match place {
            Some(place) => Port::follow(place, ip_mtu, &mut engine)?,
            None => Port::fixed(ip_mtu),
        };
        let port_fd = port.descriptor();
        let core = Core { engine, link, port, routes: EventRoutes::default(), connections: None };
        let nic = Arc::new(Nic {
            core: NicLock::new(core, kick.clone()),
            doorbells: DoorbellSet::new(config.caps.max_qp),
            kick,
            clock: Clock::start(),
            link_fd,
            port_fd,
            stats: StatsSocket::open(name).inspect_err(|error| tracing::debug!(%error, "no statistics")).ok(),
            name: name.to_owned(),
            memory_config: config.memory(),
            last_service: AtomicU64::new(0),
            last_poll: AtomicU64::new(0),
            last_post: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            deadline: AtomicU64::new(u64::MAX),
            asleep_until: AtomicU64::new(0),
            gathered_since: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            last_gather: AtomicU64::new(0),
            look: AtomicU64::new(GATHER_LIMIT.as_nanos() as u64),
            one_processor: std::thread::available_parallelism().is_ok_and(|count| count.get() == 1),
            vain_since: AtomicU64::new(0),
            eagerness: Eagerness::default(),
            stopping: AtomicBool::new(false),
            wakeups: AtomicU64::new(0),
        });
        fork::register(Arc::downgrade(&nic));
        let progress = Progress::spawn(nic.clone())?;
        Ok((nic, progress))
    }

    /// How the engine's memory table is set up.
    pub fn memory_config(&self) -> &softrnic_memory::Config {
        &self.memory_config
    }

    /// Now, on the device's clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Runs a control operation with the NIC to itself. What it leaves to do is done before it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn control<T>(&self, operate: impl FnOnce(&mut Core, Time) -> T) -> Result<T, Poisoned> {
        let mut guard = self.core.lock()?;
        let now = self.now();
        if guard.engine.holds_acks() {
            // The operation may end the QP that owes them.
            self.round(now, &mut guard, Budget { receive: 0, ..Budget::default() });
        }
        let result = operate(&mut guard, now);
        self.drive(self.now(), guard, Budget::default());
        Ok(result)
    }

    /// Something was posted to the QP at `index`. It leaves now, or is gathered until the next poll.
    pub fn on_post(&self, index: usize, leave_now: bool) {
        if leave_now && let Ok(Some(mut guard)) = self.core.try_lock() {
            // Whoever holds the NIC needs no doorbell to find himself.
            let now = self.now();
            guard.engine.on_doorbell(now, index);
            self.drive(now, guard, POSTED);
            return;
        }
        self.doorbells.ring(index);
        if !leave_now {
            // Pairs with the fence of `round`: either that drain sees this doorbell, or this load sees its 0.
            fence(Ordering::SeqCst);
            if self.gathered_since.load(Ordering::Relaxed) == 0 {
                self.gather(self.now());
            }
            return;
        }
        if let Ok(Some(guard)) = self.core.ring() {
            self.drive(self.now(), guard, POSTED);
        }
    }

    /// Whether a post is likely to be an answer: the first one after a message has come.
    pub fn answers(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed)
    }

    /// Something waits to leave with what comes next, but not for long.
    fn gather(&self, now: Time) {
        self.last_gather.store(now.as_nanos(), Ordering::Relaxed);
        self.gathered_since.store(now.as_nanos(), Ordering::SeqCst);
        self.wake_before(now + self.look());
    }

    /// An application polls. `found` is whether its CQ had something; returns whether completions came meanwhile.
    pub fn on_poll(&self, found: bool) -> bool {
        let now = self.now();
        self.last_poll.store(now.as_nanos(), Ordering::Relaxed);
        let last = Time::from_nanos(self.last_service.load(Ordering::Relaxed));
        if found && now.since(last) < SERVICE_INTERVAL {
            return false;
        }
        match self.core.try_lock() {
            Ok(Some(guard)) => {
                let step = self.drive(now, guard, Budget { caller: Caller::Poll, ..Budget::default() });
                self.be_polite(now, step.received + step.sent + step.completed > 0);
                step.completed > 0
            }
            // Whoever holds the NIC may be waiting for this processor.
            Ok(None) => {
                self.be_polite(now, false);
                false
            }
            Err(Poisoned) => false,
        }
    }

    /// Whoever polls in vain for long may have the processor that the answer needs: another process of this machine,
    /// or a progress thread, has to run first.
    fn be_polite(&self, now: Time, useful: bool) {
        let since = self.vain_since.load(Ordering::Relaxed);
        if useful || since == 0 {
            let since = if useful { 0 } else { now.as_nanos() };
            self.vain_since.store(since, Ordering::Relaxed);
        } else if self.one_processor || now.since(Time::from_nanos(since)) >= YIELD_AFTER {
            std::thread::yield_now();
            self.vain_since.store(0, Ordering::Relaxed);
        }
    }

    /// The application is about to block: from now on the progress thread serves the link.
    fn hand_over(&self) {
        self.handed_over.store(true, Ordering::SeqCst);
        if !self.watching.load(Ordering::SeqCst) {
            self.kick.kick();
        }
    }

    /// Services the NIC until nothing is left to do or the hold has lasted long enough. It is `now`: the clock is
    /// read as seldom as can be, since spinning on an empty CQ is mostly this.
    fn drive(&self, mut now: Time, mut guard: NicGuard<'_, Core>, budget: Budget) -> Step {
        let mut total = Step::default();
        let mut rounds = 0;
        loop {
            loop {
                guard.take_pending();
                if rounds > 0 {
                    now = self.now();
                }
                let step = self.round(now, &mut guard, budget);
                total.received += step.received;
                total.requests |= step.requests;
                total.sent += step.sent;
                total.completed += step.completed;
                total.blocked = step.blocked;
                rounds += 1;
                total.more = step.more && rounds >= ROUNDS_PER_HOLD;
                if !step.more || total.more {
                    break;
                }
            }
            self.note_deadline(&guard);
            if total.more {
                guard.hand_over();
                return total;
            }
            match guard.finish() {
                Ok(()) => return total,
                Err(again) if rounds < ROUNDS_PER_HOLD => guard = again,
                // Others keep ringing; whoever waits for the NIC shall have it.
                Err(again) => {
                    again.hand_over();
                    return total;
                }
            }
        }
    }

    /// Answers those who want to look, in a thread of its own.
    fn answer_stats(&self, stop: BorrowedFd<'_>) {
        if let Some(stats) = &self.stats {
            stats.serve(stop, || self.now(), || self.snapshot());
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let mut snapshot = Snapshot::of(&self.name);
        let mut guard = self.core.lock().ok()?;
        snapshot.take(self.now().as_nanos(), self.wakeups(), &mut guard);
        while snapshot.take_qps(&guard) {
            drop(guard);
            guard = self.core.lock().ok()?;
        }
        let mut after = None;
        loop {
            after = snapshot.take_connections(&guard, after);
            drop(guard);
            if after.is_none() {
                return Some(snapshot);
            }
            guard = self.core.lock().ok()?;
        }
    }

    /// Something about the port has changed.
    fn refresh_port(&self) {
        let Ok(mut guard) = self.core.lock() else { return };
        let Core { engine, port, .. } = &mut *guard;
        port.refresh(engine);
        self.drive(self.now(), guard, Budget::default());
    }

    fn round(&self, now: Time, core: &mut Core, budget: Budget) -> Step {
        // Who gathers from here on marks it: only a mark that somebody may have relied on needs the fence.
        if self.gathered_since.load(Ordering::Relaxed) != 0 {
            self.gathered_since.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        let Core { engine, link, routes, connections, .. } = core;
        if budget.receive == 0 {
            self.last_post.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.doorbells.drain(|index| engine.on_doorbell(now, index));
        let step = engine.step(now, link.as_mut(), budget);
        if step.received_messages {
            self.asked.store(true, Ordering::Relaxed);
        }
        routes.publish(engine.take_events());
        if step.connections {
            let events = engine.take_connection_events();
            match connections {
                Some(sink) => {
                    events.for_each(|event| sink.put(event));
                    sink.wake();
                }
                None => events.for_each(drop),
            }
        }
        if budget.receive > 0 {
            self.last_service.store(now.as_nanos(), Ordering::Relaxed);
        }
        step
    }

    /// Tells the progress thread when the engine wants to be driven next.
    fn note_deadline(&self, core: &Core) {
        let next = [core.engine.poll_timeout(), core.link.poll_timeout()].into_iter().flatten().min();
        let next = next.unwrap_or(Time::NEVER);
        // Whoever stored it has told the thread, or the thread was to read it when it looks again.
        if self.next_deadline() == next {
            return;
        }
        self.deadline.store(next.as_nanos(), Ordering::SeqCst);
        // While the thread looks away, those who poll run the timers; it reads the deadline when it looks again. So
        // it does when it looks soon after: a kick would cost whoever has its processor more than the delay.
        if self.watching.load(Ordering::SeqCst) {
            self.wake_before(next + self.look());
        }
    }

    /// When the engine next wants to be driven.
    fn next_deadline(&self) -> Time {
        Time::from_nanos(self.deadline.load(Ordering::SeqCst))
    }

    /// How long what is gathered may wait for the progress thread.
    fn look(&self) -> Duration {
        Duration::from_nanos(self.look.load(Ordering::Relaxed))
    }

    /// How often the progress thread woke: an idle device lets it sleep.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    /// Whether the device has failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.core.try_lock(), Err(Poisoned))
    }

    /// Wakes the progress thread if it would sleep past `deadline`.
    fn wake_before(&self, deadline: Time) {
        if deadline.as_nanos() < self.asleep_until.load(Ordering::SeqCst) {
            self.kick.kick();
        }
    }
}

/// No more in flight to a peer, and READ from it, than our own receive buffer is likely to hold, coalesced as most
/// of it comes: the peer's buffer is likely the same. A window that grows until the peer drops ends in a go-back-N
/// several hundred times a second.
fn bounded(window: WindowConfig, link: &Capabilities) -> WindowConfig {
    let held = link.receive_buffer.saturating_mul(2) as u64;
    WindowConfig { max: window.max.min(held.max(window.initial)), ..window }
}

/// Every counter with its name: the transport's (named as rxe's hw_counters where they mean the same), datagrams
/// dropped by reason, those of connections, and the link's.
pub(crate) fn counters(core: &Core, wakeups: u64) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let transport = core.engine.counters().map(|(counter, value)| (counter.name(), value));
    let drops = core.engine.drops().map(|(reason, value)| (reason.name(), value));
    let connections = core.engine.management_counters().map(|(counter, value)| (counter.name(), value));
    let link = crate::stats::link_counters(core.link.counters());
    let own = [("link_downed", core.port.downs()), ("progress_wakeups", wakeups)];
    transport.chain(drops).chain(connections).chain(link).chain(own)
}
