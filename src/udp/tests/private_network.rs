//! Tests that need interfaces of their own: they run in a network namespace, which takes root.

use std::fs::File;
use std::process::Command;
use std::time::Instant;

use super::*;

/// Runs `body` in a new network namespace with a veth pair: `near` has 10.77.0.1/24, MTU 1500, and a neighbour
/// 10.77.0.2 behind `far`, which does not answer.
fn in_private_network(body: fn()) {
    let outcome = std::thread::spawn(move || {
        // SAFETY: affects this thread only, which ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        for command in [
            "link set lo up",
            "link add near type veth peer name far",
            "address add 10.77.0.1/24 dev near",
            "link set near up",
            "link set far up",
            "neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev near nud permanent",
        ] {
            ip(command);
        }
        body();
        Ok(())
    });
    match outcome.join() {
        Ok(Ok(())) => {}
        Ok(Err(e)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: a network namespace is needed, which takes root: {e}");
        }
        Ok(Err(e)) => panic!("no network namespace: {e}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn open_near() -> UdpLink {
    open_with(|o| o.address = Some("10.77.0.1".parse().unwrap()))
}

fn to(last: u8) -> Flow {
    flow("10.77.0.1".parse().unwrap(), IpAddr::from([10, 77, 0, last]))
}

/// A packet socket that sees what comes out of `far`.
fn sniffer() -> File {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is checked and then owned by the file.
    let file = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        File::from_raw_fd(fd)
    };
    let mut address = [0_u8; 20];
    address[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&(libc::ETH_P_IP as u16).to_be_bytes());
    // SAFETY: the name is a C string.
    let index = unsafe { libc::if_nametoindex(c"far".as_ptr()) };
    address[4..8].copy_from_slice(&index.to_ne_bytes());
    use std::os::fd::AsRawFd;
    // SAFETY: the address has the length of a sockaddr_ll.
    let bound = unsafe { libc::bind(file.as_raw_fd(), address.as_ptr().cast(), 20) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    file
}

fn frames(sniffer: &mut File, count: usize) -> Vec<Vec<u8>> {
    use std::io::Read;
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut frames = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while frames.len() < count && Instant::now() < deadline {
        match sniffer.read(&mut buffer) {
            Ok(len) => frames.push(buffer[..len].to_vec()),
            Err(_) => std::thread::yield_now(),
        }
    }
    frames
}

#[test]
fn the_kernel_numbers_segmented_sends_as_the_icrcs_expect() {
    in_private_network(|| {
        // The interface takes no more than one segment, so the kernel has to make them.
        ip("link set near gso_max_segs 1");
        let mut sniffer = sniffer();
        let mut a = open_near();
        assert_eq!((a.capabilities().ip_mtu, a.capabilities().max_datagram), (1500, 1472));
        for psn in 0..10 {
            send(&mut a, NOW, &to(2), psn, 1024).unwrap();
        }
        send(&mut a, NOW, &to(2), 10, 100).unwrap();
        send(&mut a, NOW, &Flow { tos: 2, ..to(2) }, 11, 1024).unwrap();
        a.flush(NOW);
        assert_eq!((a.counters().tx_errors, a.counters().tx_datagrams), (0, 12));
        let ids = ids_of(&frames(&mut sniffer, 12), ROCE_UDP_PORT);
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]);
    });
}

/// Sent from a port of its own, the IDs count on.
#[test]
fn the_kernel_numbers_sends_of_a_connected_socket_as_the_icrcs_expect() {
    in_private_network(|| {
        ip("link set near gso_max_segs 1");
        let mut sniffer = sniffer();
        let mut a = open_near();
        let from_its_own_port = Flow { sport: 0xC077, ..to(2) };
        let mut psn = 0;
        let mut send_some = |a: &mut UdpLink, flow: &Flow, payload| {
            send(a, NOW, flow, psn, payload).unwrap();
            psn += 1;
        };
        // Alone, in a run, several runs in one call, to another peer, which takes no ID, and with a TOS.
        send_some(&mut a, &from_its_own_port, 64);
        a.flush(NOW);
        for payload in [1024, 1024, 1024, 100, 1024, 1024] {
            send_some(&mut a, &from_its_own_port, payload);
        }
        send_some(&mut a, &Flow { dst: "10.77.0.3".parse().unwrap(), ..from_its_own_port }, 64);
        send_some(&mut a, &Flow { tos: 2, ..from_its_own_port }, 64);
        a.flush(NOW);
        // What is reserved and given up takes no ID.
        a.reserve(NOW, &from_its_own_port, 64).unwrap();
        send_some(&mut a, &from_its_own_port, 64);
        a.flush(NOW);
        // The other one does not answer.
        assert_eq!((a.counters().tx_errors, a.counters().tx_datagrams), (0, 10));
        let ids = ids_of(&frames(&mut sniffer, 9), 0xC077);
        let steps: Vec<u16> = ids.iter().map(|id| id.wrapping_sub(ids[0])).collect();
        assert_eq!(steps, [0, 1, 2, 3, 4, 2, 3, 3, 4]);
    });
}

#[test]
fn a_send_that_the_kernel_refuses_does_not_disturb_the_ids() {
    in_private_network(|| {
        let mut sniffer = sniffer();
        let mut a = open_near();
        let from_its_own_port = Flow { sport: 0xC077, ..to(2) };
        for (psn, mtu) in [(0, 1500), (2, 1000), (4, 1500)] {
            ip(&format!("link set near mtu {mtu}"));
            // What is queued behind a refused one leaves with the ID that it was made for.
            for (psn, payload) in [(psn, 1024), (psn + 1, 64)] {
                send(&mut a, NOW, &Flow { tos: payload as u8, ..from_its_own_port }, psn, payload).unwrap();
            }
            a.flush(NOW);
        }
        assert_eq!((a.counters().tx_errors, a.counters().tx_datagrams), (1, 5));
        ids_of(&frames(&mut sniffer, 5), 0xC077);
    });
}

/// The IDs of `frames`, whose ICRCs are checked.
fn ids_of(frames: &[Vec<u8>], sport: u16) -> Vec<u16> {
    let id_of = |bytes: &Vec<u8>| {
        let frame = softrnic_wire::Frame::parse(bytes).unwrap();
        assert!(softrnic_wire::verify(&frame.facts(), frame.transport));
        let softrnic_wire::IpFacts::V4 { id, flags_frag, .. } = frame.header.ip.facts else { panic!() };
        assert_eq!((flags_frag, frame.header.src_port), (softrnic_wire::DF, sport));
        id
    };
    frames.iter().map(id_of).collect()
}

#[test]
fn congestion_marks_are_shown_to_every_receiver() {
    in_private_network(|| {
        let mut a = open_near();
        send(&mut a, NOW, &Flow { tos: 0x6B, ttl: 17, ..to(1) }, 0, 8).unwrap();
        a.flush(NOW);
        let got = &receive(&mut a, 1)[0];
        assert_eq!((got.tos, got.ttl), (0x6B, tx::DEFAULT_TTL));
    });
}

#[test]
fn datagrams_beyond_the_path_mtu_are_counted_as_errors() {
    in_private_network(|| {
        let mut a = open_near();
        let mut sniffer = sniffer();
        assert_eq!(a.reserve(NOW, &to(2), 1473).err(), Some(TxError::TooLong));
        // The interface's MTU falls after the link was opened.
        ip("link set near mtu 1000");
        send(&mut a, NOW, &to(2), 0, 1024).unwrap();
        send(&mut a, NOW, &to(2), 1, 64).unwrap();
        a.flush(NOW);
        for psn in 2..5 {
            send(&mut a, NOW, &to(2), psn, 1024).unwrap();
        }
        send(&mut a, NOW, &Flow { tos: 2, ..to(2) }, 5, 64).unwrap();
        a.flush(NOW);
        // In a run, one that is too long takes the shorter one at its end with it.
        assert_eq!((a.counters().tx_errors, a.counters().tx_datagrams), (5, 1));
        assert!(!a.is_blocked());
        assert_eq!(frames(&mut sniffer, 1).len(), 1);
    });
}

#[test]
fn datagrams_stay_queued_until_the_network_takes_them() {
    in_private_network(|| fill_and_drain(ROCE_UDP_PORT));
}

#[test]
fn a_full_socket_of_another_source_port_is_awaited_too() {
    in_private_network(|| fill_and_drain(0xC055));
}

fn fill_and_drain(sport: u16) {
    let mut a = open_near();
    a.stop_segmenting();
    // 10.77.0.3 does not answer, so what is sent there waits and fills the send buffer.
    let dead = Flow { sport, ..to(3) };
    a.reserve(NOW, &dead, 64).unwrap();
    let index = a.sender(&dead, SockAddr::new(dead.dst, ROCE_UDP_PORT, 0));
    a.socket(index).set(libc::SOL_SOCKET, libc::SO_SNDBUF, 8192).unwrap();
    let mut psn = 0;
    while !a.is_blocked() {
        send(&mut a, NOW, &dead, psn, 1024).unwrap();
        psn += 1;
        a.flush(NOW);
        assert!(psn < 100);
    }
    assert_eq!(u64::from(psn) - a.counters().tx_datagrams, 1);
    send(&mut a, NOW, &dead, psn, 1024).unwrap();
    a.flush(NOW);
    assert!(a.is_blocked());
    assert_eq!(wait(&a, libc::POLLIN | libc::POLLOUT, Duration::ZERO), 0);
    assert_eq!(a.counters().tx_errors, 0);

    ip("neighbour replace 10.77.0.3 lladdr 02:00:00:00:00:03 dev near nud permanent");
    while a.is_blocked() {
        assert_ne!(wait(&a, libc::POLLIN | libc::POLLOUT, Duration::from_secs(5)), 0);
        a.flush(NOW);
    }
    assert_eq!(a.counters().tx_datagrams, u64::from(psn) + 1);
    assert_eq!(wait(&a, libc::POLLIN, Duration::ZERO), 0);
}

#[test]
fn without_a_loopback_interface_the_error_asks_for_it() {
    let outcome = std::thread::spawn(|| {
        // SAFETY: affects this thread only, which ends with the test.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Some(UdpLink::open(UdpOptions::default()).map(|link| link.address())),
            _ => None,
        }
    });
    match outcome.join().unwrap() {
        Some(result) => {
            assert_eq!(result, Err(OpenError::NoFreeAddress));
            assert!(OpenError::NoFreeAddress.to_string().contains("is the loopback interface up"));
        }
        None if std::env::var_os("CI").is_none() => eprintln!("SKIPPED: a network namespace takes root"),
        None => panic!("no network namespace"),
    }
}
