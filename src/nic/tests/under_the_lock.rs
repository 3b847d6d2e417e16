//! How much memory is allocated or freed while the NIC is held, during which all other threads wait.

// Without debug assertions the holder of a NIC is not known.
#![cfg(debug_assertions)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use softrnic_engine::{LocalData, RecvRequest};
use softrnic_nic::device::DeviceSpec;
use softrnic_nic::verbs::{Access, Context, QpOptions, SrqOptions};
use softrnic_sync::lock::held_by_this_thread;

/// The system's allocator, which watches for holders of a NIC.
struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

fn watch(size: usize) {
    if held_by_this_thread() {
        LARGEST.fetch_max(size, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator, which keeps the promises.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: the caller keeps what the trait asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        watch(layout.size());
        // SAFETY: the caller keeps what the trait asks of it.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: the caller keeps what the trait asks of it.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        watch(layout.size().max(size));
        // SAFETY: the caller keeps what the trait asks of it.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What a few packets need; the tables of a NIC with few objects are smaller still.
const LITTLE: usize = 64 << 10;

fn asked_for_little(what: &str) {
    let largest = LARGEST.swap(0, Ordering::Relaxed);
    assert!(largest <= LITTLE, "{what}: {largest} bytes under the NIC lock");
}

#[test]
fn memory_moved_under_the_nic_lock_is_bounded() {
    const MANY: usize = 1 << 18;
    let context = Context::open(&DeviceSpec::default()).expect("a device");
    let pd = context.alloc_pd().expect("a PD");
    asked_for_little("opening");

    let cq = context.create_cq(MANY, None).expect("a CQ");
    cq.resize(2 * MANY).expect("resized");
    asked_for_little("a CQ");

    let srq = pd.create_srq(SrqOptions { max_wr: MANY, xrc: None }).expect("an SRQ");
    for wr_id in 0..MANY as u64 {
        srq.post_recv(RecvRequest { wr_id, data: LocalData::empty(), length: 0 }).expect("posts");
    }
    srq.resize(2 * MANY).expect("resized");
    drop(srq);
    asked_for_little("an SRQ");

    let options = QpOptions { max_send_wr: MANY, max_recv_wr: MANY, ..QpOptions::default() };
    let qp = pd.create_rc_qp(&cq, &cq, options).expect("a QP");
    drop(qp);
    drop(cq);
    asked_for_little("a QP");

    let memory = context.alloc_dm(32 << 20, 12).expect("device memory");
    context.free_dm(memory).expect("unused");
    asked_for_little("device memory");

    drop(pd.register(vec![0_u8; 32 << 20], Access::LOCAL_WRITE).expect("a region"));
    asked_for_little("a region");
}
