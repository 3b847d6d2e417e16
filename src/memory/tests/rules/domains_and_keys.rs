use std::collections::HashSet;

use softrnic_memory::{Access, Config, Limits, LocalFault, MemoryError, MemoryTable, MwType, RemoteFault};
use softrnic_wire::Rkey;

use crate::world::{ALL, Pages, World, sge};

#[test]
fn a_domain_with_users_is_busy() {
    let mut table = MemoryTable::new([1; 32]);
    let pd = table.alloc_pd().unwrap();
    table.pd_retain(pd).unwrap();
    assert_eq!(table.dealloc_pd(pd), Err(MemoryError::Busy));
    table.pd_release(pd);
    assert_eq!(table.dealloc_pd(pd), Ok(()));
    assert_eq!(table.dealloc_pd(pd), Err(MemoryError::UnknownPd));
    assert_eq!(table.pd_retain(pd), Err(MemoryError::UnknownPd));
}

#[test]
fn regions_and_windows_keep_their_domain_busy() {
    let mut w = World::new();
    let pages = Pages::new(1);
    let mr = w.reg(pages.range(), ALL);
    let mw = w.table.alloc_mw(w.pd, MwType::Type1).unwrap();
    assert_eq!(w.table.dealloc_pd(w.pd), Err(MemoryError::Busy));
    w.table.dereg_mr(mr.lkey).unwrap();
    assert_eq!(w.table.dealloc_pd(w.pd), Err(MemoryError::Busy));
    w.table.dealloc_mw(mw).unwrap();
    assert_eq!(w.table.dealloc_pd(w.pd), Ok(()));
    assert_eq!((w.table.pd_count(), w.table.mr_count(), w.table.mw_count()), (0, 0, 0));
}

#[test]
fn a_deallocated_domain_makes_no_objects_and_its_id_is_not_reused() {
    let mut w = World::new();
    w.table.dealloc_pd(w.pd).unwrap();
    assert_eq!(w.table.alloc_mw(w.pd, MwType::Type1), Err(MemoryError::UnknownPd));
    assert_eq!(w.table.alloc_null_mr(w.pd), Err(MemoryError::UnknownPd));
    assert_ne!(w.table.alloc_pd().unwrap(), w.pd);
    assert_eq!((w.table.mr_count(), w.table.mw_count()), (0, 0));
}

#[test]
fn a_key_dies_with_its_region() {
    let mut w = World::new();
    let pages = Pages::new(1);
    let old = w.reg(pages.range(), ALL);
    assert_eq!(old.lkey.0, old.rkey.0);
    w.table.dereg_mr(old.lkey).unwrap();
    let new = w.reg(pages.range(), ALL);
    assert_ne!(old.lkey.0 >> 8, new.lkey.0 >> 8, "the index is not taken up again at once");
    let check = w.table.check_remote(w.pd, w.qpn, old.rkey, pages.va(), 8, Access::REMOTE_READ);
    assert_eq!(check, Err(RemoteFault::UnknownKey));
    assert_eq!(w.table.dereg_mr(old.lkey), Err(MemoryError::UnknownObject));
}

#[test]
fn every_bit_of_a_key_counts() {
    let mut w = World::new();
    let pages = Pages::new(1);
    let keys = w.reg(pages.range(), ALL);
    for bit in 0..32 {
        let wrong = Rkey(keys.rkey.0 ^ 1 << bit);
        let check = w.table.check_remote(w.pd, w.qpn, wrong, pages.va(), 8, Access::REMOTE_READ);
        assert_eq!(check, Err(RemoteFault::UnknownKey), "bit {bit}");
        let element = sge(pages.va(), 8, softrnic_memory::Lkey(wrong.0));
        assert_eq!(w.table.check_local(w.pd, &element, false), Err(LocalFault::UnknownKey), "bit {bit}");
    }
}

#[test]
fn keys_are_unique_and_do_not_follow_from_one_another() {
    const COUNT: usize = 20_000;
    let keys = |seed| {
        let mut table = MemoryTable::new([seed; 32]);
        let pd = table.alloc_pd().unwrap();
        (0..COUNT).map(|_| table.alloc_null_mr(pd).unwrap().lkey.0).collect::<Vec<_>>()
    };
    let one = keys(1);
    let indices: HashSet<u32> = one.iter().map(|key| key >> 8).collect();
    assert_eq!(indices.len(), COUNT);
    assert!(!indices.contains(&0), "no key begins with 0");
    let steps: HashSet<u32> = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert_eq!(steps.len(), COUNT - 1, "no step repeats");
    for bit in 0..32 {
        let set = one.iter().filter(|key| *key >> bit & 1 == 1).count();
        assert!((COUNT * 2 / 5..COUNT * 3 / 5).contains(&set), "bit {bit} is set in {set} of {COUNT} keys");
    }
    assert_eq!(one, keys(1), "a seed repeats its keys");
    let other: HashSet<u32> = keys(2).into_iter().collect();
    assert!(one.iter().filter(|key| other.contains(key)).count() < 8, "another seed gives other keys");
}

#[test]
fn limits_hold() {
    let limits = Limits { max_pd: 1, max_mr: 1, max_mw: 1, max_mr_size: 4096, ..Limits::default() };
    let mut w = World::of(MemoryTable::with_config([3; 32], Config { limits, ..Config::default() }));
    let pages = Pages::new(2);
    assert_eq!(w.table.alloc_pd(), Err(MemoryError::NoMemory));
    let spec = softrnic_memory::MrSpec { range: pages.range(), iova: 0, access: Access::empty() };
    assert_eq!(w.table.reg_mr(w.pd, spec), Err(MemoryError::InvalidArgument), "longer than max_mr_size");
    let keys = w.table.alloc_null_mr(w.pd).unwrap();
    assert_eq!(w.table.alloc_null_mr(w.pd), Err(MemoryError::NoMemory));
    let mw = w.table.alloc_mw(w.pd, MwType::Type2).unwrap();
    assert_eq!(w.table.alloc_mw(w.pd, MwType::Type2), Err(MemoryError::NoMemory));
    w.table.dealloc_mw(mw).unwrap();
    w.table.dereg_mr(keys.lkey).unwrap();
    assert_eq!(w.table.dealloc_pd(w.pd), Ok(()), "refused objects hold no reference");
}

#[test]
fn keys_are_displayed_as_in_verbs_programs_and_errors_in_words() {
    assert_eq!(softrnic_memory::Lkey(0x1f2).to_string(), "0x000001f2");
    assert_eq!(LocalFault::Bounds.to_string(), "outside the region");
    assert_eq!(RemoteFault::UnknownKey.to_string(), "unknown rkey");
}
