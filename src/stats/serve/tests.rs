//! Crowds, in virtual time: what counts is how much is done in a round, not how fast.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::socket::{Cached, LIFETIME, LIMITS, is_ours};

/// A socket that only this test knows.
fn listen() -> (UnixListener, SocketAddr) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("softrnic-serve-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("free");
    listener.set_nonblocking(true).expect("set");
    (listener, address)
}

/// A device's socket whose answers have this many bytes; counts how often a snapshot is taken.
fn device(
    listener: UnixListener,
    len: usize,
    taken: &AtomicU32,
) -> Server<UnixListener, impl FnMut(&[u8], Time) -> Answer> {
    let mut cached = Cached::default();
    Server::new(listener, LIMITS, is_ours, move |_: &[u8], now| {
        cached.get(now, || {
            taken.fetch_add(1, Ordering::Relaxed);
            Some(vec![b'x'; len])
        })
    })
}

fn later(now: &mut Time) -> Time {
    *now += LIMITS.pace;
    *now
}

#[test]
fn a_flood_is_answered_in_bounded_rounds_from_few_snapshots() {
    let taken = AtomicU32::new(0);
    let (listener, address) = listen();
    let mut server = device(listener, 1000, &taken);
    let mut crowd: Vec<UnixStream> =
        (0..1000).map(|_| UnixStream::connect_addr(&address).expect("room")).collect();
    let (mut now, mut answered, mut rounds) = (Time::ZERO, 0, 0);
    while answered < crowd.len() {
        let round = server.round(later(&mut now));
        assert!(round.accepted <= LIMITS.accepted && round.answered <= LIMITS.accepted, "{round:?}");
        // Before its time a round does nothing, however many wait.
        assert_eq!(server.round(now), Round::default());
        answered += round.answered;
        rounds += 1;
        assert!(rounds <= 1000 / LIMITS.accepted + 1, "{answered} after {rounds} rounds");
    }
    let lifetimes = now.as_nanos().div_ceil(LIFETIME.as_nanos() as u64);
    assert!(u64::from(taken.load(Ordering::Relaxed)) <= lifetimes, "{taken:?} snapshots in {lifetimes}");
    for client in &mut crowd {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("readable");
        assert_eq!(answer.len(), 1000);
    }
}

#[test]
fn readers_that_never_read_delay_no_others() {
    let taken = AtomicU32::new(0);
    // More than a socket holds, so that the client has to read.
    let (listener, address) = listen();
    let mut server = device(listener, 2 << 20, &taken);
    let mut now = Time::ZERO;
    let _mute: Vec<UnixStream> =
        (0..LIMITS.clients).map(|_| UnixStream::connect_addr(&address).expect("room")).collect();
    for _ in 0..LIMITS.clients / LIMITS.accepted {
        let round = server.round(later(&mut now));
        assert!(round.written <= LIMITS.bytes, "{round:?}");
    }
    assert_eq!(server.clients(), LIMITS.clients);
    // A client that reads is served although the server is full.
    let mut reader = UnixStream::connect_addr(&address).expect("room");
    reader.set_nonblocking(true).expect("set");
    let mut got = 0;
    let mut piece = vec![0; 1 << 20];
    let mut rounds = 0;
    while got < 2 << 20 {
        server.round(later(&mut now));
        while let Ok(len @ 1..) = reader.read(&mut piece) {
            got += len;
        }
        rounds += 1;
        assert!(rounds < 100, "{got} bytes after {rounds} rounds");
    }
    assert!(server.clients() <= LIMITS.clients);
    // The others are let go.
    server.round(now + LIMITS.timeout);
    assert_eq!(server.clients(), 0);
}

#[test]
fn clients_that_connect_and_leave_in_a_loop_leave_nothing_behind() {
    let taken = AtomicU32::new(0);
    let (listener, address) = listen();
    let mut server = device(listener, 2 << 20, &taken);
    let mut now = Time::ZERO;
    for _ in 0..200 {
        for _ in 0..10 {
            drop(UnixStream::connect_addr(&address).expect("room"));
        }
        let round = server.round(later(&mut now));
        assert_eq!((round.accepted, round.dropped), (10, 10));
        assert_eq!(server.clients(), 0);
    }
    assert!(taken.load(Ordering::Relaxed) <= 6, "{taken:?} snapshots in 0.4 s");
}

#[test]
fn clients_with_unfinished_requests_give_way_to_others() {
    let (listener, address) = listen();
    let hear = |request: &[u8], _| match request.ends_with(b"!") {
        true => Answer::Say(Arc::from(&b"yes"[..])),
        false => Answer::More,
    };
    let limits = Limits { request: 100, ..LIMITS };
    let mut server = Server::new(listener, limits, |_| true, hear);
    let mut now = Time::ZERO;
    let mut slow: Vec<UnixStream> = Vec::new();
    for round in 0..500 {
        for _ in 0..8 {
            slow.push(UnixStream::connect_addr(&address).expect("room"));
        }
        // A byte now and then is progress, but not for ever.
        for client in slow.iter_mut().rev().take(20) {
            let _ = client.write_all(b"x");
        }
        let mut honest = UnixStream::connect_addr(&address).expect("room");
        honest.write_all(b"please!").expect("written");
        server.round(later(&mut now));
        let mut answer = [0; 8];
        assert_eq!(honest.read(&mut answer).expect("an answer"), 3, "round {round}");
        assert!(server.clients() <= limits.clients);
    }
    let mut endless = UnixStream::connect_addr(&address).expect("room");
    endless.write_all(&[b'x'; 101]).expect("written");
    server.round(later(&mut now));
    assert!(endless.write_all(b"x").is_err(), "a request longer than any is read on");
}
