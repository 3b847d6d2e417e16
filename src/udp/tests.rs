mod private_network;

use std::fs::File;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use softrnic_wire::Time;

use super::*;
use softrnic_link::HeaderId;
use softrnic_link::testing::{Received, drain, flow, packet_len, receive, send, wait};

const NOW: Time = Time::ZERO;

fn open() -> UdpLink {
    UdpLink::open(UdpOptions::default()).unwrap()
}

fn open_with(change: impl FnOnce(&mut UdpOptions)) -> UdpLink {
    let mut options = UdpOptions::default();
    change(&mut options);
    UdpLink::open(options).unwrap()
}

/// There is one IPv6 loopback address, and tests run side by side, as threads or as processes: the one that holds the
/// lock on the file may use it.
pub(super) fn ipv6_loopback() -> File {
    let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    file.lock().unwrap();
    file
}

fn psns(got: &[Received]) -> Vec<u32> {
    got.iter().map(Received::psn).collect()
}

fn ids(got: &[Received]) -> Vec<u16> {
    got.iter().map(|r| r.recovered_id().expect("a good ICRC")).collect()
}

fn places(got: &[Received]) -> Vec<u16> {
    let place = |r: &Received| match r.id {
        HeaderId::Hidden { place } => place,
        other => panic!("{other:?}"),
    };
    got.iter().map(place).collect()
}

#[test]
fn marks_of_congestion_are_shown_to_everybody_and_the_ttl_to_who_asks() {
    let _only = ipv6_loopback();
    for address in [None, Some("::1".parse().unwrap())] {
        let mut link = open_with(|o| o.address = address);
        let own = Flow { tos: 0x6A, ttl: 17, ..flow(link.address(), link.address()) };
        let headers = |link: &mut UdpLink| {
            send(link, NOW, &own, 0, 8).unwrap();
            link.flush(NOW);
            let got = &receive(link, 1)[0];
            (got.tos, got.ttl)
        };
        assert_eq!(headers(&mut link), (0x6A, tx::DEFAULT_TTL));
        link.show_headers();
        assert_eq!(headers(&mut link), (0x6A, 17));
    }
}

#[test]
fn ipv6_carries_traffic_class_hop_limit_and_segmented_runs() {
    let _only = ipv6_loopback();
    let mut a = open_with(|o| o.address = Some("::1".parse().unwrap()));
    a.show_headers();
    let own = Flow { sport: 0xC00A, tos: 0x1A, ttl: 9, ..flow(a.address(), a.address()) };
    for psn in 0..20 {
        send(&mut a, NOW, &own, psn, 4096).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut a, 20);
    assert_eq!(psns(&got), (0..20).collect::<Vec<_>>());
    for r in &got {
        assert_eq!((r.sport, r.tos, r.ttl, r.id), (0xC00A, 0x1A, 9, HeaderId::None));
        assert!(r.icrc_ok());
    }
    assert_eq!(a.counters().tx_errors, 0);
    assert!(a.capabilities().segments == 1 || a.counters().tx_calls == 1);
}

#[test]
fn equal_datagrams_leave_as_one_run_numbered_from_zero() {
    let (mut a, mut b) = (open(), open());
    let to_b = flow(a.address(), b.address());
    assert!(a.capabilities().segments >= 64, "{}", a.capabilities().mode);
    for psn in 0..40 {
        send(&mut a, NOW, &to_b, psn, 1024).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, 40);
    assert_eq!(psns(&got), (0..40).collect::<Vec<_>>());
    assert_eq!(ids(&got), (0..40).collect::<Vec<_>>());
    assert_eq!(places(&got), (0..40).collect::<Vec<_>>());
    assert!(got.iter().all(Received::icrc_ok));
    assert_eq!(a.counters().tx_calls, 1);
    assert!(b.counters().rx_calls < 40);
}

#[test]
fn a_receiver_without_coalescing_gets_the_same_datagrams() {
    let mut a = open();
    let mut b = open_with(|o| o.gro = false);
    let to_b = flow(a.address(), b.address());
    for psn in 0..40 {
        send(&mut a, NOW, &to_b, psn, 1024).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, 40);
    assert_eq!(ids(&got), (0..40).collect::<Vec<_>>());
    assert_eq!(places(&got), vec![0; 40]);
}

#[test]
fn a_shorter_datagram_ends_a_run_and_a_longer_one_starts_another() {
    let (mut a, mut b) = (open(), open());
    let to_b = flow(a.address(), b.address());
    for (psn, payload) in [512, 512, 100, 512, 1024, 1024, 1024, 1024].into_iter().enumerate() {
        send(&mut a, NOW, &to_b, psn as u32, payload).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, 8);
    assert_eq!(ids(&got), [0, 1, 2, 0, 0, 1, 2, 3]);
    assert_eq!(a.counters().tx_calls, 1);
}

#[test]
fn a_change_of_flow_starts_a_run() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let to_b = flow(a.address(), b.address());
    for (psn, flow) in
        [to_b, to_b, Flow { tos: 4, ..to_b }, flow(a.address(), c.address()), to_b].iter().enumerate()
    {
        send(&mut a, NOW, flow, psn as u32, 64).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, 4);
    assert_eq!((psns(&got), ids(&got)), (vec![0, 1, 2, 4], vec![0, 1, 0, 0]));
    assert_eq!(psns(&receive(&mut c, 1)), [3]);
}

#[test]
fn runs_stay_within_what_one_send_can_carry() {
    let (mut a, mut b) = (open(), open());
    let to_b = flow(a.address(), b.address());
    let segments = a.capabilities().segments;
    for psn in 0..2 * segments + 1 {
        send(&mut a, NOW, &to_b, psn as u32, 8).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, 2 * segments + 1);
    let expected: Vec<u16> = (0..2 * segments + 1).map(|i| (i % segments) as u16).collect();
    assert_eq!(ids(&got), expected);

    let fit = (MAX_RUN_BYTES / packet_len(4096)) as u16;
    for psn in 0..u32::from(fit) + 2 {
        send(&mut a, NOW, &to_b, psn, 4096).unwrap();
    }
    a.flush(NOW);
    let got = receive(&mut b, fit as usize + 2);
    assert_eq!(ids(&got), (0..fit).chain(0..2).collect::<Vec<_>>());
    assert_eq!(a.counters().tx_errors, 0);

    // The longest runs that the limit allows, on both sides of it.
    for size in [MAX_RUN_BYTES / 2 - 20, MAX_RUN_BYTES / 3 - 20] {
        let payload = size / 4 * 4;
        for psn in 0..4 {
            send(&mut a, NOW, &to_b, psn, payload).unwrap();
        }
        a.flush(NOW);
        assert_eq!(psns(&receive(&mut b, 4)), [0, 1, 2, 3]);
    }
    assert_eq!(a.counters().tx_errors, 0);
}

#[test]
fn without_segmentation_every_datagram_has_id_zero() {
    for stop_later in [false, true] {
        let mut a = open_with(|o| o.segmentation = stop_later);
        let mut b = open();
        let to_b = flow(a.address(), b.address());
        if stop_later {
            for psn in 0..2 {
                send(&mut a, NOW, &to_b, psn, 256).unwrap();
            }
            a.stop_segmenting();
        }
        assert_eq!(a.capabilities().segments, 1);
        for psn in 2..5 {
            send(&mut a, NOW, &to_b, psn, 256).unwrap();
        }
        a.flush(NOW);
        let expected: &[u16] = if stop_later { &[0, 1, 0, 0, 0] } else { &[0, 0, 0] };
        assert_eq!(ids(&receive(&mut b, expected.len())), expected);
    }
}

#[test]
fn requested_source_ports_are_used_while_available() {
    let (mut a, mut b) = (open(), open());
    let taken = UdpSocket::bind((a.address(), 0xC0DE)).unwrap();
    let want = |sport| Flow { sport, ..flow(a.local.address, b.local.address) };
    let flows: Vec<Flow> = (0..20).map(|i| want(0xC100 + i)).chain([want(0xC0DE)]).collect();
    let first: Vec<u16> = flows.iter().map(|f| a.reserve(NOW, f, 64).unwrap().facts.src_port).collect();
    let expected: Vec<u16> = (0..16).map(|i| 0xC100 + i).chain([ROCE_UDP_PORT; 5]).collect();
    assert_eq!(first, expected);
    for (psn, f) in flows.iter().enumerate() {
        send(&mut a, NOW, f, psn as u32, 64).unwrap();
    }
    a.flush(NOW);
    let mut got = receive(&mut b, flows.len());
    got.sort_by_key(Received::psn);
    assert_eq!(got.iter().map(|r| r.sport).collect::<Vec<_>>(), expected);
    assert!(got.iter().all(|r| r.recovered_id().is_some()));
    drop(taken);
}

#[test]
fn a_socket_of_a_source_port_is_connected_and_knows_what_it_counts() {
    let (mut a, mut b) = (open(), open());
    let to_b = Flow { sport: 0xC0DE, ..flow(a.address(), b.address()) };
    for psn in 0..3 {
        send(&mut a, NOW, &to_b, psn, 64).unwrap();
        a.flush(NOW);
    }
    let ids = ids(&receive(&mut b, 3));
    assert_eq!([ids[1].wrapping_sub(ids[0]), ids[2].wrapping_sub(ids[1])], [1, 1]);
    // The peer has gone: its machine says so at the next send, and that is no reason to lose it.
    drop(b);
    for psn in 3..6 {
        send(&mut a, NOW, &to_b, psn, 64).unwrap();
        a.flush(NOW);
    }
    assert_eq!(a.counters().tx_datagrams, 6);
    let mut b = open_with(|o| o.address = Some(to_b.dst));
    send(&mut a, NOW, &to_b, 6, 64).unwrap();
    a.flush(NOW);
    assert_eq!(self::ids(&receive(&mut b, 1)), [ids[2].wrapping_add(4)]);
}

/// UCX sends everything from one port: the first packet after many to others looked like a damaged one.
#[test]
fn what_goes_to_other_peers_takes_no_id_of_a_connection() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let [to_b, to_c, to_self] = [b.address(), c.address(), a.address()]
        .map(|address| Flow { sport: 0xC0DE, ..flow(a.address(), address) });
    let send_one = |a: &mut UdpLink, to: &Flow| {
        send(a, NOW, to, 0, 64).unwrap();
        a.flush(NOW);
    };
    send_one(&mut a, &to_b);
    for _ in 0..20 {
        send_one(&mut a, &to_c);
        send_one(&mut a, &to_self);
    }
    send_one(&mut a, &to_b);
    let of_b = ids(&receive(&mut b, 2));
    assert_eq!(of_b[1].wrapping_sub(of_b[0]), 1);
    for link in [&mut c, &mut a] {
        let got = receive(link, 20);
        assert_eq!(ids(&got), [0; 20], "as from a socket that is not connected");
        assert!(got.iter().all(|r| r.sport == 0xC0DE));
    }
    // Nobody else can have the port now either.
    UdpSocket::bind((to_b.src, 0xC0DE)).unwrap_err();
}

#[test]
fn a_socket_that_is_disconnected_keeps_its_port() {
    let (mut a, mut b) = (open(), open());
    let to_b = Flow { sport: 0xC0DE, ..flow(a.address(), b.address()) };
    send(&mut a, NOW, &to_b, 0, 64).unwrap();
    a.flush(NOW);
    receive(&mut b, 1);
    let sender = &a.senders[0].socket;
    sender.disconnect().unwrap();
    assert_eq!(sender.local_addr().unwrap(), (a.address(), 0xC0DE).into());
    let payload = &[0; 32];
    let to = SockAddr::new(b.address(), ROCE_UDP_PORT, 0);
    sys::send_many(sender, std::iter::once(sys::Outgoing { to: None, payload, control: &[] })).unwrap_err();
    let message = sys::Outgoing { to: Some(&to), payload, control: &[] };
    assert_eq!(sys::send_many(sender, std::iter::once(message)).unwrap(), 1);
    assert_eq!(receive(&mut b, 1)[0].sport, 0xC0DE);
}

#[test]
fn a_port_that_is_taken_falls_back_to_the_main_one() {
    let (mut a, mut b) = (open(), open());
    let _taken = UdpSocket::bind((a.address(), 0xC0DE)).unwrap();
    let to_b = Flow { sport: 0xC0DE, ..flow(a.address(), b.address()) };
    assert_eq!(a.reserve(NOW, &to_b, 64).unwrap().facts.src_port, ROCE_UDP_PORT);
    send(&mut a, NOW, &to_b, 1, 64).unwrap();
    a.flush(NOW);
    let got = receive(&mut b, 1);
    assert_eq!(got[0].sport, ROCE_UDP_PORT);
    assert!(got[0].icrc_ok());
}

#[test]
fn datagrams_dropped_by_the_kernel_are_counted() {
    let mut a = open_with(|o| o.segmentation = false);
    let mut b = open_with(|o| o.receive_buffer = Some(65_536));
    let to_b = flow(a.address(), b.address());
    for psn in 0..200 {
        send(&mut a, NOW, &to_b, psn, 4096).unwrap();
    }
    a.flush(NOW);
    let before = drain(&mut b, NOW).len() as u64;
    assert!((1..200).contains(&before));
    assert_eq!(b.counters().rx_overruns, 200 - before);
}

#[test]
fn the_receive_buffer_holds_its_stated_size() {
    const COMMON_LIMIT: usize = 212_992;
    for (payload, segmentation) in
        [(0, false), (64, true), (256, false), (512, false), (1024, false), (1024, true), (2048, false)]
            .into_iter()
            .chain([(4096, false), (4096, true)])
    {
        let mut a = open_with(|o| o.segmentation = segmentation);
        let mut b = open_with(|o| o.receive_buffer = Some(COMMON_LIMIT));
        assert!(b.capabilities().mode.ends_with("receive buffer 208 KiB)"), "{}", b.capabilities().mode);
        let to_b = flow(a.address(), b.address());
        let datagram = (packet_len(payload) + UDP_LEN + IPV4_LEN).max(640);
        let fit = b.capabilities().receive_buffer / datagram;
        assert!(b.capabilities().receive_buffer > 128 << 10);
        let mut fill = |count: usize| {
            for psn in 0..count {
                send(&mut a, NOW, &to_b, psn as u32, payload).unwrap();
            }
            a.flush(NOW);
        };
        fill(fit);
        // The kernel gives room back late while something is left to read.
        let mut got = 0;
        b.receive(NOW, fit / 2, &mut |_| got += 1);
        let first = got;
        fill(first);
        got += drain(&mut b, NOW).len();
        fill(fit);
        let again = drain(&mut b, NOW).len();
        let what = format!("payload {payload}, segmentation {segmentation}");
        assert_eq!((got, again, b.counters().rx_overruns), (fit + first, fit, 0), "{what}");
    }
}

#[test]
fn a_refused_datagram_is_counted_and_the_next_ones_leave() {
    let (mut a, mut b) = (open(), open());
    let to_b = flow(a.address(), b.address());
    send(&mut a, NOW, &to_b, 0, 64).unwrap();
    send(&mut a, NOW, &Flow { ttl: 0, ..to_b }, 1, 64).unwrap();
    send(&mut a, NOW, &Flow { ttl: 0, ..to_b }, 2, 64).unwrap();
    send(&mut a, NOW, &to_b, 3, 64).unwrap();
    a.flush(NOW);
    assert_eq!(psns(&receive(&mut b, 2)), [0, 3]);
    assert_eq!((a.counters().tx_errors, a.counters().tx_datagrams), (2, 2));
    assert!(!a.is_blocked());
}

#[test]
fn a_group_has_many_members_and_the_descriptor_covers_it() {
    let group: IpAddr = "239.77.1.9".parse().unwrap();
    let (mut a, mut b, mut c) = (open(), open(), open());
    let plain = b.descriptor();
    b.join(group).unwrap();
    c.join(group).unwrap();
    assert_eq!(b.descriptor(), plain, "whoever waits does not look again");
    let to_group = flow(a.address(), group);
    send(&mut a, NOW, &to_group, 7, 256).unwrap();
    send(&mut a, NOW, &to_group, 8, 256).unwrap();
    a.flush(NOW);
    for member in [&mut b, &mut c] {
        let got = receive(member, 2);
        assert_eq!(psns(&got), [7, 8]);
        assert_eq!((got[0].src, got[0].dst, got[0].ttl), (a.address(), group, 64));
        assert_eq!(ids(&got), [0, 1]);
    }
    b.leave(group).unwrap();
    assert_eq!(b.leave(group).unwrap_err().raw_os_error(), Some(libc::EADDRNOTAVAIL));
    assert_eq!(b.descriptor(), plain);
}

#[test]
fn a_budget_is_kept_approximately() {
    let mut a = open_with(|o| o.segmentation = false);
    let mut b = open();
    let to_b = flow(a.address(), b.address());
    for psn in 0..50 {
        send(&mut a, NOW, &to_b, psn, 8).unwrap();
    }
    a.flush(NOW);
    let mut got = 0;
    // One at first, in case there is only one.
    assert_eq!(b.receive(NOW, 7, &mut |_| got += 1), Overrun::Unknown);
    assert_eq!(got, 1);
    assert_eq!(b.receive(NOW, 7, &mut |_| got += 1), Overrun::Budget);
    assert_eq!(got, 8);
    while b.receive(NOW, 7, &mut |_| got += 1) != Overrun::Drained {}
    assert_eq!(got, 50);
    assert_eq!(b.receive(NOW, 7, &mut |_| got += 1), Overrun::Drained);
}

#[test]
fn devices_get_loopback_addresses_of_their_own() {
    let links: Vec<UdpLink> = (0..20).map(|_| open()).collect();
    let mut addresses: Vec<IpAddr> = links.iter().map(UdpLink::address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 20);
    assert!(addresses.iter().all(|a| a.is_loopback() && !a.to_string().starts_with("127.0.")));
    assert_eq!(links[0].capabilities().ip_mtu, 65_536);
    assert_eq!(links[0].capabilities().max_datagram, MAX_TRANSPORT_LEN);
    let expected = format!("udp {} (segmentation ", links[0].address());
    assert!(links[0].capabilities().mode.starts_with(&expected), "{}", links[0].capabilities().mode);
}

#[test]
fn addresses_that_cannot_be_used_say_why() {
    let open_at = |address: IpAddr| {
        UdpLink::open(UdpOptions { address: Some(address), ..UdpOptions::default() })
            .map(|link| link.address())
    };
    let a = open();
    assert_eq!(open_at(a.address()), Err(OpenError::AddressInUse(a.address())));
    for address in ["192.0.2.77", "2001:db8::77"] {
        let address = address.parse().unwrap();
        assert_eq!(open_at(address), Err(OpenError::NotLocal(address)));
    }
    for address in ["0.0.0.0", "::", "224.0.0.9", "255.255.255.255", "ff02::9"] {
        let address = address.parse().unwrap();
        assert_eq!(open_at(address), Err(OpenError::NotUnicast(address)));
    }
    let message = OpenError::AddressInUse(a.address()).to_string();
    assert!(message.contains("in use") && message.contains("choose another address"), "{message}");
}
