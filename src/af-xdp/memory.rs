//! Memory shared with the kernel: the UMEM, and the mappings of the rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::slice;

use rustix::fs::{MemfdFlags, SealFlags};
use softrnic_mapping::Mapping;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Has a forked child not inherit the memory: the kernel writes into it. In huge pages if the system has them, since
/// cycling through thousands of small ones needs more translations than are cached.
fn for_packets(mapping: Mapping) -> io::Result<Mapping> {
    advise(&mapping, libc::MADV_DONTFORK)?;
    // Kernels without huge pages refuse; small pages will do. Nothing has been touched yet: pages are allocated
    // when the memory is registered, and stay.
    let _small_pages = advise(&mapping, libc::MADV_HUGEPAGE);
    Ok(mapping)
}

/// Memory that the kernel provides for `socket` at `offset`.
pub(super) fn of_socket(socket: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Mapping> {
    Mapping::of_file(socket, len, READ_WRITE, libc::MAP_POPULATE, offset)
}

fn advise(mapping: &Mapping, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the range is this mapping's, and the advice of the callers changes nothing in it.
    let done = unsafe { libc::madvise(mapping.base().as_ptr().cast(), mapping.len(), advice) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Packet memory: chunks of equal size, into any of which the kernel may be writing.
///
/// Addresses are offsets from its start, as in descriptors.
pub(super) struct Umem {
    memory: Mapping,
    chunk_size: usize,
    /// The file that it is mapped from, if another process is to have it.
    file: Option<OwnedFd>,
}

/// Which processes share packet memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// This process only.
    Private,
    /// It has a descriptor with which another process can map it.
    Shared,
}

/// Seals that fix the size of shared packet memory: a process that has it mapped can rely on the size.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl Umem {
    pub(super) fn new(chunks: usize, chunk_size: usize, sharing: Sharing) -> io::Result<Umem> {
        let len = chunks.checked_mul(chunk_size).ok_or(io::ErrorKind::InvalidInput)?;
        if sharing == Sharing::Private {
            return Ok(Umem { memory: for_packets(Mapping::anonymous(len)?)?, chunk_size, file: None });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("softrnic-packets", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
        let memory = for_packets(Mapping::of_file(file.as_fd(), len, READ_WRITE, 0, 0)?)?;
        Ok(Umem { memory, chunk_size, file: Some(file) })
    }

    /// Maps what another process created.
    pub(super) fn of_file(file: OwnedFd, chunks: usize, chunk_size: usize) -> io::Result<Umem> {
        let len = chunks.checked_mul(chunk_size).ok_or(io::ErrorKind::InvalidInput)?;
        // A process is killed if memory that it has mapped is truncated.
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SIZE_SEALS);
        if !sealed || rustix::fs::fstat(&file)?.st_size as u64 != len as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let memory = for_packets(Mapping::of_file(file.as_fd(), len, READ_WRITE, 0, 0)?)?;
        Ok(Umem { memory, chunk_size, file: None })
    }

    /// The file from which another process can map it.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub(super) fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// Whether `len` bytes at `address` are inside one chunk.
    pub(super) fn is_in_one_chunk(&self, address: usize, len: usize) -> bool {
        address < self.memory.len() && len <= self.chunk_size - address % self.chunk_size
    }

    /// # Safety
    /// The kernel owns none of the chunks that the range touches, and is given none while the slice lives.
    pub(super) unsafe fn bytes(&self, address: usize, len: usize) -> &[u8] {
        self.check(address, len);
        // SAFETY: in bounds, as just checked; initialised, since the mapping starts as zeros; the kernel does not write
        // there, as the caller promises, and this process can only do so with an exclusive borrow of `self`.
        unsafe { slice::from_raw_parts(self.memory.base().as_ptr().add(address), len) }
    }

    /// # Safety
    /// As for [`bytes`](Self::bytes).
    pub(super) unsafe fn bytes_mut(&mut self, address: usize, len: usize) -> &mut [u8] {
        self.check(address, len);
        // SAFETY: in bounds, initialised and not the kernel's, as in `bytes`; `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.memory.base().as_ptr().add(address), len) }
    }

    /// Copies `len` bytes between ranges that do not overlap.
    ///
    /// # Safety
    /// The kernel owns none of the chunks that the ranges touch.
    pub(super) unsafe fn copy(&mut self, from: usize, to: usize, len: usize) {
        assert!(from.abs_diff(to) >= len, "ranges overlap");
        self.check(from, len);
        self.check(to, len);
        let base = self.memory.base().as_ptr();
        // SAFETY: both in bounds and disjoint, as just checked; not the kernel's, as the caller promises, and not in
        // use elsewhere, since `self` is borrowed exclusively.
        unsafe { ptr::copy_nonoverlapping(base.add(from), base.add(to), len) };
    }

    fn check(&self, address: usize, len: usize) {
        assert!(address <= self.memory.len() && len <= self.memory.len() - address, "range outside the UMEM");
    }
}
