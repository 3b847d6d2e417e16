use core::time::Duration;

use softrnic_wire::Time;

use super::{RateControl, RateParameters};

const FULL: u64 = 5_000_000_000;

/// Runs every timer up to `end`; `false` when the rate control ended itself.
fn run(rate: &mut RateControl, end: Time) -> bool {
    while rate.next_timer() <= end {
        if !rate.on_timer(rate.next_timer()) {
            return false;
        }
    }
    true
}

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

#[test]
fn the_first_cnp_halves_the_rate() {
    let rate = RateControl::new(RateParameters::default(), at(0));
    assert_eq!(rate.current(), FULL / 2);
}

#[test]
fn cnps_within_the_monitor_period_count_once() {
    let mut rate = RateControl::new(RateParameters::default(), at(10));
    rate.on_cnp(at(12));
    assert_eq!(rate.current(), FULL / 2);
    rate.on_cnp(at(14));
    assert_eq!(rate.current(), FULL / 4);
}

#[test]
fn the_rate_never_falls_below_its_minimum_nor_by_more_than_its_share() {
    let parameters =
        RateParameters { rpg_min_rate: 1_000_000_000, rpg_min_dec_fac: 80, ..Default::default() };
    let mut rate = RateControl::new(parameters, at(0));
    assert_eq!(rate.current(), FULL / 100 * 80);
    (1..100).for_each(|n| rate.on_cnp(at(n * 5)));
    assert_eq!(rate.current(), 1_000_000_000);
}

#[test]
fn fast_recovery_halves_the_distance_five_times() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    let mut missing = FULL / 2;
    for round in 1..=5 {
        assert!(run(&mut rate, at(300 * round)));
        missing /= 2;
        assert!(rate.current().abs_diff(FULL - missing) <= round, "round {round}: {}", rate.current());
    }
}

#[test]
fn without_more_cnps_the_rate_recovers_and_the_control_ends() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    assert!(!run(&mut rate, at(60_000_000)), "still {}", rate.current());
    assert_eq!(rate.current(), FULL);
}

#[test]
fn bytes_count_towards_recovery_as_time_does() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    rate.sent(at(1), 1 << 20);
    assert_eq!(rate.current(), FULL / 4 * 3);
}

#[test]
fn alpha_decays_so_that_a_later_cnp_costs_less() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    assert!(run(&mut rate, at(8_000)));
    let before = rate.current();
    rate.on_cnp(at(8_001));
    // 145 updates of alpha, each by 1/256: 0.57 of it is left.
    let lost = (before - rate.current()) as f64 / before as f64;
    assert!((lost - 0.57 / 2.0).abs() < 0.01, "{lost}");
}

#[test]
fn packets_are_spaced_at_the_rate() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    assert_eq!(rate.hold(at(0)), None);
    rate.sent(at(0), 2500);
    assert_eq!(rate.hold(at(0)), Some(Time::ZERO + Duration::from_micros(1)));
    assert_eq!(rate.hold(at(1)), None);
    // An idle flow saves nothing up.
    rate.sent(at(100), 2500);
    assert_eq!(rate.hold(at(100)), Some(at(101)));
}
