//! The `xdp` link while the network changes around it.

use std::net::UdpSocket;
use std::time::Duration;

use softrnic_link::{Link, TxError};
use softrnic_wire::ROCE_UDP_PORT;
use softrnic_xdp::{XdpLink, XdpOptions};

use softrnic_link_tests::traffic::{against_echo, contents, exchange, flow, send, settle};
use softrnic_link_tests::{Pair, can_run, ip, now, run, wait_for};

/// Whether a slot can be reserved. The next reservation abandons it.
fn reserve(link: &mut XdpLink, src: &str, dst: &str) -> Result<(), TxError> {
    link.reserve(now(), &flow(src, dst), 100).map(drop)
}

#[test]
fn addresses_come_and_go() {
    if !can_run("addresses_come_and_go") {
        return;
    }
    let pair = Pair::new(1500, 1);
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        for (new_a, new_b, length) in [("10.0.0.11", "10.0.0.12", 24), ("fd00::11", "fd00::12", 64)] {
            assert_eq!(reserve(link, new_a, new_b), Err(TxError::Unreachable), "not our address");
            pair.a.ip(&format!("addr add {new_a}/{length} dev eth0"));
            pair.b.ip(&format!("addr add {new_b}/{length} dev eth0"));
            wait_for("the address to be ours", || {
                link.receive(now(), 1, &mut |_| {});
                reserve(link, new_a, new_b).is_ok()
            });
            // The other side may take a moment longer to notice.
            wait_for("an answer", || {
                let mut answered = false;
                send(link, &flow(new_a, new_b), contents(0, 100), 100);
                link.flush(now());
                link.receive(now(), 1, &mut |_| answered = true);
                answered
            });
            settle(link);
            std::thread::sleep(Duration::from_millis(20));
            settle(link);
            exchange(link, &flow(new_a, new_b), &[100, 1400], 500);
            pair.a.ip(&format!("addr del {new_a}/{length} dev eth0"));
            wait_for("the address to be gone", || {
                link.receive(now(), 1, &mut |_| {});
                reserve(link, new_a, new_b) == Err(TxError::Unreachable)
            });
        }
        exchange(link, &flow("10.0.0.1", "10.0.0.2"), &[100, 1400], 500);
    });
}

#[test]
fn an_interface_goes_down_and_comes_up_again() {
    if !can_run("an_interface_goes_down_and_comes_up_again") {
        return;
    }
    let pair = Pair::new(4500, 1);
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        // Addresses of IPv6 would go with the link.
        let flow = flow("10.0.0.1", "10.0.0.2");
        for host in [&pair.a, &pair.b] {
            exchange(link, &flow, &[100, 3000], 500);
            // Frames that are queued when it happens.
            for number in 0..20 {
                send(link, &flow, contents(number, 3000), 3000);
            }
            host.ip("link set eth0 down");
            link.flush(now());
            wait_for("the link to be down", || {
                link.receive(now(), 64, &mut |_| {});
                link.reserve(now(), &flow, 100).err() == Some(TxError::Unreachable)
            });
            assert!(!link.is_blocked());
            assert!(link.audit().is_exact());
            host.ip("link set eth0 up");
            settle(link);
            // Datagrams that were queued may come back now; this test does not check them.
            wait_for("an answer", || {
                let mut answered = false;
                send(link, &flow, contents(0, 100), 100);
                link.flush(now());
                link.receive(now(), 64, &mut |_| answered = true);
                answered
            });
            std::thread::sleep(Duration::from_millis(20));
            settle(link);
        }
        exchange(link, &flow, &[100, 3000], 500);
    });
}

#[test]
fn a_neighbours_new_hardware_address_is_followed() {
    if !can_run("a_neighbours_new_hardware_address_is_followed") {
        return;
    }
    let pair = Pair::new(1500, 1);
    // The other side's kernel takes only frames that are addressed to it.
    let socket = pair.b.enter(|| UdpSocket::bind(("10.0.0.2", ROCE_UDP_PORT)).expect("socket"));
    socket.set_nonblocking(true).expect("non-blocking");
    pair.a.enter(|| {
        let mut link = XdpLink::open("eth0", &XdpOptions::default()).expect("link");
        let mut arrives = || {
            while socket.recv(&mut [0; 200]).is_ok() {}
            send(&mut link, &flow("10.0.0.1", "10.0.0.2"), contents(0, 100), 100);
            link.flush(now());
            link.receive(now(), 1, &mut |_| {});
            // Delivery over veth is done soon after the flush.
            std::thread::sleep(Duration::from_millis(2));
            socket.recv(&mut [0; 200]).is_ok()
        };
        wait_for("the first datagram", &mut arrives);
        pair.b.ip("link set eth0 address 02:00:00:00:00:77");
        assert!(!arrives(), "the old address is not taken any more");
        // As the kernel would learn it, by an announcement or by asking again.
        pair.a.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:77 dev eth0 nud reachable");
        wait_for("the new address to be used", &mut arrives);
        pair.a.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
        wait_for("the wrong address to be used", || !arrives());
        pair.a.ip("neigh del 10.0.0.2 dev eth0");
        wait_for("the right address to be found out", &mut arrives);
        settle(&mut link);
    });
}

#[test]
fn a_neighbour_that_is_in_use_is_confirmed_by_the_kernel() {
    if !can_run("a_neighbour_that_is_in_use_is_confirmed_by_the_kernel") {
        return;
    }
    let pair = Pair::new(1500, 1);
    // Where a frame's answer alone does not confirm it, the kernel has to ask: after a tenth of a second.
    pair.a.enter(|| {
        std::fs::write("/proc/sys/net/ipv4/neigh/eth0/delay_first_probe_time", "0").expect("sysctl");
    });
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        let flow = flow("10.0.0.1", "10.0.0.2");
        exchange(link, &flow, &[100], 10);
        pair.a.ip("neigh change 10.0.0.2 dev eth0 nud stale");
        wait_for("the kernel to confirm it", || {
            exchange(link, &flow, &[100], 1);
            run("ip", &["-n", pair.a.name(), "neigh", "show", "10.0.0.2"]).contains("REACHABLE")
        });
    });
}

#[test]
fn an_unreachable_neighbour_is_found_once_it_appears() {
    if !can_run("an_unreachable_neighbour_is_found_once_it_appears") {
        return;
    }
    let pair = Pair::new(1500, 1);
    pair.a.enter(|| {
        let mut link = XdpLink::open("eth0", &XdpOptions::default()).expect("link");
        for nowhere in ["10.9.9.9", "fd99::9"] {
            let src = if ip(nowhere).is_ipv4() { "10.0.0.1" } else { "fd00::1" };
            assert_eq!(reserve(&mut link, src, nowhere), Err(TxError::Unreachable));
        }
        assert_eq!(reserve(&mut link, "10.0.0.1", "fd00::2"), Err(TxError::Unreachable), "two families");
        for (src, absent, length) in [("10.0.0.1", "10.0.0.77", 24), ("fd00::1", "fd00::77", 64)] {
            assert_eq!(reserve(&mut link, src, absent), Err(TxError::Unreachable));
            pair.b.ip(&format!("addr add {absent}/{length} dev eth0"));
            // Sooner than the kernel gives up, so that its next question is answered.
            wait_for("the neighbour", || reserve(&mut link, src, absent).is_ok());
            assert_eq!(link.reserve(now(), &flow(src, absent), 1473).err(), Some(TxError::TooLong));
        }
        settle(&mut link);
    });
}
