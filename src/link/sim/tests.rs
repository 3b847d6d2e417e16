use std::net::IpAddr;
use std::time::Duration;

use softrnic_wire::Time;

use super::*;
use crate::testing::{Received, drain, flow, packet_len, send};
use crate::{Flow, HeaderId, Link, TxError};

const NOW: Time = Time::ZERO;
const LONG: Time = Time::from_nanos(1_000_000_000);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn pair(fabric: &Fabric, options: SimOptions) -> (SimLink, SimLink) {
    (fabric.attach(ip(1), options).unwrap(), fabric.attach(ip(2), options).unwrap())
}

/// Sends `count` datagrams one microsecond apart and returns what arrives, with its time.
fn transfer(fabric: &Fabric, a: &mut SimLink, b: &mut SimLink, count: u32) -> Vec<(Time, Received)> {
    let to_b = flow(a.address(), b.address());
    for psn in 0..count {
        let now = Time::from_nanos(u64::from(psn) * 1000);
        send(a, now, &to_b, psn, 256).unwrap();
        a.flush(now);
    }
    let mut got = Vec::new();
    while let Some(at) = fabric.next_delivery() {
        got.extend(drain(b, at).into_iter().map(|r| (at, r)));
    }
    got.extend(drain(b, LONG).into_iter().map(|r| (LONG, r)));
    got
}

#[test]
fn datagrams_arrive_after_the_delay_and_not_before() {
    let fabric = Fabric::new(1);
    let path = Path { delay: Duration::from_micros(7), ..Path::default() };
    fabric.set_path(ip(1), ip(2), path);
    let (mut a, mut b) = pair(&fabric, SimOptions::default());
    let to_b = Flow { sport: 0xC001, tos: 0x50, ttl: 3, ..flow(ip(1), ip(2)) };
    send(&mut a, NOW, &to_b, 4, 100).unwrap();
    assert_eq!(fabric.next_delivery(), None);
    a.flush(NOW);
    assert_eq!(fabric.next_delivery(), Some(Time::from_nanos(7000)));
    assert!(drain(&mut b, Time::from_nanos(6999)).is_empty());
    let got = drain(&mut b, Time::from_nanos(7000));
    assert_eq!((got[0].src, got[0].dst, got[0].sport), (ip(1), ip(2), 0xC001));
    assert_eq!((got[0].tos, got[0].ttl, got[0].psn()), (0x50, 3, 4));
    assert!(got[0].icrc_ok());
    assert_eq!(fabric.next_delivery(), None);
    assert_eq!(b.counters().rx_datagrams, 1);
}

/// Sends datagrams 0 to 3, ECN-capable, and meddles with number 1 in this way. Returns what arrives.
fn meddled(what: Meddling) -> Vec<Received> {
    let fabric = Fabric::new(1);
    let (mut a, mut b) = pair(&fabric, SimOptions::default());
    let to_b = Flow { tos: 2, ..flow(ip(1), ip(2)) };
    for psn in 0..4 {
        send(&mut a, NOW, &to_b, psn, 64).unwrap();
    }
    a.flush(NOW);
    let flights = fabric.flights();
    assert_eq!(
        flights.iter().map(|flight| (flight.from, flight.to)).collect::<Vec<_>>(),
        [(ip(1), ip(2)); 4]
    );
    assert_eq!(flights[1].packet.len(), 20 + 8 + packet_len(64));
    assert!(fabric.meddle(flights[1].number, what), "{what:?}");
    let got = drain(&mut b, LONG);
    assert!(!fabric.meddle(flights[1].number, what), "it has arrived");
    got
}

#[test]
fn the_fate_of_a_datagram_under_way_can_be_changed() {
    let psns = |got: &[Received]| got.iter().map(Received::psn).collect::<Vec<_>>();
    assert_eq!(psns(&meddled(Meddling::Lose)), [0, 2, 3]);
    assert_eq!(psns(&meddled(Meddling::Duplicate)), [0, 1, 2, 3, 1]);
    assert_eq!(psns(&meddled(Meddling::ArriveAt(LONG))), [0, 2, 3, 1]);
    let marked = meddled(Meddling::Mark);
    assert_eq!(marked.iter().map(|one| one.tos & 3).collect::<Vec<_>>(), [2, 3, 2, 2]);
    let damaged = meddled(Meddling::Flip { bit: 200 });
    assert_eq!(damaged.iter().map(Received::icrc_ok).collect::<Vec<_>>(), [true, false, true, true]);
}

#[test]
fn impossible_changes_to_a_datagram_are_refused() {
    let fabric = Fabric::new(1);
    let (mut a, mut b) = pair(&fabric, SimOptions::default());
    send(&mut a, NOW, &flow(ip(1), ip(2)), 7, 64).unwrap();
    a.flush(NOW);
    let number = fabric.flights()[0].number;
    assert!(!fabric.meddle(number, Meddling::Mark), "not ECN-capable");
    assert!(!fabric.meddle(number, Meddling::Flip { bit: 8 * packet_len(64) }), "behind its end");
    assert!(!fabric.meddle(number + 1, Meddling::Lose), "no such datagram");
    let got = drain(&mut b, LONG);
    assert_eq!((got.len(), got[0].tos, got[0].icrc_ok()), (1, 0, true));
}

#[test]
fn links_show_as_much_of_the_header_as_they_are_told_to() {
    for (v6, sees_ip_header, counts_ids) in [
        (false, false, false),
        (false, false, true),
        (false, true, true),
        (true, true, false),
        (true, false, true),
    ] {
        let fabric = Fabric::new(1);
        let options = SimOptions { sees_ip_header, counts_ids, ..SimOptions::default() };
        let (src, dst): (IpAddr, IpAddr) =
            if v6 { ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()) } else { (ip(1), ip(2)) };
        let mut a = fabric.attach(src, options).unwrap();
        let mut b = fabric.attach(dst, options).unwrap();
        for psn in 0..3 {
            send(&mut a, NOW, &flow(src, dst), psn, 64).unwrap();
        }
        a.flush(NOW);
        let got = drain(&mut b, LONG);
        let ids: Vec<u16> = got.iter().map(|r| r.recovered_id().unwrap()).collect();
        assert_eq!(got.len(), 3);
        assert_eq!(b.capabilities().sees_ip_header, sees_ip_header);
        assert!(got.iter().all(|r| r.ip_header.is_some() == sees_ip_header));
        match (v6, counts_ids) {
            (true, _) => assert!(got.iter().all(|r| r.id == HeaderId::None && r.icrc_ok())),
            (false, false) => assert_eq!(ids, [0, 0, 0]),
            (false, true) => {
                assert_ne!(ids[0], 0);
                assert_eq!((ids[1], ids[2]), (ids[0].wrapping_add(1), ids[0].wrapping_add(2)));
            }
        }
        for r in got.iter().filter(|r| r.ip_header.is_some()) {
            let header = r.ip_header.as_deref().unwrap();
            assert_eq!(header.len(), if v6 { 40 } else { 20 });
            assert!(r.icrc_ok());
            let mut frame = vec![0; 12];
            frame.extend(if v6 { [0x86, 0xDD] } else { [0x08, 0x00] });
            frame.extend(header);
            frame.extend(r.sport.to_be_bytes());
            frame.extend(4791_u16.to_be_bytes());
            frame.extend((8 + r.bytes.len() as u16).to_be_bytes());
            frame.extend([0, 0]);
            frame.extend(&r.bytes);
            let frame = softrnic_wire::Frame::parse(&frame).unwrap();
            assert!(frame.ip_checksum_ok());
            assert_eq!(frame.facts(), r.facts());
        }
    }
}

#[test]
fn the_same_seed_repeats_and_another_does_not() {
    let run = |seed| {
        let fabric = Fabric::new(seed);
        fabric.set_default_path(Path {
            loss: 0.1,
            duplicate: 0.1,
            reorder: 0.2,
            corrupt: 0.1,
            mark: 0.1,
            ..Path::default()
        });
        let (mut a, mut b) = pair(&fabric, SimOptions::default());
        (transfer(&fabric, &mut a, &mut b, 300), fabric.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn directions_are_independent() {
    let run = |busy: bool| {
        let fabric = Fabric::new(5);
        fabric.set_default_path(Path { loss: 0.3, ..Path::default() });
        let (mut a, mut b) = pair(&fabric, SimOptions::default());
        if busy {
            let to_a = flow(ip(2), ip(1));
            for psn in 0..50 {
                send(&mut b, NOW, &to_a, psn, 8).unwrap();
            }
            b.flush(NOW);
        }
        transfer(&fabric, &mut a, &mut b, 200).into_iter().map(|(_, r)| r.psn()).collect::<Vec<_>>()
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn every_fault_happens_approximately_at_its_rate() {
    const COUNT: u32 = 4000;
    let about = |n: u64| (300..500).contains(&n);
    let run = |path: Path| {
        let fabric = Fabric::new(9);
        fabric.set_path(ip(1), ip(2), path);
        let (mut a, mut b) =
            pair(&fabric, SimOptions { receive_buffer: usize::MAX, ..SimOptions::default() });
        let got: Vec<Received> =
            transfer(&fabric, &mut a, &mut b, COUNT).into_iter().map(|(_, r)| r).collect();
        (got, fabric.counters())
    };
    let (got, counters) = run(Path { loss: 0.1, ..Path::default() });
    assert!(about(counters.lost), "{counters:?}");
    assert_eq!(got.len() as u64 + counters.lost, COUNT.into());

    let (got, counters) = run(Path { duplicate: 0.1, ..Path::default() });
    assert!(about(counters.duplicated), "{counters:?}");
    assert_eq!(got.len() as u64, u64::from(COUNT) + counters.duplicated);

    let (got, counters) = run(Path { reorder: 0.1, ..Path::default() });
    assert!(about(counters.reordered), "{counters:?}");
    let psns: Vec<u32> = got.iter().map(Received::psn).collect();
    assert!(!psns.is_sorted());
    let mut sorted = psns.clone();
    sorted.sort();
    assert_eq!(sorted, (0..COUNT).collect::<Vec<_>>());

    let (got, counters) = run(Path { corrupt: 0.1, ..Path::default() });
    assert!(about(counters.corrupted), "{counters:?}");
    assert_eq!(got.iter().filter(|r| !r.icrc_ok()).count() as u64, counters.corrupted);

    let (got, counters) = run(Path { mark: 0.1, ..Path::default() });
    assert_eq!((counters.marked, got.len()), (0, COUNT as usize));
}

#[test]
fn only_ecn_capable_datagrams_are_marked() {
    let fabric = Fabric::new(1);
    fabric.set_default_path(Path { mark: 1.0, ..Path::default() });
    let (mut a, mut b) = pair(&fabric, SimOptions::default());
    for (psn, tos) in [0x28, 0x29, 0x2A, 0x2B].into_iter().enumerate() {
        send(&mut a, NOW, &Flow { tos, ..flow(ip(1), ip(2)) }, psn as u32, 8).unwrap();
    }
    a.flush(NOW);
    let got = drain(&mut b, LONG);
    assert_eq!(got.iter().map(|r| r.tos).collect::<Vec<_>>(), [0x28, 0x2B, 0x2B, 0x2B]);
    assert!(got.iter().all(Received::icrc_ok));
    assert_eq!(fabric.counters().marked, 2);
}

#[test]
fn a_full_receive_buffer_drops_until_it_is_read() {
    let fabric = Fabric::new(1);
    let datagram = packet_len(256) + 28;
    let options = SimOptions { receive_buffer: 3 * datagram, ..SimOptions::default() };
    let (mut a, mut b) = pair(&fabric, options);
    for psn in 0..5 {
        send(&mut a, NOW, &flow(ip(1), ip(2)), psn, 256).unwrap();
    }
    a.flush(NOW);
    fabric.advance(LONG);
    assert_eq!(fabric.waiting(ip(2)), 3);
    assert_eq!(b.counters().rx_overruns, 2);
    let psns: Vec<u32> = drain(&mut b, LONG).iter().map(Received::psn).collect();
    assert_eq!(psns, [0, 1, 2]);
    send(&mut a, LONG, &flow(ip(1), ip(2)), 5, 256).unwrap();
    a.flush(LONG);
    assert_eq!(drain(&mut b, LONG + Duration::from_secs(1))[0].psn(), 5);
}

#[test]
fn bandwidth_spaces_datagrams_and_blocks_a_sender_that_is_ahead() {
    let fabric = Fabric::new(1);
    fabric.set_default_path(Path { delay: Duration::ZERO, ..Path::default() });
    let datagram = packet_len(1024) + 28;
    // One datagram takes ten microseconds.
    let bandwidth = Some(datagram as u64 * 8 * 100_000);
    let options = SimOptions { bandwidth, transmit_buffer: 4 * datagram, ..SimOptions::default() };
    let (mut a, mut b) = pair(&fabric, options);
    let to_b = flow(ip(1), ip(2));
    let mut psn = 0;
    let mut now = NOW;
    let mut arrivals = Vec::new();
    while arrivals.len() < 20 {
        while psn < 20 && !a.is_blocked() && send(&mut a, now, &to_b, psn, 1024).is_ok() {
            psn += 1;
            a.flush(now);
        }
        now = [fabric.next_delivery(), a.poll_timeout()].into_iter().flatten().min().unwrap();
        a.flush(now);
        arrivals.extend(drain(&mut b, now).iter().map(|r| (now.as_nanos(), r.psn())));
    }
    let expected: Vec<(u64, u32)> = (0..20).map(|i| (u64::from(i + 1) * 10_000, i)).collect();
    assert_eq!(arrivals, expected);
}

#[test]
fn an_outbox_that_cannot_leave_fills_up() {
    let fabric = Fabric::new(1);
    let options = SimOptions { bandwidth: Some(1_000), transmit_buffer: 4096, ..SimOptions::default() };
    let (mut a, _b) = pair(&fabric, options);
    let to_b = flow(ip(1), ip(2));
    let mut refusal = None;
    for psn in 0..100 {
        if let Err(e) = send(&mut a, NOW, &to_b, psn, 256) {
            refusal = Some(e);
            break;
        }
        a.flush(NOW);
    }
    assert_eq!(refusal, Some(TxError::Full));
    assert!(a.is_blocked());
    assert!(a.poll_timeout().unwrap() > NOW);
}

#[test]
fn addresses_are_taken_once_and_given_back() {
    let fabric = Fabric::new(1);
    let (mut a, b) = pair(&fabric, SimOptions::default());
    assert_eq!(fabric.attach(ip(2), SimOptions::default()).unwrap_err(), AddressTaken(ip(2)));
    send(&mut a, NOW, &flow(ip(1), ip(2)), 0, 8).unwrap();
    send(&mut a, NOW, &flow(ip(1), ip(9)), 1, 8).unwrap();
    a.flush(NOW);
    drop(b);
    fabric.advance(LONG);
    assert_eq!(fabric.counters().unroutable, 2);
    assert!(fabric.attach(ip(2), SimOptions::default()).is_ok());
    assert_eq!(a.reserve(NOW, &flow(ip(7), ip(2)), 64).err(), Some(TxError::Unreachable));
}
