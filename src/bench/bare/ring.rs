//! A ring of packets in memory that two processes share: one writes, the other reads, and neither calls the kernel.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::frames::MTU;

/// Bytes of a slot: the length, the longest packet, and whole cache lines.
const SLOT: usize = (LENGTH + MTU + 64).next_multiple_of(64);
/// What precedes a packet.
const LENGTH: usize = 16;
/// What precedes the slots.
const HEADER: usize = 4096;

/// How far each side has come; each word has a cache line.
#[repr(C)]
struct Words {
    written: Line,
    read: Line,
}

#[repr(C, align(64))]
struct Line(AtomicU64);

/// Memory of a ring, which a child that is forked shares.
#[derive(Clone, Copy)]
pub struct Ring {
    base: NonNull<u8>,
    slots: u64,
}

impl Ring {
    /// Maps one, which stays until the process ends.
    pub fn map(slots: u16) -> io::Result<Ring> {
        let len = HEADER + usize::from(slots) * SLOT;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, where the kernel likes.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Ring { base, slots: slots.into() })
    }

    fn words(&self) -> &Words {
        // SAFETY: mapped for good, of zeros at first, and nobody accesses these bytes otherwise.
        unsafe { self.base.cast().as_ref() }
    }

    fn slot(&self, number: u64) -> *mut u8 {
        let at = HEADER + (number % self.slots) as usize * SLOT;
        // SAFETY: in bounds of the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

/// The side that writes; there is one of a ring.
pub struct Writer {
    ring: Ring,
    written: u64,
    /// As last seen.
    read: u64,
}

impl Writer {
    pub fn new(ring: Ring) -> Writer {
        Writer { ring, written: 0, read: 0 }
    }

    /// Writes a packet of `len` bytes, if there is room.
    #[inline]
    pub fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(len <= SLOT - LENGTH);
        if self.written - self.read == self.ring.slots {
            self.read = self.ring.words().read.0.load(Ordering::Acquire);
            if self.written - self.read == self.ring.slots {
                return false;
            }
        }
        let slot = self.ring.slot(self.written);
        // SAFETY: within the slot, which the reader has read and does not look at again until `written` says so.
        unsafe {
            slot.cast::<u64>().write(len as u64);
            fill(std::slice::from_raw_parts_mut(slot.add(LENGTH), len));
        }
        self.written += 1;
        self.ring.words().written.0.store(self.written, Ordering::Release);
        true
    }

    /// Whether all has been read.
    pub fn is_drained(&self) -> bool {
        self.ring.words().read.0.load(Ordering::Acquire) == self.written
    }
}

/// The side that reads; there is one of a ring.
pub struct Reader {
    ring: Ring,
    read: u64,
    /// As last seen.
    written: u64,
}

impl Reader {
    pub fn new(ring: Ring) -> Reader {
        Reader { ring, read: 0, written: 0 }
    }

    /// Hands the next packet to `take`, if there is one.
    #[inline]
    pub fn read<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.written == self.read {
            self.written = self.ring.words().written.0.load(Ordering::Acquire);
            if self.written == self.read {
                return None;
            }
        }
        let slot = self.ring.slot(self.read);
        // SAFETY: within the slot, whose writer has written it and leaves it alone until `read` says so.
        let packet = unsafe {
            let len = (slot.cast::<u64>().read() as usize).min(SLOT - LENGTH);
            std::slice::from_raw_parts(slot.add(LENGTH), len)
        };
        let taken = take(packet);
        self.read += 1;
        self.ring.words().read.0.store(self.read, Ordering::Release);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_takes_nothing_until_a_slot_is_read() {
        let ring = Ring::map(3).expect("memory");
        let (mut writer, mut reader) = (Writer::new(ring), Reader::new(ring));
        let mut expected = 0;
        for number in 0..10_u8 {
            let len = 1 + usize::from(number);
            assert_eq!(writer.write(len, |out| out.fill(number)), number < 3, "{number}");
            if number >= 3 {
                assert_eq!(reader.read(<[u8]>::to_vec), Some(vec![expected; 1 + usize::from(expected)]));
                expected += 1;
                assert!(writer.write(len, |out| out.fill(number)));
            }
        }
        assert!(!writer.is_drained());
        while let Some(packet) = reader.read(<[u8]>::to_vec) {
            assert_eq!(packet, vec![expected; 1 + usize::from(expected)]);
            expected += 1;
        }
        assert_eq!(expected, 10);
        assert!(writer.is_drained());
    }
}
