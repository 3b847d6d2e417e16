//! Device memory, null regions and prefetching.

use std::sync::Arc;

use softrnic_memory::{Access, DeviceMemory, DmId, MemoryError, MemoryTable, Prefetch, Sge};

use super::context::Context;
use super::error::Error;
use super::mr::RawMr;
use super::pd::Pd;

impl Context {
    /// Whether this system, and the device that is imitated, allow on-demand regions.
    pub fn on_demand_available(&self) -> bool {
        MemoryTable::on_demand_available() && self.model().is_none_or(|model| model.features.on_demand)
    }

    /// Allocates device memory of `length` bytes, aligned to 2^`log_align` bytes, filled with zeros.
    ///
    /// # Errors
    /// The length is 0, or more than the device has.
    pub fn alloc_dm(&self, length: u64, log_align: u32) -> Result<DmId, Error> {
        if let Some(model) = self.model()
            && model.limits.max_dm_size == 0
        {
            return Err(model.lacks("memory of its own").into());
        }
        if length > self.caps().max_dm_size {
            return Err(MemoryError::NoMemory.into());
        }
        let memory = DeviceMemory::new(length, log_align)?;
        let added = self.nic().control(|core, _| core.engine.memory().add_dm(memory))?;
        added.map_err(|(_, error)| error.into())
    }

    /// Frees a device memory.
    ///
    /// # Errors
    /// Regions are registered on it, or there is no such memory.
    pub fn free_dm(&self, dm: DmId) -> Result<(), Error> {
        let freed = self.nic().control(|core, _| core.engine.memory().free_dm(dm))?;
        Ok(freed.map(drop)?)
    }

    /// Copies bytes into a device memory.
    ///
    /// # Errors
    /// They do not fit at `offset`.
    pub fn write_dm(&self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: a slice, borrowed for the call; no slice is ever made of device memory.
        unsafe { self.fill_dm(dm, offset, bytes.as_ptr(), bytes.len()) }
    }

    /// Copies bytes out of a device memory.
    ///
    /// # Errors
    /// There are fewer than `bytes.len()` from `offset` on.
    pub fn read_dm(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: a slice, borrowed for the call; no slice is ever made of device memory.
        unsafe { self.show_dm(dm, offset, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Like [`write_dm`](Self::write_dm), for memory that must not be referenced.
    ///
    /// # Errors
    /// They do not fit at `offset`.
    ///
    /// # Safety
    /// `length` bytes from `from` are readable during the call, and not part of the device memory.
    pub unsafe fn fill_dm(&self, dm: DmId, offset: u64, from: *const u8, length: usize) -> Result<(), Error> {
        let memory = self.dm(dm)?;
        // SAFETY: the source is as the caller promises, which is what `fill` requires.
        Ok(unsafe { memory.fill(offset, from, length) }?)
    }

    /// Like [`read_dm`](Self::read_dm), for memory that must not be referenced.
    ///
    /// # Errors
    /// There are fewer than `length` from `offset` on.
    ///
    /// # Safety
    /// `length` bytes from `to` are writable during the call, and not part of the device memory.
    pub unsafe fn show_dm(&self, dm: DmId, offset: u64, to: *mut u8, length: usize) -> Result<(), Error> {
        let memory = self.dm(dm)?;
        // SAFETY: the destination is as the caller promises, which is what `show` requires.
        Ok(unsafe { memory.show(offset, to, length) }?)
    }

    /// The memory itself: the application may copy as much as it likes, and that must not hold up other threads.
    fn dm(&self, dm: DmId) -> Result<DeviceMemory, Error> {
        Ok(self.nic().control(|core, _| core.engine.memory().dm(dm))??)
    }
}

impl Pd {
    /// Registers `length` bytes of a device memory from `offset` on. The access must be zero-based.
    ///
    /// # Errors
    /// Those of the memory table.
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

    /// Creates a null region: writes are discarded, reads return zeros.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<RawMr, Error> {
        if let Some(model) = self.context().model()
            && !model.features.null_mr
        {
            return Err(model.lacks("null regions").into());
        }
        let keys =
            self.context().nic().control(|core, _| core.engine.memory().alloc_null_mr(self.id()))??;
        Ok(RawMr::adopt(self.clone(), keys))
    }

    /// Faults in the on-demand memory of `sges`, for writing if asked to.
    ///
    /// # Errors
    /// An element is outside its region, or its memory is not mapped.
    pub fn prefetch(&self, sges: &[Sge], write: bool) -> Result<(), Error> {
        for sge in sges {
            let nic = self.context().nic();
            let found = nic.control(|core, _| core.engine.memory().prefetch(self.id(), sge, write))??;
            found.map_or(Ok(()), Prefetch::run)?;
        }
        Ok(())
    }
}
