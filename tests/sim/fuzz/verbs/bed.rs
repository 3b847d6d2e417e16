//! What all inputs share: two devices, and pages with nothing mapped behind them.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::Duration;

use softrnic_ibverbs::abi::*;
use softrnic_ibverbs::testing::context_on;
use softrnic_link::sim::{Fabric, Path, SimOptions};
use softrnic_nic::verbs::Running;

/// What all inputs share.
pub(super) struct Bed {
    pub(super) contexts: [*mut ibv_context; 2],
    /// Registered memory: one page, with nothing mapped behind it.
    pub(super) memory: *mut u8,
    /// Where lists are, likewise.
    pub(super) lists: *mut u8,
}

// SAFETY: one thread at a time has it, see `verbs`; the library takes any thread.
unsafe impl Send for Bed {}
// SAFETY: one thread at a time has it, and what it points to is never freed.
unsafe impl Sync for Bed {}

pub(super) const PAGE: usize = 4096;
/// More than a QP or an SRQ takes.
pub(super) const ELEMENTS: usize = 40;

pub(super) fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let fabric = Fabric::new(1);
        fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
        let open = |last| {
            let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
            let link = fabric.attach(address, SimOptions::default()).expect("a free address");
            let device =
                Running::with_link(Box::new(link), address, &format!("fuzz{last}")).expect("a device");
            let context = context_on(device);
            assert!(!context.is_null());
            // SAFETY: an open context; nothing is to wait.
            unsafe { do_not_wait((*context).async_fd) };
            context
        };
        Bed { contexts: [open(1), open(2)], memory: page_at_an_edge(), lists: page_at_an_edge() }
    })
}

pub(super) fn page_at_an_edge() -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, the second page of which is made unusable.
    unsafe {
        let pages = libc::mmap(null_mut(), 2 * PAGE, protection, flags, -1, 0);
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
        pages.cast()
    }
}

/// # Safety
/// The descriptor is open.
pub(super) unsafe fn do_not_wait(fd: c_int) {
    // SAFETY: an open descriptor, as the caller promises; no pointers.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
}
