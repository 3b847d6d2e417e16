//! Drives the NIC: what happens when a thread posts, polls or waits, or when it is the progress thread's turn.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use softrnic_link::{ProcessSlot, Sleeper};
use softrnic_sys::pace::from_the_wall;
use softrnic_sys::{Credentials, Halt, ProcessLooks};
use softrnic_wire::Time;

use super::{Core, Nic};
use crate::progress::policy::{Event, Plan, is_wanted, next_wait_serves, next_wait_spins, yields};
use crate::progress::tuning::{
    EVENT_SPIN, ROUNDS_PER_HOLD, SERVICE_INTERVAL, SERVICE_INTERVAL_IN_MEMORY, SETTLE_LOOKS, SETTLE_PAUSE,
    TICK, YIELD_SOON,
};
use softrnic_engine::{Budget, Caller, Engine, QpKey, Step};
use softrnic_sync::lock::{NicGuard, Poisoned};

/// What a post does. It leaves receiving to polls, since it would cost each post a system call.
const POSTED: Budget = Budget { receive: 0, transmit: 256, caller: Caller::Post };

/// Looks at processes that have a slot of an address.
pub(crate) type PeerLooks = ProcessLooks<(IpAddr, ProcessSlot)>;

/// The number of the process that has a slot of an address, as the kernel says who listens at its names. Nothing if it is
/// on another machine, in another namespace, of another user, or has no name. `lifelines` is what
/// [`Sharing::lifelines`](softrnic_link::Sharing::lifelines) says of it.
fn process_at(address: IpAddr, slot: ProcessSlot, lifelines: Option<u64>) -> Option<i32> {
    let pid_of = |socket: OwnedFd| Credentials::of_peer(&socket).ok().filter(Credentials::have_pid);
    let listener = softrnic_shm::stream_to(address, slot).and_then(pid_of);
    let listener = listener.or_else(|| softrnic_udp::lifeline_to(address, lifelines?).and_then(pid_of))?;
    Some(listener.pid)
}

impl Nic {
    /// Runs a control operation with exclusive access to the NIC. Resulting work is done before it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn control<T>(&self, operate: impl FnOnce(&mut Core, Time) -> T) -> Result<T, Poisoned> {
        let mut guard = self.core.lock()?;
        let now = self.now();
        if guard.engine.has_work() {
            // The operation may end a QP that owes ACKs: they were delayed, or found no room.
            self.round(now, &mut guard, Budget { receive: 0, ..Budget::default() });
        }
        let result = operate(&mut guard, now);
        self.drive(self.now(), guard, Budget::default());
        Ok(result)
    }

    /// A [control](Self::control) operation that ends a QP, or what it does. What the QP owes its peer leaves before, for as
    /// long as a link without room is waited for (`SETTLE_LOOKS`).
    ///
    /// # Errors
    /// The device has failed.
    pub fn control_ending<T>(
        &self,
        qp: QpKey,
        operate: impl FnOnce(&mut Core, Time) -> T,
    ) -> Result<T, Poisoned> {
        for _ in 0..SETTLE_LOOKS {
            let guard = self.core.lock()?;
            if !guard.engine.owes_answer(qp) || !self.settle(guard, |engine| engine.owes_answer(qp)) {
                break;
            }
            pause();
        }
        self.control(operate)
    }

    /// The process ends: sends what waits to leave, once the NIC is free and the link has room, or not if that takes too
    /// long. A peer that reads nothing must not keep the process, nor must a thread of it that this one has interrupted.
    pub(super) fn leave(&self) {
        for _ in 0..SETTLE_LOOKS {
            match self.core.try_lock() {
                Ok(Some(mut guard)) => {
                    if let Some(sharing) = guard.link.sharing() {
                        sharing.end_sharing();
                    }
                    if !self.settle(guard, Engine::owes_answers) {
                        return;
                    }
                }
                Ok(None) => {}
                Err(Poisoned) => return,
            }
            pause();
        }
    }

    /// Sends what waits to leave. Returns whether anything is still owed.
    fn settle(&self, guard: NicGuard<'_, Core>, owes: impl Fn(&Engine) -> bool) -> bool {
        let mut owing = false;
        let budget = Budget { receive: 0, ..Budget::default() };
        self.drive_with(self.now(), guard, budget, |core, now, _| {
            owing = owes(&core.engine);
            self.plan_for(core, now, false);
        });
        owing
    }

    /// A work request was posted to the QP at `index`. It leaves now, or is gathered until the next poll.
    pub fn on_post(&self, index: usize, leave_now: bool) {
        if leave_now && let Ok(Some(mut guard)) = self.core.try_lock() {
            // The holder of the NIC needs no doorbell to find its own post.
            let now = self.now();
            guard.engine.on_doorbell(now, index);
            self.drive(now, guard, POSTED);
            return;
        }
        if !leave_now {
            if self.doorbells.join(index) && self.flags.gather() {
                self.kick.kick();
            }
            return;
        }
        self.doorbells.ring(index);
        if let Ok(Some(guard)) = self.core.ring() {
            self.drive(self.now(), guard, POSTED);
        }
    }

    /// Whether a post is likely to be an answer: the first one after a message has arrived.
    pub fn answers(&self) -> bool {
        self.flags.answers()
    }

    /// An application polls. `found` is whether its CQ had something; returns whether completions have arrived in the
    /// meantime.
    pub fn on_poll(&self, found: bool) -> bool {
        let now = self.now();
        self.flags.polled(now);
        if found && now < self.flags.next_service() {
            return false;
        }
        match self.core.try_lock() {
            Ok(Some(mut guard)) => {
                if self.is_idle(now, &mut guard) {
                    match guard.finish() {
                        Ok(()) => {
                            self.yield_if_vain(now, false);
                            return false;
                        }
                        Err(pending) => guard = pending,
                    }
                }
                let step = self.drive(now, guard, Budget { caller: Caller::Poll, ..Budget::default() });
                self.yield_if_vain(now, step.received + step.sent + step.completed > 0);
                step.completed > 0
            }
            // The thread that holds the NIC may be waiting for this processor.
            Ok(None) => {
                self.yield_if_vain(now, false);
                false
            }
            Err(Poisoned) => false,
        }
    }

    /// Whether driving the NIC would do nothing, as far as that can be told quickly. Most polls of an application that
    /// waits find that, and what arrives during one has to wait for its end.
    #[inline]
    fn is_idle(&self, now: Time, core: &mut Core) -> bool {
        self.doorbells.is_empty() && core.engine.is_idle(now) && core.link.is_quiet(now)
    }

    fn yield_if_vain(&self, now: Time, useful: bool) {
        let mut since = self.flags.vain_since();
        let after = if self.flags.is_wanted() {
            self.yield_after.min(from_the_wall(YIELD_SOON))
        } else {
            self.yield_after
        };
        let yields = yields(&mut since, useful, after, now);
        self.flags.set_vain_since(since);
        if yields {
            let left = self.now();
            std::thread::yield_now();
            self.flags.set_wanted(is_wanted(self.now().since(left)));
        }
    }

    /// A CQ was armed: the application is likely to block, and then the progress thread must serve the link. While
    /// waits spin or serve, that can wait until one has been in vain. An application that waits elsewhere, such as on the
    /// channel's descriptor, gets the thread back at its next tick, and after that waits no longer spin.
    pub fn on_arm(&self) {
        if !self.flags.spins() && !self.flags.serves() {
            self.hand_over();
        }
    }

    /// The application is about to block until an event comes. Spins first and serves the NIC, if that is likely to
    /// pay: waking up costs more than a short message takes. False if `found` never reported an event; then the caller
    /// [sleeps](Self::sleep_on_bell), or [hands the link over](Self::hand_over) and blocks.
    pub fn spin_for_event(&self, mut found: impl FnMut() -> bool) -> bool {
        if found() {
            return true;
        }
        if self.flags.spins() {
            let end = self.now() + from_the_wall(EVENT_SPIN);
            loop {
                self.on_poll(false);
                if found() {
                    return true;
                }
                if self.now() >= end {
                    break;
                }
            }
            self.flags.set_spins(false);
        }
        false
    }

    /// A wait that had to block has ended after this long.
    pub fn event_came(&self, waited: Duration) {
        // Where a caller yields at once, there is one processor, and who spins keeps the peer from it.
        self.flags.set_spins(!self.yield_after.is_zero() && next_wait_spins(waited));
        self.flags.set_serves(self.bell.is_some() && next_wait_serves(waited));
    }

    /// Hands the link over to the progress thread.
    pub fn hand_over(&self) {
        if self.flags.hand_over() {
            self.kick.kick();
        }
    }

    /// The progress thread's turn; returns what it does until the next one. `None` if another thread drives the NIC.
    pub(crate) fn take_turn(&self, by_link: bool, handed_over: bool) -> Option<Plan> {
        let mut guard = match self.core.try_lock() {
            Ok(guard) => guard?,
            Err(Poisoned) => return Some(Plan::FAILED),
        };
        let now = self.now();
        let Plan { watch_link: was_watched, rings_caller: rang_caller, .. } = guard.policy.plan();
        let woken = Event::Woken { by_link, handed_over, last_poll: self.flags.last_poll() };
        let watches = guard.policy.on(woken, now).watch_link;
        if !was_watched && watches && !handed_over {
            // No thread polls any longer, not even to wait for an event.
            self.flags.set_spins(false);
            self.flags.set_serves(rang_caller);
        }
        let receive = if watches { Budget::default().receive } else { 0 };
        let budget = Budget { receive, caller: Caller::Thread, ..Budget::default() };
        let mut plan = Plan::START;
        self.drive_with(now, guard, budget, |core, now, step| {
            let (received, requests, deadline) = (step.received > 0, step.requests, deadline(core));
            // A turn that copies much takes longer than the spinning after it.
            let now = if received { self.now() } else { now };
            plan = core.policy.on(Event::Served { received, requests, deadline }, now);
            if plan.spin_until <= now {
                plan.spin_until = Time::ZERO;
            }
            if rang_caller && !plan.rings_caller {
                self.flags.set_serves(false);
            }
            let sleeper = match plan {
                Plan { rings_caller: true, .. } => Sleeper::Caller,
                // A spinning thread looks itself, and need not be woken.
                Plan { watch_link: true, spin_until: Time::ZERO, .. } => Sleeper::Thread,
                _ => Sleeper::Nobody,
            };
            // A caller for whom peers ring has been rung for what came since.
            let is_rung_for = rang_caller && plan.rings_caller;
            if !is_rung_for && core.link.watch(sleeper) {
                plan.wake_at = now;
            }
            if core.engine.is_paused() {
                plan = plan.paused(core.link.poll_timeout().unwrap_or(now + TICK));
            }
        });
        Some(plan)
    }

    /// Services the NIC for a caller, until nothing is left to do or the hold has lasted long enough. The caller passes
    /// `now`: the clock is read as rarely as possible, since reading it is most of the cost of spinning on an empty CQ.
    #[inline]
    pub(super) fn drive(&self, now: Time, guard: NicGuard<'_, Core>, budget: Budget) -> Step {
        let posted = budget.caller == Caller::Post;
        self.drive_with(now, guard, budget, |core, now, _| self.plan_for(core, now, posted))
    }

    /// A caller has driven the NIC: the progress thread may have to come earlier.
    #[inline]
    fn plan_for(&self, core: &mut Core, now: Time, posted: bool) {
        let deadline = deadline(core);
        let wakes_at = core.policy.plan().wake_at;
        if core.policy.on(Event::Driven { posted, deadline }, now).wake_at < wakes_at {
            self.kick.kick();
        }
    }

    /// Drives the NIC, and before each attempt to release it calls `settle` with what has been done.
    pub(super) fn drive_with(
        &self,
        mut now: Time,
        mut guard: NicGuard<'_, Core>,
        budget: Budget,
        mut settle: impl FnMut(&mut Core, Time, &Step),
    ) -> Step {
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
            settle(&mut guard, now, &total);
            if total.more {
                guard.hand_over();
                return total;
            }
            match guard.finish() {
                Ok(()) => return total,
                Err(again) if rounds < ROUNDS_PER_HOLD => guard = again,
                // Other threads keep ringing doorbells; a thread that waits for the NIC must get it.
                Err(again) => {
                    again.hand_over();
                    return total;
                }
            }
        }
    }

    /// Has the progress thread look at processes of peers.
    #[cold]
    fn look_at_peers(&self) {
        if !self.peers_are_silent.swap(true, Ordering::AcqRel) {
            self.kick.kick();
        }
    }

    /// The progress thread looks at the processes of peers that do not answer, if there are any: without the NIC lock,
    /// since that waits for the kernel.
    pub(crate) fn look_at_silent_peers(&self, looks: &mut PeerLooks) {
        if !self.peers_are_silent.load(Ordering::Relaxed)
            || !self.peers_are_silent.swap(false, Ordering::AcqRel)
        {
            return;
        }
        let questions = match self.core.lock() {
            Ok(mut guard) => guard.engine.processes().take_questions(),
            Err(Poisoned) => return,
        };
        for (address, slot) in questions {
            let now = self.now();
            let lifelines = match self.core.lock() {
                Ok(mut guard) => guard.link.sharing().and_then(|sharing| sharing.lifelines(address, slot)),
                Err(Poisoned) => return,
            };
            let halt = looks.halt((address, slot), || process_at(address, slot, lifelines));
            match self.core.lock() {
                Ok(mut guard) => guard.engine.processes().answer(now, (address, slot), halt.is_some()),
                Err(Poisoned) => return,
            }
            if looks.is_news(&(address, slot), halt) {
                let what = match halt {
                    Some(Halt::Stopped) => "its process is stopped",
                    Some(Halt::KeptWaiting | Halt::Perhaps) => "its process waits for a processor or a disk",
                    None => "its process has continued",
                };
                tracing::info!(device = self.name, peer = %address, %slot, what);
            }
        }
    }

    fn round(&self, now: Time, core: &mut Core, budget: Budget) -> Step {
        self.flags.before_drain();
        let Core { engine, link, routes, connections, .. } = core;
        self.doorbells.drain(|index| engine.on_doorbell(now, index));
        let step = engine.step(now, link.as_mut(), budget);
        if step.received_messages {
            self.flags.message_came();
        }
        if engine.processes().has_questions() {
            self.look_at_peers();
        }
        if engine.has_events() {
            routes.publish(engine.take_events());
        }
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
            let interval =
                if link.receives_in_memory(now) { SERVICE_INTERVAL_IN_MEMORY } else { SERVICE_INTERVAL };
            self.flags.serviced(now + interval);
        }
        step
    }
}

/// Sleeps until the link may have room, or the NIC may be free. No cancellation point.
fn pause() {
    let _woken = rustix::thread::nanosleep(&rustix::thread::Timespec {
        tv_sec: 0,
        tv_nsec: SETTLE_PAUSE.as_nanos() as i64,
    });
}

/// When the NIC needs to be driven next.
pub(super) fn deadline(core: &Core) -> Time {
    let link = core.link.poll_timeout().unwrap_or(Time::NEVER);
    core.engine.poll_timeout().unwrap_or(Time::NEVER).min(link)
}
