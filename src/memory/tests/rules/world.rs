use std::ptr;

use softrnic_memory::{Access, AppRange, Lkey, MemoryTable, MrKeys, MrSpec, PdId, Sge};
use softrnic_wire::Qpn;

pub const PAGE: usize = 4096;

/// Rights that allow everything a region can.
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::FLUSH_GLOBAL);

/// Pages of their own, as an application would map them; unmapped when dropped.
pub struct Pages {
    addr: usize,
    len: usize,
}

impl Pages {
    pub fn new(count: usize) -> Self {
        Self::map(count * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    pub fn of_file(fd: i32, count: usize) -> Self {
        Self::map(count * PAGE, libc::MAP_SHARED, fd)
    }

    fn map(len: usize, flags: i32, fd: i32) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel.
        let memory = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Self { addr: memory.expose_provenance(), len }
    }

    pub fn addr(&self) -> usize {
        self.addr
    }

    pub fn va(&self) -> u64 {
        self.addr as u64
    }

    pub fn range(&self) -> AppRange {
        self.part(0, self.len)
    }

    pub fn part(&self, offset: usize, len: usize) -> AppRange {
        // SAFETY: tests copy only while the pages are mapped, or through on-demand regions, and hold no
        // references to them.
        unsafe { AppRange::new(self.addr + offset, len as u64) }
    }

    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: inside the mapping.
        unsafe { softrnic_memory::copy_to_app(self.addr + offset, bytes) }
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut out = vec![0; len];
        // SAFETY: inside the mapping.
        unsafe { softrnic_memory::copy_from_app(self.addr + offset, &mut out) }
        out
    }

    pub fn protect(&self, first: usize, count: usize, protection: i32) {
        // SAFETY: inside the mapping, no reference to it exists.
        let result = unsafe { libc::mprotect(self.pointer(first), count * PAGE, protection) };
        assert_eq!(result, 0);
    }

    pub fn unmap(&self, first: usize, count: usize) {
        // SAFETY: inside the mapping, no reference to it exists.
        assert_eq!(unsafe { libc::munmap(self.pointer(first), count * PAGE) }, 0);
    }

    /// How many of the pages are in memory.
    pub fn resident(&self) -> usize {
        let mut map = vec![0_u8; self.len / PAGE];
        // SAFETY: one byte of `map` for every page of the mapping.
        assert_eq!(unsafe { libc::mincore(self.pointer(0), self.len, map.as_mut_ptr()) }, 0);
        map.iter().filter(|page| **page & 1 == 1).count()
    }

    fn pointer(&self, page: usize) -> *mut libc::c_void {
        ptr::with_exposed_provenance_mut(self.addr + page * PAGE)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; what tests unmapped before is skipped by the kernel.
        unsafe { libc::munmap(self.pointer(0), self.len) };
    }
}

/// A table with one protection domain.
pub struct World {
    pub table: MemoryTable,
    pub pd: PdId,
    pub qpn: Qpn,
}

impl World {
    pub fn new() -> Self {
        Self::of(MemoryTable::new([7; 32]))
    }

    pub fn of(mut table: MemoryTable) -> Self {
        let pd = table.alloc_pd().unwrap();
        Self { table, pd, qpn: qpn(17) }
    }

    /// Registers with the address as iova.
    pub fn reg(&mut self, range: AppRange, access: Access) -> MrKeys {
        self.table.reg_mr(self.pd, MrSpec { range, iova: range.addr() as u64, access }).unwrap()
    }

    pub fn reg_at(&mut self, range: AppRange, iova: u64, access: Access) -> MrKeys {
        self.table.reg_mr(self.pd, MrSpec { range, iova, access }).unwrap()
    }
}

pub fn qpn(value: u32) -> Qpn {
    Qpn::new(value)
}

pub fn sge(addr: u64, length: u32, lkey: Lkey) -> Sge {
    Sge { addr, length, lkey }
}
