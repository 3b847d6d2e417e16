//! Frames of the `xdp` link between network namespaces.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use softrnic_link::{Link, TxError};
use softrnic_wire::ROCE_UDP_PORT;
use softrnic_xdp::{AttachChoice, AttachMode, BusyPoll, CopyChoice, XdpLink, XdpOptions};

use softrnic_link_tests::traffic::{
    against_echo, contents, exchange, exchange_over, flow, open_again, send, settle,
};
use softrnic_link_tests::{Namespace, Pair, can_run, has_vlans, ip, join, kernel_is, now, wait_for};

#[test]
fn ipv4_and_ipv6_frames_pass_both_ways_at_mtu_1500() {
    if !can_run("ipv4_and_ipv6_frames_pass_both_ways_at_mtu_1500") {
        return;
    }
    let pair = Pair::new(1500, 1);
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        println!("{}", link.capabilities().mode);
        assert_eq!(link.mode().attach, AttachMode::Native);
        assert!(!link.mode().multi_buffer, "frames fit in one chunk");
        assert_eq!(link.capabilities().max_datagram, 1472);
        exchange(link, &flow("10.0.0.1", "10.0.0.2"), &[16, 17, 300, 1472], 2000);
        exchange(link, &flow("fd00::1", "fd00::2"), &[16, 17, 300, 1452], 2000);
    });
}

#[test]
fn frames_of_several_chunks_pass_both_ways_at_mtu_4500() {
    if !can_run("frames_of_several_chunks_pass_both_ways_at_mtu_4500") {
        return;
    }
    let pair = Pair::new(4500, 1);
    for chunk_size in [4096, 2048] {
        let options = XdpOptions { chunk_size, ..XdpOptions::default() };
        against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &options, |link| {
            assert_eq!(link.mode().multi_buffer, kernel_is(6, 6));
            let lens = [16, 1500, 3798, 3799, 3800, 4054, 4055, 4112, 4128, 4472];
            exchange(link, &flow("10.0.0.1", "10.0.0.2"), &lens, 4000);
            exchange(link, &flow("fd00::1", "fd00::2"), &lens[..9], 4000);
        });
    }
}

#[test]
fn every_mode_that_veth_has_carries_frames() {
    if !can_run("every_mode_that_veth_has_carries_frames") {
        return;
    }
    let pair = Pair::new(4500, 1);
    let default = XdpOptions::default;
    let modes = [
        XdpOptions { attach: AttachChoice::Skb, ..default() },
        XdpOptions { attach: AttachChoice::Native, copy: CopyChoice::Copy, ..default() },
        XdpOptions { need_wakeup: false, ..default() },
        XdpOptions { busy_poll: Some(BusyPoll { micros: 20, budget: 64 }), ..default() },
        XdpOptions { multi_buffer: false, ..default() },
        XdpOptions { rx_chunks: 64, tx_slots: 64, ..default() },
    ];
    for options in modes {
        against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &options, |link| {
            let skb = options.attach == AttachChoice::Skb;
            assert_eq!(link.mode().attach, if skb { AttachMode::Skb } else { AttachMode::Native });
            assert_eq!(link.mode().multi_buffer, options.multi_buffer && kernel_is(6, 6));
            let longest = if link.mode().multi_buffer { 4472 } else { 3520 - 22 - 28 };
            assert_eq!(link.capabilities().max_datagram, longest);
            let flow = flow("10.0.0.1", "10.0.0.2");
            assert_eq!(link.reserve(now(), &flow, longest + 1).err(), Some(TxError::TooLong));
            exchange(link, &flow, &[16, 2000, longest], 1000);
        });
    }
}

#[test]
fn an_unavailable_mode_is_refused_with_its_reason() {
    if !can_run("an_unavailable_mode_is_refused_with_its_reason") {
        return;
    }
    let pair = Pair::new(1500, 1);
    let refusal = |options: &XdpOptions| {
        let refusal = pair.a.enter(|| open_again("eth0", options).err());
        refusal.expect("refused").to_string()
    };
    let zero_copy = refusal(&XdpOptions { copy: CopyChoice::ZeroCopy, ..XdpOptions::default() });
    assert_eq!(zero_copy, "no permitted mode works: zero copy: the driver does not support it");
    let chunks = refusal(&XdpOptions { rx_chunks: 1000, ..XdpOptions::default() });
    assert_eq!(chunks, "rx_chunks must be a power of two from 64 to 65536");
    let queue = refusal(&XdpOptions { queues: vec![7], ..XdpOptions::default() });
    assert!(queue.contains("on queue 7: Invalid argument"), "{queue}");
    let missing = pair.a.enter(|| XdpLink::open("eth7", &XdpOptions::default()).err());
    assert_eq!(missing.expect("refused").to_string(), "there is no interface eth7");
}

#[test]
fn frames_are_tagged_for_vlan_interfaces() {
    let test = "frames_are_tagged_for_vlan_interfaces";
    if !can_run(test) || !has_vlans(test) {
        return;
    }
    let pair = Pair::new(4500, 1);
    for (host, number) in [(&pair.a, 1), (&pair.b, 2)] {
        host.ip("link add link eth0 name eth0.7 type vlan id 7");
        host.ip(&format!("addr add 10.7.0.{number}/24 dev eth0.7"));
        host.ip(&format!("addr add fd07::{number}/64 dev eth0.7 nodad"));
        host.ip("link set eth0.7 up");
        host.ip("link add link eth0.7 name eth0.7.9 type vlan id 9");
        host.ip(&format!("addr add 10.9.0.{number}/24 dev eth0.7.9"));
        host.ip("link set eth0.7.9 up");
    }
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        exchange(link, &flow("10.7.0.1", "10.7.0.2"), &[16, 1000, 4000], 1000);
        exchange(link, &flow("fd07::1", "fd07::2"), &[16, 1000, 4000], 1000);
        exchange(link, &flow("10.9.0.1", "10.9.0.2"), &[16, 1000, 4000], 1000);
        exchange(link, &flow("10.0.0.1", "10.0.0.2"), &[16, 1000, 4000], 1000);
    });
    // The kernel of the other side, which runs no link, accepts only frames with the right tags.
    let (source, other) = ("10.9.0.1", "10.9.0.2");
    pair.b.ip("addr del 10.0.0.2/24 dev eth0");
    let before = received(&pair.b, "eth0.7.9");
    let socket = pair.b.enter(|| UdpSocket::bind((other, ROCE_UDP_PORT)).expect("socket"));
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
    pair.a.enter(|| {
        let mut link = open_again("eth0", &XdpOptions::default()).expect("link");
        send(&mut link, &flow(source, other), contents(1, 100), 100);
        link.flush(now());
    });
    let mut bytes = [0; 200];
    assert_eq!(socket.recv(&mut bytes).expect("datagram"), 100);
    assert!(bytes[..100].iter().copied().eq(contents(1, 100)));
    assert!(received(&pair.b, "eth0.7.9") > before);
}

/// Packets that the kernel received on an interface.
fn received(host: &Namespace, interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    let output = host.command(&format!("cat {path}")).output().expect("cat").stdout;
    String::from_utf8(output).expect("text").trim().parse().expect("a number")
}

#[test]
fn frames_pass_through_a_gateway() {
    if !can_run("frames_pass_through_a_gateway") {
        return;
    }
    let (a, router, b) = (Namespace::new("a"), Namespace::new("router"), Namespace::new("b"));
    join(&a, "eth0", &router, "left", 4500, 1);
    join(&router, "right", &b, "eth0", 4500, 1);
    router.enter(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("sysctl");
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("sysctl");
    });
    for (end, host, subnet) in [("left", &a, 1), ("right", &b, 2)] {
        router.ip(&format!("addr add 10.0.{subnet}.254/24 dev {end}"));
        router.ip(&format!("addr add fd0{subnet}::ff/64 dev {end} nodad"));
        host.ip(&format!("addr add 10.0.{subnet}.1/24 dev eth0"));
        host.ip(&format!("addr add fd0{subnet}::1/64 dev eth0 nodad"));
        host.ip(&format!("route add default via 10.0.{subnet}.254"));
        host.ip(&format!("-6 route add default via fd0{subnet}::ff"));
    }
    against_echo((&a, "eth0"), (&b, "eth0"), &XdpOptions::default(), |link| {
        exchange_over(1, link, &flow("10.0.1.1", "10.0.2.1"), &[16, 1000, 4400], 1000);
        exchange_over(1, link, &flow("fd01::1", "fd02::1"), &[16, 1000, 4400], 1000);
    });
}

#[test]
fn the_kernels_own_udp_sockets_understand_our_frames() {
    if !can_run("the_kernels_own_udp_sockets_understand_our_frames") {
        return;
    }
    let pair = Pair::new(4500, 1);
    for (ours, theirs) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let socket = pair.b.enter(|| UdpSocket::bind((theirs, ROCE_UDP_PORT)).expect("socket"));
        let no_checksum: libc::c_int = 1;
        if ip(theirs).is_ipv6() {
            const UDP_NO_CHECK6_RX: libc::c_int = 102;
            // SAFETY: the value is alive and of the length given.
            let set = unsafe {
                libc::setsockopt(
                    std::os::fd::AsRawFd::as_raw_fd(&socket),
                    libc::IPPROTO_UDP,
                    UDP_NO_CHECK6_RX,
                    (&raw const no_checksum).cast(),
                    size_of_val(&no_checksum) as u32,
                )
            };
            assert_eq!(set, 0);
        }
        thread::scope(|scope| {
            let echoing = scope.spawn(|| {
                let mut bytes = [0; 5000];
                for _ in 0..500 {
                    let (len, from) = socket.recv_from(&mut bytes).expect("datagram");
                    assert_eq!(from.port(), 49_152);
                    let to = (from.ip(), ROCE_UDP_PORT);
                    socket.send_to(&bytes[..len], to).expect("answer");
                }
            });
            pair.a.enter(|| {
                let mut link = open_again("eth0", &XdpOptions::default()).expect("link");
                let flow = flow(ours, theirs);
                for number in 0..500 {
                    let len = 16 + number as usize * 6;
                    send(&mut link, &flow, contents(number, len), len);
                    link.flush(now());
                    let mut returned = false;
                    wait_for("the answer", || {
                        link.receive(now(), 1, &mut |datagram| {
                            assert!(datagram.bytes.iter().copied().eq(contents(number, len)));
                            assert_eq!(datagram.sport, ROCE_UDP_PORT);
                            returned = true;
                        });
                        returned
                    });
                }
                settle(&mut link);
            });
            echoing.join().expect("host b");
        });
    }
}

#[test]
fn ping_and_tcp_keep_working_meanwhile() {
    if !can_run("ping_and_tcp_keep_working_meanwhile") {
        return;
    }
    const TCP_BYTES: usize = 8 << 20;
    let pair = Pair::new(4500, 1);
    against_echo((&pair.a, "eth0"), (&pair.b, "eth0"), &XdpOptions::default(), |link| {
        let ping = pair.a.command("ping -q -c 20 -i 0.02 -W 2 10.0.0.2");
        let ping6 = pair.a.command("ping -q -c 20 -i 0.02 -W 2 fd00::2");
        let pings =
            [ping, ping6].map(|mut ping| ping.stdout(std::process::Stdio::piped()).spawn().expect("ping"));
        let listener = pair.b.enter(|| TcpListener::bind("10.0.0.2:7000").expect("listener"));
        thread::scope(|scope| {
            let server = scope.spawn(move || {
                let mut stream = listener.accept().expect("connection").0;
                std::io::copy(&mut (&mut stream).take(u64::MAX), &mut std::io::sink()).expect("bytes")
            });
            let client = scope.spawn(|| {
                let mut stream = pair.a.enter(|| TcpStream::connect("10.0.0.2:7000").expect("connection"));
                stream.write_all(&vec![7; TCP_BYTES]).expect("bytes");
            });
            for _ in 0..50 {
                exchange(link, &flow("10.0.0.1", "10.0.0.2"), &[16, 1000, 4400], 200);
            }
            client.join().expect("client");
            assert_eq!(server.join().expect("server"), TCP_BYTES as u64);
        });
        for ping in pings {
            let output = ping.wait_with_output().expect("ping");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(" 0% packet loss"), "{text}");
        }
        let verdicts = link.verdicts().expect("verdicts");
        assert_eq!(verdicts.redirected, 50 * 200);
        assert!(verdicts.passed_not_udp > 40, "{verdicts:?}");
    });
}

#[test]
fn packet_memory_is_accounted_for_after_100_000_frames_and_overruns() {
    if !can_run("packet_memory_is_accounted_for_after_100_000_frames_and_overruns") {
        return;
    }
    const FRAMES: u64 = 100_000;
    let pair = Pair::new(4500, 1);
    let small = XdpOptions { rx_chunks: 256, tx_slots: 128, ..XdpOptions::default() };
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &small).expect("link of b"));
    let mut a = pair.a.enter(|| XdpLink::open("eth0", &small).expect("link of a"));
    let flow = flow("10.0.0.1", "10.0.0.2");
    let longest = a.capabilities().max_datagram;
    pair.a.enter(|| {
        for number in 0..FRAMES {
            send(&mut a, &flow, contents(number, 8), a_length(number, longest));
            if number % 16 == 0 {
                a.flush(now());
                let audit = a.audit();
                assert!(audit.is_exact(), "{audit:?}");
            }
            // It reads too seldom, so that its packet memory runs out repeatedly.
            if number % 1500 == 0 {
                b.receive(now(), usize::MAX, &mut |_| {});
                let audit = b.audit();
                assert!(audit.is_exact(), "{audit:?}");
            }
        }
        settle(&mut a);
    });
    settle(&mut b);
    let (sent, arrived) = (a.counters(), b.counters());
    println!("sent {sent:?}\narrived {arrived:?}\n{:?}", b.audit());
    assert_eq!((sent.tx_datagrams, sent.tx_errors), (FRAMES, 0));
    assert!(arrived.rx_overruns > 0 && arrived.rx_datagrams > FRAMES / 100);
    assert_eq!(arrived.rx_datagrams + arrived.rx_overruns + arrived.rx_malformed, FRAMES);
}

#[test]
fn a_flood_that_is_read_meanwhile_loses_no_packet_memory() {
    if !can_run("a_flood_that_is_read_meanwhile_loses_no_packet_memory") {
        return;
    }
    // The kernel publishes that it consumed from the fill ring later than that it received: a reader that
    // is quick gives back chunks for which the ring, were it no larger, would seem to have no room.
    const FRAMES: u64 = 100_000;
    let pair = Pair::new(4500, 1);
    let small = XdpOptions { rx_chunks: 64, tx_slots: 64, ..XdpOptions::default() };
    let sent = AtomicBool::new(false);
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &small).expect("link of b"));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !sent.load(Ordering::Relaxed) {
                b.receive(now(), 64, &mut |_| {});
                let audit = b.audit();
                assert!(audit.is_exact(), "{audit:?}");
            }
            settle(&mut b);
            b.counters()
        });
        pair.a.enter(|| {
            let mut a = XdpLink::open("eth0", &small).expect("link of a");
            let flow = flow("10.0.0.1", "10.0.0.2");
            for number in 0..FRAMES {
                let len = a_length(number, a.capabilities().max_datagram);
                send(&mut a, &flow, contents(number, 8), len);
                if number % 32 == 0 {
                    a.flush(now());
                }
            }
            settle(&mut a);
        });
        sent.store(true, Ordering::Relaxed);
        let counters = reading.join().expect("host b");
        assert!(counters.rx_datagrams > 0);
        assert_eq!(counters.rx_datagrams + counters.rx_overruns + counters.rx_malformed, FRAMES);
    });
}

#[test]
fn a_burst_leaves_by_the_batch() {
    if !can_run("a_burst_leaves_by_the_batch") {
        return;
    }
    let pair = Pair::new(4500, 1);
    let options = XdpOptions::default();
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &options).expect("link of b"));
    pair.a.enter(|| {
        let mut a = XdpLink::open("eth0", &options).expect("link of a");
        let flow = flow("10.0.0.1", "10.0.0.2");
        send(&mut a, &flow, contents(0, 8), 16);
        a.flush(now());
        wait_for("the neighbour to be known", || !take(&mut b).is_empty());
        // 32 descriptors; the longest frames have two where frames may have several.
        let longest = a.capabilities().max_datagram;
        let of_longest = if a.mode().multi_buffer { 16 } else { 32 };
        for (len, batch) in [(16, 32), (longest, of_longest)] {
            let before = a.counters().tx_calls;
            for number in 1..batch {
                send(&mut a, &flow, contents(number, 8), len);
            }
            assert_eq!(a.counters().tx_calls, before);
            send(&mut a, &flow, contents(batch, 8), len);
            let mut arrived = 0;
            wait_for("a batch", || {
                arrived += take(&mut b).len() as u64;
                arrived == batch
            });
        }
        settle(&mut a);
    });
    settle(&mut b);
}

/// Short and long, alternating.
fn a_length(number: u64, longest: usize) -> usize {
    [16, 3000, longest - 300, longest][number as usize % 4]
}

#[test]
fn queues_have_sockets_of_their_own_and_others_stay_with_the_kernel() {
    if !can_run("queues_have_sockets_of_their_own_and_others_stay_with_the_kernel") {
        return;
    }
    let pair = Pair::new(1500, 2);
    let all = XdpOptions::default();
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &all).expect("link of b"));
    assert_eq!(b.mode().queues, [0, 1]);
    for queue in [0, 1] {
        let only = XdpOptions { queues: vec![queue], ..XdpOptions::default() };
        pair.a.enter(|| {
            let mut a = open_again("eth0", &only).expect("link of a");
            // A queue's transmissions arrive on the queue of the same number.
            for number in 0..100 {
                send(&mut a, &flow("10.0.0.1", "10.0.0.2"), contents(number, 500), 500);
            }
            a.flush(now());
            settle(&mut a);
        });
        let mut arrived = 0;
        wait_for("datagrams", || {
            b.receive(now(), 7, &mut |datagram| {
                assert!(datagram.bytes.iter().copied().eq(contents(arrived, 500)));
                arrived += 1;
            });
            arrived == 100
        });
    }
    settle(&mut b);
    drop(b);

    let second = XdpOptions { queues: vec![1], ..XdpOptions::default() };
    let mut b = pair.b.enter(|| open_again("eth0", &second).expect("link of b"));
    let first = XdpOptions { queues: vec![0], ..XdpOptions::default() };
    pair.a.enter(|| {
        let mut a = open_again("eth0", &first).expect("link of a");
        send(&mut a, &flow("10.0.0.1", "10.0.0.2"), contents(0, 500), 500);
        a.flush(now());
    });
    wait_for("the frame to be passed", || b.verdicts().expect("verdicts").passed_no_socket == 1);
    b.receive(now(), 1, &mut |_| panic!("the frame was the kernel's"));
}

#[test]
fn the_descriptor_tells_when_datagrams_arrive() {
    if !can_run("the_descriptor_tells_when_datagrams_arrive") {
        return;
    }
    for queues in [1, 2] {
        descriptor_tells_when_datagrams_arrive(queues);
    }
}

fn descriptor_tells_when_datagrams_arrive(queues: u32) {
    let pair = Pair::new(1500, queues);
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &XdpOptions::default()).expect("link of b"));
    let mut poll = libc::pollfd { fd: b.descriptor().expect("descriptor"), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, alive for the duration of the call.
    let mut is_ready = |millis| unsafe { libc::poll(&raw mut poll, 1, millis) == 1 };
    for queue in 0..queues {
        let only = XdpOptions { queues: vec![queue], ..XdpOptions::default() };
        let mut a = pair.a.enter(|| open_again("eth0", &only).expect("link of a"));
        pair.a.enter(|| {
            let flow = flow("10.0.0.1", "10.0.0.2");
            wait_for("the neighbour", || a.reserve(now(), &flow, 100).is_ok());
            assert!(!is_ready(5), "nothing has been sent");
            send(&mut a, &flow, contents(0, 100), 100);
            a.flush(now());
            let mut arrived = Vec::new();
            while arrived.is_empty() {
                assert!(is_ready(5000), "the datagram must make it ready");
                arrived = take(&mut b);
            }
            assert_eq!(arrived.len(), 1);
        });
    }
}

type Arrived = (std::net::IpAddr, Vec<u8>);

fn take(link: &mut XdpLink) -> Vec<Arrived> {
    let mut arrived = Vec::new();
    link.receive(now(), 64, &mut |datagram| arrived.push((datagram.dst, datagram.bytes.to_vec())));
    arrived
}
