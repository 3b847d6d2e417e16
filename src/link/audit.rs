//! Where all packet memory is, for links that share memory with the kernel.

/// Where every receive chunk, transmit slot and descriptor is at one moment, summed over queues.
///
/// We know exactly what is ours and what is the kernel's. Where the kernel's share is follows from the ring indices.
/// The kernel publishes late what it has consumed, so what has already come back is not counted there again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameAudit {
    /// Receive chunks in all.
    pub rx_chunks: u64,
    /// In the fill ring, for the kernel to take.
    pub rx_fill: u64,
    /// Taken by the kernel, not yet delivered: with the driver, or set aside after a drop.
    pub rx_kernel: u64,
    /// In the receive ring, for us to take.
    pub rx_ring: u64,
    /// Held by us.
    pub rx_held: u64,
    /// Transmit slots in all.
    pub tx_slots: u64,
    /// Free.
    pub tx_free: u64,
    /// Reserved, not committed. If it never is, such as what a fault drops, the next packet has it.
    pub tx_reserved: u64,
    /// Being sent to ourselves.
    pub tx_own: u64,
    /// Queued, with the kernel, or completed and not yet reaped.
    pub tx_in_flight: u64,
    /// Descriptors of the slots in flight.
    pub tx_descs: u64,
    /// Of these, not yet published or in the transmit ring.
    pub tx_descs_ring: u64,
    /// Of these, taken by the kernel.
    pub tx_descs_kernel: u64,
    /// Of these, in the completion ring.
    pub tx_descs_completed: u64,
    /// Addresses that the kernel returned without owning them, and counts that do not add up.
    pub violations: u64,
}

impl FrameAudit {
    /// Whether everything is in exactly one place.
    pub fn is_exact(&self) -> bool {
        self.violations == 0
            && self.rx_chunks == self.rx_fill + self.rx_kernel + self.rx_ring + self.rx_held
            && self.tx_slots == self.tx_free + self.tx_reserved + self.tx_own + self.tx_in_flight
            && self.tx_descs == self.tx_descs_ring + self.tx_descs_kernel + self.tx_descs_completed
    }

    /// Whether also nothing is being sent or received.
    pub fn is_quiet(&self) -> bool {
        self.is_exact()
            && self.tx_free + self.tx_reserved == self.tx_slots
            && self.rx_held == 0
            && self.rx_ring == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_slot_is_not_on_its_way() {
        let audit = FrameAudit { tx_slots: 512, tx_free: 511, tx_reserved: 1, ..FrameAudit::default() };
        assert!(audit.is_quiet());
        assert!(!FrameAudit { tx_reserved: 0, ..audit }.is_exact(), "it is nowhere");
        assert!(!FrameAudit { tx_reserved: 0, tx_own: 1, ..audit }.is_quiet());
    }
}
