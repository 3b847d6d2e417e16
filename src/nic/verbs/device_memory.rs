//! Device memory, null regions and prefetching.

use std::sync::Arc;

use softrnic_memory::{Access, DmId, MemoryError, MemoryTable, Sge};

use super::context::Context;
use super::error::Error;
use super::mr::RawMr;
use super::pd::Pd;

impl Context {
    /// Whether this system allows on-demand regions.
    pub fn on_demand_available(&self) -> bool {
        MemoryTable::on_demand_available()
    }

    /// Makes a device memory of `length` bytes, aligned to 2^`log_align` bytes, filled with zeros.
    ///
    /// # Errors
    /// The length is 0, or more than the device has.
    pub fn alloc_dm(&self, length: u64, log_align: u32) -> Result<DmId, Error> {
        Ok(self.nic().control(|core, _| core.engine.memory().alloc_dm(length, log_align))??)
    }

    /// Gives a device memory back.
    ///
    /// # Errors
    /// Regions are registered on it, or there is no such memory.
    pub fn free_dm(&self, dm: DmId) -> Result<(), Error> {
        Ok(self.nic().control(|core, _| core.engine.memory().free_dm(dm))??)
    }

    /// Copies bytes into a device memory.
    ///
    /// # Errors
    /// They do not fit at `offset`.
    pub fn write_dm(&self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.nic().control(|core, _| core.engine.memory().copy_to_dm(dm, offset, bytes))??)
    }

    /// Copies bytes out of a device memory.
    ///
    /// # Errors
    /// There are fewer than `bytes.len()` from `offset` on.
    pub fn read_dm(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        Ok(self.nic().control(|core, _| core.engine.memory().copy_from_dm(dm, offset, bytes))??)
    }
}

impl Pd {
    /// Registers `length` bytes of a device memory from `offset` on. The access must be zero-based.
    ///
    /// # Errors
    /// As the memory table refuses it.
    pub fn register_dm(
        self: &Arc<Self>,
        dm: DmId,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<RawMr, Error> {
        let keys = self
            .context()
            .nic()
            .control(|core, _| core.engine.memory().reg_dm_mr(self.id(), dm, offset, length, access))??;
        Ok(RawMr::adopt(self.clone(), keys))
    }

    /// Makes a null region: it discards what is written and reads as zeros.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<RawMr, Error> {
        let keys =
            self.context().nic().control(|core, _| core.engine.memory().alloc_null_mr(self.id()))??;
        Ok(RawMr::adopt(self.clone(), keys))
    }

    /// Faults in the on-demand memory of `sges`, for writing if asked.
    ///
    /// # Errors
    /// An element is outside its region, or its memory is not mapped.
    pub fn prefetch(&self, sges: &[Sge], write: bool) -> Result<(), Error> {
        let prefetched: Result<(), MemoryError> =
            self.context().nic().control(|core, _| core.engine.memory().prefetch(self.id(), sges, write))?;
        Ok(prefetched?)
    }
}
