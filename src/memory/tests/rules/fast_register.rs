use softrnic_memory::{
    Access, AppRange, BindSpec, InvalidateError, Lkey, LocalFault, MemoryError, MrKeys, MwType,
    PreparedPages, RegionState, RemoteFault,
};
use softrnic_wire::Rkey;

use crate::world::{ALL, PAGE, Pages, World, sge};

const IOVA: u64 = 0x7000_0000;

/// A valid fast-register region over pages 2 and 0, in that order.
fn swapped(w: &mut World, pages: &Pages) -> MrKeys {
    let keys = w.table.alloc_mr(w.pd, 8).unwrap();
    let ranges = [pages.part(2 * PAGE, PAGE), pages.part(0, PAGE)];
    map(w, keys.lkey, &ranges, PAGE as u64, IOVA).unwrap();
    w.table.fast_register(w.pd, keys.lkey, keys.lkey.0 ^ 0xff, ALL).unwrap()
}

fn map(w: &mut World, lkey: Lkey, ranges: &[AppRange], page_size: u64, iova: u64) -> Result<(), MemoryError> {
    w.table.map_pages(lkey, &PreparedPages::new(ranges)?, page_size, iova)
}

#[test]
fn a_free_region_gives_access_to_nobody() {
    let mut w = World::new();
    let keys = w.table.alloc_mr(w.pd, 8).unwrap();
    assert_eq!(w.table.region(keys.lkey).unwrap().state, RegionState::Free);
    let check = w.table.check_remote(w.pd, w.qpn, keys.rkey, 0, 0, Access::REMOTE_READ);
    assert_eq!(check, Err(RemoteFault::State));
    assert_eq!(w.table.check_local(w.pd, &sge(0, 1, keys.lkey), false), Err(LocalFault::State));
}

#[test]
fn scattered_pages_look_like_one_range() {
    let pages = Pages::new(3);
    let mut w = World::new();
    let keys = swapped(&mut w, &pages);
    let text: Vec<u8> = (0..200).collect();
    let va = IOVA + PAGE as u64 - 100;
    w.table.write_remote(w.pd, w.qpn, keys.rkey, va, &text).unwrap();
    assert_eq!(pages.bytes(3 * PAGE - 100, 100), text[..100]);
    assert_eq!(pages.bytes(0, 100), text[100..]);
    let mut back = [0; 200];
    w.table.gather(w.pd, &[sge(va, 200, keys.lkey)], 0, &mut back).unwrap();
    assert_eq!(back[..], text);
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, IOVA + PAGE as u64 + 8, 0).map(|_| ()), Ok(()));
    let past = w.table.check_remote(w.pd, w.qpn, keys.rkey, IOVA, 2 * PAGE as u64 + 1, Access::REMOTE_READ);
    assert_eq!(past, Err(RemoteFault::Bounds));
}

#[test]
fn fast_registration_changes_only_the_tag_of_the_key() {
    let pages = Pages::new(3);
    let mut w = World::new();
    let first = w.table.alloc_mr(w.pd, 8).unwrap();
    map(&mut w, first.lkey, &[pages.range()], PAGE as u64, pages.va()).unwrap();
    let foreign = w.table.fast_register(w.pd, first.lkey, first.lkey.0 ^ 0x100, ALL);
    assert_eq!(foreign, Err(MemoryError::InvalidState));
    let second = w.table.fast_register(w.pd, first.lkey, first.lkey.0 ^ 0x5a, ALL).unwrap();
    assert_eq!(second.lkey.0, first.lkey.0 ^ 0x5a);
    let check = |rkey| w.table.check_remote(w.pd, w.qpn, rkey, pages.va(), 1, Access::REMOTE_READ);
    assert_eq!((check(second.rkey), check(first.rkey)), (Ok(()), Err(RemoteFault::UnknownKey)));
}

#[test]
fn fast_registration_needs_pages_and_a_free_region_of_the_domain() {
    let pages = Pages::new(3);
    let mut w = World::new();
    let other = w.table.alloc_pd().unwrap();
    let keys = w.table.alloc_mr(w.pd, 8).unwrap();
    let own = w.pd;
    let register = |w: &mut World, pd, access| w.table.fast_register(pd, keys.lkey, keys.lkey.0, access);
    assert_eq!(register(&mut w, own, ALL), Err(MemoryError::InvalidState), "no pages");
    map(&mut w, keys.lkey, &[pages.range()], PAGE as u64, pages.va()).unwrap();
    assert_eq!(register(&mut w, other, ALL), Err(MemoryError::InvalidState), "other domain");
    assert_eq!(register(&mut w, own, Access::REMOTE_WRITE), Err(MemoryError::InvalidAccess));
    assert_eq!(register(&mut w, own, ALL), Ok(keys));
    assert_eq!(register(&mut w, own, ALL), Err(MemoryError::InvalidState), "valid already");
    let remap = map(&mut w, keys.lkey, &[pages.range()], PAGE as u64, 0);
    assert_eq!(remap, Err(MemoryError::InvalidState));
    let ordinary = w.reg(pages.range(), ALL);
    let wrong_kind = w.table.fast_register(w.pd, ordinary.lkey, ordinary.lkey.0, ALL);
    assert_eq!(wrong_kind, Err(MemoryError::InvalidState));
}

#[test]
fn page_lists_that_leave_gaps_or_are_too_long_are_refused() {
    let pages = Pages::new(4);
    let mut w = World::new();
    let keys = w.table.alloc_mr(w.pd, 2).unwrap();
    let page = PAGE as u64;
    let cases: [(&[_], u64, u64, MemoryError); 11] = [
        (&[pages.part(0, PAGE), pages.part(0, 2 * PAGE)], page, 0, MemoryError::InvalidArgument),
        (&[], page, 0, MemoryError::InvalidArgument),
        (&[pages.range()], page, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, 0)], page, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, 100), pages.part(PAGE, 100)], page, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, PAGE), pages.part(PAGE + 8, 100)], page, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, PAGE)], 3000, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, 1024)], 1024, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, PAGE)], 3 * page, 0, MemoryError::InvalidArgument),
        (&[pages.part(0, PAGE)], page, 8, MemoryError::InvalidArgument),
        (&[pages.part(0, PAGE)], page, u64::MAX - page + 1, MemoryError::InvalidArgument),
    ];
    for (ranges, page_size, iova, error) in cases {
        assert_eq!(map(&mut w, keys.lkey, &[pages.part(0, PAGE)], page, 0), Ok(()));
        assert_eq!(map(&mut w, keys.lkey, ranges, page_size, iova), Err(error), "{ranges:?}");
        let register = w.table.fast_register(w.pd, keys.lkey, keys.lkey.0, ALL);
        assert_eq!(register, Err(MemoryError::InvalidState), "a refused list leaves nothing to register");
    }
    let gone = Pages::new(1);
    gone.unmap(0, 1);
    assert_eq!(map(&mut w, keys.lkey, &[gone.part(0, PAGE)], page, 0), Err(MemoryError::BadAddress));
    assert_eq!(map(&mut w, keys.lkey, &[pages.part(8, PAGE)], page, 8), Ok(()));
    assert_eq!(w.table.alloc_mr(w.pd, 0), Err(MemoryError::InvalidArgument));
    assert_eq!(w.table.alloc_mr(w.pd, 513), Err(MemoryError::InvalidArgument));
}

#[test]
fn invalidation_makes_a_region_free_and_ready_for_another_round() {
    for remote in [false, true] {
        let pages = Pages::new(3);
        let mut w = World::new();
        let keys = swapped(&mut w, &pages);
        assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, remote), Ok(()));
        let check = w.table.check_remote(w.pd, w.qpn, keys.rkey, IOVA, 1, Access::REMOTE_READ);
        assert_eq!(check, Err(RemoteFault::State));
        assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, remote), Ok(()), "once more does no harm");
        let again = w.table.fast_register(w.pd, keys.lkey, keys.lkey.0 ^ 3, ALL).unwrap();
        assert_eq!(w.table.write_remote(w.pd, w.qpn, again.rkey, IOVA, b"x"), Ok(()));
    }
}

#[test]
fn invalidation_has_its_rules() {
    let pages = Pages::new(3);
    let mut w = World::new();
    let other = w.table.alloc_pd().unwrap();
    let keys = swapped(&mut w, &pages);
    let ordinary = w.reg(pages.range(), ALL);
    let unknown = Rkey(keys.rkey.0 ^ 1);
    assert_eq!(w.table.invalidate(w.qpn, w.pd, unknown, true), Err(InvalidateError::UnknownKey));
    assert_eq!(w.table.invalidate(w.qpn, w.pd, ordinary.rkey, true), Err(InvalidateError::WrongKind));
    assert_eq!(w.table.invalidate(w.qpn, other, keys.rkey, true), Err(InvalidateError::WrongPd));

    let mw = w.table.alloc_mw(w.pd, MwType::Type2).unwrap();
    let access = Access::REMOTE_READ;
    let bind = BindSpec { mw, tag: 1, mr: keys.lkey, addr: IOVA, length: 8, access };
    let window = w.table.bind_mw(w.qpn, w.pd, bind).unwrap();
    assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, false), Err(InvalidateError::WindowsBound));
    assert_eq!(w.table.invalidate(w.qpn, w.pd, window, false), Ok(()));
    assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, false), Ok(()));
}

#[test]
fn a_peer_cannot_invalidate_what_it_could_not_use() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.table.alloc_mr(w.pd, 8).unwrap();
    map(&mut w, keys.lkey, &[pages.range()], PAGE as u64, pages.va()).unwrap();
    w.table.fast_register(w.pd, keys.lkey, keys.lkey.0, Access::LOCAL_WRITE).unwrap();
    assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, true), Err(InvalidateError::Access));
    assert_eq!(w.table.check_local(w.pd, &sge(pages.va(), 1, keys.lkey), true), Ok(()), "still valid");
    assert_eq!(w.table.invalidate(w.qpn, w.pd, keys.rkey, false), Ok(()));
}

#[test]
fn larger_pages_work_alike() {
    let pages = Pages::new(16);
    let mut w = World::new();
    let size = 4 * PAGE;
    let start = pages.addr().next_multiple_of(size) - pages.addr();
    let keys = w.table.alloc_mr(w.pd, 8).unwrap();
    let ranges = [pages.part(start + size + 16, size - 16), pages.part(start, 100)];
    map(&mut w, keys.lkey, &ranges, size as u64, 16).unwrap();
    let keys = w.table.fast_register(w.pd, keys.lkey, keys.lkey.0, ALL).unwrap();
    w.table.write_remote(w.pd, w.qpn, keys.rkey, size as u64 - 4, b"left|right").unwrap();
    assert_eq!(pages.bytes(start + 2 * size - 4, 4), b"left");
    assert_eq!(pages.bytes(start, 6), b"|right");
    let past = w.table.write_remote(w.pd, w.qpn, keys.rkey, size as u64 + 99, b"xy");
    assert_eq!(past, Err(RemoteFault::Bounds));
}
