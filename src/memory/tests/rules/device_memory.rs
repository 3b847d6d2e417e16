use softrnic_memory::{Access, Config, Limits, MemoryError, MemoryTable, RegionKind, RemoteFault, ReregSpec};

use crate::world::{ALL, World, sge};

const DM: Access = ALL.union(Access::ZERO_BASED);

#[test]
fn device_memory_starts_zeroed_and_holds_what_is_written() {
    let mut w = World::new();
    let dm = w.table.alloc_dm(1000, 12).unwrap();
    let mut all = vec![0xff; 1000];
    w.table.copy_from_dm(dm, 0, &mut all).unwrap();
    assert_eq!(all, [0; 1000]);
    w.table.copy_to_dm(dm, 990, b"0123456789").unwrap();
    let mut end = [0; 10];
    w.table.copy_from_dm(dm, 990, &mut end).unwrap();
    assert_eq!(&end, b"0123456789");
}

#[test]
fn copies_stay_inside_device_memory() {
    let mut w = World::new();
    let dm = w.table.alloc_dm(64, 0).unwrap();
    for (offset, len) in [(60, 5), (64, 1), (65, 0), (u64::MAX, 2), (0, 65)] {
        let mut bytes = vec![0; len];
        assert_eq!(w.table.copy_from_dm(dm, offset, &mut bytes), Err(MemoryError::InvalidArgument));
        assert_eq!(w.table.copy_to_dm(dm, offset, &bytes), Err(MemoryError::InvalidArgument));
    }
    assert_eq!(w.table.copy_to_dm(dm, 64, &[]), Ok(()));
}

#[test]
fn a_region_of_device_memory_is_zero_based_and_bounded_by_its_part() {
    let mut w = World::new();
    let dm = w.table.alloc_dm(4096, 3).unwrap();
    let refused = |w: &mut World, offset, length, access| w.table.reg_dm_mr(w.pd, dm, offset, length, access);
    assert_eq!(refused(&mut w, 0, 8, ALL), Err(MemoryError::InvalidArgument), "not zero-based");
    assert_eq!(refused(&mut w, 4090, 7, DM), Err(MemoryError::InvalidArgument));
    assert_eq!(refused(&mut w, u64::MAX, 2, DM), Err(MemoryError::InvalidArgument));

    let nothing = w.table.reg_dm_mr(w.pd, dm, 0, 0, DM).unwrap();
    assert!(w.table.scatter(w.pd, &[sge(0, 1, nothing.lkey)], 0, b"x").is_err());

    let keys = w.table.reg_dm_mr(w.pd, dm, 1024, 512, DM).unwrap();
    assert_eq!(w.table.region(keys.lkey).unwrap().kind, RegionKind::Device(dm));
    w.table.write_remote(w.pd, w.qpn, keys.rkey, 8, b"by peer").unwrap();
    w.table.scatter(w.pd, &[sge(16, 8, keys.lkey)], 0, b"by owner").unwrap();
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, 0, 77), Ok(0));
    let mut seen = [0; 24];
    w.table.copy_from_dm(dm, 1024, &mut seen).unwrap();
    assert_eq!(seen[..8], 77_u64.to_ne_bytes());
    assert_eq!(&seen[8..], b"by peer\0by owner");
    let past = w.table.write_remote(w.pd, w.qpn, keys.rkey, 505, b"by peer!");
    assert_eq!(past, Err(RemoteFault::Bounds));
    assert_eq!(w.table.rereg_mr(keys.lkey, ReregSpec::default()), Err(MemoryError::Unsupported));
}

#[test]
fn device_memory_with_regions_is_busy() {
    let mut w = World::new();
    let dm = w.table.alloc_dm(4096, 3).unwrap();
    let keys = w.table.reg_dm_mr(w.pd, dm, 0, 4096, DM).unwrap();
    assert_eq!(w.table.free_dm(dm), Err(MemoryError::Busy));
    w.table.dereg_mr(keys.lkey).unwrap();
    assert_eq!(w.table.free_dm(dm), Ok(()));
    assert_eq!(w.table.free_dm(dm), Err(MemoryError::UnknownObject));
    assert_eq!(w.table.reg_dm_mr(w.pd, dm, 0, 1, DM), Err(MemoryError::UnknownObject));
}

#[test]
fn a_refused_registration_does_not_hold_device_memory() {
    let mut w = World::new();
    let dm = w.table.alloc_dm(64, 0).unwrap();
    w.table.dealloc_pd(w.pd).unwrap();
    assert_eq!(w.table.reg_dm_mr(w.pd, dm, 0, 64, DM), Err(MemoryError::UnknownPd));
    assert_eq!(w.table.free_dm(dm), Ok(()));
}

#[test]
fn device_memory_is_finite_and_comes_back() {
    let limits = Limits { max_dm_size: 100, ..Limits::default() };
    let mut table = MemoryTable::with_config([1; 32], Config { limits, ..Config::default() });
    assert_eq!(table.alloc_dm(0, 0), Err(MemoryError::InvalidArgument));
    assert_eq!(table.alloc_dm(8, 40), Err(MemoryError::InvalidArgument));
    assert_eq!(table.alloc_dm(u64::MAX, 0), Err(MemoryError::NoMemory));
    let most = table.alloc_dm(60, 0).unwrap();
    assert_eq!(table.alloc_dm(41, 0), Err(MemoryError::NoMemory));
    table.free_dm(most).unwrap();
    assert!(table.alloc_dm(100, 0).is_ok());
}
