//! A NIC, and the application that uses it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use softrnic_engine::{CqKey, Cqe, DropReason, Engine, EngineConfig, GsiCounter};
use softrnic_link::sim::{Fabric, SimOptions};
use softrnic_memory::{Access, MrKeys, MrSpec, MwType, PdId, WindowInfo};
use softrnic_sync::queue::CompletionRing;
use softrnic_transport::Counter;
use softrnic_wire::Rkey;

use crate::action::Setup;
use crate::memory::AppMemory;
use crate::port::Port;
use crate::rules;

/// Bytes that each application has registered.
pub const MEMORY: usize = 16 << 10;
/// Entries of a completion queue.
const CQ: usize = 1024;

/// See the [module](self). Fields are dropped in their order: the engine before the memory that it knows.
pub struct Side {
    /// The NIC.
    pub engine: Engine,
    /// Its link.
    pub link: Port,
    /// Its address.
    pub address: IpAddr,
    /// The application's memory.
    pub memory: AppMemory,
    /// Address of its first byte under the keys.
    pub base: u64,
    /// The keys of its region.
    pub keys: MrKeys,
    /// What the NIC says about its window of type 2.
    pub window_now: Option<WindowInfo>,
    /// The first key of it.
    window: Rkey,
    /// The protection domain.
    pub pd: PdId,
    /// The completion queue.
    pub cq: CqKey,
    /// The application's end of it.
    pub ring: CompletionRing<Cqe>,
    /// What has been completed and waits to be polled.
    pub completed: VecDeque<Cqe>,
    /// Packets that have arrived and that the NIC has not taken yet.
    pub inbox: VecDeque<usize>,
    /// Pieces of memory that the last move changed: offset and length.
    pub changed: Vec<(usize, usize)>,
    /// Where memory changed last.
    pub changed_at: usize,
    before: Vec<u8>,
    counted: Vec<u64>,
}

impl Side {
    /// The NIC with this number, at a cable or at a switch.
    pub fn new(fabric: &Fabric, number: usize, setup: &Setup, at_switch: bool) -> Result<Side, String> {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, number as u8 + 1));
        let options = SimOptions {
            // The port of a switch's model has a rate.
            bandwidth: (!at_switch).then_some(setup.bandwidth.max(1_000_000)),
            sees_ip_header: true,
            counts_ids: true,
            ..SimOptions::default()
        };
        let link = fabric.attach(address, options).map_err(|error| error.to_string())?;
        let link = Port::new(link, at_switch);
        let mut config = EngineConfig::with_seed(setup.seed.wrapping_mul(16).wrapping_add(number as u64));
        config.transport.early_retransmission = setup.early_retransmission;
        config.transport.selective_recovery = setup.selective_recovery;
        config.transport.congestion_control = setup.congestion_control;
        config.rate.rpg_max_rate = setup.bandwidth / 8;
        let mut engine = Engine::new(config);
        engine.gids().set(0, Some(address));
        let memory = AppMemory::new(MEMORY);
        let pd = engine.memory().alloc_pd().map_err(|error| error.to_string())?;
        // Not where the memory is: addresses on the wire are to be the same on every machine.
        let base = 0x10_0000 * (number as u64 + 1);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND;
        let spec = MrSpec { range: memory.range(), iova: base, access };
        let keys = engine.memory().reg_mr(pd, spec).map_err(|error| error.to_string())?;
        let window = engine.memory().alloc_mw(pd, MwType::Type2).map_err(|error| error.to_string())?;
        let window_now = engine.memory().window(window);
        let (cq, ring, _) = engine.create_cq(CQ, None).map_err(|error| error.to_string())?;
        let before = memory.read(0, MEMORY);
        let counted = counts(&engine);
        Ok(Side {
            engine,
            link,
            address,
            memory,
            base,
            keys,
            window_now,
            window,
            pd,
            cq,
            ring,
            completed: VecDeque::new(),
            inbox: VecDeque::new(),
            changed: Vec::new(),
            changed_at: 0,
            before,
            counted,
        })
    }

    /// The key of the window. Each bind changes it.
    pub fn window_key(&self) -> Rkey {
        self.window_now.map_or(self.window, |window| window.rkey)
    }

    /// What the NIC has counted since this was last asked: what it means, and the rule that acted.
    pub fn take_counted(&mut self) -> Vec<(&'static str, Option<&'static str>)> {
        let now = counts(&self.engine);
        let meanings = Counter::ALL
            .iter()
            .map(|&counter| rules::of_counter(counter))
            .chain(DropReason::ALL.iter().map(|&reason| Some((reason.meaning(), rules::of_drop(reason)))))
            .chain(GsiCounter::ALL.iter().map(|&counter| rules::of_management(counter)));
        let grown = meanings.zip(now.iter().zip(&self.counted)).filter(|(_, (now, before))| now > before);
        let counted = grown.filter_map(|(meaning, _)| meaning).collect();
        self.counted = now;
        counted
    }

    /// Finds which memory has changed since this was last asked, and the window.
    pub fn find_changed(&mut self) {
        self.window_now = self.engine.memory().window(self.window);
        let now = self.memory.read(0, MEMORY);
        let mut places = (0..MEMORY).filter(|&place| now[place] != self.before[place]);
        self.changed = places.next().map(|first| vec![(first, 1)]).unwrap_or_default();
        for place in places {
            match self.changed.last_mut() {
                // A few bytes that are the same by chance do not divide a piece.
                Some((offset, len)) if place - (*offset + *len) < 8 => *len = place + 1 - *offset,
                _ => self.changed.push((place, 1)),
            }
        }
        self.changed_at = self.changed.first().map_or(self.changed_at, |(offset, _)| *offset);
        self.before = now;
    }
}

fn counts(engine: &Engine) -> Vec<u64> {
    let queues = engine.counters().map(|(_, count)| count);
    let drops = engine.drops().map(|(_, count)| count);
    // Not served yet, it counts nothing.
    let management = engine.management_counters().map(|(_, count)| count).chain(std::iter::repeat(0));
    queues.chain(drops).chain(management.take(GsiCounter::ALL.len())).collect()
}
