//! The receive half of a queue: chunks of packet memory, the fill ring and the receive ring.

use super::memory::Umem;
use super::ring::{Consumer, Desc, Producer};

/// Frames after which chunks are returned to the kernel.
const BATCH: usize = 32;

/// The receive half of a queue. Its chunks are the first of the UMEM.
pub(super) struct Receive {
    ring: Consumer<Desc>,
    fill: Producer<u64>,
    /// Which chunks the kernel owns.
    in_kernel: Vec<bool>,
    chunk_size: usize,
    /// Where a frame is assembled whose chunks are not adjacent; as long as the longest frame.
    scratch: Vec<u8>,
    /// The descriptors of the current frame.
    chain: Vec<Desc>,
    violations: u64,
}

/// What was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames.
    pub frames: usize,
    /// Of these, those that are too long, or have invalid descriptors.
    pub malformed: u64,
}

/// Where the chunks of a queue are at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveCount {
    /// Chunks in all.
    pub chunks: u64,
    /// Of these, ours.
    pub held: u64,
    /// Of these, the kernel's.
    pub in_kernel: u64,
    /// Of the kernel's, those in the fill ring.
    pub fill: u64,
    /// Of the kernel's, those in the receive ring.
    pub ring: u64,
    /// Descriptors of chunks that were not the kernel's to give.
    pub violations: u64,
}

impl ReceiveCount {
    /// Whether the counts add up.
    pub fn is_exact(&self) -> bool {
        self.violations == 0 && self.held + self.in_kernel == self.chunks && self.ring <= self.in_kernel
    }
}

impl Receive {
    /// Entries of the fill ring for this many chunks; see [`Producer`].
    pub(super) fn fill_ring_size(chunks: u32) -> u32 {
        2 * chunks
    }

    /// Gives all chunks to the kernel.
    pub(super) fn new(
        ring: Consumer<Desc>,
        fill: Producer<u64>,
        chunks: u32,
        chunk_size: usize,
        max_frame: usize,
    ) -> Receive {
        let mut receive = Receive {
            ring,
            fill,
            in_kernel: vec![false; chunks as usize],
            chunk_size,
            scratch: vec![0; max_frame],
            chain: Vec::with_capacity(chunks as usize),
            violations: 0,
        };
        for chunk in 0..chunks as usize {
            receive.recycle(chunk);
        }
        receive.fill.publish();
        receive
    }

    /// Delivers at most `budget` frames to `sink`.
    pub(super) fn drain(&mut self, umem: &mut Umem, budget: usize, sink: &mut dyn FnMut(&[u8])) -> Received {
        let mut received = Received::default();
        while received.frames < budget && self.next_chain() {
            received.frames += 1;
            if self.claim(umem) {
                match assemble(&self.chain, &mut self.scratch, umem, self.chunk_size) {
                    Some(frame) => sink(frame),
                    None => received.malformed += 1,
                }
            } else {
                received.malformed += 1;
            }
            for index in 0..self.chain.len() {
                let chunk = self.chain[index].address as usize / self.chunk_size;
                self.recycle(chunk);
            }
            if received.frames.is_multiple_of(BATCH) {
                self.hand_over();
            }
        }
        self.hand_over();
        received
    }

    /// Whether the driver waits to be told about chunks.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    pub(super) fn count(&self) -> ReceiveCount {
        let ring = u64::from(self.ring.available());
        let in_kernel = self.in_kernel.iter().filter(|in_kernel| **in_kernel).count() as u64;
        ReceiveCount {
            ring,
            fill: u64::from(self.fill.outstanding()) + u64::from(self.fill.unpublished()),
            chunks: self.in_kernel.len() as u64,
            held: self.in_kernel.len() as u64 - in_kernel,
            in_kernel,
            violations: self.violations,
        }
    }

    /// Collects the descriptors of the next frame, once the kernel has produced all of them.
    fn next_chain(&mut self) -> bool {
        self.chain.clear();
        loop {
            let Some(desc) = self.ring.peek(self.chain.len() as u32) else {
                return false;
            };
            self.chain.push(desc);
            if !desc.continues() || self.chain.len() == self.chain.capacity() {
                self.ring.advance(self.chain.len() as u32);
                return true;
            }
        }
    }

    /// Takes over the chunks of the chain. Skips those that were not the kernel's, so that they are not returned later.
    fn claim(&mut self, umem: &Umem) -> bool {
        let Receive { chain, in_kernel, chunk_size, violations, .. } = self;
        let before = chain.len();
        chain.retain(|desc| {
            let address = desc.address as usize;
            match in_kernel.get_mut(address / *chunk_size) {
                Some(state) if *state && umem.is_in_one_chunk(address, desc.len as usize) => {
                    *state = false;
                    true
                }
                _ => {
                    *violations += 1;
                    false
                }
            }
        });
        chain.len() == before
    }

    fn recycle(&mut self, chunk: usize) {
        // There is an entry for each chunk, unless the kernel's index is invalid.
        if self.fill.try_push((chunk * self.chunk_size) as u64) {
            self.in_kernel[chunk] = true;
        } else {
            self.violations += 1;
        }
    }

    /// Returns ring entries and chunks to the kernel, which needs an entry for each chunk.
    fn hand_over(&mut self) {
        self.ring.release();
        self.fill.publish();
    }
}

/// The frame in `chain`, whose chunks are ours, in one piece. `None` if it is too long.
///
/// The chunks of a frame are nearly always adjacent, since they are recycled in order. Then only the pieces after the
/// first, which are short, are moved up to it. Otherwise the whole frame is copied.
fn assemble<'a>(
    chain: &[Desc],
    scratch: &'a mut [u8],
    umem: &'a mut Umem,
    chunk_size: usize,
) -> Option<&'a [u8]> {
    let (first, rest) = chain.split_first()?;
    let start = first.address as usize;
    let len: usize = chain.iter().map(|desc| desc.len as usize).sum();
    if rest.is_empty() {
        // SAFETY: `claim` took the chunk over; it goes back to the kernel after the frame is delivered.
        return Some(unsafe { umem.bytes(start, len) });
    }
    if len > scratch.len() {
        return None;
    }
    let chunk = |desc: &Desc| desc.address as usize / chunk_size;
    if chain.windows(2).all(|pair| chunk(&pair[1]) == chunk(&pair[0]) + 1) {
        let end = rest.last().map_or(start, |last| last.address as usize + last.len as usize);
        // SAFETY: `claim` took all of the chunks over, and there are none between them; they go back to the kernel
        // after the frame is delivered.
        let bytes = unsafe { umem.bytes_mut(start, end - start) };
        let mut filled = first.len as usize;
        for desc in rest {
            let piece = desc.address as usize - start;
            bytes.copy_within(piece..piece + desc.len as usize, filled);
            filled += desc.len as usize;
        }
        return Some(&bytes[..filled]);
    }
    let mut filled = 0;
    for desc in chain {
        // SAFETY: `claim` took the chunk over; it goes back to the kernel after the frame is delivered.
        let piece = unsafe { umem.bytes(desc.address as usize, desc.len as usize) };
        scratch[filled..filled + piece.len()].copy_from_slice(piece);
        filled += piece.len();
    }
    Some(&scratch[..filled])
}

#[cfg(test)]
mod tests;
