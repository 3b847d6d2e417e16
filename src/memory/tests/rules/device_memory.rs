use softrnic_memory::{
    Access, Config, DeviceMemory, DmId, Limits, MemoryError, MemoryTable, RegionKind, RemoteFault, ReregSpec,
};

use crate::world::{ALL, World, sge};

const DM: Access = ALL.union(Access::ZERO_BASED);

fn alloc(table: &mut MemoryTable, length: u64, log_align: u32) -> Result<DmId, MemoryError> {
    table.add_dm(DeviceMemory::new(length, log_align)?).map_err(|(_, error)| error)
}

fn fill(table: &MemoryTable, dm: DmId, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
    // SAFETY: a slice, borrowed for the call; slices are no device memory.
    unsafe { table.dm(dm)?.fill(offset, bytes.as_ptr(), bytes.len()) }
}

fn show(table: &MemoryTable, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
    // SAFETY: a slice, borrowed for the call; slices are no device memory.
    unsafe { table.dm(dm)?.show(offset, bytes.as_mut_ptr(), bytes.len()) }
}

#[test]
fn device_memory_starts_zeroed_and_holds_what_is_written() {
    let mut w = World::new();
    let dm = alloc(&mut w.table, 1000, 12).unwrap();
    let mut all = vec![0xff; 1000];
    show(&w.table, dm, 0, &mut all).unwrap();
    assert_eq!(all, [0; 1000]);
    fill(&w.table, dm, 990, b"0123456789").unwrap();
    let mut end = [0; 10];
    show(&w.table, dm, 990, &mut end).unwrap();
    assert_eq!(&end, b"0123456789");
}

#[test]
fn copies_stay_inside_device_memory() {
    let mut w = World::new();
    let dm = alloc(&mut w.table, 64, 0).unwrap();
    for (offset, len) in [(60, 5), (64, 1), (65, 0), (u64::MAX, 2), (0, 65)] {
        let mut bytes = vec![0; len];
        assert_eq!(show(&w.table, dm, offset, &mut bytes), Err(MemoryError::InvalidArgument));
        assert_eq!(fill(&w.table, dm, offset, &bytes), Err(MemoryError::InvalidArgument));
    }
    assert_eq!(fill(&w.table, dm, 64, &[]), Ok(()));
}

#[test]
fn a_region_of_device_memory_is_zero_based_and_bounded_by_its_part() {
    let mut w = World::new();
    let dm = alloc(&mut w.table, 4096, 3).unwrap();
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
    show(&w.table, dm, 1024, &mut seen).unwrap();
    assert_eq!(seen[..8], 77_u64.to_ne_bytes());
    assert_eq!(&seen[8..], b"by peer\0by owner");
    let past = w.table.write_remote(w.pd, w.qpn, keys.rkey, 505, b"by peer!");
    assert_eq!(past, Err(RemoteFault::Bounds));
    assert_eq!(w.table.rereg_mr(keys.lkey, ReregSpec::default()), Err(MemoryError::Unsupported));
}

#[test]
fn device_memory_with_regions_is_busy() {
    let mut w = World::new();
    let dm = alloc(&mut w.table, 4096, 3).unwrap();
    let keys = w.table.reg_dm_mr(w.pd, dm, 0, 4096, DM).unwrap();
    assert_eq!(w.table.free_dm(dm).err(), Some(MemoryError::Busy));
    w.table.dereg_mr(keys.lkey).unwrap();
    assert!(w.table.free_dm(dm).is_ok());
    assert_eq!(w.table.free_dm(dm).err(), Some(MemoryError::UnknownObject));
    assert_eq!(w.table.reg_dm_mr(w.pd, dm, 0, 1, DM), Err(MemoryError::UnknownObject));
}

#[test]
fn a_refused_registration_does_not_hold_device_memory() {
    let mut w = World::new();
    let dm = alloc(&mut w.table, 64, 0).unwrap();
    w.table.dealloc_pd(w.pd).unwrap();
    assert_eq!(w.table.reg_dm_mr(w.pd, dm, 0, 64, DM), Err(MemoryError::UnknownPd));
    assert!(w.table.free_dm(dm).is_ok());
}

#[test]
fn device_memory_is_finite_and_comes_back() {
    let limits = Limits { max_dm_size: 100, ..Limits::default() };
    let mut table = MemoryTable::with_config([1; 32], Config { limits, ..Config::default() });
    assert_eq!(alloc(&mut table, 0, 0), Err(MemoryError::InvalidArgument));
    assert_eq!(alloc(&mut table, 8, 40), Err(MemoryError::InvalidArgument));
    assert_eq!(alloc(&mut table, u64::MAX, 0), Err(MemoryError::NoMemory));
    let most = alloc(&mut table, 60, 0).unwrap();
    assert_eq!(alloc(&mut table, 41, 0), Err(MemoryError::NoMemory));
    drop(table.free_dm(most).unwrap());
    assert!(alloc(&mut table, 100, 0).is_ok());
}
