use std::collections::VecDeque;

use super::*;
use softrnic_link::Rng;

fn pair(capacity: usize) -> (Rings, Rings) {
    let (left, to_right) = Own::create(capacity).expect("memory");
    let (right, to_left) = Own::create(capacity).expect("memory");
    let to_right = Peer::map(&to_right).expect("a segment");
    let to_left = Peer::map(&to_left).expect("a segment");
    (Rings::new(left, to_left), Rings::new(right, to_right))
}

fn addressing(number: u16) -> Addressing {
    let (tos, ttl) = (number as u8, (number >> 8) as u8);
    Addressing { sport: number, id: !number, tos, ttl, has_icrc: number & 1 != 0 }
}

fn send(rings: &mut Rings, number: u16, len: usize) -> Result<(), NoRoom> {
    rings.reserve(len)?;
    rings.slot(addressing(number)).fill(number as u8);
    rings.commit();
    Ok(())
}

fn receive(rings: &mut Rings) -> Option<(u16, usize)> {
    let mut buffer = [0; MAX_DATAGRAM];
    let (len, found) = rings.receive(&mut buffer, false).expect("sound")?;
    assert_eq!(found, addressing(found.sport));
    assert!(buffer[..len].iter().all(|&byte| byte == found.sport as u8));
    Some((found.sport, len))
}

#[test]
fn datagrams_arrive_whole_and_in_order_whatever_their_lengths() {
    for seed in 0..50 {
        let mut rng = Rng::stream(seed, b"ring");
        let (mut left, mut right) = pair(MIN_CAPACITY);
        let mut sent = VecDeque::new();
        let mut number = 0;
        for _ in 0..5000 {
            match rng.next() % 4 {
                0 | 1 => {
                    let len = match rng.next() % 4 {
                        0 => 1 + rng.next() as usize % 64,
                        1 => 1 + rng.next() as usize % (2 * SHORT),
                        2 => MAX_DATAGRAM,
                        _ => 1 + rng.next() as usize % MAX_DATAGRAM,
                    };
                    match send(&mut left, number, len) {
                        Ok(()) => {
                            sent.push_back((number, len));
                            number = number.wrapping_add(1);
                        }
                        Err(why) => {
                            assert_eq!(why, NoRoom::Full);
                            assert!(!sent.is_empty());
                        }
                    }
                }
                2 => left.show(),
                _ => {
                    for _ in 0..rng.next() % 8 {
                        let Some(got) = receive(&mut right) else { break };
                        assert_eq!(Some(got), sent.pop_front());
                    }
                    right.publish_head();
                }
            }
        }
        left.flush();
        while let Some(got) = receive(&mut right) {
            assert_eq!(Some(got), sent.pop_front());
        }
        assert!(sent.is_empty());
    }
}

/// Something that writes where it should not: the bytes of a record come a second time, or one is not there.
#[test]
fn a_record_that_is_not_the_next_ends_the_ring() {
    for number in [0, 2, 3, u16::MAX] {
        let (mut left, mut right) = pair(MIN_CAPACITY);
        let mut buffer = [0; MAX_DATAGRAM];
        send(&mut left, 7, 40).expect("room");
        send(&mut left, 8, 40).expect("room");
        left.put();
        left.own.bytes_mut(record_len(40), 4).copy_from_slice(&first_word(40, number).to_ne_bytes());
        left.flush();
        assert_eq!(receive(&mut right), Some((7, 40)));
        assert_eq!(right.receive(&mut buffer, false), Err(Corrupt::Number), "{number}");
    }
}

/// What is left in the record that was taken last.
fn left(rings: &Rings) -> Option<Vec<u8>> {
    rings.left.map(|(at, len)| {
        let mut bytes = vec![0; len];
        rings.peer.copy(at, &mut bytes);
        let record = rings.record_taken().expect("left");
        assert_eq!(record.len(), len);
        bytes
    })
}

#[test]
fn only_long_payloads_without_icrc_stay_in_their_record() {
    let (mut a, mut b) = pair(MIN_CAPACITY);
    let mut buffer = [0; MAX_DATAGRAM];
    // Odd numbers have an ICRC.
    for (number, len, may_stay, stays) in [
        (2, MAX_DATAGRAM, true, true),
        (4, LEFT_FROM, true, true),
        (6, LEFT_FROM - 1, true, false),
        (8, MAX_DATAGRAM, false, false),
        (9, MAX_DATAGRAM, true, false),
        (10, 20, true, false),
    ] {
        send(&mut a, number, len).expect("room");
        a.flush();
        buffer.fill(0xEE);
        let (found, _) = b.receive(&mut buffer, may_stay).expect("sound").expect("a record");
        assert_eq!(found, len);
        let copied = buffer.iter().take_while(|&&byte| byte == number as u8).count();
        assert_eq!(copied, if stays { COPIED_HEADERS } else { len }, "{number}");
        assert_eq!(left(&b), stays.then(|| vec![number as u8; len]), "{number}");
        b.publish_head();
    }
    assert_eq!(b.receive(&mut buffer, true), Ok(None));
    assert!(b.record_taken().is_none(), "nothing was taken");
}

/// A slot that is given up is no record.
#[test]
fn only_records_that_are_committed_are_counted() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    for number in 0..3 {
        left.reserve(100).expect("room");
        left.slot(addressing(9)).fill(9);
        send(&mut left, number, 20).expect("room");
        left.flush();
        assert_eq!(receive(&mut right), Some((number, 20)));
    }
}

#[test]
fn records_are_counted_beyond_the_numbers_that_there_are() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    for number in 0..70_000u32 {
        send(&mut left, number as u16, 20).expect("room");
        left.flush();
        assert_eq!(receive(&mut right), Some((number as u16, 20)));
        right.publish_head();
    }
}

/// The progress thread's sleep of this number.
fn nth(number: usize) -> Sleep {
    (0..number).fold(Sleep::NONE, |sleep, _| sleep.next(softrnic_link::Sleeper::Thread))
}

#[test]
fn a_full_ring_says_when_there_is_room_again() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    let mut count = 0;
    while send(&mut left, count, MAX_DATAGRAM).is_ok() {
        count += 1;
    }
    assert_eq!(count as usize, MIN_CAPACITY / record_len(MAX_DATAGRAM));
    left.flush();
    assert_eq!(left.sleep(nth(1)), Ok(false));
    let mut bells = 0;
    while receive(&mut right).is_some() {
        bells += usize::from(right.publish_head().is_some());
    }
    assert_eq!(bells, 1);
    left.wake();
    assert_eq!(left.has_room_again(), Ok(true));
    assert_eq!(left.has_room_again(), Ok(false));
    send(&mut left, 0, MAX_DATAGRAM).expect("room");
    left.flush();
    left.sleep(nth(2)).expect("sound");
    assert!(receive(&mut right).is_some());
    assert!(right.publish_head().is_none(), "it does not wait for room any more");
}

#[test]
fn a_sleeper_is_woken_once() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    send(&mut left, 1, 10).expect("room");
    assert!(left.flush().is_none());
    assert_eq!(right.sleep(nth(1)), Ok(true));
    receive(&mut right).expect("a message");
    assert_eq!(right.sleep(nth(2)), Ok(false));
    send(&mut left, 2, 10).expect("room");
    assert!(left.flush().is_some());
    send(&mut left, 3, 10).expect("room");
    assert!(left.flush().is_none());
    right.wake();
    send(&mut left, 4, 10).expect("room");
    assert!(left.flush().is_none());
    while receive(&mut right).is_some() {}
    assert_eq!(right.sleep(nth(3)), Ok(false));
    send(&mut left, 5, 10).expect("room");
    assert!(left.flush().is_some());
}

#[test]
fn few_small_messages_stay_in_the_first_part() {
    let (mut left, mut right) = pair(super::super::segment::MAX_CAPACITY);
    for number in 0..50_000 {
        send(&mut left, number, 100).expect("room");
        left.flush();
        assert!((left.tail % left.own.capacity() as u64) as usize <= HOT + record_len(100));
        receive(&mut right).expect("a message");
        right.publish_head();
    }
}

/// A ring that had begun again at the front had room for no more than what lies there, until the peer had read that.
#[test]
fn a_ring_that_begins_again_has_all_of_its_room() {
    let (mut left, mut right) = pair(super::super::segment::MAX_CAPACITY);
    let mut number = 0;
    while left.own.place(left.tail) < HOT {
        send(&mut left, number, MAX_DATAGRAM).expect("room");
        left.flush();
        receive(&mut right).expect("a message");
        right.publish_head();
        number += 1;
    }
    let first = number;
    while send(&mut left, number, MAX_DATAGRAM).is_ok() {
        number += 1;
    }
    let room = left.own.capacity() - HEADROOM;
    assert_eq!(usize::from(number - first), room / record_len(MAX_DATAGRAM));
    left.flush();
    assert_eq!(left.own.place(left.tail), usize::from(number - first) * record_len(MAX_DATAGRAM));
    for expected in first..number {
        assert_eq!(receive(&mut right), Some((expected, MAX_DATAGRAM)));
    }
    assert_eq!(receive(&mut right), None);
    right.publish_head();
    assert!(left.is_empty() && right.is_empty());
}

/// What only looks, as a QP does whose packet then cannot be built, has not sent anything.
#[test]
fn a_ring_may_begin_again_without_a_record() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    let mut number = 0;
    while left.own.place(left.tail) < HOT {
        send(&mut left, number, 1000).expect("room");
        left.flush();
        assert!(receive(&mut right).is_some());
        right.publish_head();
        number += 1;
    }
    left.reserve(1000).expect("room");
    assert_eq!(right.look(), Ok(false));
    left.flush();
    assert_eq!(right.look(), Ok(false));
    right.publish_head();
    assert!(left.is_empty() && right.is_empty() && right.is_quiet());
    send(&mut left, number, 1000).expect("room");
    left.flush();
    assert_eq!(receive(&mut right), Some((number, 1000)));
}

#[test]
fn an_ack_finds_room_although_the_ring_is_full() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    let mut count = 0;
    for len in [MAX_DATAGRAM, ACK_LEN + 1] {
        while send(&mut left, count, len).is_ok() {
            count += 1;
        }
    }
    let mut acks = 0;
    while send(&mut left, count + acks, ACK_LEN).is_ok() {
        acks += 1;
    }
    assert!(usize::from(acks) >= HEADROOM / record_len(ACK_LEN), "{acks}");
    left.flush();
    for expected in 0..count + acks {
        assert_eq!(receive(&mut right).map(|(number, _)| number), Some(expected));
    }
}

/// A peer could lead us anywhere by saying that its ring has begun again.
#[test]
fn a_ring_that_begins_again_elsewhere_is_corrupt() {
    for (start, tail) in
        [(16, 32), (MIN_CAPACITY as u64, 16), (u64::MAX, 16), (2 * MIN_CAPACITY as u64, MIN_CAPACITY as u64)]
    {
        let (left, mut right) = pair(MIN_CAPACITY);
        left.own.header().begin_at(start);
        left.own.header().show(tail);
        assert_eq!(right.look(), Err(Corrupt::Index), "{start} {tail}");
    }
}

/// The peer's processor has the lines of the ring, and each write of ours waits for them.
#[test]
fn short_records_enter_the_ring_together() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    let untouched = vec![0; MAX_GATHERED];
    let mut number = 0;
    while left.tail as usize + record_len(40) <= MAX_GATHERED {
        send(&mut left, number, 40).expect("room");
        number += 1;
        assert_eq!(left.own.bytes(0, MAX_GATHERED), untouched);
    }
    send(&mut left, number, 40).expect("room");
    assert_ne!(left.own.bytes(0, MAX_GATHERED), untouched, "there is no place for more of them");
    left.show();
    assert!((0..=number).all(|number| receive(&mut right) == Some((number, 40))));
}

#[test]
fn uncommitted_records_are_never_seen() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    left.reserve(1000).expect("room");
    left.slot(addressing(0)).fill(1);
    send(&mut left, 7, 10).expect("room");
    assert_eq!(left.reserved(), &[0; 0]);
    left.flush();
    assert_eq!(receive(&mut right), Some((7, 10)));
    assert_eq!(receive(&mut right), None);
}

/// It could write one after the other, as fast as we read.
#[test]
fn a_skip_at_the_front_is_corrupt() {
    let (mut left, mut right) = pair(MIN_CAPACITY);
    left.own.bytes_mut(0, 4).copy_from_slice(&SKIP.to_ne_bytes());
    left.own.header().show(MIN_CAPACITY as u64);
    assert_eq!(right.receive(&mut [0; MAX_DATAGRAM], false), Err(Corrupt::Length));
}

/// A peer that writes anything into its own segment: it is found out, or its datagrams are any bytes, but nothing else
/// happens.
#[test]
fn a_peer_may_write_anything() {
    for seed in 0..300 {
        let mut rng = Rng::stream(seed, b"garbage");
        let (mut left, mut right) = pair(MIN_CAPACITY);
        let mut corrupt = false;
        let mut buffer = [0; MAX_DATAGRAM];
        for _ in 0..200 {
            let near = |rng: &mut Rng, value: u64| match rng.next() % 4 {
                0 => rng.next(),
                1 => value.wrapping_add(rng.next() % 65_536),
                2 => value.wrapping_sub(rng.next() % 65_536),
                _ => value.wrapping_add(16 * (rng.next() % 4096)),
            };
            match rng.next() % 6 {
                0 => {
                    let tail = near(&mut rng, right.head);
                    left.own.header().show(tail);
                }
                5 => {
                    let start = near(&mut rng, right.head) & !(MIN_CAPACITY as u64 / 2 - 1);
                    left.own.header().begin_at(start);
                }
                1 => {
                    let head = near(&mut rng, right.freed);
                    left.own.header().publish_head(head, left.peer.header(), &mut nth(0));
                }
                2 => {
                    let at = (rng.next() as usize % (MIN_CAPACITY - 8)) & !15;
                    let word = if rng.next().is_multiple_of(4) { rng.next() } else { rng.next() % 9000 };
                    left.own.bytes_mut(at, 8).copy_from_slice(&word.to_ne_bytes());
                }
                3 => {
                    corrupt |= matches!(
                        right.reserve(1 + rng.next() as usize % MAX_DATAGRAM),
                        Err(NoRoom::Corrupt(_))
                    )
                }
                _ => {
                    right.commit();
                    right.flush();
                    corrupt |= right.receive(&mut buffer, false).is_err() || right.has_room_again().is_err();
                    right.publish_head();
                }
            }
            if corrupt {
                break;
            }
        }
    }
}
