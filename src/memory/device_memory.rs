use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::MemoryError;
use crate::racing;
use crate::region::within;
use crate::table::MemoryTable;

/// Names a device memory (`ibv_alloc_dm`) of a table. Values are not reused until all 2^32 have been used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DmId(u32);

impl DmId {
    /// The value, to show or to pass through C.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Smallest alignment of device memory, in bytes: a page.
const MIN_ALIGN: usize = 4096;
/// Largest alignment that can be requested, as a power of two.
const MAX_LOG_ALIGN: u32 = 21;

/// Memory of a device, freed with its last owner. Peers and the application may read and write it at the same time,
/// like registered memory.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Allocation>);

struct Allocation {
    addr: usize,
    length: u64,
    layout: Layout,
}

impl DeviceMemory {
    /// `length` zeroed bytes, aligned to `1 << log_align` or better. Slow if there are many.
    pub fn new(length: u64, log_align: u32) -> Result<Self, MemoryError> {
        if length == 0 || log_align > MAX_LOG_ALIGN {
            return Err(MemoryError::InvalidArgument);
        }
        let size = usize::try_from(length).map_err(|_| MemoryError::NoMemory)?;
        let layout = Layout::from_size_align(size, MIN_ALIGN.max(1 << log_align))
            .map_err(|_| MemoryError::NoMemory)?;
        // SAFETY: the size of the layout is `length`, which is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(MemoryError::NoMemory);
        }
        Ok(Self(Arc::new(Allocation { addr: memory.expose_provenance(), length, layout })))
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.0.length
    }

    /// Copies `length` bytes of application memory at `from` to `offset` (`ibv_memcpy_to_dm`).
    ///
    /// # Safety
    ///
    /// `length` bytes from `from` are readable during the call, and not part of this memory.
    pub unsafe fn fill(&self, offset: u64, from: *const u8, length: usize) -> Result<(), MemoryError> {
        let to = self.locate(offset, length as u64)?;
        // SAFETY: the source is readable and does not overlap, as the caller promises. The destination is inside the
        // allocation, as `locate` checked; `self` keeps it alive, and there are no references to it.
        unsafe { racing::copy(from, ptr::with_exposed_provenance_mut(to), length) };
        Ok(())
    }

    /// Copies `length` bytes from `offset` on to application memory at `to` (`ibv_memcpy_from_dm`).
    ///
    /// # Safety
    ///
    /// `length` bytes from `to` are writable during the call, and not part of this memory.
    pub unsafe fn show(&self, offset: u64, to: *mut u8, length: usize) -> Result<(), MemoryError> {
        let from = self.locate(offset, length as u64)?;
        // SAFETY: the destination is writable and does not overlap, as the caller promises. The source is inside the
        // allocation, as `locate` checked; `self` keeps it alive.
        unsafe { racing::copy(ptr::with_exposed_provenance(from), to, length) };
        Ok(())
    }

    /// The address of `offset`, if `length` bytes follow it.
    fn locate(&self, offset: u64, length: u64) -> Result<usize, MemoryError> {
        if !within(0, self.0.length, offset, length) {
            return Err(MemoryError::InvalidArgument);
        }
        Ok(self.0.addr + offset as usize)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `DeviceMemory::new` with this layout. No region lies in it any longer: the table keeps
        // it alive while there is one.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(self.addr), self.layout) }
    }
}

#[derive(Default)]
pub(crate) struct DmTable {
    entries: FxHashMap<u32, Entry>,
    last: u32,
    total: u64,
}

struct Entry {
    memory: DeviceMemory,
    regions: u32,
}

impl MemoryTable {
    /// Adds device memory, or returns it if that is more than the device offers: it is slow to free.
    pub fn add_dm(&mut self, memory: DeviceMemory) -> Result<DmId, (DeviceMemory, MemoryError)> {
        let left = self.config.limits.max_dm_size.saturating_sub(self.dms.total);
        if memory.length() > left || self.dms.entries.try_reserve(1).is_err() {
            return Err((memory, MemoryError::NoMemory));
        }
        Ok(self.dms.add(memory))
    }

    /// Removes device memory, for the caller to free; [`MemoryError::Busy`] while regions lie in it.
    pub fn free_dm(&mut self, dm: DmId) -> Result<DeviceMemory, MemoryError> {
        if self.dms.get(dm)?.regions > 0 {
            return Err(MemoryError::Busy);
        }
        let entry = self.dms.entries.remove(&dm.0).ok_or(MemoryError::UnknownObject)?;
        self.dms.total -= entry.memory.length();
        Ok(entry.memory)
    }

    /// The device memory with this id.
    pub fn dm(&self, dm: DmId) -> Result<DeviceMemory, MemoryError> {
        Ok(self.dms.get(dm)?.memory.clone())
    }
}

impl DmTable {
    /// The address of `offset`, if `length` bytes follow it.
    pub(crate) fn locate(&self, dm: DmId, offset: u64, length: u64) -> Result<usize, MemoryError> {
        self.get(dm)?.memory.locate(offset, length)
    }

    pub(crate) fn retain(&mut self, dm: DmId) {
        if let Some(entry) = self.entries.get_mut(&dm.0) {
            entry.regions += 1;
        }
    }

    pub(crate) fn release(&mut self, dm: DmId) {
        if let Some(entry) = self.entries.get_mut(&dm.0) {
            entry.regions -= 1;
        }
    }

    fn add(&mut self, memory: DeviceMemory) -> DmId {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.entries.contains_key(&self.last) {
                break;
            }
        }
        self.total += memory.length();
        self.entries.insert(self.last, Entry { memory, regions: 0 });
        DmId(self.last)
    }

    fn get(&self, dm: DmId) -> Result<&Entry, MemoryError> {
        self.entries.get(&dm.0).ok_or(MemoryError::UnknownObject)
    }
}
