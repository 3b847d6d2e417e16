//! Faults memory in, and so finds out whether it is mapped.

use std::io::{self, BufRead, BufReader};

use crate::available;
use crate::error::MemoryError;

/// Faults in all pages of a range, for writing if asked to, and so finds out whether each is mapped. This is what
/// pinning does for hardware, except that the pages stay swappable and can be unmapped.
pub(crate) fn populate(addr: usize, length: u64, write: bool) -> Result<(), MemoryError> {
    if length == 0 {
        return Ok(());
    }
    let page = page_size();
    let start = addr & !(page - 1);
    let end = usize::try_from(length)
        .ok()
        .and_then(|length| addr.checked_add(length))
        .and_then(|end| end.checked_next_multiple_of(page))
        .ok_or(MemoryError::BadAddress)?;
    if end - start >= available::LARGE && !available::suffices(start, end, page) {
        return Err(MemoryError::NoMemory);
    }
    match fault_in(start, end - start, write) {
        Ok(()) => Ok(()),
        // Insufficient permissions, a mapping that the kernel does not fault in page by page (device memory), or a
        // kernel that does not know the advice.
        Err(libc::EINVAL) if mapped(start, end, write).unwrap_or(false) => Ok(()),
        Err(libc::EAGAIN) => Err(MemoryError::NoMemory),
        Err(_) => Err(MemoryError::BadAddress),
    }
}

/// One system call, which is not a cancellation point. Mappings that the kernel does not fault in page by page are
/// refused (EINVAL); `process_vm_writev` does not reach them either.
///
/// # Errors
/// The error number of `madvise`.
pub(crate) fn fault_in(addr: usize, length: usize, write: bool) -> Result<(), i32> {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let page = page_size();
    let start = addr & !(page - 1);
    loop {
        let target = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: MADV_POPULATE_* changes no contents; it fails if a page is not mapped.
        if unsafe { libc::madvise(target, length + (addr - start), advice) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            error => return Err(error.unwrap_or(libc::EFAULT)),
        }
    }
}

/// Whether the kernel faults pages in on request (`MADV_POPULATE_WRITE`, Linux 5.14 and later). Without it,
/// registration reads the list of mappings instead.
pub fn available() -> bool {
    let mut byte = 0_u8;
    let page = std::ptr::from_mut(&mut byte).expose_provenance() & !(page_size() - 1);
    // SAFETY: changes no contents of the page, which is part of this thread's stack.
    unsafe {
        libc::madvise(std::ptr::with_exposed_provenance_mut(page), page_size(), libc::MADV_POPULATE_WRITE)
            == 0
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Whether mappings with the permissions needed cover the range, according to the kernel's list of them.
fn mapped(start: usize, end: usize, write: bool) -> io::Result<bool> {
    let mut covered = start;
    for line in BufReader::new(std::fs::File::open("/proc/self/maps")?).lines() {
        let Some((from, to, readable, writable)) = parse_mapping(&line?) else { continue };
        if to <= covered {
            continue;
        }
        if from > covered || !readable || write && !writable {
            return Ok(false);
        }
        covered = to;
        if covered >= end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A line such as `7f0c3d400000-7f0c3d422000 r--p 00000000 fd:01 1234 /usr/lib/…`.
fn parse_mapping(line: &str) -> Option<(usize, usize, bool, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some((
        address(from)?,
        address(to)?,
        permissions.first() == Some(&b'r'),
        permissions.get(1) == Some(&b'w'),
    ))
}
