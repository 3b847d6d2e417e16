//! The transmit half of a queue: slots of packet memory, the transmit ring and the completion ring.
//!
//! A slot is as many consecutive chunks as the largest frame takes, so a frame is written in one piece in the place it
//! is sent from, and only its descriptors are split at chunk boundaries.

use std::ops::Range;

use super::ring::{Consumer, Desc, Producer};
use super::xsk::Xsk;

/// The transmit half of a queue.
pub(super) struct Transmit {
    ring: Producer<Desc>,
    completion: Consumer<u64>,
    layout: SlotLayout,
    free: Vec<u32>,
    /// Descriptors of each slot that the kernel has not completed.
    pending: Vec<u8>,
    in_flight: u32,
    violations: u64,
    zero_copy: bool,
    always_wake: bool,
}

/// A slot that was taken: nobody else has it, and the kernel has not got it.
#[derive(PartialEq, Eq, Debug)]
pub struct Slot(u32);

/// Where the slots are.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotLayout {
    /// UMEM address of the first, in bytes.
    pub(super) base: usize,
    pub(super) slots: u32,
    pub(super) chunks_per_slot: u32,
    pub(super) chunk_size: usize,
}

impl SlotLayout {
    pub(super) fn slot_bytes(&self) -> usize {
        self.chunks_per_slot as usize * self.chunk_size
    }

    /// Entries of the transmit ring; see [`Producer`].
    pub(super) fn ring_size(&self) -> u32 {
        2 * self.completion_size()
    }

    /// Entries of the completion ring: as many descriptors as all slots together can need.
    pub(super) fn completion_size(&self) -> u32 {
        self.slots * self.chunks_per_slot.next_power_of_two()
    }

    fn slot_of(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address).ok()?.checked_sub(self.base)?;
        Some(offset / self.slot_bytes()).filter(|slot| *slot < self.slots as usize)
    }
}

/// Descriptors that the kernel takes per call (net/xdp/xsk.c, `TX_BATCH_SIZE`).
const BATCH: u32 = 32;

/// Calls without visible progress after which the network below counts as full.
const MAX_STALLED_CALLS: u32 = 2;

/// The result of a kick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kicked {
    /// System calls made.
    pub calls: u64,
    /// Packets that the device below dropped at once.
    pub dropped: u64,
    /// The interface is down: what is queued leaves when it comes up again.
    pub down: bool,
}

/// Where the slots and descriptors of a queue are at one moment.
#[derive(Clone, Copy, Debug)]
pub struct TransmitCount {
    /// Slots in all.
    pub slots: u64,
    /// Of these, free.
    pub free: u64,
    /// Of these, queued, with the kernel, or completed and not yet taken back.
    pub in_flight: u64,
    /// Descriptors that the kernel does not see yet.
    pub unpublished_descs: u64,
    /// Descriptors in the transmit ring.
    pub ring_descs: u64,
    /// Descriptors in the completion ring.
    pub completed_descs: u64,
    /// Descriptors of the slots in flight, as counted when they were queued and completed.
    pub in_flight_descs: u64,
    /// The same, summed over slots.
    pub pending_descs: u64,
    /// Addresses that the kernel returned without owning them.
    pub violations: u64,
}

impl TransmitCount {
    /// Whether the counts add up.
    pub fn is_exact(&self) -> bool {
        self.violations == 0
            && self.in_flight_descs == self.pending_descs
            && self.completed_descs + self.unpublished_descs <= self.pending_descs
    }
}

impl Transmit {
    pub(super) fn new(
        ring: Producer<Desc>,
        completion: Consumer<u64>,
        layout: SlotLayout,
        zero_copy: bool,
        always_wake: bool,
    ) -> Transmit {
        Transmit {
            ring,
            completion,
            layout,
            free: (0..layout.slots).rev().collect(),
            pending: vec![0; layout.slots as usize],
            in_flight: 0,
            violations: 0,
            zero_copy,
            always_wake,
        }
    }

    /// A free slot. The most recently used one comes first: it is in the cache.
    pub(super) fn take(&mut self) -> Option<Slot> {
        if self.free.is_empty() {
            self.reap();
        }
        self.free.pop().map(Slot)
    }

    /// Returns a slot that was not queued.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot.0);
    }

    /// UMEM address of bytes of a slot, which the kernel does not have.
    ///
    /// # Panics
    /// The slot is another queue's, or has fewer bytes.
    pub(super) fn address(&self, slot: &Slot, range: &Range<usize>) -> usize {
        let slot = slot.0 as usize;
        assert!(self.pending.get(slot) == Some(&0), "the slot is another queue's");
        assert!(range.start <= range.end && range.end <= self.layout.slot_bytes(), "the slot is shorter");
        self.layout.base + slot * self.layout.slot_bytes() + range.start
    }

    /// Queues the first `len` bytes of a slot as one frame.
    pub(super) fn queue(&mut self, slot: Slot, len: usize) {
        let mut address = self.address(&slot, &(0..len)) as u64;
        let mut left = len;
        let mut descriptors = 0;
        while left > 0 {
            let piece = left.min(self.layout.chunk_size);
            left -= piece;
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.ring.push(Desc { address, len: piece as u32, options });
            address += piece as u64;
            descriptors += 1;
        }
        self.pending[slot.0 as usize] = descriptors;
        self.in_flight += u32::from(descriptors);
    }

    /// Whether as much is queued as the kernel accepts in one call.
    pub(super) fn has_batch(&self) -> bool {
        self.ring.unpublished() >= BATCH
    }

    /// Makes queued frames visible to the kernel and makes it send as many as it accepts.
    pub(super) fn kick(&mut self, socket: &Xsk) -> Kicked {
        self.ring.publish();
        let mut kicked = Kicked::default();
        let outstanding = self.ring.outstanding();
        if outstanding == 0 || !(self.always_wake || self.ring.needs_wakeup()) {
            return kicked;
        }
        // In copy mode a call sends a batch; in zero-copy mode it starts the driver. Older kernels publish their
        // progress only at the end, so completions count as progress too.
        let most = if self.zero_copy { 1 } else { outstanding };
        let mut progress = self.progress();
        let mut stalled = 0;
        for _ in 0..most {
            kicked.calls += 1;
            let result = socket.wake_transmit();
            let before = progress;
            progress = self.progress();
            stalled = if progress == before { stalled + 1 } else { 0 };
            match result.map_err(|error| error.raw_os_error()) {
                // All were accepted.
                Ok(()) => break,
                Err(Some(libc::ENETDOWN | libc::ENXIO)) => {
                    kicked.down = true;
                    break;
                }
                // The device dropped a frame, which comes back as completed.
                Err(Some(libc::EBUSY)) => kicked.dropped += 1,
                Err(_) => {}
            }
            if stalled == MAX_STALLED_CALLS {
                break;
            }
        }
        kicked
    }

    /// Takes back the slots of frames that have left.
    pub(super) fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            let pending = match self.layout.slot_of(address) {
                Some(slot) if self.pending[slot] > 0 => &mut self.pending[slot],
                _ => {
                    self.violations += 1;
                    continue;
                }
            };
            *pending -= 1;
            self.in_flight -= 1;
            if *pending == 0
                && let Some(slot) = self.layout.slot_of(address)
            {
                self.free.push(slot as u32);
            }
        }
        self.completion.release();
    }

    /// Whether frames wait for the device below, or all slots wait for completion.
    pub(super) fn is_blocked(&self) -> bool {
        (!self.zero_copy && self.ring.outstanding() > 0) || self.free.is_empty()
    }

    /// Changes when the kernel takes or completes frames.
    fn progress(&self) -> (u32, u32) {
        (self.ring.outstanding(), self.completion.available())
    }

    pub(super) fn count(&self) -> TransmitCount {
        let completed_descs = u64::from(self.completion.available());
        TransmitCount {
            completed_descs,
            ring_descs: self.ring.outstanding().into(),
            unpublished_descs: self.ring.unpublished().into(),
            slots: self.layout.slots.into(),
            free: self.free.len() as u64,
            in_flight: self.pending.iter().filter(|pending| **pending > 0).count() as u64,
            in_flight_descs: self.in_flight.into(),
            pending_descs: self.pending.iter().map(|pending| u64::from(*pending)).sum(),
            violations: self.violations,
        }
    }
}

#[cfg(test)]
mod tests;
