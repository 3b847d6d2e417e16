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

/// A rate that two CNPs have cut to a quarter, and the target that it recovers to.
fn cut_twice() -> (RateControl, u64) {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    rate.on_cnp(at(4));
    assert_eq!(rate.current(), FULL / 4);
    (rate, FULL / 2)
}

/// The next increase raises the target by `step`, and the rate by half of what is missing.
#[track_caller]
fn increases(rate: &mut RateControl, target: &mut u64, step: u64, increase: impl FnOnce(&mut RateControl)) {
    *target += step;
    let next = (rate.current() + *target).div_ceil(2);
    increase(rate);
    assert_eq!(rate.current(), next);
}

/// Runs the timers until the rate increases, 300 µs after the last time.
fn time_passes(rate: &mut RateControl) {
    let before = rate.current();
    while rate.current() == before {
        assert!(rate.on_timer(rate.next_timer()));
    }
}

#[test]
fn beyond_recovery_the_rate_grows_in_steps_and_faster_when_both_time_and_bytes_have_passed() {
    let RateParameters { rpg_ai_rate, rpg_hai_rate, rpg_byte_reset, rpg_threshold, .. } = Default::default();
    let (mut rate, mut target) = cut_twice();
    let bytes_pass = |rate: &mut RateControl| rate.sent(at(0), rpg_byte_reset);
    for _ in 0..rpg_threshold {
        increases(&mut rate, &mut target, 0, time_passes);
    }
    for _ in 0..2 {
        increases(&mut rate, &mut target, rpg_ai_rate, time_passes);
    }
    for _ in 0..rpg_threshold {
        increases(&mut rate, &mut target, rpg_ai_rate, bytes_pass);
    }
    increases(&mut rate, &mut target, rpg_hai_rate, bytes_pass);
    increases(&mut rate, &mut target, 2 * rpg_hai_rate, bytes_pass);
    increases(&mut rate, &mut target, 2 * rpg_hai_rate, time_passes);
    increases(&mut rate, &mut target, 3 * rpg_hai_rate, bytes_pass);
}

#[test]
fn bytes_are_counted_until_an_increase_and_from_then_on_anew() {
    let (mut rate, mut target) = cut_twice();
    let before = rate.current();
    rate.sent(at(4), (1 << 20) - 1);
    assert_eq!(rate.current(), before);
    increases(&mut rate, &mut target, 0, |rate| rate.sent(at(4), 1));
    let before = rate.current();
    rate.sent(at(4), (1 << 20) - 1);
    assert_eq!(rate.current(), before);
}

#[test]
fn a_cnp_that_came_too_soon_to_cut_the_rate_keeps_alpha_up() {
    let parameters = RateParameters { dce_tcp_g: 1, ..Default::default() };
    for (again, cut) in [(true, 2), (false, 4)] {
        let mut rate = RateControl::new(parameters, at(0));
        if again {
            rate.on_cnp(at(1));
        }
        assert!(rate.on_timer(at(55)), "alpha is updated, to one or to a half");
        rate.on_cnp(at(56));
        assert_eq!(rate.current(), FULL / 2 - FULL / 2 / cut);
    }
}

#[test]
fn a_burst_of_cnps_keeps_the_rate_to_recover_to() {
    let mut rate = RateControl::new(RateParameters::keeping_target(), at(0));
    (1..10).for_each(|number| rate.on_cnp(at(4 * number)));
    let before = rate.current();
    assert!(before < FULL / 500);
    time_passes(&mut rate);
    assert_eq!(rate.current(), (before + FULL).div_ceil(2));
}

#[test]
fn a_cnp_after_an_increase_by_time_makes_the_present_rate_the_one_to_recover_to() {
    let mut rate = RateControl::new(RateParameters::keeping_target(), at(0));
    time_passes(&mut rate);
    let reached = rate.current();
    assert_eq!(reached, FULL / 4 * 3);
    rate.on_cnp(at(310));
    let before = rate.current();
    time_passes(&mut rate);
    assert_eq!(rate.current(), (before + reached).div_ceil(2));
}

#[test]
fn an_increase_by_bytes_alone_keeps_the_rate_to_recover_to() {
    let mut rate = RateControl::new(RateParameters::keeping_target(), at(0));
    rate.sent(at(1), 1 << 20);
    rate.on_cnp(at(10));
    let before = rate.current();
    time_passes(&mut rate);
    assert_eq!(rate.current(), (before + FULL).div_ceil(2));
}

#[test]
fn each_cut_raises_alpha() {
    let parameters = RateParameters { dce_tcp_g: 1, ..Default::default() };
    let mut rate = RateControl::new(parameters, at(0));
    assert!(rate.on_timer(at(55)));
    rate.on_cnp(at(56));
    let before = rate.current();
    assert_eq!(before, FULL / 8 * 3, "alpha was a half");
    rate.on_cnp(at(60));
    assert_eq!(rate.current(), before - before / 2 / 4 * 3, "and has become three quarters");
}

#[test]
fn a_cut_starts_both_timers_anew() {
    let mut rate = RateControl::new(RateParameters::default(), at(0));
    assert_eq!(rate.next_timer(), at(0) + Duration::from_micros(55));
    rate.on_cnp(at(40));
    assert_eq!(rate.next_timer(), at(95));
    assert!(rate.on_timer(at(95)));
    assert_eq!(rate.next_timer(), at(150));
    for due in [150, 205, 260, 315] {
        assert_eq!(rate.next_timer(), at(due));
        assert!(rate.on_timer(at(due)));
    }
    assert_eq!(rate.next_timer(), at(340), "the first increase");
}
