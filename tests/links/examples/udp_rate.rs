//! How fast the UDP link moves datagrams on loopback, compared with a bare loop of sendmsg and recvmsg.
//!
//! One thread sends runs of 16 datagrams of 4112 bytes and reads them back, first with the system calls alone, then
//! through two links, so the difference is what the link costs.

use std::io::IoSlice;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use softrnic_link::{Flow, Link, Overrun};
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::Time;

const DATAGRAM: usize = 4112;
const BATCH: usize = 16;
/// Short slices in turn, so that other load on the machine affects both alike.
const FOR: Duration = Duration::from_millis(100);
const SLICES: usize = 25;

fn main() {
    let mut rates: Vec<(f64, f64)> = (0..SLICES).map(|_| (bare(), link())).collect();
    let mut median = |by: fn(&(f64, f64)) -> f64| {
        rates.sort_by(|a, b| by(a).total_cmp(&by(b)));
        by(&rates[SLICES / 2])
    };
    println!(
        "medians of {SLICES}: bare {:.2} Gb/s, link {:.2} Gb/s, ratio {:.3}",
        median(|(bare, _)| *bare),
        median(|(_, link)| *link),
        median(|(bare, link)| link / bare)
    );
}

fn link() -> f64 {
    let mut a = UdpLink::open(UdpOptions::default()).expect("a free loopback address");
    let mut b = UdpLink::open(UdpOptions::default()).expect("a free loopback address");
    let flow = Flow { src: a.address(), dst: b.address(), sport: 4791, slot: None, tos: 0, ttl: 64 };
    let now = Time::ZERO;
    let started = Instant::now();
    let mut bytes = 0;
    while started.elapsed() < FOR {
        for _ in 0..BATCH {
            a.reserve(now, &flow, DATAGRAM).expect("room");
            a.commit(now);
        }
        a.flush(now);
        while b.receive(now, 64, &mut |datagram| bytes += datagram.bytes.len()) != Overrun::Drained {}
    }
    gigabits(bytes, started)
}

fn bare() -> f64 {
    let a = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let b = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    b.set_nonblocking(true).expect("a flag");
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int.
    unsafe { libc::setsockopt(b.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const on).cast(), 4) };
    let to = b.local_addr().expect("an address");
    let IpAddr::V4(ip) = to.ip() else { unreachable!("bound to IPv4") };
    let mut address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
        sin_zero: [0; 8],
    };
    let payload = vec![0; DATAGRAM * (65_493 / DATAGRAM)];
    let single = vec![0; DATAGRAM];
    let mut buffer = vec![0; 1 << 16];
    let started = Instant::now();
    let mut bytes = 0;
    while started.elapsed() < FOR {
        // As the link does it: fifteen in one segmented send, and the sixteenth on its own.
        for payload in [&payload, &single] {
            send(&a, &mut address, payload);
        }
        while let Ok(len) = b.recv(&mut buffer) {
            bytes += len;
        }
    }
    gigabits(bytes, started)
}

fn send(socket: &UdpSocket, to: &mut libc::sockaddr_in, payload: &[u8]) {
    let mut control = [0_u64; 3];
    let segment = libc::cmsghdr { cmsg_len: 18, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
    // SAFETY: the control buffer has room for the header and two bytes; the message's pointers outlive
    // the call.
    unsafe {
        let place = control.as_mut_ptr();
        place.cast::<libc::cmsghdr>().write(segment);
        place.add(2).cast::<u16>().write(DATAGRAM as u16);
        let mut iov = IoSlice::new(payload);
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = std::ptr::from_mut(to).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        message.msg_iov = (&raw mut iov).cast();
        message.msg_iovlen = 1;
        if payload.len() > DATAGRAM {
            message.msg_control = place.cast();
            message.msg_controllen = 24;
        }
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &message, 0), payload.len() as isize);
    }
}

fn gigabits(bytes: usize, started: Instant) -> f64 {
    bytes as f64 * 8.0 / started.elapsed().as_nanos() as f64
}
