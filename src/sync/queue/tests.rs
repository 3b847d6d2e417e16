use std::thread;

use crate::queue::{CqOverrun, Full, completion_ring, recv_ring, send_ring, send_ring_freed_by_polling};

#[test]
fn a_send_queue_is_full_until_requests_are_retired() {
    let (mut app, mut nic) = send_ring(2).expect("memory");
    assert_eq!((app.push(1), app.push(2), app.push(3)), (Ok(()), Ok(()), Err(Full)));
    assert_eq!((nic.pop(), nic.pop(), nic.pop()), (Some(1), Some(2), None));
    assert_eq!(app.push(3), Err(Full), "taken is not retired");
    assert_eq!(app.outstanding(), 2);
    nic.retire(1);
    assert_eq!(app.outstanding(), 1);
    assert_eq!((app.push(3), app.push(4)), (Ok(()), Err(Full)));
    nic.retire(1);
    assert_eq!((nic.len(), nic.pop(), nic.is_empty()), (1, Some(3), true));
    nic.retire(1);
    assert_eq!((app.outstanding(), app.capacity()), (0, 2));
}

#[test]
fn slots_that_polling_frees_are_free_once_a_completion_was_seen() {
    let (mut app, mut nic, mut seen) = send_ring_freed_by_polling(3).expect("memory");
    assert!((1..=3).all(|number| app.push(number).is_ok()));
    assert_eq!((nic.pop(), nic.pop(), nic.pop()), (Some(1), Some(2), Some(3)));
    // The first is unsignaled, and complete with the second.
    nic.retire_unseen(1);
    nic.retire_unseen(1);
    nic.announce();
    nic.retire_unseen(1);
    nic.announce();
    assert_eq!((app.push(4), app.outstanding()), (Err(Full), 3));
    seen.see();
    assert_eq!((app.push(4), app.push(5), app.push(6)), (Ok(()), Ok(()), Err(Full)));
    seen.see();
    assert_eq!((app.push(6), app.push(7)), (Ok(()), Err(Full)));
    seen.see();
    assert_eq!(app.push(7), Err(Full), "nothing new was announced");
}

#[test]
fn a_reset_frees_slots_that_nobody_will_poll() {
    let (mut app, mut nic, mut seen) = send_ring_freed_by_polling(2).expect("memory");
    assert_eq!((app.push(1), app.push(2), nic.pop()), (Ok(()), Ok(()), Some(1)));
    nic.retire_unseen(1);
    nic.announce();
    // The completion is dropped, and the other request too.
    nic.retire(0);
    assert_eq!(nic.pop(), Some(2));
    nic.retire(1);
    seen.forget();
    assert_eq!((app.outstanding(), app.push(3), nic.pop()), (0, Ok(()), Some(3)));
    nic.retire_unseen(1);
    nic.announce();
    assert_eq!(app.outstanding(), 1);
    seen.see();
    assert_eq!(app.outstanding(), 0);
}

#[test]
fn a_receive_queue_has_room_when_a_request_is_taken() {
    let (mut app, mut nic) = recv_ring(2).expect("memory");
    assert_eq!((app.push(1), app.push(2), app.push(3)), (Ok(()), Ok(()), Err(Full)));
    assert_eq!((nic.len(), nic.pop()), (2, Some(1)));
    assert_eq!(app.push(3), Ok(()));
    assert_eq!((nic.pop(), nic.pop(), nic.pop()), (Some(2), Some(3), None));
    assert!(nic.is_empty());
}

#[test]
fn a_completion_queue_overruns_and_keeps_what_it_has() {
    let (mut app, mut nic) = completion_ring(2).expect("memory");
    assert_eq!((nic.push(1), nic.push(2), nic.push(3)), (Ok(()), Ok(()), Err(CqOverrun)));
    assert_eq!((app.len(), app.capacity()), (2, 2));
    assert_eq!((app.pop(), app.pop(), app.pop()), (Some(1), Some(2), None));
    assert!(app.is_empty());
}

#[test]
fn a_queue_without_places_is_always_full() {
    let (mut app, mut nic) = send_ring(0).expect("memory");
    assert_eq!(app.push(()), Err(Full));
    assert_eq!(nic.pop(), None);
    let (mut app, mut nic) = recv_ring(0).expect("memory");
    assert_eq!(app.push(()), Err(Full));
    assert_eq!(nic.pop(), None);
}

/// What is left in a ring when both halves go is dropped, and so is what a half still holds.
#[test]
fn requests_left_in_a_ring_are_dropped() {
    let request = std::sync::Arc::new(());
    let (mut app, nic) = send_ring(4).expect("memory");
    app.push(request.clone()).unwrap();
    app.push(request.clone()).unwrap();
    drop((app, nic));
    assert_eq!(std::sync::Arc::strong_count(&request), 1);
}

#[test]
fn a_request_that_could_not_be_completed_is_dropped_and_takes_no_place() {
    let request = std::sync::Arc::new(());
    let (mut app, mut nic) = send_ring(1).expect("memory");
    for _ in 0..3 {
        assert_eq!(app.push_with(|| request.clone(), |_| Err(Full)), Err(Full));
        assert_eq!((app.outstanding(), nic.len(), std::sync::Arc::strong_count(&request)), (0, 0, 1));
    }
    let place = app.push_with(|| request.clone(), |_| Ok::<(), Full>(()));
    assert_eq!((place, nic.len()), (Ok(()), 1));
    let full = app.push_with(|| panic!("there is no place"), |_| Ok::<(), Full>(()));
    assert_eq!(full, Err(Full));
    assert!(nic.pop().is_some());
}

#[test]
fn a_request_is_completed_in_its_place() {
    let (mut app, mut nic) = recv_ring(1).expect("memory");
    let fill = |request: &mut [u8; 2]| {
        request[1] = 2;
        Ok::<(), Full>(())
    };
    assert_eq!(app.push_with(|| [1, 0], fill), Ok(()));
    assert_eq!(nic.pop(), Some([1, 2]));
}

#[test]
fn a_completion_is_taken_after_it_was_looked_at_in_its_place() {
    let (mut app, mut nic) = completion_ring(2).expect("memory");
    assert_eq!((nic.push(1), nic.push(2)), (Ok(()), Ok(())));
    let (mut new, mut new_nic) = completion_ring(2).expect("memory");
    assert_eq!(new_nic.push(3), Ok(()));
    std::mem::swap(&mut app, &mut new);
    new.replace(app);
    assert_eq!([(); 4].map(|()| new.pop_with(|&completion| completion)), [Some(1), Some(2), Some(3), None]);
}

/// An application that posts whenever there is room and polls in between never finds a completion for which its
/// send queue has no place yet.
#[test]
fn a_completion_means_that_its_place_is_free() {
    const REQUESTS: u32 = 100_000;
    let (mut sends, mut nic_sends) = send_ring(1).expect("memory");
    let (mut completions, mut nic_completions) = completion_ring(1).expect("memory");
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

#[test]
fn a_queue_that_changes_its_size_keeps_what_it_holds_in_order() {
    let (mut app, mut nic) = completion_ring(4).expect("memory");
    (0..4).for_each(|n| nic.push(n).expect("room"));
    for (capacity, pushed) in [(8, 4..8), (16, 8..16)] {
        let (next_app, next_nic) = completion_ring(capacity).expect("memory");
        app.replace(next_app);
        nic = next_nic;
        pushed.for_each(|n| nic.push(n).expect("room"));
    }
    assert_eq!((app.len(), app.capacity()), (16, 16));
    assert_eq!(
        (0..17).map(|_| app.pop()).collect::<Vec<_>>(),
        (0..16).map(Some).chain([None]).collect::<Vec<_>>()
    );
    assert!(app.is_empty());

    let (mut app, mut nic) = recv_ring(2).expect("memory");
    app.push(1).expect("room");
    let (next_app, next_nic) = recv_ring(4).expect("memory");
    nic.replace(next_nic);
    app.replace(next_app);
    app.push(2).expect("room");
    assert_eq!((nic.len(), nic.pop(), nic.pop(), nic.pop()), (2, Some(1), Some(2), None));
    assert_eq!(app.capacity(), 4);
}

/// Wherever in the ring they are, and however many pass meanwhile.
#[test]
fn entries_that_are_refused_leave_a_completion_queue_and_the_others_stay_in_order() {
    for start in 0..8 {
        let (mut app, mut nic) = completion_ring(5).expect("memory");
        for n in 0..start {
            nic.push(n).expect("room");
            assert_eq!(app.pop(), Some(n));
        }
        (10..15).for_each(|n| nic.push(n).expect("room"));
        assert_eq!(nic.push(15), Err(CqOverrun));
        app.retain(|n| n % 2 == 0);
        assert_eq!(app.len(), 3);
        (16..18).for_each(|n| nic.push(n).expect("the places of what left"));
        assert_eq!(nic.push(18), Err(CqOverrun));
        let left: Vec<_> = std::iter::from_fn(|| app.pop()).collect();
        assert_eq!(left, [10, 12, 14, 16, 17]);
    }
}

#[test]
fn a_queue_that_is_too_large_for_memory_is_refused() {
    assert!(completion_ring::<[u64; 8]>(usize::MAX).is_err());
    assert!(completion_ring::<[u64; 8]>(1 << 56).is_err());
}
