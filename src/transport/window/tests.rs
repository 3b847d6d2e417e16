use softrnic_wire::Time;

use super::{Window, WindowConfig};
use crate::tuning::{CUT_INTERVAL, LINEAR_STEP, LOSSES_REMEMBERED, RARE_LOSS};

const CONFIG: WindowConfig = WindowConfig { initial: 100_000, min: 9_000, max: 1_000_000 };
const START: Time = Time::from_nanos(1_000_000);

/// A window with so much in flight.
fn with_in_flight(bytes: u64) -> Window {
    let mut window = Window::new(CONFIG);
    window.charge(bytes);
    window
}

#[test]
fn it_is_open_until_its_limit_is_in_flight() {
    assert!(with_in_flight(CONFIG.initial - 1).is_open());
    assert!(!with_in_flight(CONFIG.initial).is_open());
}

#[test]
fn the_reserve_is_as_large_as_the_window() {
    assert!(with_in_flight(0).has_reserve());
    assert!(with_in_flight(2 * CONFIG.initial - 1).has_reserve());
    assert!(!with_in_flight(2 * CONFIG.initial).has_reserve());
    assert!(!with_in_flight(2 * CONFIG.initial + 1).has_reserve());
}

#[test]
fn the_window_says_whether_the_next_packet_closes_it() {
    let window = with_in_flight(90_000);
    assert!(window.stays_open_after(9_999));
    assert!(!window.stays_open_after(10_000));
}

#[test]
fn before_a_loss_it_grows_by_all_that_is_acknowledged() {
    let mut window = with_in_flight(CONFIG.initial);
    window.on_progress(START, 30_000);
    assert_eq!((window.limit(), window.in_flight()), (130_000, 70_000));
}

#[test]
fn it_grows_only_while_at_least_half_of_it_is_used() {
    let mut window = with_in_flight(CONFIG.initial / 2 - 1);
    window.on_progress(START, 1_000);
    assert_eq!(window.limit(), CONFIG.initial);
    let mut window = with_in_flight(CONFIG.initial / 2);
    window.on_progress(START, 1_000);
    assert_eq!(window.limit(), CONFIG.initial + 1_000);
}

#[test]
fn it_never_grows_above_its_maximum() {
    let mut window = with_in_flight(CONFIG.max);
    window.on_progress(START, CONFIG.max);
    assert_eq!(window.limit(), CONFIG.max);
}

#[test]
fn a_loss_takes_three_tenths_of_it() {
    let mut window = with_in_flight(CONFIG.initial);
    window.on_loss(START);
    assert_eq!(window.limit(), 70_000);
}

#[test]
fn after_a_loss_it_grows_by_one_step_per_round_trip() {
    let mut window = with_in_flight(CONFIG.initial);
    window.on_loss(START);
    window.on_progress(START, 70_000);
    assert_eq!(window.limit(), 70_000 + LINEAR_STEP, "a whole window was acknowledged");
    let mut window = with_in_flight(CONFIG.initial);
    window.on_loss(START);
    window.on_progress(START, 35_000);
    assert_eq!(window.limit(), 70_000 + LINEAR_STEP / 2, "half a window");
    let mut window = with_in_flight(CONFIG.initial);
    window.on_loss(START);
    window.on_progress(START, 1);
    assert_eq!(window.limit(), 70_001, "never by nothing");
}

#[test]
fn losses_of_one_event_cut_it_once() {
    let mut window = with_in_flight(CONFIG.initial);
    window.on_loss(START);
    window.on_loss(START.after_nanos(CUT_INTERVAL.as_nanos() as u64 - 1));
    assert_eq!(window.limit(), 70_000);
    window.on_loss(START + CUT_INTERVAL);
    assert_eq!(window.limit(), 49_000);
    window.on_loss(START + 3 * CUT_INTERVAL);
    assert_eq!(window.limit(), 34_300, "later is another event as well");
}

#[test]
fn it_never_shrinks_below_its_minimum() {
    let mut window = with_in_flight(0);
    for event in 0..100 {
        window.on_loss(START + event * CUT_INTERVAL);
    }
    assert_eq!(window.limit(), CONFIG.min);
}

#[test]
fn progress_is_what_the_peer_acknowledged_after_a_time() {
    let mut window = with_in_flight(2);
    window.on_progress(START, 1);
    assert!(window.progressed_after(Time::ZERO));
    assert!(!window.progressed_after(START), "what came then was under way before");
    assert!(!window.progressed_after(START + CUT_INTERVAL));
}

/// A window of the maximum, of which so much was acknowledged.
fn after_acknowledged(bytes: u64) -> Window {
    let mut window = with_in_flight(bytes);
    window.on_progress(START, bytes);
    window
}

#[test]
fn a_rare_gap_leaves_the_initial_window() {
    let mut window = after_acknowledged(RARE_LOSS * 4096);
    window.on_gap(START, 4096);
    assert_eq!(window.limit(), (CONFIG.initial + RARE_LOSS * 4096) * 7 / 10, "what it has grown by is cut");
    for event in 1..10 {
        window.on_progress(START, RARE_LOSS * 4096);
        window.on_gap(START + event * CUT_INTERVAL, 4096);
    }
    assert_eq!(window.limit(), CONFIG.initial);
    window.on_loss(START + 10 * CUT_INTERVAL);
    assert_eq!(window.limit(), CONFIG.initial * 7 / 10, "silence is more than a gap");
    window.on_progress(START, RARE_LOSS * 4096);
    window.on_gap(START + 11 * CUT_INTERVAL, 4096);
    assert_eq!(window.limit(), CONFIG.initial * 7 / 10, "a gap does not enlarge it");
}

#[test]
fn gaps_that_are_not_rare_cut_it_as_any_loss_does() {
    let mut window = after_acknowledged(RARE_LOSS * 4096 - 1);
    for event in 0..100 {
        window.on_gap(START + event * CUT_INTERVAL, 4096);
    }
    assert_eq!(window.limit(), CONFIG.min);
    let mut within_one_event = after_acknowledged(RARE_LOSS * 4096);
    within_one_event.on_gap(START, 1);
    within_one_event.on_gap(START, 4096);
    within_one_event.on_progress(START, 1);
    within_one_event.on_gap(START + CUT_INTERVAL, 1);
    assert!(
        within_one_event.missing * RARE_LOSS > within_one_event.acknowledged,
        "each counts, whether it cuts or not"
    );
}

#[test]
fn what_was_acknowledged_long_ago_is_forgotten() {
    let mut window = after_acknowledged(LOSSES_REMEMBERED - 1);
    window.on_gap(START, 4096);
    assert_eq!((window.acknowledged, window.missing), (LOSSES_REMEMBERED - 1, 4096));
    window.on_progress(START, 1);
    assert_eq!((window.acknowledged, window.missing), (LOSSES_REMEMBERED / 2, 2048));
}
