use std::net::UdpSocket;

use super::*;
use crate::tests::ipv6_loopback;

const FULL: Fill = Fill { used: 1000, limit: 1000 };
const EMPTY: Fill = Fill { used: 0, limit: 80_000 };

fn here() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

#[test]
fn an_answer_is_used_for_a_share_of_the_room() {
    let mut rooms = Rooms::default();
    assert_eq!(rooms.check(at(0), here(), 1000), None);
    rooms.learn(at(0), here(), Some(EMPTY));
    for _ in 0..10 {
        assert_eq!(rooms.check(at(0), here(), 1000), Some(true));
    }
    assert_eq!(rooms.check(at(0), here(), 1000), None);
}

#[test]
fn short_datagrams_take_more_than_their_bytes() {
    let mut rooms = Rooms::default();
    rooms.learn(at(0), here(), Some(EMPTY));
    let fit = (0..100).take_while(|_| rooms.check(at(0), here(), 1) == Some(true)).count();
    assert_eq!(fit, EMPTY.limit / SHARE / LEAST_CHARGE);
}

#[test]
fn a_receiver_that_is_behind_is_awaited_and_queried_again() {
    let mut rooms = Rooms::default();
    rooms.learn(at(0), here(), Some(FULL));
    assert_eq!(rooms.check(at(1), here(), 100), Some(false));
    assert_eq!(rooms.retry(), Some(at(100)));
    rooms.retried(at(99));
    assert_eq!(rooms.retry(), Some(at(100)));
    rooms.retried(at(100));
    assert_eq!(rooms.retry(), None, "who no longer wants to send makes nobody wake");
    assert_eq!(rooms.check(at(100), here(), 100), None);
    rooms.learn(at(100), here(), Some(EMPTY));
    assert_eq!(rooms.check(at(100), here(), 100), Some(true));
}

#[test]
fn a_receiver_that_reads_nothing_is_not_awaited_for_long() {
    let mut rooms = Rooms::default();
    rooms.learn(at(0), here(), Some(FULL));
    rooms.learn(at(99_999), here(), Some(FULL));
    assert_eq!(rooms.check(at(99_999), here(), 100), Some(false));
    rooms.learn(at(100_100), here(), Some(FULL));
    assert_eq!(rooms.check(at(100_100), here(), 100), Some(true));
}

#[test]
fn a_receiver_that_reads_slowly_is_waited_for() {
    let mut rooms = Rooms::default();
    for step in 0..10 {
        let fill = Fill { used: 1000 - step, limit: 1000 };
        rooms.learn(at(step as u64 * 50_000), here(), Some(fill));
        assert_eq!(rooms.check(at(step as u64 * 50_000), here(), 100), Some(false));
    }
}

#[test]
fn other_hosts_are_not_waited_for() {
    let mut rooms = Rooms::default();
    rooms.learn(at(0), here(), None);
    assert_eq!(rooms.check(at(99_999), here(), 4096), Some(true));
    assert_eq!(rooms.check(at(100_000), here(), 4096), None);
}

#[test]
fn more_destinations_than_are_remembered_are_asked_about_again() {
    let mut rooms = Rooms::default();
    let host = |n: usize| IpAddr::from([127, 1, 0, n as u8]);
    for n in 0..=MAX_DESTINATIONS {
        rooms.learn(at(0), host(n), Some(EMPTY));
    }
    assert_eq!(rooms.check(at(0), host(1), 100), Some(true));
    assert_eq!(rooms.check(at(0), host(MAX_DESTINATIONS), 100), Some(true));
    assert_eq!(rooms.check(at(0), host(0), 100), None);
}

#[test]
fn the_kernel_tells_how_full_a_socket_is() {
    let _guard = ipv6_loopback();
    for address in [IpAddr::from([127, 4, 4, 4]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])] {
        let Ok(receiver) = UdpSocket::bind((address, ROCE_UDP_PORT)) else {
            assert!(address.is_ipv6(), "{address} is not ours");
            continue;
        };
        let mut questions = Questions::open();
        let empty = questions.fill(address, 0).unwrap();
        assert_eq!(empty.used, 0);
        assert!(empty.limit > 0);
        let sender = UdpSocket::bind((address, 0)).unwrap();
        sender.send_to(&[0; 5000], (address, ROCE_UDP_PORT)).unwrap();
        assert!(questions.fill(address, 0).unwrap().used >= 5000);
        drop(receiver);
        assert_eq!(questions.fill(address, 0), None);
    }
}

#[test]
fn answers_cut_short_are_no_answers() {
    let mut bytes = vec![0; ANSWER_LEN];
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[8] = 7;
    let other = [8_u16, 1, 0, 0].map(u16::to_ne_bytes).concat();
    let memory = [12_u16, MEMORY, 5, 0, 9, 0].map(u16::to_ne_bytes).concat();
    let whole = [bytes, other, memory].concat();
    assert_eq!(
        answered(7, &whole),
        Some(Fill { used: 5, limit: 9 }).filter(|_| cfg!(target_endian = "little"))
    );
    assert_eq!(answered(6, &whole), None);
    for len in 0..whole.len() {
        assert_eq!(answered(7, &whole[..len]), None, "{len} bytes");
    }
}
