//! Places of a send queue, and what the NIC read before it freed them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::queue::send_ring;
use crate::ring::ring;

struct Buffer(UnsafeCell<u32>);

// SAFETY: the protocol under test orders the accesses, and loom reports it if not.
unsafe impl Sync for Buffer {}
// SAFETY: the protocol under test orders the accesses; a buffer has no thread of its own.
unsafe impl Send for Buffer {}

/// The application writes a buffer, posts it, and writes it again when the queue of one place has room again:
/// the NIC's reading must be over.
#[test]
fn loom_a_free_place_means_the_nic_is_done_with_the_request() {
    explore(None, || {
        let (mut app, mut nic) = send_ring(1).expect("memory");
        let buffer = Arc::new(Buffer(UnsafeCell::new(0)));
        let worker = thread::spawn({
            let buffer = buffer.clone();
            move || {
                let first = loop {
                    match nic.pop() {
                        Some(request) => break request,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(first, "first");
                // SAFETY: the request that was popped gives the buffer to the NIC until it is retired.
                assert_eq!(buffer.0.with(|value| unsafe { *value }), 1);
                nic.retire(1);
                nic
            }
        });
        // SAFETY: nothing is posted.
        buffer.0.with_mut(|value| unsafe { *value = 1 });
        app.push("first").unwrap();
        while app.push("second").is_err() {
            thread::yield_now();
        }
        // SAFETY: the only place was free again, so that the first request is over.
        buffer.0.with_mut(|value| unsafe { *value = 2 });
        assert_eq!(worker.join().unwrap().pop(), Some("second"));
    });
}

/// More entries than places pass through, each once and in order, and what is left is dropped once.
#[test]
fn loom_a_ring_passes_every_entry_on_once() {
    explore(None, || {
        let entry = Arc::new(());
        let (mut producer, mut consumer) = ring(2).expect("memory");
        let adding = thread::spawn({
            let entry = entry.clone();
            move || {
                for n in 0..3 {
                    while producer.push((n, entry.clone())).is_err() {
                        thread::yield_now();
                    }
                }
            }
        });
        for expected in 0..2 {
            let (n, _) = loop {
                match consumer.pop() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(n, expected);
        }
        adding.join().unwrap();
        assert_eq!(consumer.len(), 1);
        drop(consumer);
        assert_eq!(Arc::strong_count(&entry), 1);
    });
}
