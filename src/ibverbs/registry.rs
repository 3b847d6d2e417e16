//! The tables shared by the objects of this process, under one lock.
//!
//! It is one lock because of forks: no other thread may hold it while the process is copied. It is a leaf: while it is
//! held, the NIC is never called, and nothing is dropped that would call it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError, Weak};

use softrnic_cma::EventChannel;
use softrnic_nic::device::Process;
use softrnic_nic::verbs::{Context, ContextId, EventSource, Pd};
use softrnic_rdma_netlink::Responder;
use softrnic_sync::channel::AckCounter;

use crate::context::File;
use crate::object::Objects;
use crate::{dm, mr, xrcd};

/// The tables.
#[derive(Default)]
pub(crate) struct Registry {
    /// Open files, to import devices from.
    pub files: Vec<Weak<File>>,
    /// XRC domains that were opened with a file.
    pub domains: Vec<Weak<xrcd::Domain>>,
    /// Objects that can be imported, by file and handle.
    pub exports: HashMap<(u64, u32), Export>,
    /// The C object of an asynchronous event.
    pub targets: HashMap<(ContextId, EventSource), Target>,
    /// NICs of forked processes, by file and process.
    pub reopened: HashMap<(u64, Process), &'static Context>,
    /// NICs that live on between one context and the next, with their address, by the index of their device.
    pub kept: HashMap<usize, Context>,
    /// Channels of the connection manager, by descriptor.
    pub channels: HashMap<c_int, EventChannel>,
    /// Every object that C has a pointer to.
    pub objects: Objects,
    /// The numbers of devices for programs that ask over netlink.
    pub responder: Responder,
    /// The sockets that answer over netlink, by the program's descriptor.
    pub answering: HashMap<c_int, Arc<OwnedFd>>,
    last_handle: u32,
}

/// An object that can be imported.
#[derive(Clone)]
pub(crate) enum Export {
    Pd(Arc<Pd>),
    Region(Arc<mr::Region>),
    Memory(Arc<dm::Memory>),
}

/// The C object that events are about.
#[derive(Clone)]
pub(crate) struct Target {
    /// Address of the `ibv_qp`, `ibv_cq` or `ibv_srq`.
    pub object: usize,
    pub acks: Arc<AckCounter>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// The tables, to be held briefly.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    static FORKS: Once = Once::new();
    FORKS.call_once(|| {
        // SAFETY: functions that live as long as the program: the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Makes an object of a file importable, and returns its handle.
    pub fn export(&mut self, file: &File, object: Export) -> u32 {
        self.last_handle =
            handle_after(self.last_handle, |handle| self.exports.contains_key(&(file.id, handle)));
        self.exports.insert((file.id, self.last_handle), object);
        self.last_handle
    }

    /// A handle to show: nothing is looked up by it, so it does not matter that handles wrap.
    pub fn handle(&mut self) -> u32 {
        self.last_handle = handle_after(self.last_handle, |_| false);
        self.last_handle
    }
}

/// The next handle that is not `taken`; 0 means none. Handles wrap, and objects may live that long.
fn handle_after(last: u32, taken: impl Fn(u32) -> bool) -> u32 {
    let mut handle = last;
    loop {
        handle = handle.wrapping_add(1);
        if handle != 0 && !taken(handle) {
            return handle;
        }
    }
}

/// Held from before a fork until after it, by the forking thread.
struct Held(Mutex<Option<MutexGuard<'static, Registry>>>);

// SAFETY: only the guard is not `Sync`; it is taken and released by the thread that forks, or by its copy in the child
// (`before_fork`, `in_parent`, `in_child`).
unsafe impl Sync for Held {}

static HELD: Held = Held(Mutex::new(None));

fn held() -> MutexGuard<'static, Option<MutexGuard<'static, Registry>>> {
    HELD.0.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before_fork() {
    let registry = registry();
    *held() = Some(registry);
}

extern "C" fn in_parent() {
    drop(held().take());
}

extern "C" fn in_child() {
    if let Some(mut tables) = held().take() {
        // They belong to the parent.
        std::mem::forget(std::mem::take(&mut tables.kept));
    }
}

#[cfg(test)]
mod tests {
    use super::handle_after;

    #[test]
    fn a_wrapped_handle_names_no_live_object() {
        let live = [1, 2, u32::MAX];
        assert_eq!(handle_after(u32::MAX - 1, |handle| live.contains(&handle)), 3);
    }
}
