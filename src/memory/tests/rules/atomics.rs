use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, thread};

use softrnic_memory::{Access, BindSpec, FlushScope, MwType, RemoteFault};

use crate::world::{ALL, PAGE, Pages, World};

fn word(pages: &Pages, offset: usize) -> u64 {
    u64::from_ne_bytes(pages.bytes(offset, 8).try_into().unwrap())
}

#[test]
fn compare_swap_and_fetch_add_return_what_was_there() {
    for extra in [Access::empty(), Access::ON_DEMAND] {
        let pages = Pages::new(1);
        let mut w = World::new();
        let key = w.reg(pages.range(), ALL | extra).rkey;
        let va = pages.va() + 16;
        assert_eq!(w.table.fetch_add(w.pd, w.qpn, key, va, 5), Ok(0));
        assert_eq!(w.table.compare_swap(w.pd, w.qpn, key, va, 4, 9), Ok(5), "no match, no store");
        assert_eq!(word(&pages, 16), 5);
        assert_eq!(w.table.compare_swap(w.pd, w.qpn, key, va, 5, u64::MAX), Ok(5));
        assert_eq!(w.table.fetch_add(w.pd, w.qpn, key, va, 2), Ok(u64::MAX), "the sum wraps");
        assert_eq!(word(&pages, 16), 1);
        assert_eq!((word(&pages, 8), word(&pages, 24)), (0, 0), "neighbours stay");
    }
}

#[test]
fn atomic_write_stores_raw_bytes() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let key = w.reg(pages.range(), ALL).rkey;
    w.table.atomic_write(w.pd, w.qpn, key, pages.va() + 8, *b"rawbytes").unwrap();
    assert_eq!(pages.bytes(0, 24), b"\0\0\0\0\0\0\0\0rawbytes\0\0\0\0\0\0\0\0");
}

#[test]
fn an_address_that_is_no_multiple_of_eight_is_misaligned() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let key = w.reg(pages.range(), ALL).rkey;
    for off in 1..8 {
        let va = pages.va() + off;
        assert_eq!(w.table.fetch_add(w.pd, w.qpn, key, va, 1), Err(RemoteFault::Misaligned));
        assert_eq!(w.table.compare_swap(w.pd, w.qpn, key, va, 0, 1), Err(RemoteFault::Misaligned));
        assert_eq!(w.table.atomic_write(w.pd, w.qpn, key, va, [1; 8]), Err(RemoteFault::Misaligned));
    }
    assert_eq!(pages.bytes(0, 32), [0; 32]);
}

#[test]
fn memory_that_is_not_aligned_where_its_addresses_are_is_misaligned() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let key = w.reg_at(pages.part(4, 64), 0x1000, ALL).rkey;
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, key, 0x1000, 1), Err(RemoteFault::Misaligned));
    let key = w.reg_at(pages.part(0, 64), 0x1004, ALL).rkey;
    assert_eq!(
        w.table.fetch_add(w.pd, w.qpn, key, 0x1004, 1),
        Err(RemoteFault::Misaligned),
        "the address decides"
    );
    assert_eq!(pages.bytes(0, 16), [0; 16]);
}

#[test]
fn atomics_need_their_right_and_stay_in_bounds() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let plain = w.reg(pages.range(), Access::LOCAL_WRITE | Access::REMOTE_WRITE).rkey;
    let atomic = w.reg(pages.part(0, 12), Access::LOCAL_WRITE | Access::REMOTE_ATOMIC).rkey;
    let va = pages.va();
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, plain, va, 1), Err(RemoteFault::Access));
    assert_eq!(w.table.atomic_write(w.pd, w.qpn, atomic, va, [0; 8]), Err(RemoteFault::Access));
    assert_eq!(w.table.atomic_write(w.pd, w.qpn, plain, va, [0; 8]), Ok(()));
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, atomic, va + 8, 1), Err(RemoteFault::Bounds));
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, atomic, va, 1), Ok(0));
}

#[test]
fn atomics_are_atomic_against_the_applications_own() {
    const ROUNDS: u64 = 500_000;
    let pages = Pages::new(1);
    let mut w = World::new();
    let key = w.reg(pages.range(), ALL).rkey;
    let addr = pages.addr();
    // Each side goes on until it has done its rounds and seen the other at work for as long.
    let (ours, theirs) = (AtomicU64::new(0), AtomicU64::new(0));
    assert_eq!(
        w.table.fetch_add(w.pd, w.qpn, key, addr as u64, 0),
        Ok(0),
        "before one side waits for the other"
    );
    let unfinished = |mine: &AtomicU64, other: &AtomicU64| {
        mine.load(Ordering::SeqCst).min(other.load(Ordering::SeqCst)) < ROUNDS
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: aligned, mapped until the scope has ended, only used with atomics.
            let word = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(addr)) };
            while unfinished(&theirs, &ours) {
                word.fetch_add(1, Ordering::SeqCst);
                theirs.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut seen = 0;
        while unfinished(&ours, &theirs) {
            w.table.fetch_add(w.pd, w.qpn, key, addr as u64, 1).unwrap();
            ours.fetch_add(1, Ordering::SeqCst);
            loop {
                let found = w.table.compare_swap(w.pd, w.qpn, key, addr as u64, seen, seen + 1).unwrap();
                if found == seen {
                    ours.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                seen = found;
            }
        }
    });
    assert_eq!(word(&pages, 0), ours.load(Ordering::SeqCst) + theirs.load(Ordering::SeqCst));
}

#[test]
fn flush_checks_the_range_or_the_region() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let key = w.reg(pages.range(), ALL).rkey;
    let flush = |scope, placement| w.table.flush(w.pd, w.qpn, key, scope, placement);
    let (va, len) = (pages.va(), PAGE as u64);
    assert_eq!(flush(FlushScope::Range { va, len }, Access::FLUSH_GLOBAL), Ok(()));
    assert_eq!(flush(FlushScope::Range { va, len: len + 1 }, Access::FLUSH_GLOBAL), Err(RemoteFault::Bounds));
    assert_eq!(flush(FlushScope::Region, Access::FLUSH_GLOBAL), Ok(()));
    assert_eq!(flush(FlushScope::Region, Access::FLUSH_PERSISTENT), Err(RemoteFault::Access));
    let both = Access::FLUSH_PERSISTENT | Access::FLUSH_GLOBAL;
    assert_eq!(flush(FlushScope::Range { va, len }, both), Err(RemoteFault::Access));
    let stale = softrnic_wire::Rkey(key.0 ^ 1);
    let refused = w.table.flush(w.pd, w.qpn, stale, FlushScope::Region, Access::FLUSH_GLOBAL);
    assert_eq!(refused, Err(RemoteFault::UnknownKey));
    let without = w.reg(pages.range(), Access::LOCAL_WRITE | Access::REMOTE_WRITE).rkey;
    let refused = w.table.flush(w.pd, w.qpn, without, FlushScope::Region, Access::FLUSH_GLOBAL);
    assert_eq!(refused, Err(RemoteFault::Access));
}

#[test]
fn flush_of_a_whole_region_by_the_key_of_a_window_needs_that_very_key() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let mr = w.reg(pages.range(), ALL).lkey;
    let mw = w.table.alloc_mw(w.pd, MwType::Type1).unwrap();
    let spec = BindSpec { mw, tag: 1, mr, addr: pages.va(), length: 8, access: Access::FLUSH_GLOBAL };
    let key = w.table.bind_mw(w.qpn, w.pd, spec).unwrap();
    let flush = |key, placement| w.table.flush(w.pd, w.qpn, key, FlushScope::Region, placement);
    assert_eq!(flush(key, Access::FLUSH_GLOBAL), Ok(()));
    assert_eq!(flush(key, Access::FLUSH_PERSISTENT), Err(RemoteFault::Access));
    let stale = softrnic_wire::Rkey(key.0 ^ 1);
    assert_eq!(flush(stale, Access::FLUSH_GLOBAL), Err(RemoteFault::UnknownKey));
}
