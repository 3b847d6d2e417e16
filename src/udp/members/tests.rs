use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use softrnic_wire::{
    Capabilities, CmBody, CmIds, CmMessage, Dreq, MAD_LEN, Qpn, Rej, Rep, Req, ServiceId, SidrRep, SidrReq,
    Time, VendorAttribute, VendorMad,
};

use super::listener::ROUND;
use super::*;
use crate::{UdpLink, UdpOptions};
use softrnic_link::testing::{self, flow, packet_len};
use softrnic_link::{Flow, Link};

const NOW: Time = Time::ZERO;

/// An address of this test alone.
fn address(test: u8) -> IpAddr {
    let process = std::process::id();
    IpAddr::from([127, 201 + test, (process >> 8) as u8, (process as u8).clamp(1, 254)])
}

fn shared(address: IpAddr) -> UdpOptions {
    UdpOptions { address: Some(address), shared: true, ..UdpOptions::default() }
}

/// The first two processes of an address, as far as one process can be two.
fn pair(at: IpAddr) -> [UdpLink; 2] {
    let mut first = UdpLink::open(shared(at)).expect("the first");
    [join(&mut first, at), first]
}

/// Attends as a progress thread does.
fn attend(sharing: &mut dyn Sharing) {
    sharing.attend().iter().for_each(|backlog| backlog.accept_some());
    sharing.let_in();
}

/// Opens another link on the address of one that is open, which attends meanwhile as its progress thread would.
fn join(to: &mut UdpLink, at: IpAddr) -> UdpLink {
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| UdpLink::open(shared(at)));
        while !joins.is_finished() {
            attend(to.sharing().expect("shared"));
            std::thread::yield_now();
        }
        joins.join().expect("no panic").expect("it may join")
    })
}

fn slot(link: &UdpLink) -> ProcessSlot {
    link.capabilities().slot.expect("a slot")
}

/// Sends a packet to a queue pair of a slot.
fn send_to(link: &mut UdpLink, to: &Flow, slot: ProcessSlot, psn: u32) {
    testing::send_to_qp(link, NOW, to, *slot.qpns().start() + 2, psn);
    link.flush(NOW);
}

/// Sends the message of a connection manager to QP 1.
fn send_mad(link: &mut UdpLink, to: &Flow, body: CmBody<'_>) {
    let message = CmMessage::new(body, &[]).expect("a message");
    let mut mad = [0; MAD_LEN];
    message.emit_mad(7, 0, &mut mad);
    testing::send_mad(link, NOW, to, &mad);
    link.flush(NOW);
}

#[test]
fn each_of_two_processes_on_one_address_gets_its_own_packets() {
    let at = address(0);
    let mut links = pair(at);
    let slots = [slot(&links[0]), slot(&links[1])];
    assert_ne!(slots[0], slots[1]);
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    let to = flow(peer.address(), at);
    for (psn, which) in [0, 1, 1, 0, 1, 0, 0, 0, 1].into_iter().enumerate() {
        send_to(&mut peer, &Flow { slot: Some(slots[which]), ..to }, slots[which], psn as u32);
        let got = testing::receive(&mut links[which], 1);
        assert_eq!(got.iter().map(testing::Received::psn).collect::<Vec<_>>(), [psn as u32]);
        assert!(testing::drain(&mut links[1 - which], NOW).is_empty());
    }
    assert_eq!(links[0].sharing().expect("shared").processes(), [std::process::id(); 2]);
}

#[test]
fn one_send_never_holds_packets_for_two_processes() {
    let at = address(1);
    let mut links = pair(at);
    let slots = [slot(&links[0]), slot(&links[1])];
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    for psn in 0..40 {
        let slot = slots[psn as usize % 2];
        let to = Flow { slot: Some(slot), ..flow(peer.address(), at) };
        testing::send_to_qp(&mut peer, NOW, &to, *slot.qpns().start() + 2, psn);
    }
    peer.flush(NOW);
    for (which, link) in links.iter_mut().enumerate() {
        let psns: Vec<u32> = testing::receive(link, 20).iter().map(testing::Received::psn).collect();
        assert_eq!(psns, (0..40).filter(|psn| *psn as usize % 2 == which).collect::<Vec<_>>());
    }
}

#[test]
fn messages_of_the_connection_manager_find_their_process() {
    let at = address(2);
    let mut links = pair(at);
    let slots = [slot(&links[0]), slot(&links[1])];
    let service = |which: usize| ServiceId(0x0106_0000 + which as u64);
    let native = ServiceId(0x1234_5678_9ABC_DEF0);
    for which in [0, 1] {
        links[which].sharing().expect("shared").serve(service(which), None).expect("a service");
    }
    links[1].sharing().expect("shared").serve(native, None).expect("a service");
    assert_eq!(links[0].sharing().expect("shared").serve(native, None), Err(ServeError::Taken));
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    let to = Flow { slot: None, ..flow(peer.address(), at) };
    let mut expect = |which: usize, body: CmBody<'_>| {
        send_mad(&mut peer, &to, body);
        assert_eq!(testing::receive(&mut links[which], 1).len(), 1, "{which}");
        assert!(testing::drain(&mut links[1 - which], NOW).is_empty());
    };
    for which in [0, 1, 0] {
        let ids = CmIds { local: 99, remote: slots[which].comm_id(0xABCD_EF01) };
        expect(which, CmBody::Req(Req { service: service(which), ..Req::default() }));
        expect(which, CmBody::SidrReq(SidrReq { service: service(which), ..SidrReq::default() }));
        expect(which, CmBody::Rep(Rep { ids, ..Rep::default() }));
        expect(which, CmBody::Rtu(ids));
        expect(which, CmBody::Drep(ids));
        expect(which, CmBody::Dreq(Dreq { ids, ..Dreq::default() }));
        expect(which, CmBody::Rej(Rej { ids, ..Rej::default() }));
        expect(which, CmBody::SidrRep(SidrRep { request_id: ids.remote, ..SidrRep::default() }));
    }
    expect(1, CmBody::Req(Req { service: native, ..Req::default() }));
    for which in [0, 1, 0] {
        let attribute = VendorAttribute::Capabilities(Capabilities::default());
        let (to_qp, from) = (Qpn::new(*slots[which].qpns().end() - 1), Qpn::new(0xFF_FFFE));
        let mut mad = [0; MAD_LEN];
        VendorMad { answers: which == 0, to: to_qp, from, attribute }.emit_mad(7, &mut mad);
        testing::send_mad(&mut peer, NOW, &to, &mad);
        peer.flush(NOW);
        assert_eq!(testing::receive(&mut links[which], 1).len(), 1, "{which}");
        assert!(testing::drain(&mut links[1 - which], NOW).is_empty());
    }
    let mut expect = |which: usize, body: CmBody<'_>| {
        send_mad(&mut peer, &to, body);
        assert_eq!(testing::receive(&mut links[which], 1).len(), 1, "{which}");
        assert!(testing::drain(&mut links[1 - which], NOW).is_empty());
    };
    // What nobody listens for is for one of them all the same: it refuses.
    let first = usize::from(slots[1] < slots[0]);
    expect(first, CmBody::Req(Req { service: ServiceId(5), ..Req::default() }));
    // So is a message about a connection of nobody: a wish to end it is agreed to (IBTA 12.9.7).
    let nobodys = (0..ProcessSlot::COUNT).filter_map(ProcessSlot::new).filter(|slot| !slots.contains(slot));
    for slot in nobodys {
        let ids = CmIds { local: 99, remote: slot.comm_id(1) };
        expect(first, CmBody::Dreq(Dreq { ids, ..Dreq::default() }));
    }
    let [zero, one] = links;
    let (mut stays, goes) = if first == 0 { (one, zero) } else { (zero, one) };
    drop(goes);
    send_mad(&mut peer, &to, CmBody::Req(Req { service: ServiceId(5), ..Req::default() }));
    assert_eq!(testing::receive(&mut stays, 1).len(), 1, "the other one has left");
}

/// As if its process had been killed: everything is closed, and nothing said.
fn kill(mut link: UdpLink) {
    link.members.as_mut().expect("shared").left = true;
}

#[test]
fn services_of_killed_processes_are_refused_by_others() {
    let at = address(7);
    let mut links = Vec::from(pair(at));
    for _ in 0..4 {
        let another = join(&mut links[0], at);
        links.push(another);
    }
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    let to = Flow { slot: None, ..flow(peer.address(), at) };
    // Whatever the order: the first of the address, the one that refuses, those at the ends of streams.
    while links.len() > 1 {
        links.iter_mut().for_each(|link| attend(link.sharing().expect("shared")));
        let mut victim = links.remove(links.len() / 2);
        let service = ServiceId(0x0106_0000 + links.len() as u64);
        victim.sharing().expect("shared").serve(service, None).expect("a service");
        let first = links.iter().map(slot).min();
        kill(victim);
        // Twice: ends may be found in one round, and new streams made that are accepted in the next.
        for _ in 0..2 {
            links.iter_mut().for_each(|link| attend(link.sharing().expect("shared")));
        }
        send_mad(&mut peer, &to, CmBody::Req(Req { service, ..Req::default() }));
        let got = links.iter_mut().find(|link| Some(slot(link)) == first).expect("it lives");
        assert_eq!(testing::receive(got, 1).len(), 1, "{} are left", links.len());
    }
}

#[test]
fn a_new_process_gets_no_packets_of_an_earlier_one() {
    let at = address(3);
    let [gone, mut stays] = pair(at);
    let old = slot(&gone);
    drop(gone);
    let mut peer = UdpLink::open(UdpOptions::default()).expect("a peer");
    let to = Flow { slot: Some(old), ..flow(peer.address(), at) };
    for psn in 0..3 {
        send_to(&mut peer, &to, old, psn);
    }
    // All slots but one are free: some later process has that of the one that has gone.
    let mut others = Vec::new();
    while others.iter().all(|other| slot(other) != old) {
        others.push(join(&mut stays, at));
    }
    let successor = others.last_mut().expect("one");
    assert!(testing::drain(successor, NOW).is_empty());
    send_to(&mut peer, &to, old, 9);
    assert_eq!(testing::receive(successor, 1).len(), 1);
}

#[test]
fn one_process_beyond_the_limit_is_refused_with_a_message() {
    let at = address(4);
    let mut links = vec![UdpLink::open(shared(at)).expect("the first")];
    while links.len() < ProcessSlot::COUNT {
        let another = join(&mut links[0], at);
        links.push(another);
    }
    let slots: std::collections::BTreeSet<ProcessSlot> = links.iter().map(slot).collect();
    assert_eq!(slots.len(), ProcessSlot::COUNT);
    let refused = std::thread::scope(|scope| {
        let joins = scope.spawn(|| UdpLink::open(shared(at)).err());
        while !joins.is_finished() {
            attend(links[0].sharing().expect("shared"));
            std::thread::yield_now();
        }
        joins.join().expect("no panic")
    });
    assert_eq!(refused, Some(OpenError::TooManyProcesses(at)));
    links.pop();
    let _again = join(&mut links[0], at);
}

#[test]
fn a_process_that_does_not_share_has_the_address_alone() {
    let at = address(5);
    let alone = UdpOptions { shared: false, ..shared(at) };
    let first = UdpLink::open(alone).expect("alone");
    assert_eq!(UdpLink::open(shared(at)).err(), Some(OpenError::AddressInUse(at)));
    drop(first);
    let _shared = UdpLink::open(shared(at)).expect("shared");
    assert_eq!(UdpLink::open(alone).err(), Some(OpenError::AddressInUse(at)));
}

#[test]
fn an_address_of_ipv6_is_shared_as_well() {
    let at = IpAddr::from(std::net::Ipv6Addr::LOCALHOST);
    // Another test may have it, alone.
    let Ok(mut first) = UdpLink::open(shared(at)) else { return };
    let mut second = join(&mut first, at);
    let own = slot(&second);
    let to = Flow { slot: Some(own), ..flow(at, at) };
    assert_eq!(packet_len(0), 16);
    send_to(&mut first, &to, own, 3);
    assert_eq!(testing::receive(&mut second, 1).len(), 1);
}

/// Somebody else's socket cannot keep this user from opening the address, only from sharing it.
#[test]
fn without_its_name_an_address_has_one_process() {
    let at = address(8);
    let squatter = handshake::take_name(at).expect("its name");
    // Nobody is answered; then there is no place to wait for an answer either.
    let _waiting: Vec<_> = (0..1000).map_while(|_| handshake::connect_to_any(at).ok()).collect();
    let begun = Instant::now();
    let alone = UdpLink::open(shared(at)).expect("alone");
    assert!(begun.elapsed() < JOIN_TIMEOUT / 2, "{:?}", begun.elapsed());
    drop((squatter, alone));

    // Nobody listens.
    let name = rustix::net::SocketAddrUnix::new_abstract_name(format!("softrnic/udp/{at}").as_bytes());
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET, None);
    let squatter = socket.expect("a socket");
    rustix::net::bind(&squatter, &name.expect("a name")).expect("it is free");
    let begun = Instant::now();
    let alone = UdpLink::open(shared(at)).expect("alone");
    assert!(begun.elapsed() < JOIN_TIMEOUT / 2, "{:?}", begun.elapsed());
    assert!(
        alone.capabilities().mode.contains("[for one process: its name is taken"),
        "{}",
        alone.capabilities().mode
    );
    // Other addresses of the device may be shared.
    slot(&alone);
}

/// Connects as somebody does who wants to stall the process that accepts: as often as it can be done.
fn crowd(connect: impl Fn() -> Option<OwnedFd>) -> Vec<OwnedFd> {
    (0..3 * ROUND).map(|_| connect().expect("there is room for it")).collect()
}

fn is_readable(watch: &OwnedFd) -> bool {
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(watch, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&at_once)) == Ok(1)
}

/// Whether there is an answer, or the end.
fn has_heard(socket: &OwnedFd) -> bool {
    let mut byte = [0; 1];
    let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK;
    rustix::net::recv(socket, &mut byte[..], flags) != Err(rustix::io::Errno::AGAIN)
}

/// Clients of a server that has just been started again still send to it, for instance.
#[test]
fn an_address_is_shared_whatever_others_send_to_it_meanwhile() {
    let at = address(44);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
            while !done.load(Ordering::Relaxed) {
                let _ = stranger.send_to(&[0; 64], (at, ROCE_UDP_PORT));
            }
        });
        let shared = (0..10).filter(|_| UdpLink::open(shared(at)).is_ok_and(|link| link.members.is_some()));
        let shared = shared.count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(shared, 10);
    });
}

/// Somebody may have to be attended to for ever. All that wait are reached by and by all the same.
#[test]
fn many_joining_processes_are_accepted_a_few_at_a_time() {
    let at = address(41);
    let mut link = UdpLink::open(shared(at)).expect("the first");
    let waiting = crowd(|| handshake::connect_to_any(at).ok());
    let members = link.members.as_mut().expect("shared");
    for round in 1..=3 {
        assert!(is_readable(&members.watch), "nobody is forgotten");
        attend(members);
        assert_eq!(waiting.iter().filter(|socket| has_heard(socket)).count(), round * ROUND);
    }
    attend(members);
    assert!(!is_readable(&members.watch), "nobody is left");
}

#[test]
fn the_name_of_lifelines_cannot_be_taken_beforehand() {
    let at = address(43);
    let name = || UdpLink::open(shared(at)).expect("the first").members.expect("shared").lifelines.name;
    assert_ne!(name(), name());
}

#[test]
fn many_lifelines_are_accepted_a_few_at_a_time() {
    let at = address(42);
    let mut link = UdpLink::open(shared(at)).expect("the first");
    let members = link.members.as_mut().expect("shared");
    let _waiting = crowd(|| handshake::connect_to(at, members.lifelines.name).ok());
    for round in 1..=3 {
        assert!(is_readable(&members.watch), "nobody is forgotten");
        attend(members);
        assert_eq!(members.lifelines.count(), round * ROUND);
    }
    attend(members);
    assert!(!is_readable(&members.watch), "nobody is left");
}

#[test]
fn a_member_of_another_version_is_not_joined() {
    let at = address(6);
    let listener = handshake::take_name(at).expect("its name");
    let refused = std::thread::scope(|scope| {
        let joins = scope.spawn(|| UdpLink::open(shared(at)).err());
        while !joins.is_finished() {
            if let Ok(socket) = rustix::net::accept(&listener) {
                let _ = rustix::net::send(&socket, b"snicmem0", rustix::net::SendFlags::empty());
            }
            std::thread::yield_now();
        }
        joins.join().expect("no panic")
    });
    assert_eq!(refused, Some(OpenError::OtherVersion(at)));
}

/// The name of a process that ends is free before its sockets are.
#[test]
fn an_address_is_shared_again_although_its_last_process_is_just_ending() {
    let at = address(40);
    for _ in 0..20 {
        let ending = UdpLink::open(shared(at)).expect("the last");
        let members = ending.members.as_ref().expect("shared");
        let sockets: Vec<_> =
            members.sockets.iter().map(|socket| socket.duplicate().expect("a copy")).collect();
        drop(ending);
        std::thread::scope(|scope| {
            let begins = scope.spawn(|| UdpLink::open(shared(at)));
            // One at a time, in an order of its own, as a busy machine may do it.
            for socket in sockets {
                std::thread::yield_now();
                drop(socket);
            }
            let mut link = begins.join().expect("no panic").expect("it opens");
            assert!(link.sharing().is_some(), "{:?}", link.capabilities().mode);
        });
    }
}
