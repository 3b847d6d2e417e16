//! Memory that two processes share. Each has a segment that it alone can write, and reads the other's.
//!
//! A segment is a memfd of fixed size, mapped by its owner and then sealed (`F_SEAL_FUTURE_WRITE`): the receiver of the
//! descriptor can map it for reading and nothing else. So what a peer writes at the wrong moment is its own memory, and
//! ours is as private as any; a peer's is read by atomics, and by a copy that may race.

use std::arch::asm;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::process::{Resource, getrlimit};
use softrnic_mapping::{Mapping, SharedBytes};

use super::header::Header;
use super::prefetch;

/// What precedes the records: a page.
const HEADER_LEN: usize = 4096;

/// Bytes for records, a power of two. Small enough to stay in a processor's cache, and enough for a window of packets.
pub(super) const MIN_CAPACITY: usize = 32 << 10;
pub(super) const MAX_CAPACITY: usize = 256 << 10;

/// No process may take away, add or write what another has mapped.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Of file systems in memory, whose holes read as zeros.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Bytes of a cache line.
const LINE: usize = 64;

const _: () = assert!(size_of::<Header>() <= HEADER_LEN);

/// A segment as it is mapped here.
struct Mapped(Mapping);

impl Mapped {
    fn new(file: &OwnedFd, len: usize, protection: i32) -> io::Result<Mapped> {
        Mapping::of_file(file.as_fd(), len, protection, 0, 0).map(Mapped)
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped for at least a page, at the start of one, for as long as `self`. All bytes make valid atomics,
        // and nobody accesses these otherwise: `Mapping` keeps clear of memory that is registered. Of a peer's, which is
        // mapped for reading, nothing is stored to.
        unsafe { self.0.base().cast().as_ref() }
    }

    fn capacity(&self) -> usize {
        self.0.len() - HEADER_LEN
    }

    fn records(&self) -> *mut u8 {
        self.0.base().as_ptr().wrapping_add(HEADER_LEN)
    }

    /// Where the record that comes after `bytes` of all time begins.
    #[inline]
    fn place(&self, bytes: u64) -> usize {
        bytes as usize & (self.capacity() - 1)
    }

    /// The address of a byte of the records, or of one of the first again if `at` is beyond the end.
    #[inline]
    fn address(&self, at: usize) -> *const u8 {
        self.records().wrapping_add(self.place(at as u64))
    }
}

/// Whether a segment may have so many bytes for records.
fn is_capacity(bytes: usize) -> bool {
    (MIN_CAPACITY..=MAX_CAPACITY).contains(&bytes) && bytes.is_power_of_two()
}

/// What this process writes and its peer reads.
pub(super) struct Own(Mapped);

impl Own {
    /// A new segment, full of zeros, and the descriptor to give away.
    pub fn create(capacity: usize) -> io::Result<(Own, OwnedFd)> {
        debug_assert!(is_capacity(capacity));
        let len = HEADER_LEN + capacity;
        // Beyond the limit the kernel does not only refuse: its signal ends the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len as u64) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let file = memfd_create("softrnic-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        let mapping = Mapped::new(&file, len, libc::PROT_READ | libc::PROT_WRITE)?;
        // Old kernels (before 5.1) do not know the seal, and then nothing is shared.
        fcntl_add_seals(&file, SEALS)?;
        Ok((Own(mapping), file))
    }

    pub fn header(&self) -> &Header {
        self.0.header()
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Where the record that comes after `bytes` of all time begins.
    #[inline]
    pub fn place(&self, bytes: u64) -> usize {
        self.0.place(bytes)
    }

    /// Bytes of the records.
    ///
    /// # Panics
    /// They reach beyond the end.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: in bounds. Only this process can write the segment, by `bytes_mut`, which borrows `self` mutably: not by
        // way of a key either, since no byte of a `Mapping` is registered.
        unsafe { std::slice::from_raw_parts(self.0.records().add(at), len) }
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// They reach beyond the end.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        self.check(at, len);
        // SAFETY: in bounds. Only this process can write the segment, by this function, and `self` is borrowed mutably: not
        // by way of a key either, since no byte of a `Mapping` is registered. That the peer may read at the same time is
        // its business: it takes what it finds for any bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.records().add(at), len) }
    }

    /// Has the processor fetch the lines of `len` bytes that will be written soon.
    #[inline]
    pub fn fetch(&self, at: usize, len: usize) {
        (at..at + len).step_by(LINE).for_each(|at| prefetch::to_write(self.0.address(at)));
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at <= self.capacity() && len <= self.capacity() - at, "{len} bytes at {at}");
    }
}

/// What a peer writes and this process reads.
pub(super) struct Peer(Mapped);

impl Peer {
    /// Maps what a peer gave.
    ///
    /// # Errors
    /// It is no segment, or not sealed.
    pub fn map(file: &OwnedFd) -> io::Result<Peer> {
        let unsound = || io::Error::from_raw_os_error(libc::EINVAL);
        // Without the seals the memory could go away below us; elsewhere a hole may have no page.
        let sealed = fcntl_get_seals(file)?.contains(SEALS);
        if !sealed || fstatfs(file.as_fd())?.f_type as u64 != TMPFS_MAGIC {
            return Err(unsound());
        }
        let len = usize::try_from(fstat(file)?.st_size).map_err(|_| unsound())?;
        let capacity = len.checked_sub(HEADER_LEN).ok_or_else(unsound)?;
        if !is_capacity(capacity) {
            return Err(unsound());
        }
        Mapped::new(file, len, libc::PROT_READ).map(Peer)
    }

    pub fn header(&self) -> &Header {
        self.0.header()
    }

    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Where the record that comes after `bytes` of all time begins.
    #[inline]
    pub fn place(&self, bytes: u64) -> usize {
        self.0.place(bytes)
    }

    /// Has the processor fetch the lines of `len` bytes that will be read soon.
    #[inline]
    pub fn fetch(&self, at: usize, len: usize) {
        (at..at + len).step_by(LINE).for_each(|at| prefetch::to_read(self.0.address(at)));
    }

    /// Bytes of the records, which the peer may write whenever it likes.
    ///
    /// # Panics
    /// They reach beyond the end.
    #[inline]
    pub fn shared(&self, at: usize, len: usize) -> SharedBytes<'_> {
        assert!(at <= self.capacity() && len <= self.capacity() - at, "{len} bytes at {at}");
        // SAFETY: in bounds of a mapping that lives as long as `self`, and whose size the seals keep.
        unsafe { SharedBytes::new(self.0.records().add(at), len) }
    }

    /// Copies bytes of the records, which the peer may be writing: then it is some mixture.
    ///
    /// # Panics
    /// They reach beyond the end.
    #[inline]
    pub fn copy(&self, at: usize, to: &mut [u8]) {
        assert!(at <= self.capacity() && to.len() <= self.capacity() - at, "{} bytes at {at}", to.len());
        let mut memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;
        // SAFETY: no instruction. It makes the compiler forget which function this is: an ordinary copy that races is
        // undefined, one by code outside of the language moves what is there.
        unsafe { asm!("/* {0} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
        // SAFETY: readable for these bytes, since the seals keep the size; `to` is memory of our own.
        unsafe { memcpy(to.as_mut_ptr().cast(), self.0.records().add(at).cast(), to.len()) };
    }
}

#[cfg(test)]
mod tests;
