use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::doorbells::DoorbellSet;

fn drained(set: &DoorbellSet) -> Vec<usize> {
    let mut indices = Vec::new();
    set.drain(|index| indices.push(index));
    indices
}

#[test]
fn every_size_returns_what_was_rung_once_and_in_order() {
    for capacity in [1, 2, 63, 64, 65, 512, 513, 4096, 32_768, 32_769, 1 << 20] {
        let set = DoorbellSet::new(capacity);
        let mut rung: Vec<usize> = [0, 1, 63, 64, 65, 511, 512, 4095, 32_768, capacity / 2, capacity - 1]
            .into_iter()
            .filter(|&index| index < capacity)
            .collect();
        rung.iter().rev().chain(&rung).for_each(|&index| set.ring(index));
        rung.sort_unstable();
        rung.dedup();
        assert_eq!(drained(&set), rung, "capacity {capacity}");
        assert!(drained(&set).is_empty(), "capacity {capacity}");
    }
}

#[test]
fn all_of_a_large_set() {
    let set = DoorbellSet::new(1 << 20);
    (0..1 << 20).for_each(|index| set.ring(index));
    assert!(drained(&set).into_iter().eq(0..1 << 20));
}

#[test]
#[should_panic(expected = "no such doorbell")]
fn an_index_beyond_the_capacity_is_refused() {
    DoorbellSet::new(100).ring(100);
}

#[test]
#[should_panic(expected = "below 2^20")]
fn a_capacity_beyond_the_limit_is_refused() {
    DoorbellSet::new((1 << 20) + 1);
}

/// Each number has a count that its poster raises before ringing; the drain must find every raise.
#[test]
fn threads_ring_while_one_drains() {
    const NUMBERS: usize = 700;
    const ROUNDS: u64 = 200;
    let set = DoorbellSet::new(NUMBERS);
    let posted: Vec<AtomicU64> = (0..NUMBERS).map(|_| AtomicU64::new(0)).collect();
    let mut served = vec![0; NUMBERS];
    let mut drain = || set.drain(|index| served[index] = posted[index].load(Ordering::Relaxed));
    thread::scope(|scope| {
        let posters = [0, 1].map(|_| {
            scope.spawn(|| {
                for index in (0..ROUNDS).flat_map(|_| 0..NUMBERS) {
                    posted[index].fetch_add(1, Ordering::Relaxed);
                    set.ring(index);
                }
            })
        });
        while !posters.iter().all(|poster| poster.is_finished()) {
            drain();
        }
    });
    drain();
    assert!(served.iter().all(|&count| count == 2 * ROUNDS));
}
