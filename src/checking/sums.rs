//! Checksums of the bytes of a request, to notice that they change before it is complete.

use crc32fast::Hasher;
use softrnic_check::Request;
use softrnic_memory::copy_if_mapped;

/// Bytes at each end of a request that are looked at, and of one that the NIC writes to, which is looked at more often.
const ENDS: u64 = 4096;
const ENDS_WRITTEN: u64 = 1024;
/// Between them, so many bytes in each step are.
const SAMPLE: u64 = 64;
const STEP: u64 = 4096;
/// Bytes that are copied at a time, and of a short request, which is what most are.
const CHUNK: usize = 1024;
const SHORT: usize = 64;

/// A checksum; nothing if some byte is not mapped. Of long requests it leaves out most of what is in the middle.
///
/// # Safety
/// The bytes of the request were registered when it was posted.
pub unsafe fn sum(request: &Request) -> Option<u32> {
    // SAFETY: as the caller promises.
    unsafe {
        match request.length <= SHORT as u64 {
            true => sum_by(request, &mut [0; SHORT]),
            false => sum_by(request, &mut [0; CHUNK]),
        }
    }
}

/// The same with room for a copy.
///
/// # Safety
/// As for [`sum`].
unsafe fn sum_by(request: &Request, copy: &mut [u8]) -> Option<u32> {
    let ends = if request.writes() { ENDS_WRITTEN } else { ENDS };
    let mut sum = Hasher::new();
    for piece in &request.pieces {
        let end = u64::from(piece.length);
        let mut at = 0;
        while at < end {
            let is_middle = at >= ends && end - at > ends;
            let length =
                if is_middle { SAMPLE.min(copy.len() as u64) } else { (end - at).min(copy.len() as u64) };
            let bytes = &mut copy[..length as usize];
            // SAFETY: inside the piece, which was registered, as the caller promises; memory of ours never is.
            if !unsafe { copy_if_mapped((piece.addr + at) as usize, bytes) } {
                return None;
            }
            sum.update(bytes);
            at += if is_middle { STEP.min(end - ends - at) } else { length };
        }
    }
    Some(sum.finalize())
}
