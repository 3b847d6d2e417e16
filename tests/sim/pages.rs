//! Pages of their own, which an application may unmap while a NIC knows them.

use std::ptr;

use softrnic_memory::AppRange;

const PAGE: usize = 4096;

/// Mapped pages; unmapped when dropped.
pub struct Pages {
    address: usize,
    len: usize,
}

impl Pages {
    /// Maps `count` pages of zeros.
    pub fn new(count: usize) -> Pages {
        let len = count * PAGE;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, placed by the kernel.
        let memory = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Pages { address: memory.expose_provenance(), len }
    }

    /// All of them, to be registered on demand.
    pub fn range(&self) -> AppRange {
        // SAFETY: registered on demand only, so they may go away; there are no references to them.
        unsafe { AppRange::new(self.address, self.len as u64) }
    }

    /// Unmaps from page `first` on.
    pub fn unmap(&self, first: usize) {
        let start = ptr::with_exposed_provenance_mut(self.address + first * PAGE);
        // SAFETY: inside the mapping, to which there are no references.
        assert_eq!(unsafe { libc::munmap(start, self.len - first * PAGE) }, 0);
    }

    /// Forbids all access to the pages from `first` on, and allows it to those before.
    pub fn protect(&self, first: usize) {
        let (open, len) = (first * PAGE, self.len);
        assert!(open <= len);
        let none = (self.address + open, len - open, libc::PROT_NONE);
        for (start, len, rights) in [(self.address, open, libc::PROT_READ | libc::PROT_WRITE), none] {
            // SAFETY: inside the mapping, to which there are no references.
            assert_eq!(unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), len, rights) }, 0);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; what was unmapped before is passed over.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.address), self.len) };
    }
}
