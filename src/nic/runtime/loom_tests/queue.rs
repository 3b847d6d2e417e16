//! Places of a send queue, and what the NIC read before it freed them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::explore;
use crate::runtime::queue::send_ring;

struct Buffer(UnsafeCell<u32>);

// SAFETY: the protocol under test orders the accesses, and loom reports it if not.
unsafe impl Sync for Buffer {}
// SAFETY: as above.
unsafe impl Send for Buffer {}

/// The application writes a buffer, posts it, and writes it again when the queue of one place has room again:
/// the NIC's reading must be over. (rtrb is invisible to loom, so that a flag stands for its publishing.)
#[test]
fn loom_a_free_place_means_the_nic_is_done_with_the_request() {
    explore(None, || {
        let (mut app, mut nic) = send_ring(1);
        let buffer = Arc::new(Buffer(UnsafeCell::new(0)));
        let posted = Arc::new(AtomicBool::new(false));
        let worker = thread::spawn({
            let (buffer, posted) = (buffer.clone(), posted.clone());
            move || {
                while !posted.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                assert_eq!(nic.pop(), Some("first"));
                // SAFETY: the request that was popped gives the buffer to the NIC until it is retired.
                assert_eq!(buffer.0.with(|value| unsafe { *value }), 1);
                nic.retire(1);
                nic
            }
        });
        // SAFETY: nothing is posted.
        buffer.0.with_mut(|value| unsafe { *value = 1 });
        app.push("first").unwrap();
        posted.store(true, Ordering::Release);
        while app.push("second").is_err() {
            thread::yield_now();
        }
        // SAFETY: the only place was free again, so that the first request is over.
        buffer.0.with_mut(|value| unsafe { *value = 2 });
        assert_eq!(worker.join().unwrap().pop(), Some("second"));
    });
}
