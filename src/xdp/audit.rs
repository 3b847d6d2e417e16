//! Counts where all packet memory is.

use softrnic_af_xdp::{ReceiveCount, TransmitCount};
use softrnic_link::FrameAudit;

/// Adds what a queue has to an account of all.
pub(super) trait AddQueue {
    fn add_receive(&mut self, count: ReceiveCount);
    fn add_transmit(&mut self, count: TransmitCount);
}

impl AddQueue for FrameAudit {
    fn add_receive(&mut self, count: ReceiveCount) {
        self.rx_chunks += count.chunks;
        self.rx_held += count.held;
        self.violations += count.violations + u64::from(count.ring > count.in_kernel);
        let [ring, fill, kernel] = split(count.in_kernel, [count.ring, count.fill]);
        self.rx_ring += ring;
        self.rx_fill += fill;
        self.rx_kernel += kernel;
    }

    fn add_transmit(&mut self, count: TransmitCount) {
        self.tx_slots += count.slots;
        self.tx_free += count.free;
        self.tx_in_flight += count.in_flight;
        self.tx_descs += count.pending_descs;
        let come_back = count.completed_descs + count.unpublished_descs;
        self.violations += count.violations
            + u64::from(count.in_flight_descs != count.pending_descs)
            + u64::from(come_back > count.pending_descs);
        let places = [count.completed_descs, count.unpublished_descs, count.ring_descs];
        let [completed, unpublished, ring, kernel] = split(count.pending_descs, places);
        self.tx_descs_completed += completed;
        self.tx_descs_ring += unpublished + ring;
        self.tx_descs_kernel += kernel;
    }
}

/// How many of `total` are in each of `places`, as far as they suffice, and how many are left over.
fn split<const N: usize, const M: usize>(total: u64, places: [u64; N]) -> [u64; M] {
    const { assert!(M == N + 1) };
    let mut left = total;
    std::array::from_fn(|place| {
        let here = places.get(place).map_or(left, |count| left.min(*count));
        left -= here;
        here
    })
}
