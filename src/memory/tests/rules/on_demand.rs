use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use softrnic_memory::{
    Access, AppRange, Config, LocalFault, MemoryError, MemoryTable, MrSpec, Prefetch, RemoteFault,
};

use crate::world::{ALL, PAGE, Pages, World, sge};

const ODP: Access = ALL.union(Access::ON_DEMAND);

#[test]
fn memory_unmapped_under_a_region_is_a_fault_and_not_a_crash() {
    let safe = MemoryTable::with_config([9; 32], Config { safe_copies: true, ..Config::default() });
    for (mut w, access) in [(World::new(), ODP), (World::of(safe), ALL)] {
        let pages = Pages::new(3);
        let keys = w.reg(pages.range(), access);
        pages.unmap(1, 1);
        let (va, mut two) = (pages.va() + PAGE as u64 - 1, [0; 2]);
        assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, va, &[1, 2]), Err(RemoteFault::Unmapped));
        assert_eq!(w.table.read_remote(w.pd, w.qpn, keys.rkey, va, &mut two), Err(RemoteFault::Unmapped));
        let list = [sge(va, 2, keys.lkey)];
        assert_eq!(w.table.scatter(w.pd, &list, 0, &[1, 2]), Err(LocalFault::Unmapped));
        assert_eq!(w.table.gather(w.pd, &list, 0, &mut two), Err(LocalFault::Unmapped));
        let word = pages.va() + PAGE as u64;
        assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, word, 1), Err(RemoteFault::Unmapped));
        assert_eq!(w.table.compare_swap(w.pd, w.qpn, keys.rkey, word, 0, 1), Err(RemoteFault::Unmapped));
        assert_eq!(w.table.atomic_write(w.pd, w.qpn, keys.rkey, word, [1; 8]), Err(RemoteFault::Unmapped));
        assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), &[1]), Ok(()), "its neighbour");
    }
}

#[test]
fn memory_made_read_only_is_a_fault_for_writing_alone() {
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ODP);
    pages.fill(0, b"constant");
    pages.protect(0, 1, libc::PROT_READ);
    let mut read = [0; 8];
    assert_eq!(w.table.read_remote(w.pd, w.qpn, keys.rkey, pages.va(), &mut read), Ok(()));
    assert_eq!(&read, b"constant");
    assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), b"x"), Err(RemoteFault::Unmapped));
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, pages.va(), 1), Err(RemoteFault::Unmapped));
    assert_eq!(pages.bytes(0, 8), b"constant");
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

/// A peer's atomic is carried out by whichever thread drives the NIC. If that is cancelled in it, the NIC stays locked.
#[test]
fn an_atomic_that_finds_its_page_read_only_is_no_cancellation_point() {
    struct Shared<'a>(&'a (dyn Fn() -> bool + Sync), AtomicBool);
    extern "C" fn cancelled(shared: *mut c_void) -> *mut c_void {
        // SAFETY: the test keeps it until it has joined this thread.
        let shared = unsafe { &*shared.cast::<Shared<'_>>() };
        // SAFETY: asks for the cancellation of this very thread.
        unsafe { pthread_cancel(libc::pthread_self()) };
        shared.1.store((shared.0)(), Ordering::Release);
        ptr::null_mut()
    }
    let pages = Pages::new(1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ODP);
    pages.protect(0, 1, libc::PROT_READ);
    let refuses = || w.table.fetch_add(w.pd, w.qpn, keys.rkey, pages.va(), 1) == Err(RemoteFault::Unmapped);
    let mut shared = Shared(&refuses, AtomicBool::new(false));
    // SAFETY: the thread is joined before `shared` goes, and each pointer is valid for the call.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(
            libc::pthread_create(&raw mut thread, ptr::null(), cancelled, (&raw mut shared).cast()),
            0
        );
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
    }
    assert!(shared.1.load(Ordering::Acquire), "cancelled in the middle of it");
}

#[test]
fn a_file_cut_short_under_a_region_is_a_fault_and_not_a_bus_error() {
    // SAFETY: a name and flags.
    let fd = unsafe { libc::memfd_create(c"cut".as_ptr(), 0) };
    // SAFETY: our own descriptor.
    assert_eq!(unsafe { libc::ftruncate(fd, PAGE as i64) }, 0);
    let pages = Pages::of_file(fd, 1);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ODP);
    assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), b"x"), Ok(()));
    // SAFETY: our own descriptor.
    assert_eq!(unsafe { libc::ftruncate(fd, 0) }, 0);
    assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va(), b"x"), Err(RemoteFault::Unmapped));
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, pages.va(), 1), Err(RemoteFault::Unmapped));
    // SAFETY: our own descriptor.
    unsafe { libc::close(fd) };
}

#[test]
fn an_on_demand_region_may_cover_memory_that_comes_later() {
    let pages = Pages::new(2);
    pages.protect(1, 1, libc::PROT_NONE);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ODP);
    let va = pages.va() + PAGE as u64;
    assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, va, b"x"), Err(RemoteFault::Unmapped));
    pages.protect(1, 1, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, va, b"x"), Ok(()));
}

fn whole() -> AppRange {
    // SAFETY: the tests copy only to and from pages of their own, to which they hold no references.
    unsafe { AppRange::whole() }
}

#[test]
fn an_implicit_region_covers_whatever_is_mapped() {
    let mut w = World::new();
    let pages = Pages::new(2);
    let keys = w.reg(whole(), ODP);
    w.table.write_remote(w.pd, w.qpn, keys.rkey, pages.va() + 8, b"anywhere").unwrap();
    assert_eq!(pages.bytes(8, 8), b"anywhere");
    assert_eq!(w.table.fetch_add(w.pd, w.qpn, keys.rkey, pages.va(), 3), Ok(0));
    assert_eq!(pages.bytes(0, 1), [3]);
    for va in [0, 8, u64::MAX - 8, 1 << 63] {
        assert_eq!(w.table.write_remote(w.pd, w.qpn, keys.rkey, va, b"x"), Err(RemoteFault::Unmapped));
    }
    let check = w.table.check_remote(w.pd, w.qpn, keys.rkey, u64::MAX, 2, Access::REMOTE_READ);
    assert_eq!(check, Err(RemoteFault::Bounds));
}

#[test]
fn an_implicit_region_is_on_demand_and_has_no_iova() {
    let mut w = World::new();
    let attempts = [(ALL, 0), (ODP, 4096), (ODP | Access::ZERO_BASED, 0)];
    for (access, iova) in attempts {
        let spec = MrSpec { range: whole(), iova, access };
        assert_eq!(w.table.reg_mr(w.pd, spec), Err(MemoryError::InvalidArgument));
    }
}

#[test]
fn prefetch_faults_pages_in_and_reports_failures() {
    let pages = Pages::new(4);
    let mut w = World::new();
    let keys = w.reg(pages.range(), ODP);
    let prefetch = |w: &World, sge, write| w.table.prefetch(w.pd, &sge, write)?.map_or(Ok(()), Prefetch::run);
    assert_eq!(prefetch(&w, sge(pages.va(), 2 * PAGE as u32, keys.lkey), true), Ok(()));
    assert_eq!(pages.resident(), 2);
    let outside = sge(pages.va(), 5 * PAGE as u32, keys.lkey);
    assert_eq!(prefetch(&w, outside, false), Err(MemoryError::BadAddress));
    pages.unmap(3, 1);
    let all = sge(pages.va(), 4 * PAGE as u32, keys.lkey);
    assert_eq!(prefetch(&w, all, false), Err(MemoryError::BadAddress));
}
