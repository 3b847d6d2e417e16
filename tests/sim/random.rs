//! Random traffic under faults, many seeds of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use softrnic_sim_tests::switches::SwitchCounts;
use softrnic_sim_tests::traffic::{self, Profile, Summary};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds `first..first + count` on all processors, or the one in `SOFTRNIC_SEED`.
fn seeds(test: &str, profile: Profile, first: u64, count: u64) {
    if let Some(seed) = number("SOFTRNIC_SEED") {
        println!("{:?}", traffic::run(seed, profile));
        return;
    }
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let totals = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count
                || failed.lock().is_ok_and(|f: std::sync::MutexGuard<'_, Vec<u64>>| f.len() > 4)
            {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| traffic::run(seed, profile))) {
                Ok(summary) => totals.lock().expect("no panic here").add(&summary),
                Err(_) => {
                    eprintln!("seed {seed} failed; to repeat it:");
                    eprintln!(
                        "    SOFTRNIC_SEED={seed} cargo test -p softrnic-sim-tests --test random {test}"
                    );
                    failed.lock().expect("no panic here").push(seed);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("no panic here");
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    let totals = totals.into_inner().expect("no panic here");
    println!("{count} seeds: {totals:?}");
    let tried = [totals.sends, totals.receives, totals.retransmitted, totals.not_ready, totals.windows];
    assert!(!tried.contains(&0), "something was not tried: {totals:?}");
    let selective = [totals.kept, totals.ahead, totals.selective, totals.spread, totals.left];
    match profile {
        Profile::Selective => assert!(!selective.contains(&0), "something was not tried: {totals:?}"),
        _ => assert_eq!(selective, [0; 5], "nobody agreed to it"),
    }
    if profile == Profile::Switched {
        let SwitchCounts { no_room, link_down, marked, pauses } = totals.switches;
        assert!(![no_room, link_down, marked, pauses].contains(&0), "{:?}", totals.switches);
    }
    if profile != Profile::Basic {
        assert!(totals.failures > 0, "nothing failed");
        let damage = totals.damage;
        assert!(damage.of_strangers > 0, "{damage:?}");
        // An ID explains at most one in 1,600 (`an_id_explains_at_most_one_in_1600_changes_of_a_byte`). Whatever the
        // seeds, the chance of more than this is below 10^-4.
        assert!(damage.explained <= 4 + damage.of_strangers / 500, "{damage:?}");
    }
}

#[test]
fn reliable_connections() {
    seeds("reliable_connections", Profile::Basic, 0, 300);
}

#[test]
fn everything() {
    seeds("everything", Profile::Full, 10_000, number("SOFTRNIC_SEEDS").unwrap_or(2000));
}

#[test]
fn damaged_packets_where_ids_are_hidden() {
    seeds("damaged_packets_where_ids_are_hidden", Profile::Damaged, 50_000, 500);
}

#[test]
fn everything_on_nics_that_recover_selectively() {
    let count = number("SOFTRNIC_SEEDS").unwrap_or(2000);
    seeds("everything_on_nics_that_recover_selectively", Profile::Selective, 140_000, count);
}

#[test]
fn everything_through_switches() {
    seeds("everything_through_switches", Profile::Switched, 110_000, 120);
}

#[test]
fn everything_on_adversarial_nics() {
    seeds("everything_on_adversarial_nics", Profile::Adversarial, 80_000, 200);
}
