//! Datagrams whose contents show whether they are intact, sent and echoed over links.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use softrnic_link::{Flow, Link, Rng, TxError};
use softrnic_netdev::Host;
use softrnic_xdp::{XdpError, XdpLink, XdpOptions};

use crate::{Namespace, ip, now, wait_for};

/// Datagrams in flight at a time: fewer than any queue below holds.
const WINDOW: usize = 32;

/// The flow from `src` to `dst`.
pub fn flow(src: &str, dst: &str) -> Flow {
    Flow { src: ip(src), dst: ip(dst), sport: 49_152, slot: None, tos: 0, ttl: 64 }
}

/// The contents of datagram `number`: the number, then bytes derived from it.
pub fn contents(number: u64, len: usize) -> impl Iterator<Item = u8> {
    let mut rng = Rng::new(number);
    number.to_be_bytes().into_iter().chain(std::iter::repeat_with(move || rng.next() as u8)).take(len)
}

/// Sends one datagram, waiting for the neighbour to be found and for room.
pub fn send(link: &mut dyn Link, flow: &Flow, bytes: impl Iterator<Item = u8>, len: usize) {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match link.reserve(now(), flow, len) {
            Ok(slot) => {
                assert_eq!(slot.bytes.len(), len);
                for (to, from) in slot.bytes.iter_mut().zip(bytes) {
                    *to = from;
                }
                return link.commit(now());
            }
            Err(TxError::Unreachable | TxError::Full) if Instant::now() < end => link.flush(now()),
            Err(error) => panic!("no room for a datagram of {len} bytes to {}: {error}", flow.dst),
        }
    }
}

/// Sends `count` datagrams of the lengths in `lens` in turn, or of what the link can carry where that is
/// less, to a host that echoes them, and checks that each comes back whole and once.
pub fn exchange(link: &mut XdpLink, flow: &Flow, lens: &[usize], count: usize) {
    exchange_over(0, link, flow, lens, count);
}

/// [`exchange`], through this many routers.
pub fn exchange_over(routers: u8, link: &mut XdpLink, flow: &Flow, lens: &[usize], count: usize) {
    let headers = if flow.src.is_ipv4() { 28 } else { 48 };
    let most = link.capabilities().ip_mtu - headers;
    let lens: Vec<usize> = lens.iter().map(|len| *len.min(&most)).collect();
    let mut sent = 0;
    let mut back = vec![false; count];
    let mut returned = 0;
    let end = Instant::now() + Duration::from_secs(30);
    while returned < count {
        while sent < count && sent - returned < WINDOW {
            let len = lens[sent % lens.len()];
            send(link, flow, contents(sent as u64, len), len);
            sent += 1;
        }
        link.flush(now());
        let before = returned;
        link.receive(now(), 64, &mut |datagram| {
            assert_eq!((datagram.src, datagram.dst), (flow.dst, flow.src));
            let ttl = flow.ttl - 2 * routers;
            assert_eq!((datagram.sport, datagram.ttl, datagram.tos), (flow.sport, ttl, flow.tos));
            let number = u64::from_be_bytes(*datagram.bytes.first_chunk().expect("a number"));
            let len = lens[number as usize % lens.len()];
            assert!(datagram.bytes.iter().copied().eq(contents(number, len)), "datagram {number} damaged");
            assert!(!std::mem::replace(&mut back[number as usize], true), "datagram {number} twice");
            returned += 1;
        });
        if returned == before {
            thread::yield_now();
            assert!(
                Instant::now() < end,
                "{returned} of {count} came back, {sent} sent: {:?} {:?}",
                link.counters(),
                link.audit()
            );
        }
    }
}

/// Runs `work` on host `a` with a link, while host `b` echoes with another. Both check afterwards that
/// no packet memory was lost.
pub fn against_echo(
    a: (&Namespace, &str),
    b: (&Namespace, &str),
    options: &XdpOptions,
    work: impl FnOnce(&mut XdpLink) + Send,
) {
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = mpsc::channel();
    let stop = &stop;
    thread::scope(|scope| {
        let echoing = scope.spawn(move || {
            b.0.enter_here(|| {
                let mut link = open_again(b.1, options).expect("link of b");
                ready.send(()).expect("listener");
                echo(&mut link, stop);
                settle(&mut link);
            });
        });
        if is_ready.recv().is_ok() {
            let working = scope.spawn(|| {
                a.0.enter_here(|| {
                    let mut link = open_again(a.1, options).expect("link of a");
                    work(&mut link);
                    settle(&mut link);
                });
            });
            let worked = working.join();
            stop.store(true, Ordering::Relaxed);
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        echoing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Opens a link on an interface of this thread's namespace that had one before.
///
/// A child that another test starts has the descriptors of this process until it runs its own program,
/// and so keeps what was closed here alive for a moment.
pub fn open_again(interface: &str, options: &XdpOptions) -> Result<XdpLink, XdpError> {
    wait_for("the former program to go", || {
        let host = Host::open().expect("host");
        host.interface_by_name(interface).is_none_or(|interface| interface.xdp_programs.is_empty())
    });
    XdpLink::open(interface, options)
}

/// Waits until nothing is in flight, and checks that no packet memory was lost.
pub fn settle(link: &mut XdpLink) {
    wait_for("packet memory to come back", || {
        link.flush(now());
        link.receive(now(), usize::MAX, &mut |_| {});
        let audit = link.audit();
        assert!(audit.is_exact(), "{audit:?}");
        audit.is_quiet()
    });
}

/// Sends back what arrives until `stop`.
pub fn echo(link: &mut XdpLink, stop: &AtomicBool) {
    let mut arrived = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        link.receive(now(), 64, &mut |datagram| {
            let flow = Flow {
                src: datagram.dst,
                dst: datagram.src,
                sport: datagram.sport,
                slot: None,
                tos: datagram.tos,
                ttl: datagram.ttl,
            };
            arrived.push((flow, datagram.bytes.to_vec()));
        });
        if arrived.is_empty() {
            thread::yield_now();
        }
        for (flow, bytes) in arrived.drain(..) {
            send(link, &flow, bytes.iter().copied(), bytes.len());
        }
        link.flush(now());
    }
}
