use std::vec::Vec;

use softrnic_wire::{Psn, Time};

use super::{NO_PATH, Paths, Verdict};
use crate::path::Path;
use crate::testing::context;
use crate::tuning::{FULL_SHARE, LEAST_SHARE, LOSSES_TO_LEAVE, MIN_PATH_REST, REPEATS_TO_LEAVE, SHARE_STEP};

const COUNT: u8 = 4;

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

fn psn(number: u32) -> Psn {
    Psn::new(number)
}

/// Sends packets from `first` on, and returns their paths.
fn send(paths: &mut Paths, now: Time, first: u32, count: u32) -> Vec<u8> {
    let numbers = first..first + count;
    numbers
        .map(|number| {
            let path = paths.choose(now);
            paths.note_sent(now, psn(number), path);
            path
        })
        .collect()
}

/// A path loses so many packets in a row that it is left.
fn lose(paths: &mut Paths, now: Time, path: u8) {
    for number in 0..LOSSES_TO_LEAVE {
        let expected = if number + 1 == LOSSES_TO_LEAVE { Verdict::Left } else { Verdict::Kept };
        assert_eq!(paths.note_lost(now, path), expected, "loss {number}");
    }
}

fn ports(paths: &Paths) -> Vec<u16> {
    let base = Path { sport: 0xC123, ..context().attr.path };
    (0..COUNT).map(|path| paths.of(&base, path).sport).collect()
}

#[test]
fn packets_take_all_paths_in_turn() {
    let mut paths = Paths::new(COUNT);
    assert_eq!(send(&mut paths, at(0), 0, 8), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(ports(&paths), [0xC123, 0xC122, 0xC121, 0xC120], "the first is that of the connection");
}

#[test]
fn the_path_with_the_least_under_way_is_next() {
    let mut paths = Paths::new(COUNT);
    send(&mut paths, at(0), 0, 8);
    for number in [2, 6] {
        paths.note_arrived(at(1), psn(number), 2);
    }
    assert_eq!(send(&mut paths, at(1), 8, 2), [2, 2]);
}

#[test]
fn a_path_that_is_marked_gets_less_until_most_are() {
    let mut paths = Paths::new(COUNT);
    for _ in 0..8 {
        assert!(!paths.note_marked(0xC123, 0xC122), "it is one of four");
    }
    let taken = send(&mut paths, at(0), 0, 100);
    let of = |path| taken.iter().filter(|taken| **taken == path).count();
    assert!(4 * of(1) < of(0), "{} and {}", of(1), of(0));
    assert!(!paths.note_marked(0xC123, 0xC121));
    assert!(paths.note_marked(0xC123, 0xC120), "three of four");
    assert!(!paths.note_marked(0xC123, 0xC120), "it has been said");
}

#[test]
fn a_mark_on_a_port_that_is_none_of_its_own_counts_for_all() {
    assert!(Paths::new(COUNT).note_marked(0xC123, 0));
    assert!(Paths::new(COUNT).note_marked(0xC123, 0xC123 ^ u16::from(COUNT)));
}

#[test]
fn what_was_lost_takes_another_path() {
    let mut paths = Paths::new(2);
    paths.note_sent(at(0), psn(0), 0);
    paths.note_sent(at(0), psn(1), 1);
    paths.note_lost(at(1), 0);
    assert_eq!(paths.choose(at(1)), 0, "which has nothing under way");
    assert_eq!(paths.choose_other_than(0), 1);
    assert_eq!(Paths::new(1).choose_other_than(0), 0, "there is no other");
}

#[test]
fn a_path_that_loses_is_left_and_tried_by_one_packet_later() {
    let mut paths = Paths::new(COUNT);
    send(&mut paths, at(0), 0, 16);
    let before = ports(&paths);
    lose(&mut paths, at(10), 1);
    assert_eq!(ports(&paths)[1], before[1] ^ 16, "the next time from another port");
    assert!(!send(&mut paths, at(10), 16, 30).contains(&1));
    let back = at(10) + MIN_PATH_REST;
    assert_eq!(send(&mut paths, back, 46, 3).iter().filter(|path| **path == 1).count(), 1, "one packet");
    assert!(paths.note_arrived(back, psn(46), 1), "it is used again");
    assert!(send(&mut paths, back, 49, 30).contains(&1));
}

#[test]
fn a_path_that_fails_again_is_left_for_twice_as_long() {
    let mut paths = Paths::new(2);
    send(&mut paths, at(0), 0, 8);
    lose(&mut paths, at(0), 1);
    let mut now = at(0);
    let mut rest = MIN_PATH_REST;
    for number in 0..4 {
        assert_eq!(send(&mut paths, now.after_nanos(rest.as_nanos() as u64 - 1), 100 + 2 * number, 1), [0]);
        now += rest;
        assert_eq!(send(&mut paths, now, 101 + 2 * number, 1), [1], "{rest:?}");
        assert_eq!(paths.note_lost(now, 1), Verdict::Kept, "it was left before");
        rest *= 2;
    }
}

#[test]
fn the_last_path_is_never_left() {
    let mut paths = Paths::new(2);
    send(&mut paths, at(0), 0, 40);
    lose(&mut paths, at(0), 0);
    for _ in 0..20 {
        assert_eq!(paths.note_lost(at(0), 1), Verdict::Kept);
    }
    assert_eq!(send(&mut paths, at(0), 40, 1), [1]);
}

#[test]
fn a_path_is_silent_if_later_packets_have_come_by_others() {
    let mut paths = Paths::new(2);
    paths.note_sent(at(0), psn(0), 0);
    paths.note_sent(at(0), psn(1), 1);
    paths.note_arrived(at(5), psn(1), 1);
    assert_eq!(paths.take_silent(at(5), 20_000).count(), 0, "it was sent at the same time");
    paths.note_sent(at(19), psn(2), 1);
    paths.note_arrived(at(24), psn(2), 1);
    assert_eq!(paths.take_silent(at(24), 20_000).count(), 0, "1 µs too soon");
    paths.note_sent(at(20), psn(3), 1);
    paths.note_arrived(at(25), psn(3), 1);
    assert_eq!(paths.take_silent(at(25), 20_000).collect::<Vec<_>>(), [0]);
    assert_eq!(paths.take_silent(at(25), 20_000).count(), 0, "its wait begins anew");
}

#[test]
fn a_path_of_which_responses_are_asked_for_again_is_left() {
    let mut paths = Paths::new(COUNT);
    let taken: Vec<u8> = (0..64).map(|number| paths.for_response(at(0), psn(number))).collect();
    assert_eq!(taken[..5], [0, 1, 2, 3, 0]);
    let of_one = (0..64).filter(|number| taken[*number as usize] == 1);
    let verdicts: Vec<Verdict> = of_one.map(|number| paths.note_repeated(at(1), psn(number))).collect();
    let left = verdicts.iter().position(|verdict| *verdict == Verdict::Left);
    assert_eq!(left, Some(usize::from(REPEATS_TO_LEAVE) - 1));
    assert!((0..16).all(|number| paths.for_response(at(2), psn(64 + number)) != 1));
    let back = at(1) + MIN_PATH_REST;
    assert!((0..4).any(|number| paths.for_response(back, psn(80 + number)) == 1), "it is used again");
}

#[test]
fn responses_that_are_missing_everywhere_leave_no_path() {
    let mut paths = Paths::new(COUNT);
    for number in 0..400 {
        paths.for_response(at(0), psn(number));
        assert_eq!(paths.note_repeated(at(0), psn(number)), Verdict::Kept);
    }
}

#[test]
fn what_is_not_judged_is_under_way_nowhere() {
    let mut paths = Paths::new(2);
    paths.note_sent(at(0), psn(0), NO_PATH);
    assert_eq!(paths.note_lost(at(1), NO_PATH), Verdict::Kept);
    assert!(!paths.note_arrived(at(1), psn(0), NO_PATH));
    assert_eq!(send(&mut paths, at(1), 1, 2).len(), 2);
}

/// How many of a hundred packets take path 1 of two.
fn taken_by_one(mut paths: Paths) -> usize {
    send(&mut paths, at(0), 0, 100).iter().filter(|path| **path == 1).count()
}

#[test]
fn one_mark_takes_a_quarter_and_packets_that_come_give_it_back() {
    let mut paths = Paths::new(2);
    assert!(!paths.note_marked(0xC123, 0xC122), "one of two");
    assert!((40..48).contains(&taken_by_one(paths)));
    let mut paths = Paths::new(2);
    for _ in 0..20 {
        paths.note_marked(0xC123, 0xC122);
    }
    assert_eq!(send(&mut paths, at(0), 0, 1), [0]);
    assert_eq!(send(&mut paths, at(0), 1, 1), [0], "one of its few would be more");
    paths.note_arrived(at(0), psn(1), 1);
    let few = taken_by_one(paths);
    assert!(few < 15, "{few}");
    let mut paths = Paths::new(2);
    for _ in 0..20 {
        paths.note_marked(0xC123, 0xC122);
    }
    for _ in 0..(FULL_SHARE - LEAST_SHARE) / SHARE_STEP {
        paths.note_arrived(at(0), psn(1), 1);
    }
    assert_eq!(taken_by_one(paths), 50);
}

#[test]
fn a_path_that_is_marked_comes_second_with_nothing_under_way() {
    let mut paths = Paths::new(2);
    for _ in 0..20 {
        paths.note_marked(0xC123, 0xC123);
    }
    assert_eq!(send(&mut paths, at(0), 0, 1), [1]);
}

#[test]
fn a_path_that_has_lost_something_gets_less() {
    let mut paths = Paths::new(2);
    for _ in 1..LOSSES_TO_LEAVE {
        paths.note_lost(at(0), 1);
    }
    assert!((30..43).contains(&taken_by_one(paths)));
}

#[test]
fn a_path_is_tried_only_while_something_is_under_way_on_others() {
    let mut paths = Paths::new(2);
    lose(&mut paths, at(0), 1);
    assert_eq!(send(&mut paths, at(0) + MIN_PATH_REST, 0, 3), [0, 1, 0]);
}

#[test]
fn where_no_path_is_left_to_choose_the_turn_decides() {
    for (last, next) in [(0, 1), (1, 0)] {
        let mut paths = Paths::new(2);
        lose(&mut paths, at(0), 0);
        paths.note_sent(at(0), psn(0), last);
        assert_eq!(paths.choose_other_than(1), next);
        paths.note_unjudged(last);
        assert_eq!(paths.choose_other_than(1), next);
    }
}

#[test]
fn a_path_waits_since_its_first_packet_under_way() {
    let mut paths = Paths::new(COUNT);
    let other = |paths: &mut Paths, now, number| {
        paths.note_sent(now, psn(number), 0);
        paths.note_arrived(now, psn(number), 0);
    };
    paths.note_sent(at(100), psn(1), 2);
    other(&mut paths, at(110), 2);
    assert_eq!(paths.take_silent(at(110), 20_000).count(), 0, "idle before");
    paths.note_sent(at(115), psn(3), 2);
    other(&mut paths, at(120), 4);
    assert_eq!(paths.take_silent(at(120), 20_000).collect::<Vec<_>>(), [2], "and no other, which are idle");
}

#[test]
fn all_paths_go_on_from_other_ports() {
    let mut paths = Paths::new(COUNT);
    let before = ports(&paths);
    paths.take_other_ports();
    assert_eq!(ports(&paths), before.iter().map(|port| port ^ 16).collect::<Vec<_>>());
    assert_eq!(paths.count(), COUNT);
}

#[test]
fn what_is_forgotten_is_under_way_no_longer() {
    let mut paths = Paths::new(2);
    send(&mut paths, at(0), 0, 4);
    paths.forget_one(0);
    paths.forget_one(0);
    assert_eq!(send(&mut paths, at(0), 4, 2), [0, 0]);
    paths.forget_flight();
    paths.note_sent(at(0), psn(6), 0);
    paths.note_sent(at(0), psn(7), 0);
    paths.forget_flight();
    assert_eq!(send(&mut paths, at(0), 8, 2), [1, 0]);
}

#[test]
fn a_trial_of_which_nothing_is_known_when_the_queue_pair_goes_back_has_failed() {
    let mut paths = Paths::new(2);
    lose(&mut paths, at(0), 1);
    paths.forget_flight();
    let back = at(0) + MIN_PATH_REST;
    assert_eq!(send(&mut paths, back, 0, 2), [0, 1], "nothing was tried before");
    paths.forget_flight();
    let rest = 2 * MIN_PATH_REST.as_nanos() as u64;
    assert_eq!(send(&mut paths, back.after_nanos(rest - 1), 2, 3), [0, 0, 0]);
    assert_eq!(send(&mut paths, back.after_nanos(rest), 5, 1), [1]);
}

#[test]
fn a_path_is_left_if_more_than_its_share_is_asked_for_again() {
    for of_other in 0..4 {
        let mut paths = Paths::new(2);
        assert!((0..64).all(|number| paths.for_response(at(0), psn(number)) == number as u8 % 2));
        for _ in 0..of_other {
            assert_eq!(paths.note_repeated(at(1), psn(0)), Verdict::Kept);
        }
        for _ in 1..REPEATS_TO_LEAVE {
            assert_eq!(paths.note_repeated(at(1), psn(1)), Verdict::Kept);
        }
        let expected = if of_other < 3 { Verdict::Left } else { Verdict::Kept };
        assert_eq!(paths.note_repeated(at(1), psn(1)), expected, "{of_other}");
    }
}

#[test]
fn what_was_asked_for_again_long_ago_counts_half() {
    let mut paths = Paths::new(2);
    assert!((0..64).all(|number| paths.for_response(at(0), psn(number)) == number as u8 % 2));
    for number in 0..66 {
        assert_eq!(paths.note_repeated(at(1), psn(number % 2)), Verdict::Kept);
    }
    for _ in 0..10 {
        assert_eq!(paths.note_repeated(at(1), psn(1)), Verdict::Kept);
    }
}
