use softrnic_wire::Rkey;

use super::*;

fn atomic(first: u32, original: u64) -> Saved {
    Saved { first: Psn::new(first), packets: 1, msn: Msn::ZERO, kind: SavedKind::Atomic(original) }
}

#[test]
fn an_old_result_is_not_mistaken_for_a_recent_one() {
    let mut resources = Resources::new();
    resources.save(atomic(0, 1), 4);
    let half = Psn::new(1 << 23);
    assert_eq!(resources.first_after(half + 1), Some(Psn::ZERO), "it would seem to lie ahead");
    resources.forget_before(Psn::new((1 << 22) + 1));
    assert!(resources.find(Psn::ZERO).is_some(), "not old enough");
    resources.forget_before(Psn::new((1 << 22) + 2));
    assert!(resources.find(Psn::ZERO).is_none());
    assert_eq!(resources.first_after(half + 1), None);
}

#[test]
fn of_two_results_at_one_psn_the_newer_counts() {
    let mut resources = Resources::new();
    resources.save(atomic(7, 1), 4);
    resources.save(atomic(7, 2), 4);
    assert!(matches!(resources.find(Psn::new(7)).map(|s| s.kind), Some(SavedKind::Atomic(2))));
}

#[test]
fn a_read_as_long_as_half_the_psn_space_can_be_repeated() {
    let mut resources = Resources::new();
    let reth = Reth { va: 0, rkey: Rkey(1), dma_len: 1 << 31 };
    let read =
        Saved { first: Psn::ZERO, packets: 1 << 23, msn: Msn::ZERO, kind: SavedKind::Read(Domain(0), reth) };
    resources.save(read, 1);
    resources.forget_before(Psn::new(1 << 23));
    assert!(resources.find_read(Psn::ZERO, &reth, 256).is_some());
}
const MTU: u32 = 256;
const READ: Reth = Reth { va: 0x1000, rkey: Rkey(1), dma_len: 3 * MTU };

/// What is kept of `reth`, read at PSN 7.
fn with_read(reth: Reth) -> Resources {
    let mut resources = Resources::new();
    let packets = reth.dma_len.div_ceil(MTU).max(1);
    let kind = SavedKind::Read(Domain(0), reth);
    resources.save(Saved { first: Psn::new(7), packets, msn: Msn::ZERO, kind }, 1);
    resources
}

/// The first PSN and the packets of the answer to `again` at `psn`.
fn answer(resources: &Resources, psn: u32, again: Reth) -> Option<(u32, u32)> {
    resources.find_read(Psn::new(psn), &again, MTU).map(|saved| (saved.first.get(), saved.packets))
}

#[test]
fn as_many_results_are_kept_as_rxe_may_ask_for() {
    for (depth, kept) in [(0, 1), (1, 1), (3, 4), (16, 16)] {
        let mut resources = Resources::new();
        for psn in 0..20 {
            resources.save(atomic(psn, 0), depth);
        }
        assert_eq!(resources.len(), kept);
        let oldest = 20 - kept as u32;
        assert!(resources.find(Psn::new(oldest)).is_some());
        assert!(resources.find(Psn::new(oldest - 1)).is_none());
    }
}

#[test]
fn a_repeated_read_may_ask_for_a_part_of_it() {
    // IBTA 9.7.5.1.3: the repeat begins where the requester misses a packet, and its address goes along.
    let resources = with_read(READ);
    let from = |packet: u64, dma_len| Reth { va: READ.va + packet * MTU as u64, dma_len, ..READ };
    assert_eq!(answer(&resources, 7, READ), Some((7, 3)));
    assert_eq!(answer(&resources, 8, from(1, 2 * MTU)), Some((8, 2)));
    assert_eq!(answer(&resources, 9, from(2, MTU)), Some((9, 1)));
    assert_eq!(answer(&resources, 8, from(1, MTU + 1)), Some((8, 2)), "and end earlier");
}

#[test]
fn a_repeated_read_reaches_only_requested_bytes() {
    let resources = with_read(READ);
    let next = READ.va + MTU as u64;
    for (psn, again) in [
        (6, READ),
        (10, Reth { va: READ.va + 3 * MTU as u64, dma_len: 1, ..READ }),
        (7, Reth { dma_len: 3 * MTU + 1, ..READ }),
        (8, Reth { va: next, dma_len: 2 * MTU + 1, ..READ }),
        (8, Reth { va: READ.va, dma_len: MTU, ..READ }),
        (8, Reth { va: next + 1, dma_len: MTU, ..READ }),
        (7, Reth { rkey: Rkey(2), ..READ }),
        (7, Reth { dma_len: 0, ..READ }),
    ] {
        assert_eq!(answer(&resources, psn, again), None, "PSN {psn}, {again:?}");
    }
}

#[test]
fn a_repeated_read_of_nothing_names_no_memory() {
    let resources = with_read(Reth { dma_len: 0, ..READ });
    assert_eq!(answer(&resources, 7, Reth { va: 0, rkey: Rkey(9), dma_len: 0 }), Some((7, 1)));
    assert_eq!(answer(&resources, 7, Reth { dma_len: 1, ..READ }), None);
}
