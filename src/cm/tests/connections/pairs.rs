//! One connection between two ends, state by state.

use std::time::Duration;

use softrnic_wire::*;

use super::world::*;
use softrnic_cm::*;

#[test]
fn a_connection_is_made_and_ended() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    w.ends[0].disconnect(w.now, active, b"bye").expect("disconnect");
    let Some(Event::Disconnected { id, timed_out: false, private }) = w.event(1) else { panic!() };
    assert_eq!((id, &private[..3], private.len()), (passive, &b"bye"[..], 220));
    w.ends[1].disconnect(w.now, passive, b"so long").expect("agree");
    let Some(Event::Disconnected { id, timed_out: false, private }) = w.event(0) else { panic!() };
    assert_eq!((id, &private[..7]), (active, &b"so long"[..]));
    assert_eq!(w.log, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert_eq!(w.event(0), Some(Event::TimewaitExit(active)));
    assert_eq!(w.event(1), Some(Event::TimewaitExit(passive)));
    for end in &w.ends {
        let usage = end.usage();
        assert_eq!((usage.connections, usage.pending, usage.timers, usage.index_entries), (0, 0, 0, 0));
    }
}

#[test]
fn each_side_gets_the_parameters_of_the_other() {
    let mut w = World::new(2, 1);
    let listener = w.listen(1, 8);
    let params = ConnectParams { ece: Ece { vendor_id: 0x15B3, options: 9 }, ..connect_params(0, 1, 0x11) };
    let active = w.ends[0].connect(w.now, &params).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    assert_eq!(request.listener, listener);
    assert_eq!((request.qpn, request.transport), (Qpn::new(0x11), CmTransport::Rc));
    // The peer's responder resources limit our initiator depth, and the other way round.
    assert_eq!((request.initiator_depth, request.responder_resources), (3, 2));
    assert_eq!((request.retry_count, request.rnr_retry, request.flow_control), (7, 6, true));
    assert_eq!(request.ece, params.ece);
    assert_eq!(request.path.route, Route { local: address(1), remote: address(0) });
    assert_eq!((&request.private[36..41], request.private.len()), (&b"hello"[..], 92));

    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let ours = w.ends[1].qp_params(request.id).expect("known");
    assert_eq!((ours.dest_qpn, ours.sq_psn, ours.rq_psn), (Qpn::new(0x11), Psn::new(0x12), Psn::new(0x23)));
    assert_eq!((ours.timeout, ours.retry_count, ours.rnr_retry), (17, 7, 6));
    assert_eq!((ours.initiator_depth, ours.responder_resources), (4, 1));

    let Some(Event::Reply(reply)) = w.event(0) else { panic!() };
    assert_eq!((reply.id, reply.qpn), (active, Qpn::new(0x22)));
    assert_eq!((reply.initiator_depth, reply.responder_resources, reply.rnr_retry), (1, 4, 5));
    assert_eq!((&reply.private[..7], reply.private.len()), (&b"welcome"[..], 196));
    let theirs = w.ends[0].qp_params(active).expect("known");
    assert_eq!(
        (theirs.dest_qpn, theirs.sq_psn, theirs.rq_psn),
        (Qpn::new(0x22), Psn::new(0x23), Psn::new(0x12))
    );
    assert_eq!((theirs.timeout, theirs.retry_count, theirs.rnr_retry), (17, 7, 5));
}

#[test]
fn before_the_reply_a_qp_cannot_be_set_up() {
    let mut w = World::new(2, 1);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    assert_eq!(w.ends[0].qp_params(id), None);
    assert_eq!(w.ends[0].establish(id, &[]), Err(CmError::WrongState));
    assert_eq!(w.ends[0].disconnect(w.now, id, &[]), Err(CmError::WrongState));
}

#[test]
fn an_xrc_target_is_named_in_the_kernels_field() {
    let mut w = World::new(2, 1);
    let transport = Some(CmTransport::Xrc);
    w.ends[1].listen(Listen { service: service(), transport, backlog: 1 }).expect("free");
    let params = ConnectParams { transport: CmTransport::Xrc, ..connect_params(0, 1, 0x11) };
    let active = w.ends[0].connect(w.now, &params).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    assert_eq!((request.transport, request.initiator_depth, request.retry_count), (CmTransport::Xrc, 0, 0));
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let Some(Event::Reply(reply)) = w.event(0) else { panic!() };
    assert_eq!((reply.qpn, reply.srq, reply.responder_resources), (Qpn::new(0x22), true, 0));
    assert_eq!(w.ends[0].qp_params(active).expect("known").dest_qpn, Qpn::new(0x22));
    w.ends[0].establish(active, &[]).expect("establish");
    let Some(Event::Established(target, _)) = w.event(1) else { panic!() };
    // Others may open the target by its number: it outlives the process that created it.
    w.ends[1].destroy(w.now, target);
    w.run(Duration::from_secs(1));
    assert_eq!(w.ends[0].state(active), Some(State::Established));
    assert_eq!(w.ends[1].usage().connections, 0);
}

#[test]
fn nobody_listens() {
    let mut w = World::new(2, 1);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Rejected { id: rejected, reason, .. }) = w.event(0) else { panic!() };
    assert_eq!((rejected, reason), (id, RejReason::INVALID_SERVICE_ID));
    assert_eq!(w.ends[0].state(id), None);
    assert!(w.now.since(Time::ZERO) < Duration::from_millis(1));
}

#[test]
fn requests_are_refused_for_their_reasons() {
    type Change = fn(&mut Req, &mut Vec<u8>);
    let cases: [(Change, RejReason); 5] = [
        (|req, _| req.primary.remote_gid = address(7).into(), RejReason::INVALID_GID),
        (|req, _| req.alternate.local_lid = 1, RejReason::INVALID_ALTERNATE_GID),
        (|_, private| private[0] = 0x10, RejReason::CONSUMER_DEFINED),
        (|req, _| req.transport = Bits::new(1), RejReason::CONSUMER_DEFINED),
        (|req, _| req.mtu_code = Bits::new(6), RejReason::CONSUMER_DEFINED),
    ];
    for (change, reason) in cases {
        let mut w = World::new(2, 1);
        w.listen(1, 8);
        w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
        let sent = w.ends[0].poll_transmit().expect("a REQ");
        let mad = Mad::read(&sent.bytes[..]).expect("a MAD");
        let Some(CmBody::Req(mut req)) = mad.cm().map(|cm| *cm.body()) else { panic!() };
        let mut private = header(0, 1).to_vec();
        change(&mut req, &mut private);
        let mut bytes = [0; MAD_LEN];
        CmMessage::new(CmBody::Req(req), &private).expect("short").emit_mad(
            mad.transaction_id,
            0,
            &mut bytes,
        );
        w.ends[1].on_mad(w.now, Route { local: address(1), remote: address(0) }, &bytes);
        let Some(Event::Rejected { reason: got, info, .. }) = w.event(0) else { panic!("{reason:?}") };
        assert_eq!(got, reason);
        let gid: Gid = address(1).into();
        assert_eq!(info, if reason == RejReason::INVALID_GID { gid.0.to_vec() } else { Vec::new() });
        assert_eq!(w.ends[1].usage().connections, 0);
    }
}

#[test]
fn an_application_refuses() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    let words = [b'n'; 148];
    w.ends[1].reject(request.id, RejReason::CONSUMER_DEFINED, b"why", &words).expect("reject");
    let Some(Event::Rejected { id: rejected, reason, info, private }) = w.event(0) else { panic!() };
    assert_eq!(
        (rejected, reason, &info[..], &private[..]),
        (id, RejReason::CONSUMER_DEFINED, &b"why"[..], &words[..])
    );
    assert_eq!((w.ends[0].usage().connections, w.ends[1].usage().connections), (0, 0));
}

#[test]
fn the_active_side_refuses_a_reply() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let active = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let Some(Event::Reply(_)) = w.event(0) else { panic!() };
    w.ends[0].reject(active, RejReason::CONSUMER_DEFINED, &[], b"no").expect("reject");
    let Some(Event::Rejected { id, reason, .. }) = w.event(1) else { panic!() };
    assert_eq!((id, reason), (request.id, RejReason::CONSUMER_DEFINED));
}

#[test]
fn more_requests_than_the_backlog_are_repeated_and_served() {
    let mut w = World::new(2, 1);
    w.listen(1, 1);
    for n in 0..20 {
        w.ends[0].connect(w.now, &connect_params(0, 1, 0x100 + n)).expect("connect");
    }
    let mut established = 0;
    while established < 20 {
        assert!(w.ends[1].usage().pending <= 1);
        match w.event(1) {
            Some(Event::Request(request)) => {
                let params = accept_params(0x200 + request.qpn.get());
                w.ends[1].accept(w.now, request.id, &params).expect("accept");
                let Some(Event::Reply(reply)) = w.event(0) else { panic!() };
                w.ends[0].establish(reply.id, &[]).expect("establish");
            }
            Some(Event::Established(..)) => established += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(w.ends[1].counters().drop_backlog > 0);
}

#[test]
fn a_qp_that_is_connected_already_ends_the_old_connection() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (_, passive) = w.connected();
    // The peer has restarted: it has forgotten the connection, and uses its QP again.
    w.ends[0] = w.start(0);
    let again = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Rejected { id, reason, .. }) = w.event(0) else { panic!() };
    assert_eq!((id, reason), (again, RejReason::STALE_CONNECTION));
    // A peer that does not know the connection agrees to any DREQ.
    let Some(Event::Disconnected { id, timed_out: false, .. }) = w.event(1) else { panic!() };
    assert_eq!(id, passive);
    w.run(Duration::from_secs(3));
    w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    assert!(matches!(w.event(0), Some(Event::TimewaitExit(_))));
    assert!(matches!(w.event(1), Some(Event::TimewaitExit(_))));
    assert!(matches!(w.event(1), Some(Event::Request(_))));
}

#[test]
fn both_disconnect_at_once() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    w.ends[0].disconnect(w.now, active, &[]).expect("disconnect");
    w.ends[1].disconnect(w.now, passive, &[]).expect("disconnect");
    for (end, id) in [(0, active), (1, passive)] {
        let Some(Event::Disconnected { id: gone, timed_out: false, .. }) = w.event(end) else { panic!() };
        assert_eq!(gone, id);
        assert_eq!(w.event(end), Some(Event::TimewaitExit(id)));
        assert_eq!(w.ends[end].usage().connections, 0);
    }
}

#[test]
fn destroying_an_end_tells_its_peer() {
    // Active side, in each of its states.
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[0].destroy(w.now, id);
    let Some(Event::Rejected { id: gone, reason, .. }) = w.event(1) else { panic!() };
    assert_eq!(
        (gone, reason),
        (request.id, RejReason::TIMEOUT),
        "found by GUID, for it knows no number of ours"
    );

    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x12)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let Some(Event::Reply(_)) = w.event(0) else { panic!() };
    w.ends[0].destroy(w.now, id);
    assert!(matches!(w.event(1), Some(Event::Rejected { id, .. }) if id == request.id));

    // Passive side.
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x13)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].destroy(w.now, request.id);
    assert!(matches!(w.event(0), Some(Event::Rejected { id: gone, .. }) if gone == id));

    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x14)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].accept(w.now, request.id, &accept_params(0x23)).expect("accept");
    w.ends[1].destroy(w.now, request.id);
    let Some(Event::Reply(_)) = w.event(0) else { panic!() };
    assert!(matches!(w.event(0), Some(Event::Rejected { id: gone, .. }) if gone == id));

    // Either side of a connection that is in use.
    for end in [0, 1] {
        w.run(Duration::from_secs(3));
        let ids = w.connected();
        let ids = [ids.0, ids.1];
        w.ends[end].destroy(w.now, ids[end]);
        let other = 1 - end;
        assert!(matches!(w.event(other), Some(Event::Disconnected { id, .. }) if id == ids[other]));
        w.ends[other].destroy(w.now, ids[other]);
    }
    w.run(Duration::from_secs(10));
    for end in &w.ends {
        assert_eq!((end.usage().connections, end.usage().timers, end.usage().index_entries), (0, 0, 0));
    }
}

#[test]
fn a_destroyed_connection_remembers_whether_its_peer_agreed() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (active, passive) = w.connected();
    assert!(!w.ends[0].is_disconnecting());
    w.ends[0].destroy(w.now, active);
    assert!(w.ends[0].is_disconnecting());
    let Some(Event::Disconnected { .. }) = w.event(1) else { panic!() };
    assert!(w.ends[0].is_disconnecting());
    w.ends[1].disconnect(w.now, passive, &[]).expect("agree");
    assert_eq!(w.event(1), Some(Event::TimewaitExit(passive)));
    assert!(!w.ends[0].is_disconnecting());
}

#[test]
fn a_listener_that_goes_away_refuses_what_waits() {
    let mut w = World::new(2, 1);
    let listener = w.listen(1, 8);
    let id = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(_)) = w.event(1) else { panic!() };
    w.ends[1].unlisten(w.now, listener).expect("listens");
    assert!(matches!(w.event(0), Some(Event::Rejected { id: gone, .. }) if gone == id));
    assert_eq!(w.ends[1].unlisten(w.now, listener), Err(CmError::UnknownId));
    assert_eq!(w.ends[1].usage().pending, 0);
    let service = Listen { service: service(), transport: Some(CmTransport::Rc), backlog: 1 };
    assert!(w.ends[1].listen(service).is_ok());
    assert_eq!(w.ends[1].listen(service), Err(CmError::ServiceTaken));
}

#[test]
fn packets_that_come_before_the_confirmation_stand_for_it() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    w.censor = Some(|body, _| matches!(body, CmBody::Rtu(_)));
    let active = w.ends[0].connect(w.now, &connect_params(0, 1, 0x11)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].accept(w.now, request.id, &accept_params(0x22)).expect("accept");
    let Some(Event::Reply(_)) = w.event(0) else { panic!() };
    w.ends[0].establish(active, &[]).expect("establish");
    w.ends[1].notify_established(request.id);
    assert!(matches!(w.event(1), Some(Event::Established(id, _)) if id == request.id));
}

#[test]
fn a_datagram_service_is_asked_and_answers() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let route = Route { local: address(0), remote: address(1) };
    let private = [&header(0, 1)[..], b"who"].concat();
    let params = SidrParams { service: datagrams(), route, private };
    let id = w.ends[0].ask(w.now, &params).expect("ask");
    let Some(Event::SidrRequest { id: question, private, .. }) = w.event(1) else { panic!() };
    assert_eq!((&private[36..39], private.len()), (&b"who"[..], 216));
    let reply = SidrReply {
        qpn: Qpn::new(0x33),
        qkey: Qkey(0x0123_4567),
        private: b"me".to_vec(),
        ..SidrReply::default()
    };
    w.ends[1].sidr_reply(question, &reply).expect("reply");
    let Some(Event::SidrReply(answer)) = w.event(0) else { panic!() };
    assert_eq!(
        (answer.id, answer.status, answer.qpn, answer.qkey),
        (id, 0, Qpn::new(0x33), Qkey(0x0123_4567))
    );
    assert_eq!((&answer.private[..2], answer.private.len()), (&b"me"[..], 136));

    // There is no listener, or the owner refuses.
    let unknown = SidrParams { service: ServiceId::of_port(PortSpace::Udp, 9), ..params.clone() };
    w.ends[0].ask(w.now, &unknown).expect("ask");
    assert!(matches!(w.event(0), Some(Event::SidrReply(SidrAnswer { status: 1, .. }))));
    w.ends[0].ask(w.now, &params).expect("ask");
    let Some(Event::SidrRequest { id: question, .. }) = w.event(1) else { panic!() };
    w.ends[1].destroy(w.now, question);
    assert!(matches!(w.event(0), Some(Event::SidrReply(SidrAnswer { status: 2, .. }))));
    assert_eq!((w.ends[0].usage().connections, w.ends[1].usage().connections), (0, 0));
}

#[test]
fn private_data_that_is_too_long_is_refused_at_once() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let long = ConnectParams { private: [0; 93].to_vec(), ..connect_params(0, 1, 0x11) };
    assert_eq!(w.ends[0].connect(w.now, &long), Err(CmError::TooLong));
    let (active, _) = w.connected();
    assert_eq!(w.ends[0].disconnect(w.now, active, &[0; 221]), Err(CmError::TooLong));
    assert_eq!(w.ends[0].state(active), Some(State::Established));
}

#[test]
fn a_request_that_was_seen_makes_room_for_the_next() {
    let mut w = World::new(2, 1);
    let listener = w.listen(1, 1);
    for qpn in 1..=3 {
        w.ends[0].connect(w.now, &connect_params(0, 1, qpn)).expect("connect");
        let Some(Event::Request(request)) = w.event(1) else { panic!("request {qpn} waits for an answer") };
        w.ends[1].note_seen(request.id);
        assert_eq!(w.ends[1].usage().pending, 0);
    }
    w.ends[1].set_backlog(listener, 0).expect("there");
    w.ends[0].connect(w.now, &connect_params(0, 1, 4)).expect("connect");
    w.run(Duration::from_secs(1));
    assert_eq!(w.ends[1].poll_event(), None, "no room at all");
    // A request that the application has seen outlives the listener.
    w.ends[1].unlisten(w.now, listener).expect("there");
    assert_eq!(w.ends[1].usage().connections, 3);
}

/// Every state, since a process may die in any.
#[test]
fn connections_to_a_vanished_peer_end() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let (_, established) = w.connected();
    let asked = w.ends[0].connect(w.now, &connect_params(0, 1, 0x33)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };

    let (now, gone) = (w.now, address(0));
    w.ends[1].lose_peer(now, gone);
    let ended = Event::Disconnected { id: established, timed_out: false, private: vec![] };
    let refused = w.ends[1].poll_event().into_iter().chain(w.ends[1].poll_event()).collect::<Vec<_>>();
    assert!(refused.contains(&ended), "{refused:?}");
    assert!(
        refused.iter().any(|event| matches!(event, Event::Rejected { id, .. } if *id == request.id)),
        "{refused:?}"
    );
    assert_eq!(w.ends[1].usage().pending, 0);
    w.ends[1].disconnect(w.now, established, &[]).expect("agrees");

    w.ends[0].lose_peer(now, address(1));
    let events: Vec<Event> = std::iter::from_fn(|| w.ends[0].poll_event()).collect();
    assert!(events.iter().any(|event| matches!(event, Event::Rejected { id, .. } if *id == asked)));
    for id in [asked, established] {
        w.ends[0].destroy(now, id);
    }
    w.ends[1].lose_peer(now, gone);
    assert_eq!(w.ends[1].poll_event(), None, "once is enough");
}

#[test]
fn messages_of_a_vanished_peer_come_before_its_end() {
    let mut w = World::new(2, 1);
    w.listen(1, 8);
    let asked = w.ends[0].connect(w.now, &connect_params(0, 1, 0x33)).expect("connect");
    let Some(Event::Request(request)) = w.event(1) else { panic!() };
    w.ends[1].reject(request.id, RejReason::CONSUMER_DEFINED, &[], b"no").expect("waits for it");
    let known = w.ends[0].with_peer(address(1));
    assert_eq!(*known, [(asked, 0)]);
    let known = [asked];
    let Some(Event::Rejected { id, private, .. }) = w.event(0) else { panic!() };
    assert_eq!((id, &private[..2]), (asked, &b"no"[..]));
    let successor = w.ends[0].connect(w.now, &connect_params(0, 1, 0x34)).expect("connect");
    let now = w.now;
    w.ends[0].lose(now, &known);
    assert_eq!(w.ends[0].poll_event(), None);
    assert!(w.ends[0].state(successor).is_some(), "whoever has the address now is another");
}
