use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

use rustc_hash::FxHashMap;

use crate::error::MemoryError;
use crate::region::within;
use crate::table::MemoryTable;

/// Memory of the device (`ibv_alloc_dm`). Values are not reused until all 2^32 were given out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DmId(u32);

impl DmId {
    /// The value, to show or to pass through C.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Alignment of device memory at least, in bytes: a page.
const MIN_ALIGN: usize = 4096;
/// Largest alignment that can be asked for, as a power of two.
const MAX_LOG_ALIGN: u32 = 21;

#[derive(Default)]
pub(crate) struct DmTable {
    allocations: FxHashMap<u32, Allocation>,
    last: u32,
    total: u64,
}

/// Zeroed memory that only the table knows; freed when dropped.
struct Allocation {
    addr: usize,
    length: u64,
    layout: Layout,
    regions: u32,
}

impl MemoryTable {
    /// Allocates `length` bytes of zeroed device memory, aligned to `1 << log_align` bytes or better.
    pub fn alloc_dm(&mut self, length: u64, log_align: u32) -> Result<DmId, MemoryError> {
        let max = self.config.limits.max_dm_size;
        if length == 0 || log_align > MAX_LOG_ALIGN {
            return Err(MemoryError::InvalidArgument);
        }
        if length > max - self.dms.total.min(max) {
            return Err(MemoryError::NoMemory);
        }
        self.dms.alloc(length, MIN_ALIGN.max(1 << log_align))
    }

    /// Frees device memory; [`MemoryError::Busy`] while regions lie in it.
    pub fn free_dm(&mut self, dm: DmId) -> Result<(), MemoryError> {
        let allocation = self.dms.get(dm)?;
        if allocation.regions > 0 {
            return Err(MemoryError::Busy);
        }
        self.dms.total -= allocation.length;
        self.dms.allocations.remove(&dm.0);
        Ok(())
    }

    /// Writes `src` to device memory from `offset` on (`ibv_memcpy_to_dm`).
    pub fn copy_to_dm(&mut self, dm: DmId, offset: u64, src: &[u8]) -> Result<(), MemoryError> {
        let addr = self.dms.locate(dm, offset, src.len() as u64)?;
        // SAFETY: inside a live allocation, which safe code has no reference to.
        unsafe { ptr::copy_nonoverlapping(src.as_ptr(), ptr::with_exposed_provenance_mut(addr), src.len()) }
        Ok(())
    }

    /// Reads device memory from `offset` on into `dst` (`ibv_memcpy_from_dm`).
    pub fn copy_from_dm(&self, dm: DmId, offset: u64, dst: &mut [u8]) -> Result<(), MemoryError> {
        let addr = self.dms.locate(dm, offset, dst.len() as u64)?;
        // SAFETY: inside a live allocation, which safe code has no reference to.
        unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance(addr), dst.as_mut_ptr(), dst.len()) }
        Ok(())
    }

    /// Length of a device memory, in bytes.
    pub fn dm_length(&self, dm: DmId) -> Option<u64> {
        self.dms.get(dm).ok().map(|allocation| allocation.length)
    }
}

impl DmTable {
    /// Address of `offset`, when `length` bytes follow it.
    pub(crate) fn locate(&self, dm: DmId, offset: u64, length: u64) -> Result<usize, MemoryError> {
        let allocation = self.get(dm)?;
        if !within(0, allocation.length, offset, length) {
            return Err(MemoryError::InvalidArgument);
        }
        Ok(allocation.addr + offset as usize)
    }

    pub(crate) fn retain(&mut self, dm: DmId) {
        if let Some(allocation) = self.allocations.get_mut(&dm.0) {
            allocation.regions += 1;
        }
    }

    pub(crate) fn release(&mut self, dm: DmId) {
        if let Some(allocation) = self.allocations.get_mut(&dm.0) {
            allocation.regions -= 1;
        }
    }

    fn alloc(&mut self, length: u64, align: usize) -> Result<DmId, MemoryError> {
        let allocation = Allocation::new(length, align).ok_or(MemoryError::NoMemory)?;
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.allocations.contains_key(&self.last) {
                break;
            }
        }
        self.allocations.insert(self.last, allocation);
        self.total += length;
        Ok(DmId(self.last))
    }

    fn get(&self, dm: DmId) -> Result<&Allocation, MemoryError> {
        self.allocations.get(&dm.0).ok_or(MemoryError::UnknownObject)
    }
}

impl Allocation {
    fn new(length: u64, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(length).ok()?, align).ok()?;
        // SAFETY: the caller refuses length 0.
        let memory = unsafe { alloc_zeroed(layout) };
        (!memory.is_null()).then(|| Self { addr: memory.expose_provenance(), length, layout, regions: 0 })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; regions in it are gone or go with the table.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(self.addr), self.layout) }
    }
}
