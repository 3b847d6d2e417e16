//! Both sides of a ring in one process: a consumer plays the kernel's part for a producer.

use std::ptr::NonNull;
use std::thread;

use super::*;

use super::super::testing::ring_pair;

const SIZE: u32 = 8;

fn pair() -> (Producer<u64>, Consumer<u64>) {
    ring_pair(SIZE)
}

#[test]
fn entries_are_seen_once_published_and_room_returns_once_released() {
    let (mut producer, mut consumer) = pair();
    for entry in 0..u64::from(SIZE) {
        assert!(producer.has_room(1));
        producer.push(entry);
    }
    assert!(!producer.has_room(1));
    assert_eq!((consumer.pop(), producer.unpublished(), producer.outstanding()), (None, SIZE, 0));
    producer.publish();
    assert_eq!((consumer.available(), producer.unpublished(), producer.outstanding()), (SIZE, 0, SIZE));
    assert_eq!((consumer.peek(2), consumer.pop(), consumer.pop()), (Some(2), Some(0), Some(1)));
    assert!(!producer.has_room(1), "not released yet");
    consumer.release();
    assert!(producer.has_room(2) && !producer.has_room(3));
    assert_eq!(producer.outstanding(), SIZE - 2);
}

#[test]
fn indices_wrap_around_the_end_of_the_numbers() {
    let (mut producer, mut consumer) = pair();
    let start = u32::MAX - 3;
    producer.ring.producer().store(start, Ordering::Relaxed);
    producer.ring.consumer().store(start, Ordering::Relaxed);
    (producer.next, producer.published, producer.consumer) = (start, start, start);
    (consumer.next, consumer.released, consumer.producer) = (start, start, start);
    for round in 0..20 {
        for entry in 0..5 {
            producer.push(round * 5 + entry);
        }
        producer.publish();
        for entry in 0..5 {
            assert_eq!(consumer.pop(), Some(round * 5 + entry));
        }
        assert_eq!(consumer.pop(), None);
        consumer.release();
    }
}

#[test]
fn the_flag_asks_for_a_wakeup() {
    let (producer, consumer) = pair();
    assert!(!producer.needs_wakeup());
    let flags: NonNull<AtomicU32> = consumer.ring.flags.expect("has flags");
    // SAFETY: in the mapping that `consumer` keeps.
    unsafe { flags.as_ref() }.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
#[should_panic(expected = "ring is full")]
fn a_full_ring_takes_no_more() {
    let (mut producer, _consumer) = pair();
    for entry in 0..=u64::from(SIZE) {
        producer.push(entry);
    }
}

#[test]
fn two_threads_pass_everything_in_order() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer) = pair();
    let sender = thread::spawn(move || {
        let mut entry = 0;
        while entry < COUNT {
            while entry < COUNT && producer.has_room(1) {
                producer.push(entry);
                entry += 1;
            }
            producer.publish();
            thread::yield_now();
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        while let Some(entry) = consumer.pop() {
            assert_eq!(entry, expected);
            expected += 1;
        }
        consumer.release();
        thread::yield_now();
    }
    sender.join().expect("sender");
}
