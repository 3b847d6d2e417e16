use softrnic_memory::{
    Access, BindError, BindSpec, InvalidateError, Lkey, MemoryError, MrKeys, MwType, RemoteFault, ReregSpec,
};
use softrnic_wire::Rkey;

use crate::world::{ALL, PAGE, Pages, World, qpn, sge};

const BOTH: [MwType; 2] = [MwType::Type1, MwType::Type2];

/// One region, and one window of the given type.
struct Scene {
    w: World,
    pages: Pages,
    mr: MrKeys,
    mw: Rkey,
}

impl Scene {
    fn new(mw_type: MwType) -> Self {
        Self::with(mw_type, ALL)
    }

    fn with(mw_type: MwType, region: Access) -> Self {
        let (mut w, pages) = (World::new(), Pages::new(1));
        let mr = w.reg(pages.range(), region);
        let mw = w.table.alloc_mw(w.pd, mw_type).unwrap();
        Self { w, pages, mr, mw }
    }

    /// Bytes 100 to 199 of the region, for everything.
    fn spec(&self) -> BindSpec {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let addr = self.pages.va() + 100;
        BindSpec { mw: self.mw, tag: self.mw.0 as u8 ^ 1, mr: self.mr.lkey, addr, length: 100, access }
    }

    fn bind(&mut self, spec: BindSpec) -> Result<Rkey, BindError> {
        self.w.table.bind_mw(self.w.qpn, self.w.pd, spec)
    }

    fn check(&self, rkey: Rkey, offset: u64, len: u64) -> Result<(), RemoteFault> {
        let va = self.pages.va() + offset;
        self.w.table.check_remote(self.w.pd, self.w.qpn, rkey, va, len, Access::REMOTE_READ)
    }
}

#[test]
fn an_unbound_window_gives_no_access() {
    for mw_type in BOTH {
        let s = Scene::new(mw_type);
        assert_eq!(s.check(s.mw, 100, 0), Err(RemoteFault::State));
        assert!(!s.w.table.window(s.mw).unwrap().bound);
    }
}

#[test]
fn a_bound_window_gives_access_to_its_range_only() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let rkey = s.bind(s.spec()).unwrap();
        assert_eq!(s.check(rkey, 100, 100), Ok(()));
        assert_eq!(s.check(rkey, 99, 1), Err(RemoteFault::Bounds));
        assert_eq!(s.check(rkey, 199, 2), Err(RemoteFault::Bounds));
        let (pd, q, va) = (s.w.pd, s.w.qpn, s.pages.va());
        s.w.table.write_remote(pd, q, rkey, va + 150, b"through").unwrap();
        assert_eq!(s.pages.bytes(150, 7), b"through");
        assert_eq!(s.w.table.fetch_add(pd, q, rkey, va + 104, 6), Ok(0));
        assert_eq!(s.w.table.fetch_add(pd, q, rkey, va + 96, 6), Err(RemoteFault::Bounds));
        assert_eq!(s.w.table.write_remote(pd, q, rkey, va + 199, b"ab"), Err(RemoteFault::Bounds));
        assert_eq!(s.pages.bytes(200, 1), [0]);
    }
}

#[test]
fn binding_gives_the_key_a_new_tag_and_kills_the_old_one() {
    let mut s = Scene::new(MwType::Type1);
    let first = s.bind(s.spec()).unwrap();
    assert_eq!(first.0, s.mw.0 ^ 1);
    let second = s.bind(BindSpec { tag: 0x77, ..s.spec() }).unwrap();
    assert_eq!(second.0, s.mw.0 & !0xff | 0x77);
    assert_eq!(s.check(first, 100, 1), Err(RemoteFault::UnknownKey));
    assert_eq!(s.check(second, 100, 1), Ok(()));
}

#[test]
fn a_window_gives_only_the_rights_it_was_bound_with() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let rkey = s.bind(BindSpec { access: Access::REMOTE_READ, ..s.spec() }).unwrap();
        let va = s.pages.va() + 104;
        assert_eq!(s.w.table.write_remote(s.w.pd, s.w.qpn, rkey, va, b"x"), Err(RemoteFault::Access));
        assert_eq!(s.w.table.fetch_add(s.w.pd, s.w.qpn, rkey, va, 1), Err(RemoteFault::Access));
        assert_eq!(s.check(rkey, 100, 8), Ok(()));
    }
}

#[test]
fn a_window_may_give_rights_that_the_regions_own_rkey_does_not() {
    let mut s = Scene::with(MwType::Type2, Access::LOCAL_WRITE | Access::MW_BIND);
    assert_eq!(s.check(s.mr.rkey, 100, 1), Err(RemoteFault::Access));
    let rkey = s.bind(s.spec()).unwrap();
    assert_eq!(s.check(rkey, 100, 1), Ok(()));
}

#[test]
fn type1_serves_every_queue_pair_of_its_domain_and_type2_its_own() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let rkey = s.bind(s.spec()).unwrap();
        let va = s.pages.va() + 100;
        let check = s.w.table.check_remote(s.w.pd, qpn(99), rkey, va, 1, Access::REMOTE_READ);
        let expected = if mw_type == MwType::Type1 { Ok(()) } else { Err(RemoteFault::WrongQp) };
        assert_eq!(check, expected);
        let other = s.w.table.alloc_pd().unwrap();
        let check = s.w.table.check_remote(other, s.w.qpn, rkey, va, 1, Access::REMOTE_READ);
        assert_eq!(check, Err(RemoteFault::WrongPd));
    }
}

#[test]
fn type1_binds_again_at_will_and_type2_only_when_free() {
    let mut s = Scene::new(MwType::Type1);
    s.bind(s.spec()).unwrap();
    assert!(s.bind(s.spec()).is_ok());
    assert_eq!(s.w.table.region(s.mr.lkey).unwrap().windows, 1, "the old binding is gone");

    let mut s = Scene::new(MwType::Type2);
    let rkey = s.bind(s.spec()).unwrap();
    assert_eq!(s.bind(s.spec()), Err(BindError::State));
    assert_eq!(s.check(rkey, 100, 1), Ok(()), "a refused bind changes nothing");
    s.w.table.invalidate(s.w.qpn, s.w.pd, rkey, false).unwrap();
    assert!(s.bind(BindSpec { tag: 9, ..s.spec() }).is_ok());
}

#[test]
fn length_zero_unbinds_type1_and_is_an_error_for_type2() {
    let mut s = Scene::new(MwType::Type1);
    let bound = s.bind(s.spec()).unwrap();
    let unbound = s.bind(BindSpec { length: 0, mr: Lkey(0), ..s.spec() }).unwrap();
    assert!(s.check(bound, 100, 1).is_err());
    assert_eq!(s.check(unbound, 100, 1), Err(RemoteFault::State));
    assert_eq!(s.w.table.dereg_mr(s.mr.lkey), Ok(()));

    let mut s = Scene::new(MwType::Type2);
    assert_eq!(s.bind(BindSpec { length: 0, ..s.spec() }), Err(BindError::ZeroLength));
}

#[test]
fn zero_based_windows_are_type2_and_start_at_zero() {
    let mut s = Scene::new(MwType::Type1);
    let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
    assert_eq!(s.bind(BindSpec { access, ..s.spec() }), Err(BindError::WindowAccess));

    let mut s = Scene::new(MwType::Type2);
    let rkey = s.bind(BindSpec { access, ..s.spec() }).unwrap();
    s.w.table.write_remote(s.w.pd, s.w.qpn, rkey, 0, b"zero").unwrap();
    assert_eq!(s.pages.bytes(100, 4), b"zero");
    s.w.table.write_remote(s.w.pd, s.w.qpn, rkey, 96, b"last").unwrap();
    assert_eq!(s.pages.bytes(196, 4), b"last");
    assert_eq!(s.w.table.write_remote(s.w.pd, s.w.qpn, rkey, 97, b"past"), Err(RemoteFault::Bounds));
    let real = s.pages.va() + 100;
    assert_eq!(s.w.table.write_remote(s.w.pd, s.w.qpn, rkey, real, b"x"), Err(RemoteFault::Bounds));
}

#[test]
fn queue_pair_window_and_region_share_one_domain() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let other = s.w.table.alloc_pd().unwrap();
        assert_eq!(s.w.table.bind_mw(s.w.qpn, other, s.spec()), Err(BindError::WrongPd), "queue pair");
        let foreign = s.w.table.alloc_null_mr(other).unwrap();
        let spec = BindSpec { mr: foreign.lkey, ..s.spec() };
        assert_eq!(s.bind(spec), Err(BindError::WrongPd), "region");
        let foreign = s.w.table.alloc_mw(other, mw_type).unwrap();
        let spec = BindSpec { mw: foreign, ..s.spec() };
        assert_eq!(s.bind(spec), Err(BindError::WrongPd), "window");
    }
}

#[test]
fn the_region_must_allow_binding() {
    for mw_type in BOTH {
        let mut s = Scene::with(mw_type, ALL - Access::MW_BIND);
        assert_eq!(s.bind(s.spec()), Err(BindError::NoBindAccess));
        let mut s = Scene::with(mw_type, ALL | Access::ZERO_BASED);
        assert_eq!(s.bind(s.spec()), Err(BindError::ZeroBasedRegion));
    }
}

#[test]
fn a_window_for_writing_needs_a_region_that_is_written_locally() {
    for mw_type in BOTH {
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let mut s = Scene::with(mw_type, Access::MW_BIND | Access::REMOTE_READ);
            assert_eq!(s.bind(BindSpec { access, ..s.spec() }), Err(BindError::RegionAccess));
            assert!(s.bind(BindSpec { access: Access::REMOTE_READ, ..s.spec() }).is_ok());
        }
        let mut s = Scene::with(mw_type, Access::MW_BIND | Access::LOCAL_WRITE);
        let flush = BindSpec { access: Access::FLUSH_GLOBAL, ..s.spec() };
        assert_eq!(s.bind(flush), Err(BindError::RegionAccess));
    }
}

#[test]
fn a_window_has_rights_of_peers_only() {
    for mw_type in BOTH {
        for access in [Access::LOCAL_WRITE, Access::MW_BIND, Access::ON_DEMAND, Access::HUGETLB] {
            let mut s = Scene::new(mw_type);
            assert_eq!(s.bind(BindSpec { access, ..s.spec() }), Err(BindError::WindowAccess), "{access:?}");
        }
        let mut s = Scene::new(mw_type);
        let access = Access::REMOTE_READ | Access::RELAXED_ORDERING;
        assert!(s.bind(BindSpec { access, ..s.spec() }).is_ok(), "optional flags are ignored");
    }
}

#[test]
fn a_window_lies_inside_its_region() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let (va, len) = (s.pages.va(), PAGE as u64);
        for (addr, length) in [(va - 1, 2), (va, len + 1), (va + len, 1), (u64::MAX, 2), (va, u64::MAX)] {
            assert_eq!(s.bind(BindSpec { addr, length, ..s.spec() }), Err(BindError::Bounds));
        }
        assert!(s.bind(BindSpec { addr: va, length: len, ..s.spec() }).is_ok());
    }
}

#[test]
fn keys_in_a_bind_are_of_the_right_kind() {
    let mut s = Scene::new(MwType::Type1);
    let unknown = BindSpec { mr: Lkey(s.mr.lkey.0 ^ 1), ..s.spec() };
    assert_eq!(s.bind(unknown), Err(BindError::UnknownRegion), "the whole key counts");
    let window_as_region = BindSpec { mr: Lkey(s.mw.0), ..s.spec() };
    assert_eq!(s.bind(window_as_region), Err(BindError::UnknownRegion));
    let region_as_window = BindSpec { mw: s.mr.rkey, ..s.spec() };
    assert_eq!(s.bind(region_as_window), Err(BindError::UnknownWindow));
    let rkey = s.bind(s.spec()).unwrap();
    let element = sge(s.pages.va() + 100, 1, Lkey(rkey.0));
    assert!(s.w.table.check_local(s.w.pd, &element, false).is_err(), "a window is no lkey");
    assert_eq!(s.w.table.dereg_mr(Lkey(rkey.0)), Err(MemoryError::UnknownObject));
    assert_eq!(s.w.table.dealloc_mw(s.mr.rkey), Err(MemoryError::UnknownObject));
}

#[test]
fn a_free_fast_register_region_takes_no_window() {
    let mut s = Scene::new(MwType::Type2);
    let free = s.w.table.alloc_mr(s.w.pd, 4).unwrap();
    assert_eq!(s.bind(BindSpec { mr: free.lkey, ..s.spec() }), Err(BindError::State));
}

#[test]
fn a_region_with_windows_is_busy() {
    for mw_type in BOTH {
        let mut s = Scene::new(mw_type);
        let rkey = s.bind(s.spec()).unwrap();
        assert_eq!(s.w.table.dereg_mr(s.mr.lkey), Err(MemoryError::Busy));
        assert_eq!(s.w.table.rereg_mr(s.mr.lkey, ReregSpec::default()), Err(MemoryError::Busy));
        s.w.table.dealloc_mw(rkey).unwrap();
        assert_eq!(s.check(rkey, 100, 1), Err(RemoteFault::UnknownKey));
        assert_eq!(s.w.table.dereg_mr(s.mr.lkey), Ok(()));
    }
}

#[test]
fn only_type2_is_invalidated_and_only_by_its_queue_pair() {
    for remote in [false, true] {
        let mut s = Scene::new(MwType::Type1);
        let rkey = s.bind(s.spec()).unwrap();
        let refused = s.w.table.invalidate(s.w.qpn, s.w.pd, rkey, remote);
        assert_eq!(refused, Err(InvalidateError::WrongKind));

        let mut s = Scene::new(MwType::Type2);
        let rkey = s.bind(s.spec()).unwrap();
        let other = s.w.table.alloc_pd().unwrap();
        let invalidate = |s: &mut Scene, q, pd, key| s.w.table.invalidate(q, pd, key, remote);
        let (q, pd, old) = (s.w.qpn, s.w.pd, s.mw);
        assert_eq!(invalidate(&mut s, q, pd, old), Err(InvalidateError::UnknownKey));
        assert_eq!(invalidate(&mut s, q, other, rkey), Err(InvalidateError::WrongPd));
        assert_eq!(invalidate(&mut s, qpn(99), pd, rkey), Err(InvalidateError::WrongQp));
        assert_eq!(s.check(rkey, 100, 1), Ok(()));
        assert_eq!(invalidate(&mut s, q, pd, rkey), Ok(()));
        assert_eq!(s.check(rkey, 100, 1), Err(RemoteFault::State));
        assert_eq!(s.w.table.region(s.mr.lkey).unwrap().windows, 0);
    }
}

#[test]
fn destroying_a_queue_pair_invalidates_its_type2_windows() {
    let mut s = Scene::new(MwType::Type2);
    let mine = s.bind(s.spec()).unwrap();
    let theirs = s.w.table.alloc_mw(s.w.pd, MwType::Type2).unwrap();
    let theirs = s.w.table.bind_mw(qpn(99), s.w.pd, BindSpec { mw: theirs, ..s.spec() }).unwrap();
    let shared = s.w.table.alloc_mw(s.w.pd, MwType::Type1).unwrap();
    let shared = s.bind(BindSpec { mw: shared, ..s.spec() }).unwrap();
    s.w.table.release_qp(s.w.qpn);
    assert_eq!(s.check(mine, 100, 1), Err(RemoteFault::State));
    assert_eq!(s.check(shared, 100, 1), Ok(()));
    assert!(s.w.table.window(theirs).unwrap().bound);
    assert_eq!(s.w.table.region(s.mr.lkey).unwrap().windows, 2);
    s.w.table.release_qp(qpn(99));
    s.w.table.dealloc_mw(shared).unwrap();
    assert_eq!(s.w.table.dereg_mr(s.mr.lkey), Ok(()));
}

#[test]
fn a_window_is_found_by_a_key_it_had_before() {
    let mut s = Scene::new(MwType::Type1);
    let first = s.bind(s.spec()).unwrap();
    assert_eq!(s.w.table.window(s.mw).unwrap().rkey, first, "consumers keep older keys");
    assert_eq!(s.w.table.dealloc_mw(s.mw), Ok(()));
    assert_eq!(s.w.table.window(first), None);
}
