use proptest::prelude::*;
use softrnic_memory::{Access, Config, LocalFault, MemoryTable, RemoteFault, Sge};

use crate::world::{ALL, PAGE, Pages, World, sge};

/// A table that copies plainly, one that copies safely, and an on-demand region in a plain one.
fn worlds() -> [(World, Access); 3] {
    let safe = MemoryTable::with_config([9; 32], Config { safe_copies: true, ..Config::default() });
    [(World::new(), Access::empty()), (World::of(safe), Access::empty()), (World::new(), Access::ON_DEMAND)]
}

#[test]
fn bytes_go_out_and_come_in_through_every_way_of_copying() {
    for (mut w, extra) in worlds() {
        let pages = Pages::new(3);
        let keys = w.reg(pages.range(), ALL | extra);
        let text: Vec<u8> = (0..PAGE + 100).map(|i| (i * 7) as u8).collect();
        w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va() + 50, &text).unwrap();
        assert_eq!(pages.bytes(50, text.len()), text);
        assert_eq!(pages.bytes(0, 50), [0; 50], "not a byte before");
        assert_eq!(pages.bytes(50 + text.len(), 50), [0; 50], "not a byte after");
        let mut back = vec![0; text.len()];
        w.table.read_remote(w.pd, w.qpn, keys.rkey, pages.va() + 50, &mut back).unwrap();
        assert_eq!(back, text);
    }
}

#[test]
fn a_copy_needs_the_right_of_its_direction() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let readable = w.reg(pages.range(), Access::REMOTE_READ);
    let writable = w.reg(pages.range(), Access::REMOTE_WRITE | Access::LOCAL_WRITE);
    let (va, mut one) = (pages.va(), [0]);
    assert_eq!(w.table.write_remote(w.pd, w.qpn, readable.rkey, va, &[1]), Err(RemoteFault::Access));
    assert_eq!(w.table.read_remote(w.pd, w.qpn, writable.rkey, va, &mut one), Err(RemoteFault::Access));
    assert_eq!(w.table.write_remote(w.pd, w.qpn, writable.rkey, va, &[1]), Ok(()));
    assert_eq!(w.table.read_remote(w.pd, w.qpn, readable.rkey, va, &mut one), Ok(()));
    assert_eq!(one, [1]);
}

#[test]
fn a_copy_past_the_end_copies_nothing() {
    let pages = Pages::new(2);
    let mut w = World::new();
    let keys = w.reg(pages.part(0, 100), ALL);
    let result = w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va() + 90, &[1; 11]);
    assert_eq!(result, Err(RemoteFault::Bounds));
    let result = w.table.scatter(w.pd, &[sge(pages.va() + 90, 11, keys.lkey)], 0, &[1; 11]);
    assert_eq!(result, Err(LocalFault::Bounds));
    assert_eq!(pages.bytes(0, 200), [0; 200]);
}

#[test]
fn an_empty_remote_copy_does_not_look_at_the_key() {
    let w = World::new();
    let nothing = softrnic_wire::Rkey(0xbad);
    assert_eq!(w.table.read_remote(w.pd, w.qpn, nothing, 5, &mut []), Ok(()));
    assert_eq!(w.table.write_remote(w.pd, w.qpn, nothing, 5, &[]), Ok(()));
}

#[test]
fn a_list_that_is_too_short_is_reported() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    let list = [sge(pages.va(), 10, keys.lkey), sge(pages.va(), 5, keys.lkey)];
    assert_eq!(w.table.scatter(w.pd, &list, 0, &[0; 15]), Ok(()));
    assert_eq!(w.table.scatter(w.pd, &list, 0, &[0; 16]), Err(LocalFault::ListTooShort));
    assert_eq!(w.table.gather(w.pd, &list, 15, &mut [0]), Err(LocalFault::ListTooShort));
    assert_eq!(w.table.gather(w.pd, &list, u64::MAX, &mut [0]), Err(LocalFault::ListTooShort));
    assert_eq!(w.table.gather(w.pd, &[], 0, &mut []), Ok(()));
}

#[test]
fn a_key_revoked_between_two_copies_stops_the_second() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    let list = [sge(pages.va(), 100, keys.lkey)];
    assert_eq!(w.table.scatter(w.pd, &list, 0, &[1; 50]), Ok(()));
    w.table.dereg_mr(keys.lkey).unwrap();
    assert_eq!(w.table.scatter(w.pd, &list, 50, &[1; 50]), Err(LocalFault::UnknownKey));
    assert_eq!(pages.bytes(50, 50), [0; 50]);
}

#[test]
fn only_the_elements_touched_are_looked_up() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    let list = [sge(0, 10, softrnic_memory::Lkey(1)), sge(pages.va(), 10, keys.lkey)];
    assert_eq!(w.table.gather(w.pd, &list, 10, &mut [0; 10]), Ok(()));
    assert_eq!(w.table.gather(w.pd, &list, 9, &mut [0; 10]), Err(LocalFault::UnknownKey));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn gather_and_scatter_agree_with_a_plain_list(
        cuts in prop::collection::vec(0..40_u32, 1..8),
        offset in 0..200_u64,
        len in 0..200_usize,
        way in 0..3_usize,
    ) {
        let (mut w, extra) = worlds().into_iter().nth(way).unwrap();
        let pages = Pages::new(1);
        let keys = w.reg(pages.range(), ALL | extra);
        // Every second stretch of memory belongs to no element.
        let mut places = Vec::new();
        let mut list: Vec<Sge> = Vec::new();
        let mut at = 0;
        for cut in cuts {
            list.push(sge(pages.va() + u64::from(at), cut, keys.lkey));
            places.extend(at as usize..(at + cut) as usize);
            at += 2 * cut;
        }
        let before: Vec<u8> = (0..PAGE).map(|i| i as u8).collect();
        pages.fill(0, &before);
        let wanted = places.get(offset as usize..offset as usize + len).filter(|_| len > 0);

        let mut read = vec![0; len];
        let gathered = w.table.gather(w.pd, &list, offset, &mut read);
        let payload: Vec<u8> = (0..len).map(|i| 255 - i as u8).collect();
        let scattered = w.table.scatter(w.pd, &list, offset, &payload);
        match wanted {
            Some(places) => {
                prop_assert_eq!(gathered, Ok(()));
                prop_assert_eq!(scattered, Ok(()));
                prop_assert_eq!(read, places.iter().map(|at| before[*at]).collect::<Vec<_>>());
                let mut after = before;
                for (at, byte) in places.iter().zip(&payload) {
                    after[*at] = *byte;
                }
                prop_assert_eq!(pages.bytes(0, PAGE), after);
            }
            None if len == 0 => prop_assert_eq!((gathered, scattered), (Ok(()), Ok(()))),
            None => prop_assert_eq!((gathered, scattered), (Err(LocalFault::ListTooShort), Err(LocalFault::ListTooShort))),
        }
    }
}
