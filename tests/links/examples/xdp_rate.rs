//! How many frames per second the `xdp` link moves in one direction between two network namespaces. Needs root.
//!
//! `cargo run --release -p softrnic-link-tests --example xdp_rate [BYTES [SECONDS [native|skb]]]`: frames of BYTES bytes,
//! Ethernet header included.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use softrnic_link::{Link, LinkCounters, TxError};
use softrnic_xdp::{AttachChoice, XdpLink, XdpOptions};

use softrnic_link_tests::traffic::{flow, send};
use softrnic_link_tests::{Pair, now};

/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;
/// Datagrams between flushes.
const BATCH: usize = 32;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument =
        |place: usize, default: &str| arguments.get(place).map_or(default, String::as_str).to_owned();
    let frame: usize = argument(0, "4170").parse().expect("bytes of a frame");
    let seconds: f64 = argument(1, "3").parse().expect("seconds");
    let attach = match argument(2, "native").as_str() {
        "native" => AttachChoice::Native,
        "skb" => AttachChoice::Skb,
        other => panic!("{other} is not a mode"),
    };
    let options = XdpOptions { attach, ..XdpOptions::default() };
    let pair = Pair::new(if frame > 1514 { 4500 } else { 1500 }, 1);
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = mpsc::channel();
    let ((sent, elapsed, sender), (arrived, receiver)) = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pair.b.enter_here(|| {
                let mut link = XdpLink::open("eth0", &options).expect("link of b");
                ready.send(link.capabilities().mode.clone()).expect("listener");
                while !stop.load(Ordering::Relaxed) {
                    link.receive(now(), 64, &mut |_| {});
                }
                (link.counters(), cpu_time())
            })
        });
        println!("{}", is_ready.recv().expect("receiver"));
        let sent = pair.a.enter(|| {
            let mut link = XdpLink::open("eth0", &options).expect("link of a");
            transmit(&mut link, frame - HEADERS, Duration::from_secs_f64(seconds))
        });
        stop.store(true, Ordering::Relaxed);
        (sent, receiver.join().expect("receiver"))
    });
    let rate = arrived.rx_datagrams as f64 / elapsed.as_secs_f64();
    println!(
        "{frame}-byte frames: {:.3} Mpps, {:.2} Gb/s received; {} sent in {} calls, {} lost by the receiver",
        rate / 1e6,
        rate * frame as f64 * 8.0 / 1e9,
        sent.tx_datagrams,
        sent.tx_calls,
        sent.tx_datagrams - arrived.rx_datagrams,
    );
    let micros = |time: Duration, frames: u64| time.as_secs_f64() * 1e6 / frames as f64;
    println!(
        "sender {:.2} µs user + {:.2} µs system per frame sent; receiver, which polls, {:.2} + {:.2} per frame received",
        micros(sender.0, sent.tx_datagrams),
        micros(sender.1, sent.tx_datagrams),
        micros(receiver.0, arrived.rx_datagrams),
        micros(receiver.1, arrived.rx_datagrams),
    );
}

fn transmit(
    link: &mut XdpLink,
    len: usize,
    duration: Duration,
) -> (LinkCounters, Duration, (Duration, Duration)) {
    let flow = flow("10.0.0.1", "10.0.0.2");
    // Resolve the neighbour first.
    send(link, &flow, std::iter::empty(), len);
    link.flush(now());
    let start = Instant::now();
    let mut number = 0u64;
    while start.elapsed() < duration {
        for _ in 0..BATCH {
            match link.reserve(now(), &flow, len) {
                Ok(slot) => slot.bytes[..8].copy_from_slice(&number.to_be_bytes()),
                Err(TxError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            link.commit(now());
            number += 1;
        }
        link.flush(now());
    }
    (link.counters(), start.elapsed(), cpu_time())
}

/// User and system time of this thread.
fn cpu_time() -> (Duration, Duration) {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    // SAFETY: plain C data, for which all zero is valid, and which the call fills in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        (time(usage.ru_utime), time(usage.ru_stime))
    }
}
