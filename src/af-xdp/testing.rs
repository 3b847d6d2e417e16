//! Rings in which the test plays the kernel's part.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use super::memory::of_socket;
use super::ring::{Consumer, Offsets, Producer};

const ENTRIES: usize = 192;

/// Both ends of one ring, in shared memory that each has mapped separately.
pub(super) fn ring_pair<T: Copy>(size: u32) -> (Producer<T>, Consumer<T>) {
    let offsets = Offsets { producer: 0, consumer: 64, entries: ENTRIES, flags: Some(128) };
    let len = ENTRIES + size as usize * size_of::<T>();
    let file = File::from(memfd());
    file.set_len(len as u64).expect("size");
    let map = || of_socket(file.as_fd(), len, 0).expect("map");
    (Producer::new(map(), offsets, size), Consumer::new(map(), offsets, size))
}

fn memfd() -> OwnedFd {
    // SAFETY: the name is a C string; the descriptor is new and has no other owner.
    unsafe {
        let fd = libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}
