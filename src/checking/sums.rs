//! Checksums of the bytes of a request, to notice that they change before it is complete.

use softrnic_check::{Piece, Request};
use softrnic_memory::copy_if_mapped;

/// Bytes at each end of a request that are looked at.
const ENDS: u64 = 4096;
/// Between them, so many bytes in each step are.
const SAMPLE: u64 = 64;
const STEP: u64 = 4096;
/// Bytes that are copied at a time.
const CHUNK: usize = 512;

/// A checksum; nothing if some byte is not mapped. Of long requests it leaves out most of what is in the middle.
///
/// # Safety
/// The bytes of the request were registered when it was posted.
pub unsafe fn sum(request: &Request) -> Option<u32> {
    let mut sum = Sum(0x9E37_79B9_7F4A_7C15);
    for piece in &request.pieces {
        let end = u64::from(piece.length);
        let mut at = 0;
        while at < end {
            let is_middle = at >= ENDS && end - at > ENDS;
            let length = if is_middle { SAMPLE } else { (end - at).min(CHUNK as u64) };
            // SAFETY: inside the piece, which was registered, as the caller promises.
            unsafe { sum.add(piece, at, length)? };
            at += if is_middle { STEP.min(end - ENDS - at) } else { length };
        }
    }
    Some((sum.0 >> 32) as u32)
}

struct Sum(u64);

impl Sum {
    /// # Safety
    /// The bytes were registered.
    unsafe fn add(&mut self, piece: &Piece, at: u64, length: u64) -> Option<()> {
        let mut bytes = [0_u8; CHUNK];
        let bytes = &mut bytes[..length as usize];
        // SAFETY: were registered, as the caller promises; memory of ours never is.
        if !unsafe { copy_if_mapped((piece.addr + at) as usize, bytes) } {
            return None;
        }
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.mix(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let mut rest = [0; 8];
        rest[..words.remainder().len()].copy_from_slice(words.remainder());
        self.mix(u64::from_le_bytes(rest));
        Some(())
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x5851_F42D_4C95_7F2D).rotate_left(29);
    }
}
