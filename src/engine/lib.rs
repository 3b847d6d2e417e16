//! Everything in a NIC except concurrency.
//!
//! An [`Engine`] owns the objects (`objects.rs`), lets each QP see them through `host.rs`, and works when
//! [`Engine::step`] is called: doorbells, timers, received datagrams (`receive.rs`), the completions that they bring
//! (`publish.rs`), and transmission (`transmit.rs`). It reads no clock and derives its random numbers from the seed it was
//! given, so the same calls give the same results.

#![forbid(unsafe_code)]

mod adversary;
mod attention;
mod caps;
mod completion;
mod control;
mod data;
mod diagnoses;
mod drops;
mod gid_table;
mod gsi;
mod hidden_ids;
mod host;
mod multicast;
mod numbers;
mod object_memory;
mod objects;
mod peers;
mod processes;
mod publish;
mod receive;
mod resources;
mod seed;
mod shared;
mod srd;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod usage;

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use slotmap::SlotMap;
use softrnic_link::{Datagram, Link, ProcessSlot};
use softrnic_memory::MemoryTable;
use softrnic_transport::{Config, Counter, Qp, QpState, RateParameters, WindowConfig};
use softrnic_wire::{Gid, Mtu, Qpn, Srqn, Time};

pub use attention::{Act, Atomic};
pub use caps::DeviceCaps;
pub use completion::{Cqe, CqeExtra};
pub use control::{ControlError, QpHandle, QpInit, QpQuery, ReceiveSource, SrqHandle, SrqInit};
pub use data::{FastRegister, InlineBytes, LocalData, RecvRequest, SendRequest, SgeList};
pub use diagnoses::{Diagnoses, ProcessDiagnoses, Watch};
pub use drops::DropReason;
pub use gid_table::{GID_TABLE_LEN, GidTable};
pub use gsi::{GsiCounter, Management};
pub use object_memory::{CqMemory, DeferredFree, QpMemory, SrqMemory};
pub use objects::{CqKey, Event, QpCounts, QpKey, SrqKey, XrcdKey};
pub use processes::Processes;
pub use resources::{CqStatus, QpOwners, SrqStatus};
pub use seed::Seed;
pub use softrnic_srd::Counter as SrdCounter;
pub use softrnic_transport::Caller;
pub use srd::{SrdConfig, SrdSource};
pub use usage::Usage;

use hidden_ids::HiddenIds;
use host::HostView;
use numbers::{ALL, Block, Numbers};
use objects::{Group, QpSlot, Srq, Xrcd};
use peers::Peers;
use seed::Purpose;
use shared::Shared;
use timers::WakeUps;

/// How long a peer that sleeps is not woken for an ACK that it has been shown: as long as an ACK waits for the next call.
const PEER_SLEEPS_ON: Duration = Duration::from_micros(100);

/// Configuration of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Seed of all numbers that peers must not be able to predict.
    pub seed: Seed,
    /// Settings of the transport.
    pub transport: Config,
    /// The limit on bytes in flight to one peer.
    pub window: WindowConfig,
    /// DCQCN's parameters.
    pub rate: RateParameters,
    /// Whether copies survive unmapped memory in every region.
    pub safe_copies: bool,
    /// How many objects there may be.
    pub caps: DeviceCaps,
    /// The slot of its address that is this NIC's; `None` if all of it is.
    pub slot: Option<ProcessSlot>,
    /// The seed by which the NIC uses every freedom that the specification gives it; `None` if it does what serves best.
    pub adversary: Option<u64>,
    /// Whether a send slot is free only once a completion that shows so was polled (`QpMemory::freed_by_polling`).
    pub polling_frees_slots: bool,
    /// What the NIC has of SRD, if anything.
    pub srd: Option<SrdConfig>,
}

impl EngineConfig {
    /// The defaults, with a seed; a number makes a run repeatable.
    pub fn with_seed(seed: impl Into<Seed>) -> EngineConfig {
        EngineConfig {
            seed: seed.into(),
            transport: Config::default(),
            window: WindowConfig::default(),
            rate: RateParameters::default(),
            safe_copies: false,
            caps: DeviceCaps::default(),
            slot: None,
            adversary: None,
            polling_frees_slots: false,
            srd: None,
        }
    }

    /// The same for a NIC that has a slot of its address, and so fewer numbers.
    pub fn in_slot(mut self, slot: Option<ProcessSlot>) -> EngineConfig {
        self.slot = slot;
        self.caps = self.caps.in_slot(slot);
        self
    }

    /// Whether payloads may stay with the peer until they are copied ([`Link::leave_payloads`]). An adversary and SRD look
    /// at them elsewhere.
    pub fn leaves_payloads(&self) -> bool {
        self.adversary.is_none() && self.srd.is_none()
    }

    /// The configuration of the memory table of such an engine.
    pub fn memory(&self) -> softrnic_memory::Config {
        let caps = &self.caps;
        let limits = softrnic_memory::Limits {
            max_pd: caps.max_pd,
            max_mr: caps.max_mr,
            max_mw: caps.max_mw,
            max_dm_size: caps.max_dm_size,
            max_fast_reg_pages: caps.max_fast_reg_pages,
            ..Default::default()
        };
        softrnic_memory::Config { safe_copies: self.safe_copies, limits }
    }
}

/// How much one step may do.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Datagrams to receive.
    pub receive: usize,
    /// Packets to send.
    pub transmit: usize,
    /// The kind of call; ACKs may wait for an application's next one.
    pub caller: Caller,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { receive: 256, transmit: 256, caller: Caller::Control }
    }
}

/// What a step did, and when the next one is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Datagrams received.
    pub received: usize,
    /// Whether some of them are requests of peers, not only answers to our own.
    pub requests: bool,
    /// Packets sent.
    pub sent: usize,
    /// Completions published.
    pub completed: usize,
    /// Whether some of them are for receives.
    pub received_messages: bool,
    /// Whether there is more to do at once.
    pub more: bool,
    /// The link is full; continue when it can send again.
    pub blocked: bool,
    /// Whether there are events of connections.
    pub connections: bool,
}

/// A NIC without threads, clocks and sockets.
pub struct Engine {
    config: EngineConfig,
    memory: MemoryTable,
    /// Boxed, so that the map moves little when it grows.
    qps: SlotMap<QpKey, Box<QpSlot>>,
    by_number: FxHashMap<Qpn, QpKey>,
    by_index: Vec<Option<QpKey>>,
    srqs: SlotMap<SrqKey, Srq>,
    xrcds: SlotMap<XrcdKey, Xrcd>,
    groups: FxHashMap<Gid, Group>,
    gids: GidTable,
    peers: Peers,
    shared: Shared,
    timers: WakeUps,
    /// QPs that may have work, each once.
    active: VecDeque<QpKey>,
    /// Packets that the first of these has sent in its present turn, which a full link has interrupted.
    turn: usize,
    /// QPs with a delayed ACK: each becomes active again in the next step.
    delayed_acks: Vec<QpKey>,
    /// Until when peers that sleep need not be woken for the ACKs that they have been shown; never, if there are none.
    wakes_peers_at: Time,
    hidden_ids: HiddenIds,
    drops: [u64; DropReason::ALL.len()],
    qp_numbers: Numbers,
    srq_numbers: Numbers,
    /// Those of live SRQs.
    srqns: FxHashSet<Srqn>,
    /// QP 1.
    management: Option<Box<Management>>,
    /// When it needs to be driven, and whether it may have something to send or report.
    management_timer: Time,
    management_active: bool,
    /// The link lets nothing pass.
    paused: bool,
    /// Its connections of SRD.
    srd: Option<Box<srd::Srd>>,
}

impl Engine {
    /// A NIC without objects.
    pub fn new(config: EngineConfig) -> Engine {
        Engine {
            config,
            memory: MemoryTable::with_config(config.seed.of(Purpose::MemoryKeys), config.memory()),
            qps: SlotMap::with_key(),
            by_number: FxHashMap::default(),
            by_index: Vec::new(),
            srqs: SlotMap::with_key(),
            xrcds: SlotMap::with_key(),
            groups: FxHashMap::default(),
            gids: GidTable::default(),
            peers: Peers::new(config.window),
            shared: Shared::new(config.adversary, config.polling_frees_slots),
            timers: WakeUps::default(),
            active: VecDeque::new(),
            turn: 0,
            delayed_acks: Vec::new(),
            wakes_peers_at: Time::NEVER,
            hidden_ids: HiddenIds::new(),
            drops: [0; DropReason::ALL.len()],
            qp_numbers: qp_numbers(&config),
            srq_numbers: Numbers::new(config.seed.of(Purpose::SharedReceiveQueues), ALL, 1..=ALL.last()),
            srqns: FxHashSet::default(),
            management: None,
            management_timer: Time::NEVER,
            management_active: false,
            paused: false,
            srd: config.srd.map(|srd| Box::new(srd::Srd::new(srd, config.seed.of(srd::Srd::purpose())))),
        }
    }

    /// Other processes receive at this NIC's address as well, from now on.
    pub fn share_address(&mut self) {
        self.hidden_ids.share();
    }

    /// Does what is due at `now`: runs timers, receives, publishes completions, and sends.
    pub fn step(&mut self, now: Time, link: &mut dyn Link, budget: Budget) -> Step {
        let mut step = Step::default();
        if !self.paused {
            self.run_timers(now);
        }
        self.receive(now, link, budget.receive, &mut step);
        self.wake_waiting();
        self.delayed_acks.clear();
        if self.shared.is_attended {
            self.attend(now);
        }
        step.received_messages = self.shared.staged.has_receives();
        let messages = self.shared.staged.receives().len();
        let (completed, acknowledged) = self.complete(now, link);
        step.completed = completed;
        if !self.shared.losers.is_empty() {
            self.ask_peers(now);
        }
        // Before the data, which may leave no room on the link for as long as there is more of them.
        if self.management_active {
            self.transmit_management(now, link, &mut step);
        }
        self.transmit(now, link, budget, &mut step);
        if self.srd.is_some() {
            self.transmit_srd(now, link, budget, &mut step);
        }
        if !self.delayed_acks.is_empty() {
            self.active.extend(&self.delayed_acks);
        }
        if self.shared.is_attended {
            self.attend(now);
        }
        step.completed += self.publish(now);
        // The ACK of the one message that a caller finds need not wake the peer by itself: the next call is likely to reply.
        let waits = budget.caller == Caller::Poll && (messages, acknowledged, step.sent) == (1, 1, 0);
        if waits && self.wakes_peers_at == Time::NEVER {
            self.wakes_peers_at = now + PEER_SLEEPS_ON;
        } else {
            self.wakes_peers_at = Time::NEVER;
            link.flush(now);
        }
        self.notify();
        step.sent += acknowledged;
        step.blocked |= link.is_blocked();
        // What a QP that lost a completion flushes is published in the next step.
        step.more |= !self.shared.staged.is_empty();
        step.more |= !step.blocked && self.peers.has_wakeable();
        step
    }

    /// The doorbell of the QP at `index` was rung: takes what was posted to it.
    pub fn on_doorbell(&mut self, now: Time, index: usize) {
        let Some(key) = self.by_index.get(index).copied().flatten() else { return };
        if self.srd.is_some() && self.take_srd(now, key) {
            return;
        }
        self.with_qp(now, None, key, |qp, host| {
            take_posted(qp, host);
            qp.on_recv_posted(host);
            host.activate();
        });
    }

    /// When the next timer fires, if one is running.
    pub fn poll_timeout(&self) -> Option<Time> {
        let srd = self.srd.as_ref().map_or(Time::NEVER, |srd| srd.poll_timeout());
        let next = self.timers.next().min(self.management_timer).min(self.wakes_peers_at).min(srd);
        Some(next).filter(|&at| at != Time::NEVER)
    }

    /// Whether a step at `now` that receives nothing would do nothing.
    #[inline]
    pub fn is_idle(&self, now: Time) -> bool {
        self.active.is_empty()
            && !self.management_active
            && now < self.timers.next().min(self.management_timer)
            && self.wakes_peers_at == Time::NEVER
            && self.shared.staged.is_empty()
            && self.shared.events.is_empty()
            && !self.peers.has_wakeable()
            && self.srd.as_ref().is_none_or(|srd| !srd.has_work() && now < srd.poll_timeout())
    }

    /// The last failures, and with whom they are shared.
    pub fn diagnoses(&mut self) -> &mut Diagnoses {
        &mut self.shared.diagnoses
    }

    /// Whether some QP could send now.
    pub fn has_work(&self) -> bool {
        !self.active.is_empty() || self.srd.as_ref().is_some_and(|srd| srd.has_work())
    }

    /// Whether the link [lets nothing pass](softrnic_link::Overrun::Paused). Timers wait then, and until what has come
    /// meanwhile has been received: the answers that they wait for may be among it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether ACKs are delayed, or peers are not woken for them: until the next step, or a later one.
    pub fn holds_acks(&self) -> bool {
        !self.delayed_acks.is_empty() || self.wakes_peers_at != Time::NEVER
    }

    /// Whether a QP has not answered what its peer waits for.
    pub fn owes_answer(&self, key: QpKey) -> bool {
        self.qps.get(key).is_some_and(|slot| slot.qp.owes_answer())
    }

    /// Whether any has not.
    pub fn owes_answers(&self) -> bool {
        self.active.iter().any(|&key| self.owes_answer(key))
    }

    /// The keys and regions of this NIC.
    pub fn memory(&mut self) -> &mut MemoryTable {
        &mut self.memory
    }

    /// The addresses of this NIC.
    pub fn gids(&mut self) -> &mut GidTable {
        &mut self.gids
    }

    /// The largest datagram payload of UD, which follows the port's MTU.
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        self.config.transport.ud_mtu = mtu.bytes();
        self.srd.iter_mut().for_each(|srd| srd.set_mtu(mtu));
        for slot in self.qps.values_mut() {
            slot.qp.set_ud_mtu(mtu.bytes());
        }
    }

    /// Raises an event about the port or the device.
    pub fn raise(&mut self, event: Event) {
        self.shared.events.push(event);
    }

    /// Whether asynchronous events are pending.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.shared.events.is_empty()
    }

    /// Takes the pending asynchronous events.
    pub fn take_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.shared.events.drain(..)
    }

    /// All peers, with the window to each.
    pub fn peers(&self) -> impl Iterator<Item = (std::net::IpAddr, &softrnic_transport::Window)> {
        self.peers.iter()
    }

    /// What is known of the processes of peers that do not answer.
    #[inline]
    pub fn processes(&mut self) -> &mut Processes {
        &mut self.shared.processes
    }

    /// The counters of all QPs together.
    pub fn counters(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter, self.shared.counters[counter as usize]))
    }

    /// Datagrams that reached no QP, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.drops[reason as usize]))
    }

    fn drop_datagram(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Drives one QP, giving it access to everything around it.
    fn with_qp<T>(
        &mut self,
        now: Time,
        link: Option<&mut (dyn Link + '_)>,
        key: QpKey,
        drive: impl FnOnce(&mut Qp<LocalData>, &mut HostView<'_, '_>) -> T,
    ) -> Option<T> {
        self.with_qp_and(now, link, key, None, drive)
    }

    /// The same, with the datagram that was received for it.
    #[inline(always)]
    fn with_qp_and<T>(
        &mut self,
        now: Time,
        link: Option<&mut (dyn Link + '_)>,
        key: QpKey,
        datagram: Option<&Datagram<'_>>,
        drive: impl FnOnce(&mut Qp<LocalData>, &mut HostView<'_, '_>) -> T,
    ) -> Option<T> {
        let QpSlot { qp, io } = &mut **self.qps.get_mut(key)?;
        let mut host = HostView {
            io: &mut *io,
            memory: &mut self.memory,
            peers: &mut self.peers,
            srqs: &mut self.srqs,
            shared: &mut self.shared,
            active: &mut self.active,
            link,
            now,
            record: datagram.and_then(|datagram| Some((datagram.bytes, datagram.record?))),
        };
        let result = drive(qp, &mut host);
        if host.io.starved {
            take_more(qp, &mut host);
        }
        let state = qp.state();
        if host.io.shared_state.load(Ordering::Relaxed) != state as u8 {
            host.io.shared_state.store(state as u8, Ordering::Release);
            if state == QpState::Err {
                // Pairs with the fence in posting a receive: either the poster sees the new state, or the flush sees
                // the receive.
                fence(Ordering::SeqCst);
                qp.on_recv_posted(&mut host);
            }
        }
        // The QP's timer entry must not be later than its next timer.
        if let Some(next) = qp.poll_timeout()
            && next < io.timer
        {
            self.timers.set(std::mem::replace(&mut io.timer, next), next, key);
        }
        Some(result)
    }

    fn run_timers(&mut self, now: Time) {
        if self.management_timer <= now {
            self.on_management_timeout(now);
        }
        if self.srd.is_some() {
            self.run_srd_timers(now);
        }
        while let Some(key) = self.timers.pop_due(now) {
            self.with_qp(now, None, key, |qp, host| {
                host.io.timer = Time::NEVER;
                qp.on_timeout(now, host);
                host.activate();
            });
        }
    }

    /// Wakes QPs that waited for a window that is now open.
    fn wake_waiting(&mut self) {
        let Engine { peers, qps, active, .. } = self;
        peers.wake(|key| {
            if let Some(slot) = qps.get_mut(key) {
                slot.io.waiting = false;
                if !slot.io.active {
                    slot.io.active = true;
                    active.push_back(key);
                }
            }
        });
    }
}

/// The numbers that QPs may have, where possible none of rxe's. Those of a NIC with SRD have a slot in common, whether or
/// not others share its address: peers see by it that they are of one NIC.
fn qp_numbers(config: &EngineConfig) -> Numbers {
    let block = match (config.slot, config.srd) {
        (None, None) => ALL,
        (Some(slot), None) => Block::of(slot.qpns()),
        (slot, Some(srd)) => {
            let first = *slot.unwrap_or_default().qpns().start();
            Block::of(first..=first + ((1 << srd.number_bits) - 1))
        }
    };
    // 0 and 1 are special, 0xFFFFFF is multicast.
    let first = if block.last() > Qpn::LAST_OF_RXE.get() { Qpn::LAST_OF_RXE.get() + 1 } else { 2 };
    Numbers::new(config.seed.of(Purpose::QueuePairs), block, first..=0xFF_FFFE)
}

/// Passes what was posted to the QP, as far as the QP accepts it; returns whether there was anything. The rest waits in
/// its ring until something completes.
#[inline(always)]
fn take_posted(qp: &mut Qp<LocalData>, host: &mut HostView<'_, '_>) -> bool {
    let mut taken = false;
    loop {
        host.io.starved = !qp.has_room();
        if host.io.starved {
            return taken;
        }
        let Some(wqe) = host.io.sends.pop() else { return taken };
        qp.post_send(wqe, host);
        taken = true;
    }
}

#[cold]
fn take_more(qp: &mut Qp<LocalData>, host: &mut HostView<'_, '_>) {
    if take_posted(qp, host) {
        host.activate();
    }
}
