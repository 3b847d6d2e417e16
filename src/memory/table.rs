use softrnic_wire::Rkey;

use crate::denial::Graveyard;
use crate::device_memory::DmTable;
use crate::error::MemoryError;
use crate::key::{KeyMap, Lkey, MAX_KEYS};
use crate::pd::{PdId, PdTable};
use crate::region::{Region, RegionInfo};
use crate::window::{Window, WindowInfo};

/// The limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Protection domains.
    pub max_pd: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Memory windows.
    pub max_mw: usize,
    /// Bytes of one region; an implicit region may exceed it.
    pub max_mr_size: u64,
    /// Pages of one fast-register region.
    pub max_fast_reg_pages: usize,
    /// Total bytes of device memory.
    pub max_dm_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pd: 1 << 16,
            max_mr: 1 << 20,
            max_mw: 1 << 20,
            max_mr_size: u64::MAX,
            max_fast_reg_pages: 512,
            max_dm_size: 64 << 20,
        }
    }
}

/// The configuration of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Limits.
    pub limits: Limits,
    /// Copy to and from every region as for on-demand ones, which survives memory that the application unmapped without
    /// deregistering it. Costs a system call per copy.
    pub safe_copies: bool,
}

/// What a key can name.
pub(crate) enum Entry {
    Region(Region),
    Window(Window),
}

/// All that a NIC knows about memory. It has one owner and no locks. Every check looks up the key afresh, so an object
/// is out of reach as soon as the call that destroys it returns.
pub struct MemoryTable {
    pub(crate) config: Config,
    pub(crate) pds: PdTable,
    pub(crate) keys: KeyMap<Entry>,
    pub(crate) dms: DmTable,
    /// Keys that were destroyed.
    pub(crate) graveyard: Graveyard,
    pub(crate) regions: usize,
    pub(crate) windows: usize,
    /// Type 2 windows that are bound to a queue pair.
    pub(crate) owned_windows: usize,
}

impl MemoryTable {
    /// An empty table. Keys are derived from `seed`, which must be unpredictable unless a run is to be repeatable.
    pub fn new(seed: [u8; 32]) -> Self {
        Self::with_config(seed, Config::default())
    }

    /// An empty table with options.
    pub fn with_config(seed: [u8; 32], config: Config) -> Self {
        Self {
            config,
            pds: PdTable::default(),
            keys: KeyMap::new(seed),
            dms: DmTable::default(),
            graveyard: Graveyard::default(),
            regions: 0,
            windows: 0,
            owned_windows: 0,
        }
    }

    /// The options it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether this system lets a process copy from and to itself with `process_vm_readv` and
    /// `process_vm_writev`, without which there are no on-demand regions.
    pub fn on_demand_available() -> bool {
        crate::safe_copy::available()
    }

    /// Creates a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, MemoryError> {
        self.pds.alloc(self.config.limits.max_pd)
    }

    /// Destroys a protection domain; [`MemoryError::Busy`] while anything uses it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), MemoryError> {
        self.pds.dealloc(pd)
    }

    /// Counts a user of `pd` that this crate does not know about: a queue pair, SRQ or address handle.
    pub fn pd_retain(&mut self, pd: PdId) -> Result<(), MemoryError> {
        self.pds.retain(pd)
    }

    /// Undoes one [`pd_retain`](Self::pd_retain).
    pub fn pd_release(&mut self, pd: PdId) {
        self.pds.release(pd);
    }

    /// Whether `pd` exists.
    pub fn has_pd(&self, pd: PdId) -> bool {
        self.pds.contains(pd)
    }

    /// All protection domains with the number of their users, in no particular order.
    pub fn pds(&self) -> impl Iterator<Item = (PdId, u64)> {
        self.pds.iter()
    }

    /// Number of protection domains.
    pub fn pd_count(&self) -> usize {
        self.pds.len()
    }

    /// Number of memory regions.
    pub fn mr_count(&self) -> usize {
        self.regions
    }

    /// Number of memory windows.
    pub fn mw_count(&self) -> usize {
        self.windows
    }

    /// The region with this key.
    pub fn region(&self, lkey: Lkey) -> Option<RegionInfo> {
        self.find_region(lkey.0).map(Region::info)
    }

    /// All regions, in no particular order.
    pub fn regions(&self) -> impl Iterator<Item = RegionInfo> {
        self.keys.values().filter_map(|entry| match entry {
            Entry::Region(region) => Some(region.info()),
            Entry::Window(_) => None,
        })
    }

    /// The window that has this rkey, or had it with another tag.
    pub fn window(&self, rkey: Rkey) -> Option<WindowInfo> {
        match self.keys.get(rkey.0) {
            Some(Entry::Window(window)) => Some(window.info()),
            _ => None,
        }
    }

    pub(crate) fn find_region(&self, key: u32) -> Option<&Region> {
        match self.keys.get(key) {
            Some(Entry::Region(region)) if region.key == key => Some(region),
            _ => None,
        }
    }

    pub(crate) fn find_region_mut(&mut self, key: u32) -> Option<&mut Region> {
        match self.keys.get_mut(key) {
            Some(Entry::Region(region)) if region.key == key => Some(region),
            _ => None,
        }
    }

    /// Stores an object under a fresh key.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> Entry) -> Result<u32, MemoryError> {
        self.keys.insert(make).ok_or(MemoryError::NoMemory)
    }
}

const _: () = assert!(MAX_KEYS >= 2 << 20, "the default limits fit the key space");
