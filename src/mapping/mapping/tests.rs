use super::*;
use crate::testing::Hole;
use crate::{Registered, registered};

const LEN: usize = 260 << 10;

fn addresses(mapping: &Mapping) -> Range<usize> {
    let start = mapping.base().as_ptr().addr();
    start..start + mapping.len()
}

#[test]
fn nothing_is_mapped_where_memory_was_registered() {
    let hole = Hole::of(LEN);
    let mappings: Vec<Mapping> = (0..16).map(|_| Mapping::anonymous(LEN).expect("memory")).collect();
    for mapping in &mappings {
        assert!(!hole.has(addresses(mapping).start, LEN), "{:x?} in {:x?}", addresses(mapping), hole.range);
        // SAFETY: mapped for reading and writing, and used by nobody else.
        unsafe { ptr::write_bytes(mapping.base().as_ptr(), 0xa5, LEN) };
    }
}

#[test]
fn mappings_keep_clear_of_many_holes() {
    let holes: Vec<Hole> = (0..32).map(|_| Hole::of(LEN)).collect();
    let mappings: Vec<Mapping> = (0..64).map(|_| Mapping::anonymous(LEN).expect("memory")).collect();
    let clear = |mapping: &Mapping| holes.iter().all(|hole| !hole.has(addresses(mapping).start, LEN));
    assert!(mappings.iter().all(clear));
}

#[test]
fn what_was_reserved_to_choose_from_is_given_back() {
    let hole = Hole::of(LEN);
    let before = maps();
    for _ in 0..2000 {
        drop(Mapping::anonymous(LEN).expect("memory"));
    }
    // Other tests may map something meanwhile.
    assert!(maps() < before + 1000, "{} mappings, {before} before", maps());
    drop(hole);
}

fn maps() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("the list of mappings").lines().count()
}

#[test]
fn a_hole_may_be_used_once_it_is_registered_no_longer() {
    let nobody = 1 << 59;
    let registered = Registered::new(nobody, 100);
    assert_eq!(registered::length_within(nobody..nobody + 1), Some(100));
    drop(registered);
    assert_eq!(registered::length_within(nobody..nobody + 1), None);
}

#[test]
fn gaps_lie_between_what_is_registered() {
    // Addresses of nobody: the kernel's half.
    let base = 1 << 60;
    let _first = Registered::new(base + 10, 90);
    let _inside = Registered::new(base + 20, 10);
    let _second = Registered::new(base + 200, 50);
    assert_eq!(registered::gap(base..base + 1000, 10, 1), Some(base));
    assert_eq!(registered::gap(base..base + 1000, 11, 1), Some(base + 100));
    assert_eq!(registered::gap(base..base + 1000, 100, 1), Some(base + 100));
    assert_eq!(registered::gap(base..base + 1000, 101, 1), Some(base + 250));
    assert_eq!(registered::gap(base..base + 1000, 750, 1), Some(base + 250));
    assert_eq!(registered::gap(base..base + 1000, 751, 1), None);
    assert_eq!(registered::gap(base + 30..base + 120, 20, 1), Some(base + 100));
    assert_eq!(registered::gap(base + 30..base + 120, 21, 1), None);
    assert_eq!(registered::length_within(base + 100..base + 200), None);
    assert_eq!(registered::length_within(base + 99..base + 200), Some(90));
    assert_eq!(registered::length_within(base + 100..base + 201), Some(50));
}

#[test]
fn ranges_that_no_mapping_could_avoid_are_not_in_the_list() {
    for (addr, length) in [(0, u64::MAX), (1 << 61, 1 << 47), (1 << 61, 0), (usize::MAX, 2)] {
        let _registered = Registered::new(addr, length);
        assert_eq!(registered::length_within(1 << 61..usize::MAX), None, "{length} at {addr}");
    }
}

#[test]
fn a_child_has_a_list_of_its_own() {
    let hole = Hole::of(LEN);
    // SAFETY: the child calls nothing but what is tested and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inherited = registered::length_within(hole.range.clone());
        let own = Registered::new(hole.range.start, 10);
        let found = registered::length_within(hole.range.clone());
        let right = (inherited, found) == (None, Some(10));
        drop((hole, own));
        // SAFETY: ends the child without anything of the parent's.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: `status` lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(registered::length_within(hole.range.clone()), Some(hole.range.len()));
}
