use std::net::Ipv4Addr;
use std::process;
use std::time::Instant;

use super::*;
use crate::testing;
use crate::udp::{UdpLink, UdpOptions};

fn open() -> ShmLink<UdpLink> {
    let udp = UdpLink::open(UdpOptions::default()).expect("a loopback address");
    let address = udp.address();
    ShmLink::new(udp, address).map_err(|(_, error)| error).expect("shared memory")
}

fn now() -> Time {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Time::from_nanos(START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1)
}

fn send(link: &mut ShmLink<UdpLink>, to: IpAddr, psn: u32, payload: usize) -> Result<(), TxError> {
    let flow = testing::flow(link.address, to);
    testing::send(link, now(), &flow, psn, payload)
}

/// Both look at what the kernel has for them.
fn meet(links: &mut [&mut ShmLink<UdpLink>]) {
    for _ in 0..4 {
        for link in links.iter_mut() {
            link.look(now());
        }
    }
}

/// Two links with a road between them, and nothing on its way.
fn neighbours() -> (ShmLink<UdpLink>, ShmLink<UdpLink>) {
    let (mut left, mut right) = (open(), open());
    let to = right.address;
    send(&mut left, to, 0, 8).expect("a slot");
    left.flush(now());
    meet(&mut [&mut left, &mut right]);
    assert_eq!(testing::drain(&mut right, now()).len(), 1);
    (left, right)
}

fn roads(link: &ShmLink<UdpLink>) -> usize {
    link.streams.iter().flatten().filter(|stream| matches!(stream, Stream::Road(_))).count()
}

fn psns(link: &mut ShmLink<UdpLink>) -> Vec<u32> {
    testing::drain(link, now()).iter().map(testing::Received::psn).collect()
}

#[test]
fn the_first_datagram_goes_below_and_asks_for_a_road() {
    let (mut left, mut right) = neighbours();
    assert_eq!((roads(&left), roads(&right)), (1, 1));
    let below = left.below.counters().tx_datagrams;
    for psn in 1..=100 {
        let to = right.address;
        send(&mut left, to, psn, 4096).map_or_else(|why| assert_eq!(why, TxError::Full), |()| ());
        left.flush(now());
        let got = testing::drain(&mut right, now());
        assert_eq!(got.len(), 1, "PSN {psn}");
        assert!(got[0].icrc_ok());
        assert_eq!((got[0].psn(), got[0].src, got[0].ttl), (psn, left.address, 64));
    }
    assert_eq!(left.below.counters().tx_datagrams, below);
    assert_eq!(left.counters().tx_datagrams, 101);
    assert_eq!(right.counters().rx_datagrams, 101);
}

#[test]
fn both_directions_take_one_road() {
    let (mut left, mut right) = neighbours();
    let to = left.address;
    send(&mut right, to, 7, 100).expect("a slot");
    right.flush(now());
    assert_eq!(psns(&mut left), [7]);
    assert_eq!(right.below.counters().tx_datagrams, 0);
    assert_eq!((roads(&left), roads(&right)), (1, 1));
}

#[test]
fn two_that_ask_each_other_get_one_road() {
    for _ in 0..8 {
        let (mut left, mut right) = (open(), open());
        let (to_right, to_left) = (right.address, left.address);
        send(&mut left, to_right, 1, 8).expect("a slot");
        send(&mut right, to_left, 2, 8).expect("a slot");
        left.flush(now());
        right.flush(now());
        meet(&mut [&mut left, &mut right]);
        assert_eq!((psns(&mut left), psns(&mut right)), (vec![2], vec![1]));
        assert_eq!((roads(&left), roads(&right)), (1, 1));
        send(&mut left, to_right, 3, 8).expect("a slot");
        send(&mut right, to_left, 4, 8).expect("a slot");
        left.flush(now());
        right.flush(now());
        assert_eq!((psns(&mut left), psns(&mut right)), (vec![4], vec![3]));
        assert_eq!(left.below.counters().tx_datagrams, 1);
        assert_eq!(right.below.counters().tx_datagrams, 1);
    }
}

#[test]
fn a_link_has_a_road_to_itself() {
    let mut link = open();
    let own = link.address;
    for psn in 0..20 {
        send(&mut link, own, psn, 64).expect("a slot");
        link.flush(now());
        meet(&mut [&mut link]);
        assert_eq!(psns(&mut link), [psn]);
    }
    assert_eq!(roads(&link), 2);
    assert_eq!(link.below.counters().tx_datagrams, 1);
}

/// A QP of the unreliable service would lose a message.
#[test]
fn what_went_below_arrives_before_what_takes_the_new_road() {
    let (mut left, mut right) = (open(), open());
    let to = right.address;
    for psn in 0..8 {
        send(&mut left, to, psn, 512).expect("a slot");
    }
    left.flush(now());
    meet(&mut [&mut left, &mut right]);
    assert_eq!((roads(&left), roads(&right)), (1, 1));
    for psn in 8..16 {
        send(&mut left, to, psn, 512).expect("a slot");
    }
    left.flush(now());
    assert_eq!(psns(&mut right), (0..16).collect::<Vec<_>>());
    assert_eq!(left.below.counters().tx_datagrams, 8);
}

#[test]
fn a_full_road_is_no_loss() {
    let (mut left, mut right) = neighbours();
    let to = right.address;
    let mut sent = 0;
    while send(&mut left, to, sent, 4096).is_ok() {
        sent += 1;
    }
    assert_eq!(send(&mut left, to, sent, 4096), Err(TxError::Full));
    left.flush(now());
    assert!(!left.is_blocked(), "others are not held up");
    assert_eq!(psns(&mut right), (0..sent).collect::<Vec<_>>());
    send(&mut left, to, sent, 4096).expect("room");
}

#[test]
fn what_was_sent_before_the_end_arrives_and_the_next_goes_below() {
    let (mut left, mut right) = neighbours();
    let (from, to) = (left.address, right.address);
    send(&mut left, to, 5, 64).expect("a slot");
    left.flush(now());
    drop(left);
    right.look(now());
    assert_eq!(psns(&mut right), [5]);
    assert_eq!(roads(&right), 0);
    send(&mut right, from, 6, 64).expect("a slot");
    right.flush(now());
    assert_eq!(right.below.counters().tx_datagrams, 1);
}

#[test]
fn the_next_process_at_the_address_gets_a_road() {
    let (mut left, right) = neighbours();
    let to = right.address;
    drop(right);
    left.look(now());
    testing::drain(&mut left, now());
    let udp =
        UdpLink::open(UdpOptions { address: Some(to), ..UdpOptions::default() }).expect("the same address");
    let mut next = ShmLink::new(udp, to).map_err(|(_, error)| error).expect("its name");
    let later = now() + ASK_AGAIN;
    let flow = testing::flow(left.address, to);
    testing::send(&mut left, later, &flow, 9, 64).expect("a slot");
    left.flush(later);
    meet(&mut [&mut left, &mut next]);
    assert_eq!((roads(&left), roads(&next)), (1, 1));
    assert_eq!(psns(&mut next), [9]);
}

#[test]
fn an_address_without_a_link_is_reached_below() {
    let mut link = open();
    let nobody = IpAddr::V4(Ipv4Addr::new(127, 200, 3, (process::id() % 250) as u8 + 1));
    for _ in 0..3 {
        send(&mut link, nobody, 1, 64).expect("a slot");
        link.flush(now());
    }
    assert!(link.streams.is_empty());
    assert_eq!(link.below.counters().tx_datagrams, 3);
}

#[test]
fn a_peer_that_never_answers_is_asked_once_at_a_time() {
    let mut link = open();
    let silent = IpAddr::V4(Ipv4Addr::new(127, 200, 4, (process::id() % 250) as u8 + 1));
    let _listener = hello::take_name(silent).expect("its name");
    let flow = testing::flow(link.address, silent);
    let start = now();
    for turn in 0..4 {
        let later = start + turn * (PATIENCE + ASK_AGAIN);
        testing::send(&mut link, later, &flow, turn, 64).expect("a slot");
        link.flush(later);
        assert_eq!(link.streams.iter().flatten().count(), 1, "turn {turn}");
    }
    assert_eq!(link.below.counters().tx_datagrams, 4);
}

#[test]
fn a_peer_that_writes_garbage_loses_its_road() {
    let (mut left, mut right) = neighbours();
    let Some(Some(Stream::Road(road))) = left.streams.first_mut() else { panic!("a road") };
    road.rings.scribble();
    testing::drain(&mut right, now());
    assert_eq!(roads(&right), 0);
    assert_eq!(right.counters().rx_malformed, 1);
    // The other one hears of the end.
    left.look(now());
    testing::drain(&mut left, now());
    assert_eq!(roads(&left), 0);
}

/// Its garbage is found by who looks for room, which need not be who sends or receives.
#[test]
fn garbage_from_a_reader_does_not_keep_a_waiting_writer_awake() {
    let (mut left, mut right) = neighbours();
    let to = right.address;
    while send(&mut left, to, 1, 4096).is_ok() {}
    left.flush(now());
    assert!(!left.watch(true));
    let Some(Some(Stream::Road(road))) = right.streams.first_mut() else { panic!("a road") };
    road.rings.scribble_what_was_read();
    assert!(left.watch(true), "there is a road to be closed");
    testing::drain(&mut left, now());
    assert_eq!(roads(&left), 0);
    assert!(!left.watch(true), "nothing is left to do");
}

/// A stream to a link from somebody who says what a peer with this address would.
fn stranger(link: &ShmLink<UdpLink>, address: IpAddr) -> (OwnedFd, Own) {
    let socket = hello::ask(link.address).expect("it listens");
    let (own, segment) = Own::create(MIN_CAPACITY).expect("memory");
    let bell = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    hello::offer(&socket, address, &segment, &bell).expect("said");
    (socket, own)
}

#[test]
fn an_address_has_one_road() {
    let mut link = open();
    let strangers: Vec<_> =
        (0..5).map(|_| stranger(&link, IpAddr::V4(Ipv4Addr::new(127, 200, 5, 1)))).collect();
    meet(&mut [&mut link]);
    testing::drain(&mut link, now());
    assert_eq!(roads(&link), 1);
    drop(strangers);
}

#[test]
fn nobody_speaks_for_a_group_or_for_no_address() {
    let mut link = open();
    let _strangers = [Ipv4Addr::new(224, 0, 0, 9), Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]
        .map(|address| stranger(&link, address.into()));
    meet(&mut [&mut link]);
    assert_eq!(roads(&link), 0);
}

#[test]
fn a_crowd_is_let_in_a_few_at_a_time() {
    let mut link = open();
    let crowd: Vec<_> = (0..3 * MOST_LET_IN).map(|_| hello::ask(link.address).expect("it listens")).collect();
    link.look(now());
    assert_eq!(link.streams.iter().flatten().count(), MOST_LET_IN);
    for _ in 0..3 {
        link.look(now());
    }
    assert_eq!(link.streams.iter().flatten().count(), crowd.len());
}

#[test]
fn the_descriptor_wakes_its_waiter() {
    let (mut left, mut right) = neighbours();
    let to = right.address;
    let wakes = |link: &ShmLink<UdpLink>| {
        testing::wait(link, libc::POLLIN, std::time::Duration::ZERO) & libc::POLLIN != 0
    };
    for psn in 0..100 {
        send(&mut left, to, psn, 64).expect("a slot");
        left.flush(now());
        assert!(!wakes(&right), "nobody waits: nobody is woken");
        assert!(right.watch(true), "there is something already");
        right.watch(false);
        assert_eq!(psns(&mut right), [psn]);
        assert!(!right.watch(true));
        send(&mut left, to, 1000 + psn, 64).expect("a slot");
        left.flush(now());
        assert!(wakes(&right), "PSN {psn}");
        right.watch(false);
        assert_eq!(psns(&mut right), [1000 + psn]);
        assert!(!wakes(&right), "the bell has been heard");
    }
}

#[test]
fn room_wakes_a_waiting_writer() {
    let (mut left, mut right) = neighbours();
    let to = right.address;
    while send(&mut left, to, 1, 4096).is_ok() {}
    left.flush(now());
    assert!(!left.watch(true));
    psns(&mut right);
    assert_ne!(testing::wait(&left, libc::POLLIN, std::time::Duration::ZERO), 0);
    left.watch(false);
    send(&mut left, to, 2, 64).expect("room");
}

/// Both sleep whenever there is nothing to do: a bell that is not rung ends the test by its timeout.
#[test]
fn two_threads_that_sleep_lose_no_bell() {
    const MESSAGES: u32 = 20_000;
    let (left, right) = neighbours();
    let (to_right, to_left) = (right.address, left.address);
    let play = |mut link: ShmLink<UdpLink>, to: IpAddr, begins: bool| {
        move || {
            let mut next = u32::from(!begins);
            let mut done = 0;
            if begins {
                send(&mut link, to, 0, 64).expect("a slot");
                link.flush(now());
                next = 2;
            }
            while done < MESSAGES {
                if !link.watch(true) {
                    let woken = testing::wait(&link, libc::POLLIN, std::time::Duration::from_secs(10));
                    assert_ne!(woken, 0, "nobody rang");
                }
                link.watch(false);
                for psn in psns(&mut link) {
                    assert_eq!(psn, next - 1);
                    done += 1;
                    send(&mut link, to, next, 64 + next as usize % 4000).expect("a slot");
                    next += 2;
                }
                link.flush(now());
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(play(left, to_right, true));
        scope.spawn(play(right, to_left, false));
    });
}
