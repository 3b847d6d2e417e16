use super::super::testing::ring_pair;
use super::*;

const LAYOUT: SlotLayout = SlotLayout { base: 3 * 2048, slots: 4, chunks_per_slot: 3, chunk_size: 2048 };

/// The kernel's part.
struct Kernel {
    ring: Consumer<Desc>,
    completion: Producer<u64>,
}

impl Kernel {
    fn take(&mut self) -> Vec<Desc> {
        std::iter::from_fn(|| self.ring.pop()).collect()
    }

    fn complete(&mut self, descs: &[Desc]) {
        for desc in descs {
            self.completion.push(desc.address);
        }
        self.completion.publish();
    }
}

fn transmit_and_kernel() -> (Transmit, Kernel) {
    let (our_ring, ring) = ring_pair(LAYOUT.ring_size());
    let (completion, our_completion) = ring_pair(LAYOUT.completion_size());
    (Transmit::new(our_ring, our_completion, LAYOUT, false, false), Kernel { ring, completion })
}

fn audit(transmit: &Transmit) -> TransmitCount {
    transmit.count()
}

impl TransmitCount {
    fn is_whole(&self) -> bool {
        self.is_exact() && self.slots == self.free + self.in_flight
    }

    fn is_quiet(&self) -> bool {
        self.is_whole() && self.free == self.slots
    }
}

#[test]
fn frames_are_split_at_chunk_boundaries() {
    let (mut transmit, mut kernel) = transmit_and_kernel();
    for (len, pieces) in [
        (60, &[60][..]),
        (2048, &[2048]),
        (2049, &[2048, 1]),
        (4096, &[2048, 2048]),
        (4522, &[2048, 2048, 426]),
    ] {
        let slot = transmit.take().expect("free");
        let start = transmit.address(&slot, &(0..len)) as u64;
        transmit.queue(slot, len);
        assert_eq!(kernel.take(), [], "not published");
        transmit.ring.publish();
        let descs = kernel.take();
        let lens: Vec<u32> = descs.iter().map(|desc| desc.len).collect();
        assert_eq!(lens, pieces);
        for (index, desc) in descs.iter().enumerate() {
            assert_eq!(desc.address, start + index as u64 * 2048);
            assert_eq!(desc.continues(), index + 1 < descs.len());
        }
        kernel.complete(&descs);
        transmit.reap();
        assert!(audit(&transmit).is_quiet());
    }
}

#[test]
fn a_slot_is_free_when_all_its_pieces_are_completed_in_any_order() {
    let (mut transmit, mut kernel) = transmit_and_kernel();
    for _ in 0..4 {
        let slot = transmit.take().expect("free");
        transmit.queue(slot, 5000);
    }
    transmit.ring.publish();
    assert_eq!(transmit.take(), None);
    assert!(transmit.is_blocked());
    let mut descs = kernel.take();
    descs.reverse();
    assert_eq!(descs.len(), 12);
    for (done, desc) in descs.iter().enumerate() {
        assert_eq!(transmit.free.len(), done / 3);
        kernel.complete(&[*desc]);
        transmit.reap();
        let audit = audit(&transmit);
        assert!(audit.is_whole(), "{audit:?}");
        assert_eq!(audit.pending_descs, 11 - done as u64);
    }
    assert!(audit(&transmit).is_quiet());
}

#[test]
fn slots_go_round_although_the_kernel_publishes_late() {
    let (mut transmit, mut kernel) = transmit_and_kernel();
    for _ in 0..1000 {
        let slot = transmit.take().expect("free");
        transmit.queue(slot, 5000);
        transmit.ring.publish();
        if kernel.ring.cached() == 0 {
            kernel.ring.release();
        }
        let descs = kernel.take();
        kernel.complete(&descs);
        assert!(audit(&transmit).is_whole());
    }
    transmit.reap();
    assert!(audit(&transmit).is_quiet());
}

#[test]
fn unexpected_completions_are_noticed() {
    let (mut transmit, mut kernel) = transmit_and_kernel();
    let slot = transmit.take().expect("free");
    transmit.queue(slot, 60);
    transmit.ring.publish();
    let descs = kernel.take();
    kernel.complete(&descs);
    kernel.complete(&descs);
    for address in [0, u64::MAX, (LAYOUT.base + 4 * LAYOUT.slot_bytes()) as u64] {
        kernel.complete(&[Desc { address, len: 60, options: 0 }]);
    }
    transmit.reap();
    assert_eq!((transmit.count().violations, transmit.free.len()), (4, 4));
    assert!(!audit(&transmit).is_whole());
}
