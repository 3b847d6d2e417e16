//! Mappings outside of what is registered.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::registered::{gap, length_within};

/// Plugs at the same time. They count against `ulimit -v`: 16 GiB of the size that heaps of threads have.
const MOST_PLUGS: usize = 256;

/// A mapping that is unmapped when dropped. No byte of it was registered when it was made, and no other mapping of the
/// process has its addresses.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is owned by this value.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives only the address and the length, which never change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process alone, readable and writable.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn anonymous(len: usize) -> io::Result<Mapping> {
        Mapping::new(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// Memory without a file, with the protection and the flags of `mmap`.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(len: usize, protection: i32, flags: i32) -> io::Result<Mapping> {
        Request { len, protection, flags, fd: -1, offset: 0 }.map()
    }

    /// What `file` has from `offset` on, shared, with the protection and more flags of `mmap`.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn of_file(
        file: BorrowedFd<'_>,
        len: usize,
        protection: i32,
        flags: i32,
        offset: libc::off_t,
    ) -> io::Result<Mapping> {
        let flags = flags | libc::MAP_SHARED;
        Request { len, protection, flags, fd: file.as_raw_fd(), offset }.map()
    }

    /// Its first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes, as asked for.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "mmap refuses mappings of no bytes")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Leaves the memory mapped for ever.
    pub fn leak(self) -> NonNull<u8> {
        let base = self.base;
        std::mem::forget(self);
        base
    }

    /// Takes back what was [leaked](Self::leak).
    ///
    /// # Safety
    /// `base` is of a mapping with this length, which nothing else takes back, and nothing refers to it once it is
    /// dropped.
    pub(crate) unsafe fn from_leaked(base: NonNull<u8>, len: usize) -> Mapping {
        Mapping { base, len }
    }
}

/// Takes the room that the kernel would choose for `len` bytes as long as it is within what is registered, until this is
/// dropped.
pub(crate) fn plugs(len: usize) -> Vec<Mapping> {
    let mut plugs = Vec::new();
    while plugs.len() < MOST_PLUGS
        && let Ok(found) = Request::of_addresses(len).anywhere()
        && length_within(pages(&found)).is_some()
    {
        plugs.push(found);
    }
    plugs
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this value, and whoever has a pointer into it keeps the value alive.
        unsafe { unmap(self.base.as_ptr().addr()..self.base.as_ptr().addr() + self.len) };
    }
}

/// The arguments of `mmap`, its address aside.
struct Request {
    len: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: libc::off_t,
}

impl Request {
    /// Addresses without a page, to choose from.
    fn of_addresses(len: usize) -> Request {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Request { len, protection: libc::PROT_NONE, flags, fd: -1, offset: 0 }
    }

    fn map(&self) -> io::Result<Mapping> {
        let found = self.anywhere()?;
        let Some(registered) = length_within(pages(&found)) else { return Ok(found) };
        drop(found);
        self.outside(registered)
    }

    /// Maps beside the ranges that are registered, one of which has the length `registered` and is partly unmapped. Of
    /// more addresses than that range has, some are outside; if they do not do, of twice as many.
    fn outside(&self, registered: usize) -> io::Result<Mapping> {
        let page = page_size();
        let len = self.len.checked_next_multiple_of(page).ok_or_else(no_memory)?;
        let mut room =
            len.checked_mul(2).and_then(|room| room.checked_add(registered)).ok_or_else(no_memory)?;
        loop {
            let addresses = Request::of_addresses(room).anywhere()?;
            let reserved = pages(&addresses);
            if let Some(start) = gap(reserved.clone(), len, page) {
                // From here on the parts are unmapped one by one.
                let base = addresses.leak().as_ptr();
                let base = base.wrapping_add(start - reserved.start);
                // SAFETY: replaces addresses that were just reserved and that nothing uses.
                let mapped = unsafe { self.at(base, libc::MAP_FIXED) };
                // SAFETY: reserved above, and nothing uses them. (If `mmap` has failed, its part stays reserved: it may
                // be somebody else's already.)
                unsafe {
                    unmap(reserved.start..start);
                    unmap(start + len..reserved.end);
                }
                return mapped;
            }
            room = room.checked_mul(2).ok_or_else(no_memory)?;
        }
    }

    fn anywhere(&self) -> io::Result<Mapping> {
        // SAFETY: no address is asked for, so no existing mapping is touched.
        unsafe { self.at(ptr::null_mut(), 0) }
    }

    /// # Safety
    /// With MAP_FIXED, nothing uses what is mapped at `base` now.
    unsafe fn at(&self, base: *mut u8, flags: i32) -> io::Result<Mapping> {
        // SAFETY: as the caller promises.
        let base = unsafe {
            libc::mmap(base.cast(), self.len, self.protection, self.flags | flags, self.fd, self.offset)
        };
        match NonNull::new(base.cast()) {
            Some(start) if base != libc::MAP_FAILED => Ok(Mapping { base: start, len: self.len }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The addresses of a mapping, to the end of its last page.
fn pages(mapping: &Mapping) -> Range<usize> {
    let start = mapping.base.as_ptr().addr();
    start..start + mapping.len.next_multiple_of(page_size())
}

/// # Safety
/// The range was mapped by the caller, who no longer uses it.
unsafe fn unmap(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(ptr::without_provenance_mut(range.start), range.len()) };
    }
}

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn no_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

#[cfg(test)]
mod tests;
