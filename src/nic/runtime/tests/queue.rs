use std::thread;

use crate::runtime::queue::{Full, Overrun, completion_ring, recv_ring, send_ring};

#[test]
fn a_send_queue_is_full_until_requests_are_retired() {
    let (mut app, mut nic) = send_ring(2);
    assert_eq!((app.push(1), app.push(2), app.push(3)), (Ok(()), Ok(()), Err(Full(3))));
    assert_eq!((nic.pop(), nic.pop(), nic.pop()), (Some(1), Some(2), None));
    assert_eq!(app.push(3), Err(Full(3)), "taken is not retired");
    assert_eq!(app.outstanding(), 2);
    nic.retire(1);
    assert_eq!(app.outstanding(), 1);
    assert_eq!((app.push(3), app.push(4)), (Ok(()), Err(Full(4))));
    nic.retire(1);
    assert_eq!((nic.len(), nic.pop(), nic.is_empty()), (1, Some(3), true));
    nic.retire(1);
    assert_eq!((app.outstanding(), app.capacity()), (0, 2));
}

#[test]
fn a_receive_queue_has_room_when_a_request_is_taken() {
    let (mut app, mut nic) = recv_ring(2);
    assert_eq!((app.push(1), app.push(2), app.push(3)), (Ok(()), Ok(()), Err(Full(3))));
    assert_eq!((nic.len(), nic.pop()), (2, Some(1)));
    assert_eq!(app.push(3), Ok(()));
    assert_eq!((nic.pop(), nic.pop(), nic.pop()), (Some(2), Some(3), None));
    assert!(nic.is_empty());
}

#[test]
fn a_completion_queue_overruns_and_keeps_what_it_has() {
    let (mut app, mut nic) = completion_ring(2);
    assert_eq!((nic.push(1), nic.push(2), nic.push(3)), (Ok(()), Ok(()), Err(Overrun)));
    assert_eq!((app.len(), app.capacity()), (2, 2));
    assert_eq!((app.pop(), app.pop(), app.pop()), (Some(1), Some(2), None));
    assert!(app.is_empty());
}

#[test]
fn a_queue_without_places_is_always_full() {
    let (mut app, mut nic) = send_ring(0);
    assert_eq!(app.push(()), Err(Full(())));
    assert_eq!(nic.pop(), None);
    let (mut app, mut nic) = recv_ring(0);
    assert_eq!(app.push(()), Err(Full(())));
    assert_eq!(nic.pop(), None);
}

/// What is left in a ring when both halves go is dropped, and so is what a half still holds.
#[test]
fn requests_left_in_a_ring_are_dropped() {
    let request = std::sync::Arc::new(());
    let (mut app, nic) = send_ring(4);
    app.push(request.clone()).unwrap();
    app.push(request.clone()).unwrap();
    drop((app, nic));
    assert_eq!(std::sync::Arc::strong_count(&request), 1);
}

/// An application that posts whenever there is room and polls in between never finds a completion for which its
/// send queue has no place yet.
#[test]
fn a_completion_means_that_its_place_is_free() {
    const REQUESTS: u32 = 100_000;
    let (mut sends, mut nic_sends) = send_ring(1);
    let (mut completions, mut nic_completions) = completion_ring(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for expected in 0..REQUESTS {
                let request = loop {
                    match nic_sends.pop() {
                        Some(request) => break request,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(request, expected);
                nic_sends.retire(1);
                nic_completions.push(request).unwrap();
            }
        });
        for request in 0..REQUESTS {
            sends.push(request).expect("the last one has completed");
            while completions.pop() != Some(request) {
                thread::yield_now();
            }
        }
    });
}
