//! The descriptors that the manager's thread waits for. A closed descriptor is no longer waited for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

/// The descriptors that wake the thread. None before there is a thread.
#[derive(Clone, Default)]
pub(super) struct Watch(Option<Arc<OwnedFd>>);

impl Watch {
    pub fn new() -> rustix::io::Result<Watch> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(|made| Watch(Some(Arc::new(made))))
    }

    /// Wakes the thread when the descriptor is readable.
    pub fn add(&self, descriptor: impl AsFd) {
        if let Some(watch) = &self.0 {
            let added =
                epoll::add(watch.as_ref(), descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
            if let Err(error) = added {
                tracing::warn!(%error, "cannot watch a descriptor of rdma_cm");
            }
        }
    }

    /// Whether one of them is readable now.
    pub fn is_ready(&self) -> bool {
        let Some(descriptor) = self.descriptor() else { return false };
        let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Readable when one of them is.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }
}
