use std::vec::Vec;

use softrnic_wire::{Psn, Time};

use super::{NO_PATH, Paths, Verdict};
use crate::path::Path;
use crate::testing::context;
use crate::tuning::{LOSSES_TO_LEAVE, MIN_PATH_REST, REPEATS_TO_LEAVE};

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
    assert_ne!(ports(&paths)[1], before[1], "the next time from another port");
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
