//! A hole in a registered range, which the kernel would fill.

use std::ops::Range;
use std::ptr;

use crate::registered::Registered;

/// A registered range whose memory has been unmapped.
pub(crate) struct Hole {
    pub range: Range<usize>,
    _registered: Registered,
}

impl Hole {
    /// A hole that the kernel chooses for a mapping of `len` bytes, among others.
    pub fn of(len: usize) -> Hole {
        // Other threads map as well, and may take the place at once.
        let found = (0..16).find_map(|_| Hole::chosen(len));
        found.expect("the kernel maps elsewhere, so that the test says nothing")
    }

    fn chosen(len: usize) -> Option<Hole> {
        let len = len * 4;
        let base = map(len);
        let registered = Registered::new(base, len as u64);
        unmap(base, len);
        let hole = Hole { range: base..base + len, _registered: registered };
        // What else has room is filled, for the rest of the test.
        for _ in 0..1000 {
            let chosen = map(len / 4);
            if hole.has(chosen, len / 4) {
                unmap(chosen, len / 4);
                return Some(hole);
            }
        }
        None
    }

    /// Whether any of these bytes is in it.
    pub fn has(&self, start: usize, len: usize) -> bool {
        start < self.range.end && start + len > self.range.start
    }
}

fn map(len: usize) -> usize {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, wherever there is room.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    base.addr()
}

fn unmap(base: usize, len: usize) {
    // SAFETY: mapped by `map`, and not used.
    unsafe { libc::munmap(ptr::without_provenance_mut(base), len) };
}
