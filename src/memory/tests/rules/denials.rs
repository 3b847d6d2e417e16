//! Every check that fails can be explained, and none that passes.

use softrnic_memory::{Access, BindSpec, Denial, Lkey, MrKeys, MrSpec, MwType, Tombstone, ValidRange};
use softrnic_wire::{Rkey, Time};

use crate::world::{ALL, PAGE, Pages, World, qpn};

/// A region of one page.
struct Scene {
    w: World,
    pages: Pages,
    keys: MrKeys,
    valid: ValidRange,
}

impl Scene {
    fn new(access: Access) -> Scene {
        let (mut w, pages) = (World::new(), Pages::new(1));
        let keys = w.reg(pages.range(), access);
        let valid = ValidRange { start: pages.va(), length: PAGE as u64 };
        Scene { w, pages, keys, valid }
    }

    /// What is wrong with a WRITE of a peer; the check and the explanation agree that something is.
    fn write(&self, rkey: Rkey, va: u64, length: u64) -> Option<Denial> {
        self.ask(rkey, va, length, Access::REMOTE_WRITE)
    }

    fn ask(&self, rkey: Rkey, va: u64, length: u64, needed: Access) -> Option<Denial> {
        let (table, pd, qpn) = (&self.w.table, self.w.pd, self.w.qpn);
        let denial = table.explain_remote(pd, qpn, rkey, va, length, needed);
        assert_eq!(denial.is_none(), table.check_remote(pd, qpn, rkey, va, length, needed).is_ok());
        denial
    }

    fn local(&self, lkey: Lkey, addr: u64, length: u32, write: bool) -> Option<Denial> {
        let denial = self.w.table.explain_local(self.w.pd, lkey, addr, length.into(), write);
        let sge = crate::world::sge(addr, length, lkey);
        assert_eq!(denial.is_none(), self.w.table.check_local(self.w.pd, &sge, write).is_ok());
        denial
    }
}

#[test]
fn what_lies_outside_is_counted_in_bytes() {
    let s = Scene::new(ALL);
    let (va, valid) = (s.pages.va(), s.valid);
    assert_eq!(s.write(s.keys.rkey, va, PAGE as u64), None);
    assert_eq!(s.write(s.keys.rkey, va + 1, PAGE as u64), Some(Denial::PastEnd { by: 1, valid }));
    assert_eq!(s.write(s.keys.rkey, va - 3, 8), Some(Denial::BeforeStart { by: 3, valid }));
    assert_eq!(
        s.local(s.keys.lkey, va + PAGE as u64 - 10, 64, false),
        Some(Denial::PastEnd { by: 54, valid })
    );
    assert_eq!(s.local(s.keys.lkey, va, 64, true), None);
    assert_eq!(
        s.write(s.keys.rkey, u64::MAX, 1),
        Some(Denial::PastEnd { by: u64::MAX - va - PAGE as u64 + 1, valid })
    );
}

#[test]
fn an_address_in_the_wrong_order_or_cut_is_recognised() {
    let s = Scene::new(ALL);
    let (va, valid) = (s.pages.va(), s.valid);
    assert_eq!(s.write(s.keys.rkey, va.swap_bytes(), 8), Some(Denial::SwappedAddress { valid }));
    assert_eq!(s.write(s.keys.rkey, va & 0xffff_ffff, 8), Some(Denial::CutAddress { valid }));
}

#[test]
fn a_key_that_was_destroyed_is_remembered_with_its_time() {
    let mut s = Scene::new(ALL);
    let (lkey, rkey, va) = (s.keys.lkey, s.keys.rkey, s.pages.va());
    s.w.table.note_time(Time::from_nanos(5));
    s.w.table.dereg_mr(lkey).unwrap();
    s.w.table.note_time(Time::from_nanos(9));
    let stone = Tombstone { key: lkey.0, window: false, valid: s.valid, at: Some(Time::from_nanos(5)) };
    assert_eq!(s.write(rkey, va, 8), Some(Denial::Destroyed(stone)));
    assert_eq!(s.local(lkey, va, 8, false), Some(Denial::Destroyed(stone)));
}

#[test]
fn only_the_last_1024_are_remembered() {
    let mut s = Scene::new(ALL);
    let va = s.pages.va();
    let mut dead = Vec::new();
    for _ in 0..1025 {
        let keys = s.w.reg(s.pages.range(), ALL);
        s.w.table.dereg_mr(keys.lkey).unwrap();
        dead.push(keys.rkey);
    }
    assert_eq!(s.write(dead[0], va, 8), Some(Denial::UnknownKey));
    assert!(matches!(s.write(dead[1], va, 8), Some(Denial::Destroyed(_))));
}

#[test]
fn a_key_in_the_wrong_order_is_recognised_and_any_other_is_unknown() {
    let s = Scene::new(ALL);
    let va = s.pages.va();
    assert_eq!(s.write(Rkey(s.keys.rkey.0.swap_bytes()), va, 8), Some(Denial::SwappedKey));
    assert_eq!(s.write(Rkey(s.keys.rkey.0 ^ 0x100), va, 8), Some(Denial::UnknownKey));
    assert_eq!(s.local(Lkey(s.keys.lkey.0 ^ 0x100), va, 8, false), Some(Denial::UnknownKey));
    let key = s.keys.rkey.0;
    assert_eq!(s.write(Rkey(key ^ 1), va, 8), Some(Denial::OldTag { key }));
}

#[test]
fn missing_rights_are_named() {
    let s = Scene::new(Access::LOCAL_WRITE | Access::REMOTE_READ);
    let (rkey, va) = (s.keys.rkey, s.pages.va());
    assert_eq!(s.write(rkey, va, 8), Some(Denial::Access { missing: Access::REMOTE_WRITE }));
    assert_eq!(s.ask(rkey, va, 8, Access::REMOTE_READ), None);
    let s = Scene::new(Access::empty());
    let missing = Access::LOCAL_WRITE;
    assert_eq!(s.local(s.keys.lkey, s.pages.va(), 8, true), Some(Denial::Access { missing }));
}

#[test]
fn another_domain_is_told_from_an_unknown_key() {
    let mut s = Scene::new(ALL);
    let other = s.w.table.alloc_pd().unwrap();
    let spec = MrSpec { range: s.pages.range(), iova: s.pages.va(), access: ALL };
    let keys = s.w.table.reg_mr(other, spec).unwrap();
    assert_eq!(s.write(keys.rkey, s.pages.va(), 8), Some(Denial::WrongPd));
    assert_eq!(s.local(keys.lkey, s.pages.va(), 8, false), Some(Denial::WrongPd));
}

#[test]
fn a_window_says_whether_it_is_bound_and_to_whom() {
    let mut s = Scene::new(ALL);
    let va = s.pages.va();
    let mw = s.w.table.alloc_mw(s.w.pd, MwType::Type2).unwrap();
    assert_eq!(s.write(mw, va, 8), Some(Denial::NotBound));
    assert_eq!(s.local(Lkey(mw.0), va, 8, false), Some(Denial::WindowKey));
    let access = Access::REMOTE_WRITE;
    let spec = BindSpec { mw, tag: mw.0 as u8 ^ 1, mr: s.keys.lkey, addr: va + 8, length: 8, access };
    let bound = s.w.table.bind_mw(qpn(9), s.w.pd, spec).unwrap();
    assert_eq!(s.write(bound, va + 8, 8), Some(Denial::BoundElsewhere { qpn: qpn(9) }));
    assert_eq!(s.write(mw, va + 8, 8), Some(Denial::OldTag { key: bound.0 }));
    s.w.table.dealloc_mw(bound).unwrap();
    let valid = ValidRange { start: va + 8, length: 8 };
    let stone = Tombstone { key: bound.0, window: true, valid, at: None };
    assert_eq!(s.write(bound, va + 8, 8), Some(Denial::Destroyed(stone)));
}

#[test]
fn a_fast_register_region_that_waits_is_not_valid() {
    let mut s = Scene::new(ALL);
    let keys = s.w.table.alloc_mr(s.w.pd, 8).unwrap();
    assert_eq!(s.write(keys.rkey, 0, 8), Some(Denial::NotValid));
}
