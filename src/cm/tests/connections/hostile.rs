//! Whatever a peer sends, nothing panics and the memory in use is bounded.

use std::time::Duration;

use softrnic_link::Rng;
use softrnic_wire::*;

use super::world::*;
use softrnic_cm::*;

fn route() -> Route {
    Route { local: address(1), remote: address(0) }
}

/// A REQ that a listener would accept, from any peer.
fn request(rng: &mut Rng) -> [u8; MAD_LEN] {
    let req = Req {
        local_id: rng.next() as u32,
        service: service(),
        ca_guid: rng.next(),
        qpn: Qpn::new(rng.next() as u32),
        mtu_code: Bits::new(3),
        primary: CmPath {
            local_gid: address(0).into(),
            remote_gid: address(1).into(),
            ack_timeout: Bits::new(31),
            ..CmPath::default()
        },
        ..Req::default()
    };
    let mut bytes = [0; MAD_LEN];
    CmMessage::new(CmBody::Req(req), &header(0, 1)).expect("short").emit_mad(rng.next(), 0, &mut bytes);
    bytes
}

/// A connection between ends 0 and 1, whose active side has QP 0x11. End 2 is somebody else.
fn connected() -> (World, CommId, CommId) {
    let mut w = World::new(3, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    (w, active, passive)
}

/// The REQ that end 0 would send had it forgotten its connection, and uses its QP again.
fn request_of_end_0(w: &mut World, service: ServiceId) -> [u8; MAD_LEN] {
    let params = ConnectParams { service, ..connect_params(0, 1, 0x11) };
    let mut cm = w.start(0);
    cm.connect(w.now, &params).expect("connects");
    *cm.poll_transmit().expect("a REQ").bytes
}

/// End 1 receives a message from the address of another end.
fn receive(w: &mut World, from: usize, bytes: &[u8]) {
    let route = Route { local: address(1), remote: address(from) };
    w.ends[1].on_mad(w.now, route, bytes);
}

/// IBTA 12.9.8.3.
#[test]
fn a_request_from_another_address_ends_no_connection() {
    let (mut w, active, passive) = connected();
    let bytes = request_of_end_0(&mut w, service());
    receive(&mut w, 2, &bytes);
    w.run(Duration::from_secs(10));
    assert_eq!(w.ends[0].state(active), Some(State::Established));
    assert_eq!(w.ends[1].state(passive), Some(State::Established));
    assert!(!w.log.contains(&"DREQ"), "{:?}", w.log);
}

/// Else whoever sends from the peer's address could try all QPNs, and nobody would notice.
#[test]
fn a_request_that_no_listener_would_get_ends_no_connection() {
    let (mut w, active, passive) = connected();
    let bytes = request_of_end_0(&mut w, ServiceId::of_port(PortSpace::Tcp, 9999));
    receive(&mut w, 0, &bytes);
    w.run(Duration::from_secs(10));
    assert_eq!(w.ends[0].state(active), Some(State::Established));
    assert_eq!(w.ends[1].state(passive), Some(State::Established));

    // Nor while the listener has all the requests that it may have.
    let mut rng = Rng::new(7);
    while w.ends[1].usage().pending < 8 {
        let request = request(&mut rng);
        receive(&mut w, 2, &request);
    }
    let bytes = request_of_end_0(&mut w, service());
    receive(&mut w, 0, &bytes);
    assert_eq!(w.ends[1].state(passive), Some(State::Established));
}

/// It has named the peer's QP and communication id before the peer did.
#[test]
fn a_request_from_another_address_blocks_no_request() {
    let mut w = World::new(3, 1);
    w.listen(1, 8);
    w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connects");
    let genuine = w.ends[0].poll_transmit().expect("a REQ");
    receive(&mut w, 2, &genuine.bytes[..]);
    assert!(matches!(w.ends[1].poll_event(), Some(Event::Request(_))));
    receive(&mut w, 0, &genuine.bytes[..]);
    assert!(matches!(w.ends[1].poll_event(), Some(Event::Request(_))));
}

#[test]
fn a_server_cannot_end_its_clients_connection_with_another() {
    let mut w = World::new(3, 1);
    w.listen(1, 8);
    w.listen(2, 8);
    let (active, _) = w.connected();
    // The other server names GUID and QP of the first.
    let mut rng = Rng::new(3);
    let mut cm = Cm::new(Config::new(0x0200_0000_0000_0001), move || rng.next() as u32);
    cm.set_gids(&[address(2).into()]);
    let transport = Some(CmTransport::Rc);
    cm.listen(Listen { service: service(), transport, backlog: 1 }).expect("free");
    w.ends[2] = cm;
    let other = w.ends[0].connect(w.now, &connect_params(0, 2, 0x12)).expect("connects");
    let Some(Event::Request(request)) = w.event(2) else { panic!() };
    w.ends[2].accept(w.now, request.id, &accept_params(0x22)).expect("accepts");
    let Some(Event::Reply(reply)) = w.event(0) else { panic!() };
    assert_eq!(reply.id, other);
    assert_eq!(w.ends[0].state(active), Some(State::Established));
}

/// Even with its communication ids, which nobody but the peer knows.
#[test]
fn a_message_from_another_address_does_nothing_to_a_connection() {
    let ids = |local: u32, remote: u32| CmIds { local, remote };
    let emit = |body: CmBody<'_>| {
        let mut bytes = [0; MAD_LEN];
        CmMessage::new(body, &[]).expect("short").emit_mad(1, 0, &mut bytes);
        bytes
    };
    let rej = |ids, answers| Rej { ids, answers, reason: RejReason::CONSUMER_DEFINED, ..Rej::default() };

    // Established.
    let (mut w, active, passive) = connected();
    let both = ids(active.get(), passive.get());
    let qpn = Qpn::new(0x22);
    for body in [CmBody::Dreq(Dreq { ids: both, remote_qpn: qpn }), CmBody::Rej(rej(both, Served::OTHER))] {
        receive(&mut w, 2, &emit(body));
        assert_eq!(w.ends[1].state(passive), Some(State::Established), "{body:?}");
    }
    // Ending.
    w.ends[1].disconnect(w.now, passive, &[]).expect("disconnects");
    receive(&mut w, 2, &emit(CmBody::Drep(both)));
    assert_eq!(w.ends[1].state(passive), Some(State::DreqSent));

    // Asking.
    let mut w = World::new(3, 1);
    let asking = w.ends[1].connect(w.now, &connect_params(1, 0, 0x33)).expect("connects");
    let question = SidrParams {
        service: datagrams(),
        route: Route { local: address(1), remote: address(0) },
        private: header(1, 0).to_vec(),
    };
    let question = w.ends[1].ask(w.now, &question).expect("asks");
    let named = ids(77, asking.get());
    let due = w.ends[1].poll_timeout();
    for body in [
        CmBody::Rep(Rep { ids: named, qpn, ..Rep::default() }),
        CmBody::Rej(rej(named, Served::REQ)),
        CmBody::Mra(Mra { ids: named, answers: Served::REQ, service_timeout: Bits::new(24) }),
        CmBody::SidrRep(SidrRep { request_id: question.get(), qpn, ..SidrRep::default() }),
    ] {
        receive(&mut w, 2, &emit(body));
        assert_eq!(w.ends[1].state(asking), Some(State::ReqSent), "{body:?}");
        assert_eq!(w.ends[1].state(question), Some(State::SidrReqSent), "{body:?}");
        assert_eq!(w.ends[1].poll_timeout(), due, "{body:?}");
    }

    // Accepting, and taking back what was asked.
    let mut w = World::new(3, 1);
    w.listen(1, 8);
    let active = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connects");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    let guid = 0x0200_0000_0000_0000_u64.to_be_bytes();
    let timeout = Rej {
        ids: ids(active.get(), 0),
        reason: RejReason::TIMEOUT,
        info: CmInfo::new(&guid).expect("short"),
        ..Rej::default()
    };
    receive(&mut w, 2, &emit(CmBody::Rej(timeout)));
    assert_eq!(w.ends[1].state(request.id), Some(State::ReqRcvd));
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accepts");
    let due = w.ends[1].poll_timeout();
    let both = ids(active.get(), request.id.get());
    for body in [
        CmBody::Rtu(both),
        CmBody::Rej(rej(both, Served::REP)),
        CmBody::Mra(Mra { ids: both, answers: Served::REP, service_timeout: Bits::new(24) }),
    ] {
        receive(&mut w, 2, &emit(body));
        assert_eq!(w.ends[1].state(request.id), Some(State::RepSent), "{body:?}");
        assert_eq!(w.ends[1].poll_timeout(), due, "{body:?}");
    }
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_nothing_else() {
    let mut w = World::new(2, 1);
    w.listen(1, 1 << 20);
    let mut rng = Rng::new(5);
    for _ in 0..100_000 {
        let bytes = request(&mut rng);
        w.ends[1].on_mad(w.now, route(), &bytes);
        while w.ends[1].poll_transmit().is_some() {}
    }
    let usage = w.ends[1].usage();
    assert_eq!((usage.connections, usage.pending, usage.events), (1024, 1024, 1024));
    assert_eq!(w.ends[1].counters().drop_backlog, 100_000 - 1024);
}

#[test]
fn questions_are_bounded_as_well() {
    let mut w = World::new(2, 1);
    w.listen(1, 10);
    for request_id in 0..1000 {
        let req = SidrReq { request_id, pkey: Pkey(0xFFFF), service: datagrams() };
        let mut bytes = [0; MAD_LEN];
        CmMessage::new(CmBody::SidrReq(req), &header(0, 1)).expect("short").emit_mad(1, 0, &mut bytes);
        w.ends[1].on_mad(w.now, route(), &bytes);
    }
    assert_eq!((w.ends[1].usage().connections, w.ends[1].usage().pending), (10, 10));
}

#[test]
fn any_bytes_are_taken_without_harm() {
    for seed in 0..200 {
        let mut w = World::new(2, seed);
        w.listen(1, 4);
        let (active, passive) = w.connected();
        let mut rng = Rng::new(seed);
        for _ in 0..300 {
            let mut bytes = [0; MAD_LEN];
            bytes.fill_with(|| rng.next() as u8);
            // Mostly messages, about connections that there are.
            if rng.chance(0.95) {
                bytes[..8].copy_from_slice(&[1, 7, 2, 3, 0, 0, 0, 0]);
                bytes[16] = 0;
                bytes[17] = 0x10 + rng.below(11) as u8;
            }
            if rng.chance(0.7) {
                bytes[28..32].copy_from_slice(&passive.get().to_be_bytes());
                bytes[24..28].copy_from_slice(&active.get().to_be_bytes());
            }
            if rng.chance(0.5) {
                bytes[32..40].copy_from_slice(&service().0.to_be_bytes());
            }
            let len = if rng.chance(0.05) { rng.below(MAD_LEN as u64) as usize } else { MAD_LEN };
            w.ends[1].on_mad(w.now, route(), &bytes[..len]);
            w.ends[1].on_timeout(w.now);
            let mut answers = 0;
            while w.ends[1].poll_transmit().is_some() {
                answers += 1;
            }
            assert!(answers <= 2, "one message drew {answers}");
            w.now = w.now.after_nanos(rng.below(50_000_000));
        }
        assert!(w.ends[1].usage().connections <= 16);
    }
}
