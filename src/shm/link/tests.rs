//! The link over shared memory: connections, their fall-back, and what a peer may do to a ring.
//!
//! Over 600 lines: all tests use the same pair of links and what they see of each other.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::*;
use crate::connection::STALLED;
use crate::connections::{ANSWER_TIMEOUT, ASK_AGAIN, IDLE, MOST_LET_IN};
use crate::segment::{MIN_CAPACITY, Own};
use rustix::event::{EventfdFlags, eventfd};

use softrnic_link::testing::{self, Received};
use softrnic_link::{ProcessSlot, Sleeper, delegate_link};
use softrnic_udp::{UdpLink, UdpOptions};

fn open() -> ShmLink<UdpLink> {
    let udp = UdpLink::open(UdpOptions::default()).expect("a loopback address");
    let address = udp.address();
    ShmLink::new(udp, address).map_err(|(_, error)| error).expect("shared memory")
}

fn now() -> Time {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Time::from_nanos(START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1)
}

/// Of a device that has its address alone.
fn endpoint(address: IpAddr) -> Endpoint {
    Endpoint { address, slot: None }
}

fn send(link: &mut ShmLink<UdpLink>, to: IpAddr, psn: u32, payload: usize) -> Result<(), TxError> {
    let flow = testing::flow(link.connections.own.address, to);
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

/// Two links with a connection between them, and nothing on its way.
fn neighbours() -> (ShmLink<UdpLink>, ShmLink<UdpLink>) {
    let (mut left, mut right) = (open(), open());
    let to = right.connections.own.address;
    send(&mut left, to, 0, 8).expect("a slot");
    left.flush(now());
    meet(&mut [&mut left, &mut right]);
    assert_eq!(testing::drain(&mut right, now()).len(), 1);
    (left, right)
}

fn connections(link: &ShmLink<UdpLink>) -> usize {
    link.connections.count().0
}

fn psns(link: &mut ShmLink<UdpLink>) -> Vec<u32> {
    testing::drain(link, now()).iter().map(testing::Received::psn).collect()
}

#[test]
fn the_first_datagram_goes_below_and_asks_for_a_connection() {
    let (mut left, mut right) = neighbours();
    assert_eq!((connections(&left), connections(&right)), (1, 1));
    let below = left.below.counters().tx_datagrams;
    for psn in 1..=100 {
        let to = right.connections.own.address;
        send(&mut left, to, psn, 4096).map_or_else(|why| assert_eq!(why, TxError::Full), |()| ());
        left.flush(now());
        let got = testing::drain(&mut right, now());
        assert_eq!(got.len(), 1, "PSN {psn}");
        assert!(got[0].icrc_ok());
        assert_eq!((got[0].psn(), got[0].src, got[0].ttl), (psn, left.connections.own.address, 64));
    }
    assert_eq!(left.below.counters().tx_datagrams, below);
    assert_eq!(left.counters().tx_datagrams, 101);
    assert_eq!(right.counters().rx_datagrams, 101);
}

#[test]
fn both_directions_take_one_connection() {
    let (mut left, mut right) = neighbours();
    let to = left.connections.own.address;
    send(&mut right, to, 7, 100).expect("a slot");
    right.flush(now());
    assert_eq!(psns(&mut left), [7]);
    assert_eq!(right.below.counters().tx_datagrams, 0);
    assert_eq!((connections(&left), connections(&right)), (1, 1));
}

/// A device that has its address alone gives its queue pairs numbers of all slots.
#[test]
fn all_queue_pairs_of_an_address_that_is_not_shared_take_one_connection() {
    let (mut left, mut right) = (open(), open());
    let (from, to) = (left.connections.own.address, right.connections.own.address);
    let below = |link: &ShmLink<UdpLink>| link.below.counters().tx_datagrams;
    for number in (0..ProcessSlot::COUNT).chain(0..ProcessSlot::COUNT) {
        let flow = Flow { slot: ProcessSlot::new(number), ..testing::flow(from, to) };
        testing::send(&mut left, now(), &flow, number as u32, 8).expect("a slot");
        left.flush(now());
        meet(&mut [&mut left, &mut right]);
        assert_eq!(psns(&mut right), [number as u32]);
    }
    assert_eq!((connections(&left), connections(&right), below(&left)), (1, 1, 1));
    assert_eq!(left.reaches().len(), 1);
}

/// Both names of an address can be taken by anybody.
#[test]
fn a_name_taken_by_another_user_hides_no_process() {
    let mut left = open();
    let [_, _, high, low] = process::id().to_be_bytes();
    let address = IpAddr::from([127, 205, high, low.clamp(1, 254)]);
    for shared in [false, true] {
        let options = UdpOptions { address: Some(address), shared, ..UdpOptions::default() };
        let udp = UdpLink::open(options).expect("an address of this test");
        let slot = udp.capabilities().slot;
        assert_eq!(slot.is_some(), shared);
        let (taken, used) = if shared { (None, slot) } else { (ProcessSlot::new(3), ProcessSlot::new(3)) };
        let taken = Endpoint { address, slot: taken };
        let Some(_taken) = testing::as_another_user(|| handshake::take_name(taken).expect("a name")) else {
            return;
        };
        let mut right = ShmLink::new(udp, address).map_err(|(_, error)| error).expect("shared memory");
        // What is known of the address before is forgotten.
        let later = now() + ASK_AGAIN;
        for psn in 0..3 {
            let flow = Flow { slot: used, ..testing::flow(left.connections.own.address, address) };
            let qpn = used.map_or(0, |slot| *slot.qpns().start()) + 2;
            testing::send_to_qp(&mut left, later, &flow, qpn, psn);
            left.flush(later);
            meet(&mut [&mut left, &mut right]);
            assert_eq!(psns(&mut right), [psn]);
        }
        assert_eq!((connections(&left), connections(&right)), (1, 1), "shared: {shared}");
        drop(right);
        left.look(now());
        psns(&mut left);
    }
}

#[test]
fn two_crossing_requests_make_one_connection() {
    for _ in 0..8 {
        let (mut left, mut right) = (open(), open());
        let (to_right, to_left) = (right.connections.own.address, left.connections.own.address);
        send(&mut left, to_right, 1, 8).expect("a slot");
        send(&mut right, to_left, 2, 8).expect("a slot");
        left.flush(now());
        right.flush(now());
        meet(&mut [&mut left, &mut right]);
        assert_eq!((psns(&mut left), psns(&mut right)), (vec![2], vec![1]));
        assert_eq!((connections(&left), connections(&right)), (1, 1));
        send(&mut left, to_right, 3, 8).expect("a slot");
        send(&mut right, to_left, 4, 8).expect("a slot");
        left.flush(now());
        right.flush(now());
        assert_eq!((psns(&mut left), psns(&mut right)), (vec![4], vec![3]));
        assert_eq!(left.below.counters().tx_datagrams, 1);
        assert_eq!(right.below.counters().tx_datagrams, 1);
    }
}

/// Each looks, receives and sends in its turn, in every order.
#[test]
fn nothing_is_lost_or_overtaken_while_requests_cross() {
    for order in 0..1 << 7 {
        let mut links = [open(), open()];
        let to = [links[1].connections.own.address, links[0].connections.own.address];
        let (mut sent, mut got) = ([0; 2], [vec![], vec![]]);
        for turn in 0..9 {
            // Both ask first.
            let one = if turn < 2 { turn } else { order >> (turn - 2) & 1 };
            if turn >= 2 {
                links[one].look(now());
                got[one].extend(psns(&mut links[one]));
            }
            sent[one] += 1;
            send(&mut links[one], to[one], sent[one], 8).expect("a slot");
            links[one].flush(now());
        }
        let [left, right] = &mut links;
        meet(&mut [left, right]);
        got[0].extend(psns(left));
        got[1].extend(psns(right));
        assert_eq!((connections(left), connections(right)), (1, 1), "order {order:#b}");
        for (one, got) in got.iter().enumerate() {
            assert!(got.iter().copied().eq(1..=sent[1 - one]), "order {order:#b}, link {one}: {got:?}");
        }
    }
}

#[test]
fn a_link_has_a_connection_to_itself() {
    let mut link = open();
    let own = link.connections.own.address;
    for psn in 0..20 {
        send(&mut link, own, psn, 64).expect("a slot");
        link.flush(now());
        meet(&mut [&mut link]);
        assert_eq!(psns(&mut link), [psn]);
    }
    assert_eq!(connections(&link), 2);
    assert_eq!(link.below.counters().tx_datagrams, 1);
}

/// A QP of the unreliable service would lose a message.
#[test]
fn datagrams_sent_below_arrive_before_those_on_a_new_connection() {
    let (mut left, mut right) = (open(), open());
    let to = right.connections.own.address;
    for psn in 0..8 {
        send(&mut left, to, psn, 512).expect("a slot");
    }
    left.flush(now());
    meet(&mut [&mut left, &mut right]);
    assert_eq!((connections(&left), connections(&right)), (1, 1));
    for psn in 8..16 {
        send(&mut left, to, psn, 512).expect("a slot");
    }
    left.flush(now());
    assert_eq!(psns(&mut right), (0..16).collect::<Vec<_>>());
    assert_eq!(left.below.counters().tx_datagrams, 8);
}

#[test]
fn a_full_connection_loses_nothing() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    let mut sent = 0;
    while send(&mut left, to, sent, 4096).is_ok() {
        sent += 1;
    }
    assert_eq!(send(&mut left, to, sent, 4096), Err(TxError::Full));
    assert_eq!(left.counters().shm_full, 1, "however often it is tried");
    left.flush(now());
    assert!(!left.is_blocked(), "others are not held up");
    assert_eq!(psns(&mut right), (0..sent).collect::<Vec<_>>());
    send(&mut left, to, sent, 4096).expect("room");
}

#[test]
fn a_peer_that_reads_nothing_is_awaited_for_a_limited_time() {
    let (mut left, mut right) = neighbours();
    let flow = testing::flow(left.connections.own.address, right.connections.own.address);
    let mut sent = 0;
    while testing::send(&mut left, now(), &flow, sent, 4096).is_ok() {
        sent += 1;
    }
    left.flush(now());
    let until = left.poll_timeout().expect("it will give up");
    assert!(until <= now() + STALLED);
    left.receive(until, 64, &mut |_| {});
    // Both may have been stopped until now.
    assert_eq!(testing::send(&mut left, until, &flow, 900, 4096), Err(TxError::Full));
    let until = left.poll_timeout().expect("it will give up");
    // What cannot be sent again would hold up all that its QP sends to others.
    assert_eq!(testing::send(&mut left, until, &flow, 900, 4096), Err(TxError::Unreachable));
    assert_eq!(left.counters().tx_errors, 1);
    left.receive(until, 64, &mut |_| {});
    assert!(left.poll_timeout().is_none_or(|at| at > until), "it does not wait any more");
    // It has only been stopped, and goes on.
    assert_eq!(psns(&mut right), (0..sent).collect::<Vec<_>>());
    testing::send(&mut left, until, &flow, 901, 64).expect("room");
    left.flush(until);
    assert_eq!(psns(&mut right), [901]);
}

#[test]
fn a_peer_that_reads_slowly_is_awaited() {
    let (mut left, mut right) = neighbours();
    let flow = testing::flow(left.connections.own.address, right.connections.own.address);
    let mut time = now();
    for _ in 0..20 {
        while testing::send(&mut left, time, &flow, 1, 4096).is_ok() {}
        left.flush(time);
        time += STALLED / 2;
        right.receive(time, 20, &mut |_| {});
    }
    assert_eq!(left.counters().tx_errors, 0);
}

#[test]
fn a_peer_that_reads_nothing_does_not_block_others() {
    let (mut left, right) = neighbours();
    let mut third = open();
    let (to_right, to_third) = (right.connections.own.address, third.connections.own.address);
    send(&mut left, to_third, 0, 8).expect("a slot");
    left.flush(now());
    meet(&mut [&mut left, &mut third]);
    while send(&mut left, to_right, 1, 4096).is_ok() {}
    for psn in 1..100 {
        send(&mut left, to_third, psn, 1000).expect("a slot");
        left.flush(now());
        let expected = if psn == 1 { vec![0, 1] } else { vec![psn] };
        assert_eq!(psns(&mut third), expected);
    }
}

/// However fast one of them writes.
#[test]
fn every_peer_is_read_in_its_turn() {
    let mut hub = open();
    let mut peers = [open(), open(), open()];
    let to = hub.connections.own.address;
    for peer in &mut peers {
        send(peer, to, 0, 8).expect("a slot");
        peer.flush(now());
        meet(&mut [peer, &mut hub]);
    }
    psns(&mut hub);
    let mut heard = [0; 3];
    for _ in 0..12 {
        for peer in &mut peers {
            while send(peer, to, 1, 2000).is_ok() {}
            peer.flush(now());
        }
        let addresses = peers.each_ref().map(|peer| peer.connections.own.address);
        hub.receive(now(), 8, &mut |datagram| {
            let from = addresses.iter().position(|address| *address == datagram.src).expect("a peer");
            heard[from] += 1;
        });
    }
    assert_eq!(heard, [32; 3]);
}

#[test]
fn published_records_can_be_read_before_the_flush() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    send(&mut left, to, 1, 8).expect("a slot");
    assert_eq!(psns(&mut right), [] as [u32; 0]);
    left.show();
    assert_eq!(psns(&mut right), [1]);
    send(&mut left, to, 2, 8).expect("a slot");
    left.flush(now());
    assert_eq!(psns(&mut right), [2]);
}

#[test]
fn receiving_takes_no_system_call_while_nothing_goes_below() {
    let (mut left, _right) = neighbours();
    let until = left.below_until;
    assert!(!left.receives_in_memory(Time::from_nanos(until.as_nanos() - 1)), "the first one went below");
    assert!(left.receives_in_memory(until));
    let nobody = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));
    let later = now() + BELOW_ACTIVE;
    let flow = testing::flow(left.connections.own.address, nobody);
    testing::send(&mut left, later, &flow, 1, 8).expect("a slot");
    left.flush(later);
    assert!(!left.receives_in_memory(later), "its answer would come below");
}

#[test]
fn a_link_is_quiet_until_there_is_something_to_do() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    let later = now() + BELOW_ACTIVE;
    assert!(!right.is_quiet(later), "it is time to ask the kernel");
    right.receive(later, 64, &mut |_| {});
    assert!(right.is_quiet(later));
    assert!(!right.is_quiet(later + LOOK_INTERVAL));
    send(&mut left, to, 1, 8).expect("a slot");
    assert!(!left.is_quiet(later), "it is not flushed");
    left.flush(later);
    assert!(!right.is_quiet(later), "a datagram has come");
    assert_eq!(right.receive(later, 64, &mut |_| {}), Overrun::Drained);
    assert!(!right.is_quiet(later), "its sender does not know that it was read");
    right.receive(later, 64, &mut |_| {});
    assert!(right.is_quiet(later));
    right.watch(Sleeper::Thread);
    assert!(!right.is_quiet(later), "the bell may have been rung for a thread that sleeps");
}

#[test]
fn a_reader_publishes_its_position_before_it_sleeps() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    send(&mut left, to, 1, 8).expect("a slot");
    left.flush(now());
    assert_eq!(right.receive(now(), 64, &mut |_| {}), Overrun::Drained);
    right.watch(Sleeper::Thread);
    let later = now() + BELOW_ACTIVE;
    left.receive(later, 64, &mut |_| {});
    let connection = left.connections.connection(0).expect("a connection");
    assert!(connection.rings.is_empty());
}

/// Each datagram from a socket would cost the system calls of its counters.
#[test]
fn receiving_does_not_ask_the_link_below_for_its_counters() {
    let below = UdpLink::open(UdpOptions::default()).expect("a loopback address");
    let (address, asked) = (below.address(), Arc::new(AtomicU32::new(0)));
    let below = Asked { below, asked: asked.clone() };
    let mut link = ShmLink::new(below, address).map_err(|(_, error)| error).expect("shared memory");
    let mut plain = UdpLink::open(UdpOptions::default()).expect("a loopback address");
    let flow = testing::flow(plain.address(), address);
    testing::send(&mut plain, now(), &flow, 1, 8).expect("a slot");
    plain.flush(now());
    let mut heard = 0;
    link.receive(now(), 8, &mut |_| heard += 1);
    assert_eq!((heard, asked.load(Relaxed)), (1, 0));
}

/// Counts how often it is asked for its counters.
struct Asked {
    below: UdpLink,
    asked: Arc<AtomicU32>,
}

impl Link for Asked {
    fn counters(&self) -> LinkCounters {
        self.asked.fetch_add(1, Relaxed);
        self.below.counters()
    }

    delegate_link!(self => self.below;
        capabilities reserve reserved commit flush is_blocked receive descriptor join leave
    );
}

/// A peer that always has more must not keep those that come by sockets from being heard.
#[test]
fn the_link_below_is_read_in_its_turn() {
    let (mut hub, mut peer) = neighbours();
    let mut plain = UdpLink::open(UdpOptions::default()).expect("a loopback address");
    let (to, from) = (hub.connections.own.address, plain.address());
    send(&mut peer, to, 1, 8).expect("a slot");
    peer.flush(now());
    assert_eq!(psns(&mut hub), [1]);
    testing::send(&mut plain, now(), &testing::flow(from, to), 1, 8).expect("a slot");
    plain.flush(now());
    let mut heard = false;
    for _ in 0..4 {
        while send(&mut peer, to, 1, 2000).is_ok() {}
        peer.flush(now());
        hub.look(now());
        hub.receive(now(), 8, &mut |datagram| heard |= datagram.src == from);
    }
    assert!(heard);
}

#[test]
fn an_idle_connection_is_released_and_made_again() {
    let (mut left, mut right) = neighbours();
    let (from, to) = (left.connections.own.address, right.connections.own.address);
    let sweep = |link: &mut ShmLink<UdpLink>| {
        let at = link.poll_timeout().expect("connections are looked after");
        link.receive(at, 64, &mut |_| {});
        at
    };
    assert!(sweep(&mut left) <= now() + IDLE);
    assert_eq!(connections(&left), 1, "it was used since the last time");
    let later = sweep(&mut left);
    // The peer does not know yet: nothing of this is lost.
    send(&mut right, from, 7, 64).expect("a slot");
    right.flush(now());
    meet(&mut [&mut right]);
    assert_eq!(psns(&mut right), []);
    assert_eq!(connections(&right), 0);
    left.receive(later + LOOK_INTERVAL, 64, &mut |datagram| assert_eq!(Received::from(datagram).psn(), 7));
    assert_eq!(connections(&left), 0);
    sweep(&mut left);
    assert_eq!(left.poll_timeout(), None);
    assert_eq!(left.counters().rx_datagrams, 1);
    send(&mut left, to, 8, 64).expect("a slot");
    left.flush(now());
    meet(&mut [&mut left, &mut right]);
    assert_eq!((connections(&left), connections(&right)), (1, 1));
    assert_eq!(psns(&mut right), [8]);
}

#[test]
fn records_sent_before_the_end_arrive_and_later_ones_go_below() {
    let (mut left, mut right) = neighbours();
    let (from, to) = (left.connections.own.address, right.connections.own.address);
    send(&mut left, to, 5, 64).expect("a slot");
    left.flush(now());
    drop(left);
    right.look(now());
    assert_eq!(psns(&mut right), [5]);
    assert_eq!(connections(&right), 0);
    send(&mut right, from, 6, 64).expect("a slot");
    right.flush(now());
    assert_eq!(right.below.counters().tx_datagrams, 1);
}

#[test]
fn the_next_process_at_the_address_gets_a_connection() {
    let (mut left, right) = neighbours();
    let to = right.connections.own.address;
    drop(right);
    left.look(now());
    testing::drain(&mut left, now());
    let udp =
        UdpLink::open(UdpOptions { address: Some(to), ..UdpOptions::default() }).expect("the same address");
    let mut next = ShmLink::new(udp, to).map_err(|(_, error)| error).expect("its name");
    let later = now() + ASK_AGAIN;
    let flow = testing::flow(left.connections.own.address, to);
    testing::send(&mut left, later, &flow, 9, 64).expect("a slot");
    left.flush(later);
    meet(&mut [&mut left, &mut next]);
    assert_eq!((connections(&left), connections(&next)), (1, 1));
    assert_eq!(psns(&mut next), [9]);
}

/// The survivor has not noticed the end of the first when the second one comes.
#[test]
fn the_next_process_at_the_address_may_be_the_first_to_send() {
    let (mut left, right) = neighbours();
    let (from, to) = (left.connections.own.address, right.connections.own.address);
    drop(right);
    let udp =
        UdpLink::open(UdpOptions { address: Some(to), ..UdpOptions::default() }).expect("the same address");
    let mut next = ShmLink::new(udp, to).map_err(|(_, error)| error).expect("its name");
    send(&mut next, from, 3, 64).expect("a slot");
    next.flush(now());
    meet(&mut [&mut left, &mut next]);
    assert_eq!(psns(&mut left), [3]);
    assert_eq!((connections(&left), connections(&next)), (1, 1));
    let below = left.below.counters().tx_datagrams;
    send(&mut left, to, 4, 64).expect("a slot");
    left.flush(now());
    assert_eq!(psns(&mut next), [4]);
    assert_eq!(left.below.counters().tx_datagrams, below, "by the connection to the second");
}

#[test]
fn an_address_without_a_link_is_reached_below() {
    let mut link = open();
    let nobody = IpAddr::V4(Ipv4Addr::new(127, 200, 3, (process::id() % 250) as u8 + 1));
    for _ in 0..3 {
        send(&mut link, nobody, 1, 64).expect("a slot");
        link.flush(now());
    }
    assert_eq!(link.connections.count(), (0, 0));
    assert_eq!(link.below.counters().tx_datagrams, 3);
}

#[test]
fn a_peer_that_never_answers_is_asked_once_at_a_time() {
    let mut link = open();
    let silent = IpAddr::V4(Ipv4Addr::new(127, 200, 4, (process::id() % 250) as u8 + 1));
    let _listener = handshake::take_name(endpoint(silent)).expect("its name");
    let flow = testing::flow(link.connections.own.address, silent);
    let start = now();
    for turn in 0..4 {
        let later = start + turn * (ANSWER_TIMEOUT + ASK_AGAIN);
        testing::send(&mut link, later, &flow, turn, 64).expect("a slot");
        link.flush(later);
        assert_eq!(link.connections.count(), (0, 1), "turn {turn}");
    }
    assert_eq!(link.below.counters().tx_datagrams, 4);
}

#[test]
fn a_silent_peer_that_has_the_address_alone_is_asked_once_for_all_queue_pairs() {
    let mut link = open();
    let silent = IpAddr::V4(Ipv4Addr::new(127, 200, 6, (process::id() % 250) as u8 + 1));
    let flow = |number| Flow {
        slot: ProcessSlot::new(number),
        ..testing::flow(link.connections.own.address, silent)
    };
    let flows = [flow(1), flow(2)];
    // Nobody is there, which is known of each slot.
    for flow in &flows {
        testing::send(&mut link, now(), flow, 0, 64).expect("a slot");
        link.flush(now());
    }
    let _listener = handshake::take_name(endpoint(silent)).expect("its name");
    let later = now() + ASK_AGAIN;
    for psn in 1..4 {
        for flow in &flows {
            testing::send(&mut link, later, flow, psn, 64).expect("a slot");
            link.flush(later);
        }
    }
    assert_eq!(link.connections.count(), (0, 1));
}

#[test]
fn a_peer_that_violates_the_ring_protocol_loses_its_connection() {
    let (mut left, mut right) = neighbours();
    left.connections.connection(0).expect("a connection").rings.scribble();
    testing::drain(&mut right, now());
    assert_eq!(connections(&right), 0);
    let counters = right.counters();
    assert_eq!((counters.shm_corrupt, counters.shm_fallbacks), (1, 1));
    // The other one hears of the end.
    left.look(now());
    testing::drain(&mut left, now());
    assert_eq!(connections(&left), 0);
}

/// Its garbage is found by who looks for room, which need not be who sends or receives.
#[test]
fn garbage_from_a_reader_does_not_keep_a_waiting_writer_awake() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    while send(&mut left, to, 1, 4096).is_ok() {}
    left.flush(now());
    assert!(!left.watch(Sleeper::Thread));
    right.connections.connection(0).expect("a connection").rings.scribble_what_was_read();
    assert!(left.watch(Sleeper::Thread), "there is a connection to be closed");
    testing::drain(&mut left, now());
    assert_eq!(connections(&left), 0);
    assert!(!left.watch(Sleeper::Thread), "nothing is left to do");
}

/// Whether the datagrams that arrive have ICRCs, and whether these are right.
fn icrcs(from: &mut ShmLink<UdpLink>, to: &mut ShmLink<UdpLink>) -> (bool, bool) {
    let destination = to.connections.own.address;
    send(from, destination, 5, 1000).expect("a slot");
    from.flush(now());
    let got = testing::drain(to, now());
    assert_eq!(got.len(), 1);
    (got[0].has_icrc, softrnic_wire::verify(&got[0].facts(), &got[0].bytes))
}

#[test]
fn datagrams_in_memory_have_no_icrc() {
    let (mut left, mut right) = neighbours();
    assert_eq!(icrcs(&mut left, &mut right), (false, false));
    assert_eq!(icrcs(&mut right, &mut left), (false, false));
}

#[test]
fn a_side_that_asks_for_icrcs_gets_them_and_gives_them() {
    for asks in [[true, false], [false, true]] {
        let [mut left, mut right] = asks.map(|asks| if asks { open().with_icrcs() } else { open() });
        let to = right.connections.own.address;
        send(&mut left, to, 0, 8).expect("a slot");
        left.flush(now());
        meet(&mut [&mut left, &mut right]);
        testing::drain(&mut right, now());
        assert_eq!(icrcs(&mut left, &mut right), (true, true), "{asks:?}");
        assert_eq!(icrcs(&mut right, &mut left), (true, true), "{asks:?}");
    }
}

#[test]
fn who_is_asked_for_an_icrc_and_leaves_it_out_is_not_believed() {
    let (mut left, mut right) = neighbours();
    right.connections.asks_for_icrcs = true;
    assert_eq!(icrcs(&mut left, &mut right), (true, false));
}

/// Somebody begins to look while the connection is there.
#[test]
fn icrcs_can_be_kept_from_now_on() {
    let (mut left, mut right) = neighbours();
    left.keep_icrcs();
    assert_eq!(icrcs(&mut left, &mut right), (true, true));
    assert_eq!(icrcs(&mut right, &mut left), (false, false));
}

#[test]
fn payloads_stay_with_the_peer_only_for_who_copies_them_and_while_nobody_looks() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    let mut stay = |right: &mut ShmLink<UdpLink>| {
        send(&mut left, to, 5, 2000).expect("a slot");
        left.flush(now());
        let mut found = None;
        right.receive(now(), 64, &mut |datagram| {
            assert_eq!(datagram.record.map(|record| record.len()).unwrap_or(2016), datagram.bytes.len());
            found = Some(datagram.record.is_some());
        });
        found
    };
    assert_eq!(stay(&mut right), Some(false));
    right.leave_payloads();
    assert_eq!(stay(&mut right), Some(true));
    right.keep_icrcs();
    assert_eq!(stay(&mut right), Some(false));
}

/// A process with the rings of another version does not understand ours, nor we its.
#[test]
fn a_peer_of_another_version_is_reached_below() {
    let (mut left, mut right) = (open(), open());
    let (socket, _) = handshake::ask(right.connections.own).expect("it listens");
    let mut hello = [0; 24];
    hello[..5].copy_from_slice(b"shm4O");
    softrnic_sys::unix::send(&socket, &hello, &[]).expect("said");
    meet(&mut [&mut right]);
    assert_eq!((connections(&right), right.counters().shm_bad_hello), (0, 1));
    // And the other way round: it hangs up.
    let listener = handshake::take_name(endpoint(IpAddr::from([127, 205, 9, 9]))).expect("a name");
    let peer = IpAddr::from([127, 205, 9, 9]);
    send(&mut left, peer, 0, 8).expect("a slot");
    drop(softrnic_sys::unix::accept(&listener).expect("it asks"));
    meet(&mut [&mut left]);
    send(&mut left, peer, 1, 8).expect("a slot");
    left.flush(now());
    assert_eq!((connections(&left), left.below.counters().tx_datagrams), (0, 2));
}

/// A stream to a link from somebody who says what a peer with this address would.
fn stranger(link: &ShmLink<UdpLink>, address: IpAddr) -> (OwnedFd, Own) {
    let (socket, _) = handshake::ask(link.connections.own).expect("it listens");
    let (own, segment) = Own::create(MIN_CAPACITY).expect("memory");
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let bells = handshake::Bells { thread: bell(), caller: bell() };
    handshake::offer(&socket, endpoint(address), &segment, &bells, false).expect("said");
    (socket, own)
}

#[test]
fn an_address_has_one_connection() {
    let mut link = open();
    let strangers: Vec<_> =
        (0..5).map(|_| stranger(&link, IpAddr::V4(Ipv4Addr::new(127, 200, 5, 1)))).collect();
    meet(&mut [&mut link]);
    testing::drain(&mut link, now());
    assert_eq!(connections(&link), 1);
    drop(strangers);
}

#[test]
fn no_process_is_accepted_for_a_group_or_an_unspecified_address() {
    let mut link = open();
    let _strangers = [Ipv4Addr::new(224, 0, 0, 9), Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]
        .map(|address| stranger(&link, address.into()));
    meet(&mut [&mut link]);
    assert_eq!(connections(&link), 0);
}

#[test]
fn many_clients_are_accepted_a_few_at_a_time() {
    let mut link = open();
    let crowd: Vec<_> =
        (0..3 * MOST_LET_IN).map(|_| handshake::ask(link.connections.own).expect("it listens")).collect();
    link.look(now());
    assert_eq!(link.connections.count().1, MOST_LET_IN);
    for _ in 0..3 {
        link.look(now());
    }
    assert_eq!(link.connections.count().1, crowd.len());
}

fn fallback_reason(link: &ShmLink<UdpLink>, peer: IpAddr) -> Option<String> {
    let reach = link.reaches().into_iter().find(|reach| reach.peer == peer).expect("known");
    reach.fallback_reason
}

#[test]
fn a_link_knows_which_peers_use_shared_memory_and_why_others_do_not() {
    let (mut left, mut right) = neighbours();
    let (near, far) = (left.connections.own.address, right.connections.own.address);
    for psn in 1..=3 {
        send(&mut left, far, psn, 64).expect("a slot");
    }
    left.flush(now());
    assert_eq!(psns(&mut right), [1, 2, 3]);
    let reach = Reach { peer: far, slot: None, fallback_reason: None, tx_datagrams: 3, rx_datagrams: 0 };
    assert_eq!(left.reaches(), [reach]);
    let reach = Reach { peer: near, slot: None, fallback_reason: None, tx_datagrams: 0, rx_datagrams: 3 };
    assert_eq!(right.reaches(), [reach]);
    assert_eq!((left.counters().shm_tx_datagrams, right.counters().shm_rx_datagrams), (3, 3));
    assert_eq!((left.counters().tx_datagrams, right.counters().rx_datagrams), (4, 4));

    let nobody = IpAddr::V4(Ipv4Addr::new(127, 200, 6, (process::id() % 250) as u8 + 1));
    send(&mut left, nobody, 1, 64).expect("a slot");
    let why = "no process on this machine offers it at that address";
    assert_eq!(fallback_reason(&left, nobody).as_deref(), Some(why));
    let silent = IpAddr::V4(Ipv4Addr::new(127, 200, 7, (process::id() % 250) as u8 + 1));
    let _listener = handshake::take_name(endpoint(silent)).expect("its name");
    send(&mut left, silent, 1, 64).expect("a slot");
    assert_eq!(fallback_reason(&left, silent).as_deref(), Some("not answered yet"));
    let flow = testing::flow(near, silent);
    testing::send(&mut left, now() + ANSWER_TIMEOUT, &flow, 2, 64).expect("a slot");
    assert_eq!(fallback_reason(&left, silent).as_deref(), Some("the process there does not answer"));

    drop(left);
    right.look(now());
    assert_eq!((right.reaches(), right.counters().shm_fallbacks), (vec![], 1));
}

#[test]
fn a_released_connection_does_not_count_as_a_fallback() {
    let (mut left, mut right) = neighbours();
    for _ in 0..2 {
        let at = left.poll_timeout().expect("connections are looked after");
        left.receive(at, 64, &mut |_| {});
    }
    meet(&mut [&mut right]);
    psns(&mut right);
    meet(&mut [&mut left]);
    psns(&mut left);
    assert_eq!((connections(&left), connections(&right)), (0, 0));
    assert_eq!((left.counters().shm_fallbacks, right.counters().shm_fallbacks), (0, 0));
}

#[test]
fn garbage_on_a_stream_is_counted() {
    let mut link = open();
    let (socket, _) = handshake::ask(link.connections.own).expect("it listens");
    rustix::net::send(&socket, b"shm1 or not", rustix::net::SendFlags::empty()).expect("said");
    meet(&mut [&mut link]);
    assert_eq!((link.connections.count(), link.counters().shm_bad_hello), ((0, 0), 1));
}

#[test]
fn the_descriptor_wakes_its_waiter() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    let wakes = |link: &ShmLink<UdpLink>| {
        testing::wait(link, libc::POLLIN, std::time::Duration::ZERO) & libc::POLLIN != 0
    };
    for psn in 0..100 {
        send(&mut left, to, psn, 64).expect("a slot");
        left.flush(now());
        assert!(!wakes(&right), "nobody waits: nobody is woken");
        assert!(right.watch(Sleeper::Thread), "there is something already");
        right.watch(Sleeper::Nobody);
        assert_eq!(psns(&mut right), [psn]);
        assert!(!right.watch(Sleeper::Thread));
        send(&mut left, to, 1000 + psn, 64).expect("a slot");
        left.flush(now());
        assert!(wakes(&right), "PSN {psn}");
        right.watch(Sleeper::Nobody);
        assert_eq!(psns(&mut right), [1000 + psn]);
        assert!(!wakes(&right), "the bell has been heard");
    }
}

#[test]
fn room_wakes_a_waiting_writer() {
    let (mut left, mut right) = neighbours();
    let to = right.connections.own.address;
    while send(&mut left, to, 1, 4096).is_ok() {}
    left.flush(now());
    assert!(!left.watch(Sleeper::Thread));
    psns(&mut right);
    assert_ne!(testing::wait(&left, libc::POLLIN, std::time::Duration::ZERO), 0);
    left.watch(Sleeper::Nobody);
    send(&mut left, to, 2, 64).expect("room");
}

/// Tells a copy of this program what to do.
const CHILD: &str = "TEST_SHM_CHILD";

/// Runs a test in a process of its own, which it may limit. False in that process.
fn in_a_process(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let program = std::env::current_exe().expect("our own path");
    let run = process::Command::new(program)
        .args(["--exact", &format!("shm::tests::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("it runs");
    assert!(run.status.success(), "{}{}", run.status, String::from_utf8_lossy(&run.stderr));
    true
}

#[test]
fn a_peer_that_cannot_be_accepted_does_not_wake_the_thread_forever() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if in_a_process("a_peer_that_cannot_be_accepted_does_not_wake_the_thread_forever") {
        return;
    }
    let (mut left, mut right) = (open(), open());
    let to = right.connections.own.address;
    send(&mut left, to, 1, 64).expect("a slot");
    left.flush(now());
    assert_eq!(connections(&left), 0);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum }).expect("less");
    psns(&mut right);
    psns(&mut right);
    assert_eq!(testing::wait(&right, libc::POLLIN, Duration::ZERO), 0, "it sleeps");
    // Once there are descriptors again, the next who asks is let in, and all who wait.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("as before");
    let mut third = open();
    send(&mut third, to, 2, 64).expect("a slot");
    third.flush(now());
    meet(&mut [&mut left, &mut third, &mut right]);
    assert_eq!((connections(&left), connections(&third), connections(&right)), (1, 1, 2));
}

#[test]
fn a_file_size_limit_ends_no_process() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if in_a_process("a_file_size_limit_ends_no_process") {
        return;
    }
    let (mut left, right) = (open(), open());
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), maximum }).expect("less");
    let to = right.connections.own.address;
    send(&mut left, to, 1, 64).expect("a slot");
    assert_eq!(left.connections.count(), (0, 0));
}

/// Both sleep whenever there is nothing to do: a bell that is not rung ends the test by its timeout.
#[test]
fn two_sleeping_threads_lose_no_wake_up() {
    const MESSAGES: u32 = 20_000;
    let (left, right) = neighbours();
    let (to_right, to_left) = (right.connections.own.address, left.connections.own.address);
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
                if !link.watch(Sleeper::Thread) {
                    let woken = testing::wait(&link, libc::POLLIN, std::time::Duration::from_secs(10));
                    assert_ne!(woken, 0, "nobody rang");
                }
                link.watch(Sleeper::Nobody);
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
