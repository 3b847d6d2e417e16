use softrnic_memory::{
    Access, AppRange, LocalFault, MemoryError, MemoryTable, MrSpec, RegionKind, RemoteFault, ReregSpec, Sge,
};
use softrnic_wire::Rkey;

use crate::world::{ALL, PAGE, Pages, World, sge};

fn refusal(range: AppRange, iova: u64, access: Access) -> MemoryError {
    let mut w = World::new();
    let error = w.table.reg_mr(w.pd, MrSpec { range, iova, access }).unwrap_err();
    assert_eq!(w.table.mr_count(), 0);
    assert_eq!(w.table.dealloc_pd(w.pd), Ok(()), "a refusal leaves nothing behind");
    error
}

/// A range that is only checked, never copied.
fn anywhere(addr: usize, length: u64) -> AppRange {
    // SAFETY: the tests that use it expect a refusal, or use no copy.
    unsafe { AppRange::new(addr, length) }
}

#[test]
fn empty_regions_give_access_to_nothing() {
    let pages = Pages::new(1);
    let gone = Pages::new(1);
    gone.unmap(0, 1);
    for range in [pages.part(0, 0), pages.part(7, 0), gone.part(0, 0), anywhere(0, 0)] {
        for access in [ALL, ALL | Access::ON_DEMAND] {
            let mut w = World::new();
            let va = range.addr() as u64;
            let keys = w.table.reg_mr(w.pd, MrSpec { range, iova: va, access }).unwrap();
            let write = |w: &mut World, bytes: &[u8]| w.table.write_remote(w.pd, w.qpn, keys.rkey, va, bytes);
            assert_eq!(write(&mut w, b""), Ok(()));
            assert_eq!(write(&mut w, b"x"), Err(RemoteFault::Bounds));
            let byte = Sge { addr: va, length: 1, lkey: keys.lkey };
            assert!(w.table.check_local(w.pd, &byte, false).is_err());
            let none = Sge { length: 0, ..byte };
            assert_eq!(w.table.check_local(w.pd, &none, true), Ok(()));
        }
    }
}

#[test]
fn ranges_that_wrap_are_refused() {
    for access in [ALL, ALL | Access::ON_DEMAND] {
        let end = anywhere(usize::MAX - 10, 11 + 1);
        assert_eq!(refusal(end, 0, access), MemoryError::InvalidArgument);
        assert_eq!(refusal(anywhere(8, u64::MAX), 0, access), MemoryError::InvalidArgument);
        let pages = Pages::new(1);
        assert_eq!(refusal(pages.range(), u64::MAX - 100, access), MemoryError::InvalidArgument, "iova");
    }
    assert_eq!(refusal(anywhere(usize::MAX - 10, 10), 0, ALL), MemoryError::BadAddress);
}

#[test]
fn remote_write_and_atomic_need_local_write() {
    let pages = Pages::new(1);
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::REMOTE_WRITE | Access::REMOTE_READ] {
        assert_eq!(refusal(pages.range(), 0, access), MemoryError::InvalidAccess);
    }
    World::new().reg(pages.range(), Access::REMOTE_READ);
}

#[test]
fn optional_access_bits_are_ignored_and_unknown_ones_refused() {
    let pages = Pages::new(1);
    for bit in 0..32 {
        let access = ALL | Access::from_bits_retain(1 << bit);
        match bit {
            0..=8 => {}
            20..=29 => {
                let mut w = World::new();
                let keys = w.reg(pages.range(), access);
                assert_eq!(w.table.region(keys.lkey).unwrap().access, ALL, "bit {bit}");
            }
            _ => assert_eq!(refusal(pages.range(), 0, access), MemoryError::Unsupported, "bit {bit}"),
        }
    }
}

#[test]
fn persistence_is_not_claimed() {
    let pages = Pages::new(1);
    let access = Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT;
    assert_eq!(refusal(pages.range(), 0, access), MemoryError::Unsupported);
}

#[test]
fn memory_that_is_not_mapped_is_refused() {
    let pages = Pages::new(3);
    pages.unmap(1, 1);
    for access in [Access::REMOTE_READ, ALL] {
        assert_eq!(refusal(pages.range(), 0, access), MemoryError::BadAddress);
        assert_eq!(refusal(pages.part(PAGE - 1, 2), 0, access), MemoryError::BadAddress, "by one byte");
    }
    let mut w = World::new();
    w.reg(pages.part(0, PAGE), ALL);
    w.reg(pages.part(2 * PAGE, PAGE), ALL);
    assert_eq!(refusal(anywhere(0, 8), 0, ALL), MemoryError::BadAddress, "null");
}

#[test]
fn read_only_memory_is_registered_only_for_reading() {
    let pages = Pages::new(3);
    pages.protect(1, 1, libc::PROT_READ);
    assert_eq!(refusal(pages.range(), 0, Access::LOCAL_WRITE), MemoryError::BadAddress);
    World::new().reg(pages.range(), Access::REMOTE_READ);
    pages.protect(1, 1, libc::PROT_NONE);
    assert_eq!(refusal(pages.range(), 0, Access::REMOTE_READ), MemoryError::BadAddress);
}

#[test]
fn memory_past_the_end_of_a_file_is_refused() {
    // SAFETY: a name and flags.
    let fd = unsafe { libc::memfd_create(c"short".as_ptr(), 0) };
    // SAFETY: our own descriptor.
    assert_eq!(unsafe { libc::ftruncate(fd, PAGE as i64) }, 0);
    let pages = Pages::of_file(fd, 2);
    World::new().reg(pages.part(0, PAGE), ALL);
    assert_eq!(refusal(pages.range(), 0, ALL), MemoryError::BadAddress);
    // SAFETY: our own descriptor.
    unsafe { libc::close(fd) };
}

#[test]
fn mappings_that_cannot_be_faulted_in_count_by_their_permissions() {
    // The kernel's clock page: mapped read-only, by frame number, in every process.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vvar]")) else { return };
    let (from, rest) = line.split_once('-').unwrap();
    let start = usize::from_str_radix(from, 16).unwrap();
    let end = usize::from_str_radix(rest.split_once(' ').unwrap().0, 16).unwrap();
    let clock = anywhere(start, (end - start) as u64);
    World::new().reg(clock, Access::REMOTE_READ);
    assert_eq!(refusal(clock, 0, Access::LOCAL_WRITE), MemoryError::BadAddress);
    let mut gap = end;
    while let Some(next) = maps.lines().find_map(|line| line.strip_prefix(&format!("{gap:x}-"))) {
        gap = usize::from_str_radix(next.split_once(' ').unwrap().0, 16).unwrap();
    }
    let into_the_gap = anywhere(start, (gap - start + PAGE) as u64);
    assert_eq!(refusal(into_the_gap, 0, Access::REMOTE_READ), MemoryError::BadAddress);
}

#[test]
fn registration_faults_pages_in_unless_on_demand() {
    let (ordinary, lazy) = (Pages::new(4), Pages::new(4));
    let mut w = World::new();
    w.reg(ordinary.part(PAGE + 1, PAGE), ALL);
    assert_eq!(ordinary.resident(), 2, "every page touched by the range, and no other");
    w.reg(lazy.range(), ALL | Access::ON_DEMAND);
    assert_eq!(lazy.resident(), 0);
}

#[test]
fn registration_leaves_contents_alone() {
    let pages = Pages::new(2);
    let text: Vec<u8> = (0..2 * PAGE).map(|i| i as u8).collect();
    pages.fill(0, &text);
    World::new().reg(pages.range(), ALL);
    assert_eq!(pages.bytes(0, 2 * PAGE), text);
}

#[test]
fn zero_based_addresses_start_at_zero_whatever_iova_says() {
    let pages = Pages::new(1);
    let mut w = World::new();
    pages.fill(100, b"zero");
    let keys = w.reg_at(pages.part(100, 50), 999, ALL | Access::ZERO_BASED);
    let mut read = [0; 4];
    w.table.read_remote(w.pd, w.qpn, keys.rkey, 0, &mut read).unwrap();
    assert_eq!(&read, b"zero");
    w.table.gather(w.pd, &[sge(0, 4, keys.lkey)], 0, &mut read).unwrap();
    assert_eq!(&read, b"zero");
    let check = |va, len| w.table.check_remote(w.pd, w.qpn, keys.rkey, va, len, Access::REMOTE_READ);
    assert_eq!(check(0, 50), Ok(()));
    assert_eq!(check(0, 51), Err(RemoteFault::Bounds));
    assert_eq!(check(pages.va() + 100, 4), Err(RemoteFault::Bounds));
}

#[test]
fn iova_regions_are_known_by_their_iova_alone() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let iova = 0xffff_8000_1234_5678;
    let keys = w.reg_at(pages.range(), iova, ALL);
    w.table.write_remote(w.pd, w.qpn, keys.rkey, iova + 10, b"over there").unwrap();
    assert_eq!(pages.bytes(10, 10), b"over there");
    let check = w.table.check_remote(w.pd, w.qpn, keys.rkey, pages.va(), 1, Access::REMOTE_READ);
    assert_eq!(check, Err(RemoteFault::Bounds));
}

#[test]
fn the_null_region_reads_as_zeros_discards_and_is_not_for_peers() {
    let mut w = World::new();
    let keys = w.table.alloc_null_mr(w.pd).unwrap();
    assert_eq!(keys.rkey, Rkey(0));
    for addr in [0, 0xdead_0000, u64::MAX - 100] {
        let element = [sge(addr, 16, keys.lkey)];
        let mut read = [0xff; 16];
        w.table.scatter(w.pd, &element, 0, b"nobody sees this").unwrap();
        w.table.gather(w.pd, &element, 0, &mut read).unwrap();
        assert_eq!(read, [0; 16]);
    }
    let beyond = w.table.check_local(w.pd, &sge(u64::MAX, 2, keys.lkey), false);
    assert_eq!(beyond, Err(LocalFault::Bounds), "even here addresses do not wrap");
    for rkey in [keys.rkey, Rkey(keys.lkey.0)] {
        assert!(w.table.check_remote(w.pd, w.qpn, rkey, 0, 8, Access::REMOTE_READ).is_err());
        assert!(w.table.fetch_add(w.pd, w.qpn, rkey, 0, 1).is_err());
    }
}

#[test]
fn local_reading_needs_no_flag_and_writing_needs_local_write() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let read_only = w.reg(pages.range(), Access::empty());
    let element = sge(pages.va(), 8, read_only.lkey);
    assert_eq!(w.table.check_local(w.pd, &element, false), Ok(()));
    assert_eq!(w.table.check_local(w.pd, &element, true), Err(LocalFault::Access));
    assert_eq!(w.table.scatter(w.pd, &[element], 0, &[1]), Err(LocalFault::Access));
    assert_eq!(pages.bytes(0, 1), [0]);
    let writable = w.reg(pages.range(), Access::LOCAL_WRITE);
    assert_eq!(w.table.check_local(w.pd, &sge(pages.va(), 8, writable.lkey), true), Ok(()));
}

#[test]
fn every_remote_right_is_needed_for_its_operation() {
    let pages = Pages::new(1);
    let rights = [
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::FLUSH_GLOBAL,
        Access::empty(),
    ];
    for granted in rights {
        let mut w = World::new();
        let keys = w.reg(pages.range(), granted | Access::LOCAL_WRITE);
        for needed in rights.into_iter().filter(|right| !right.is_empty()) {
            let expected = if needed == granted { Ok(()) } else { Err(RemoteFault::Access) };
            let check = w.table.check_remote(w.pd, w.qpn, keys.rkey, pages.va(), 8, needed);
            assert_eq!(check, expected, "granted {granted:?}, needed {needed:?}");
        }
    }
}

#[test]
fn another_domain_is_refused_locally_and_remotely() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    let other = w.table.alloc_pd().unwrap();
    let check = w.table.check_remote(other, w.qpn, keys.rkey, pages.va(), 8, Access::REMOTE_READ);
    assert_eq!(check, Err(RemoteFault::WrongPd));
    assert_eq!(w.table.check_local(other, &sge(pages.va(), 8, keys.lkey), false), Err(LocalFault::WrongPd));
}

#[test]
fn an_element_of_length_zero_is_never_looked_up() {
    let w = World::new();
    assert_eq!(w.table.check_local(w.pd, &sge(u64::MAX, 0, softrnic_memory::Lkey(1)), true), Ok(()));
}

#[test]
fn reregistration_changes_what_it_names_and_keeps_the_keys() {
    let (a, b) = (Pages::new(1), Pages::new(2));
    let combinations = 0..8_u32;
    for choice in combinations {
        let mut w = World::new();
        let other = w.table.alloc_pd().unwrap();
        let keys = w.reg(a.range(), Access::REMOTE_READ);
        let change = ReregSpec {
            translation: (choice & 1 != 0).then(|| (b.range(), 0x10_0000)),
            pd: (choice & 2 != 0).then_some(other),
            access: (choice & 4 != 0).then_some(ALL),
        };
        assert_eq!(w.table.rereg_mr(keys.lkey, change), Ok(keys));
        let info = w.table.region(keys.lkey).unwrap();
        let expected = (
            if choice & 1 != 0 { (0x10_0000, 2 * PAGE as u64) } else { (a.va(), PAGE as u64) },
            if choice & 2 != 0 { other } else { w.pd },
            if choice & 4 != 0 { ALL } else { Access::REMOTE_READ },
        );
        assert_eq!(((info.iova, info.length), info.pd, info.access), expected, "choice {choice}");
        let (used, unused) = if choice & 2 != 0 { (other, w.pd) } else { (w.pd, other) };
        assert_eq!(w.table.dealloc_pd(used), Err(MemoryError::Busy));
        assert_eq!(w.table.dealloc_pd(unused), Ok(()));
        a.fill(0, b"a");
        b.fill(0, b"b");
        let mut read = [0];
        w.table.read_remote(used, w.qpn, keys.rkey, info.iova, &mut read).unwrap();
        assert_eq!(&read, if choice & 1 != 0 { b"b" } else { b"a" });
    }
}

#[test]
fn a_refused_reregistration_changes_nothing() {
    let (good, gone) = (Pages::new(1), Pages::new(1));
    gone.unmap(0, 1);
    let mut w = World::new();
    let keys = w.reg(good.range(), ALL);
    let before = w.table.region(keys.lkey);
    let stale = w.table.alloc_pd().unwrap();
    w.table.dealloc_pd(stale).unwrap();
    let attempts = [
        (ReregSpec { translation: Some((gone.range(), 0)), ..ReregSpec::default() }, MemoryError::BadAddress),
        (ReregSpec { pd: Some(stale), ..ReregSpec::default() }, MemoryError::UnknownPd),
        (
            ReregSpec { access: Some(Access::REMOTE_WRITE), ..ReregSpec::default() },
            MemoryError::InvalidAccess,
        ),
        (
            ReregSpec { translation: Some((good.range(), u64::MAX)), ..ReregSpec::default() },
            MemoryError::InvalidArgument,
        ),
    ];
    for (change, error) in attempts {
        assert_eq!(w.table.rereg_mr(keys.lkey, change), Err(error));
        assert_eq!(w.table.region(keys.lkey), before);
    }
}

#[test]
fn reregistration_with_more_rights_looks_at_the_memory_again() {
    let pages = Pages::new(1);
    pages.protect(0, 1, libc::PROT_READ);
    let mut w = World::new();
    let keys = w.reg(pages.range(), Access::REMOTE_READ);
    let change = ReregSpec { access: Some(ALL), ..ReregSpec::default() };
    assert_eq!(w.table.rereg_mr(keys.lkey, change), Err(MemoryError::BadAddress));
}

#[test]
fn reregistration_can_make_a_region_on_demand() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ALL);
    assert_eq!(w.table.region(keys.lkey).unwrap().kind, RegionKind::Ordinary);
    let change = ReregSpec { access: Some(ALL | Access::ON_DEMAND), ..ReregSpec::default() };
    w.table.rereg_mr(keys.lkey, change).unwrap();
    assert_eq!(w.table.region(keys.lkey).unwrap().kind, RegionKind::OnDemand);
    pages.unmap(0, 1);
    let result = w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), b"x");
    assert_eq!(result, Err(RemoteFault::Unmapped));
}

#[test]
fn null_regions_are_not_reregistered() {
    let mut w = World::new();
    let keys = w.table.alloc_null_mr(w.pd).unwrap();
    assert_eq!(w.table.rereg_mr(keys.lkey, ReregSpec::default()), Err(MemoryError::Unsupported));
}

#[test]
fn a_table_moves_between_threads() {
    fn movable<T: Send>() {}
    movable::<MemoryTable>();
}

#[test]
fn more_than_the_machine_has_is_refused_before_any_page_is_touched() {
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |name: &str| {
        let line = machine.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let length = ((kib("MemTotal:") + kib("SwapTotal:")) << 10) * 2;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping, wherever there is room, of addresses alone.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    let all = anywhere(base.expose_provenance(), length as u64);
    assert_eq!(refusal(all, 0, ALL), MemoryError::NoMemory);
    let mut resident = [1; 16];
    // SAFETY: the list has a byte for each page.
    assert_eq!(unsafe { libc::mincore(base, 16 * 4096, resident.as_mut_ptr()) }, 0);
    assert_eq!(resident, [0; 16]);
    // A large part of it is no more than there is.
    let part = anywhere(base.expose_provenance(), 64 << 20);
    World::new().reg(part, ALL);
    // SAFETY: mapped above, and no longer used.
    unsafe { libc::munmap(base, length) };
}
