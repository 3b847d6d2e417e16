//! Access to the application's memory: the commands that it writes and the answers that it asks for.
//!
//! All of the crate's unsafe code is here. The kernel checks such addresses; here they are in the application's own
//! address space, as everywhere in C, and only null is an error.

use std::ptr;

use crate::errno::Errno;

/// The longest body, that of `WRITE_CM_EVENT`.
const LONGEST: usize = 320;
const HEADER: usize = 8;
/// About as in the kernel (`KMALLOC_MAX_SIZE`); no option comes near.
const LONGEST_OPTION: usize = 4096;

/// A command, copied before it is checked: another thread may write there at the same time.
pub struct Frame {
    pub code: u32,
    /// Size of the caller's buffer for the answer.
    room: u16,
    length: usize,
    body: [u8; LONGEST],
}

impl Frame {
    /// Copies a command; `None` if what was written is not one.
    ///
    /// # Safety
    /// `length` bytes at `from` can be read. If they are a command, then the value of an option that it names by
    /// address can be read, and the memory for the answer written, as long as the frame and its answer exist.
    pub unsafe fn read(from: *const u8, length: usize) -> Option<Frame> {
        let length = length.checked_sub(HEADER)?;
        let mut header = [0; HEADER];
        // SAFETY: `length` bytes can be read, as the caller promises, and the header is no longer than that.
        unsafe { ptr::copy_nonoverlapping(from, header.as_mut_ptr(), HEADER) };
        let [c0, c1, c2, c3, i0, i1, o0, o1] = header;
        if usize::from(u16::from_ne_bytes([i0, i1])) != length {
            return None;
        }
        let mut body = [0; LONGEST];
        let used = length.min(LONGEST);
        // SAFETY: the bytes after the header can be read, as the caller promises; `used` is at most the length of
        // `body`.
        unsafe { ptr::copy_nonoverlapping(from.add(HEADER), body.as_mut_ptr(), used) };
        let code = u32::from_ne_bytes([c0, c1, c2, c3]);
        Some(Frame { code, room: u16::from_ne_bytes([o0, o1]), length: used, body })
    }

    pub fn body(&self) -> &[u8] {
        &self.body[..self.length]
    }

    /// Where the answer to this command goes.
    pub fn answer(&self, address: u64) -> Answer {
        Answer { address: address as usize, room: self.room.into() }
    }

    /// Copies the value of an option.
    pub fn option(&self, address: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let length = length as usize;
        if length > LONGEST_OPTION {
            return Err(Errno::INVAL);
        }
        if length > 0 && address == 0 {
            return Err(Errno::FAULT);
        }
        let mut value = vec![0; length];
        let from = ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: not null, so the value can be read, as the caller of `read` promised; the vector has room for it.
        unsafe { ptr::copy_nonoverlapping(from, value.as_mut_ptr(), length) };
        Ok(value)
    }
}

/// Where the application wants an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    address: usize,
    room: usize,
}

impl Answer {
    /// # Errors
    /// ENOSPC if there is less room.
    pub fn with_room(self, least: usize) -> Result<Answer, Errno> {
        if self.room < least { Err(Errno::NOSPC) } else { Ok(self) }
    }

    pub fn room(self) -> usize {
        self.room
    }

    /// Writes an answer to the application's memory, or as much of it as fits.
    ///
    /// # Errors
    /// EFAULT for null.
    pub fn write(self, bytes: &[u8]) -> Result<(), Errno> {
        if self.address == 0 {
            return Err(Errno::FAULT);
        }
        let to = ptr::with_exposed_provenance_mut::<u8>(self.address);
        // SAFETY: not null, so `room` bytes can be written, as the caller of `Frame::read` promised.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len().min(self.room)) };
        Ok(())
    }
}
