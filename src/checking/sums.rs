//! Checksums of the bytes of a request, to notice that they change before it is complete.

use crc32fast::Hasher;
use softrnic_check::Request;
use softrnic_memory::copy_if_mapped;

/// Bytes at each end of a request that are looked at.
const ENDS: u64 = 4096;
/// Between them, so many bytes in each step are.
const SAMPLE: u64 = 64;
const STEP: u64 = 4096;
/// Bytes that are copied at a time.
const CHUNK: usize = 1024;

/// A checksum; nothing if some byte is not mapped. Of long requests it leaves out most of what is in the middle.
///
/// # Safety
/// The bytes of the request were registered when it was posted.
pub unsafe fn sum(request: &Request) -> Option<u32> {
    let mut sum = Hasher::new();
    let mut copy = [0_u8; CHUNK];
    for piece in &request.pieces {
        let end = u64::from(piece.length);
        let mut at = 0;
        while at < end {
            let is_middle = at >= ENDS && end - at > ENDS;
            let length = if is_middle { SAMPLE } else { (end - at).min(CHUNK as u64) };
            let bytes = &mut copy[..length as usize];
            // SAFETY: inside the piece, which was registered, as the caller promises; memory of ours never is.
            if !unsafe { copy_if_mapped((piece.addr + at) as usize, bytes) } {
                return None;
            }
            sum.update(bytes);
            at += if is_middle { STEP.min(end - ENDS - at) } else { length };
        }
    }
    Some(sum.finalize())
}
