//! From asking to the end.

use softrnic_wire::RejReason;

use super::*;

/// The reference programs' whole life: connect, send with data, disconnect.
#[test]
fn two_ends_connect_send_and_disconnect() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    let Connected { client, server, near: sender, far: receiver } = connect(&near, &far, &address);

    receiver.qp.post_recv(1, &[receiver.mr.sge(0, 64)]).expect("posts");
    sender.mr.write(0, b"through the connection").expect("writes");
    sender.qp.post(WorkRequest::send().sge(sender.mr.sge(0, 22)).id(2)).expect("posts");
    assert_eq!(receiver.completion().byte_len, 22);
    sender.completion();
    let mut bytes = [0; 22];
    receiver.mr.read(0, &mut bytes).expect("reads");
    assert_eq!(&bytes, b"through the connection");

    client.disconnect().expect("disconnects");
    assert_eq!(far.expect(EventKind::Disconnected).id, server);
    server.disconnect().expect("agrees");
    assert_eq!(near.expect(EventKind::Disconnected).status, EventStatus::Done);
    near.expect(EventKind::TimewaitExit);
    far.expect(EventKind::TimewaitExit);
    assert_eq!(client.destroy(), Ok(5), "address, route, response, disconnected, timewait");
    assert_eq!(server.destroy(), Ok(3));
    assert_eq!(listener.destroy(), Ok(1), "the request counts for the listener");
}

#[test]
fn what_the_sides_say_arrives_on_the_other_side() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    let client = near.resolved(IdKind::CONNECTED, &address);
    let said =
        ConnParams { responder_resources: 5, initiator_depth: 9, rnr_retry: 6, ..near.qp().params(b"hi") };
    client.connect(&said).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    assert_eq!((request.context, request.listener.as_ref()), (1, Some(&listener)));
    let EventData::Conn(heard) = &request.data else { panic!("{request:?}") };
    assert_eq!((heard.responder_resources, heard.initiator_depth, heard.rnr_retry), (9, 5, 6));
    assert_eq!((&heard.private[..2], heard.private.len()), (&b"hi"[..], 56), "without the header");
    let (attributes, _) = request.id.qp_attributes(QpState::Rtr).expect("known");
    assert_eq!(attributes.transport.max_dest_rd_atomic, 9);
    let query = request.id.query().expect("there");
    assert_eq!(query.local, Some(address), "what the client gave");
    assert_eq!(query.peer.map(|peer| peer.ip()), Some(address.ip()));
    assert_eq!(query.peer_gid.to_ip(), near.context.address(), "the wire has the device");
    assert_eq!(query.device.map(|device| device.index), Some(7));
}

#[test]
fn a_rejection_carries_its_data() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let client = near.resolved(IdKind::CONNECTED, &address);
    client.connect(&near.qp().params(&[])).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    assert_eq!(request.id.reject(0, &[0; 149]), Err(Error::Invalid));
    request.id.reject(0, &[7; 148]).expect("rejects");
    let rejected = near.expect(EventKind::Rejected);
    assert_eq!(rejected.status, EventStatus::Refused(RejReason::CONSUMER_DEFINED.0));
    let EventData::Conn(params) = rejected.data else { panic!("no data") };
    assert_eq!(params.private, [7; 148]);
}

#[test]
fn nobody_listens() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    listener.destroy().expect("destroyed");
    let client = near.resolved(IdKind::CONNECTED, &address);
    client.connect(&near.qp().params(&[])).expect("asks");
    let rejected = near.expect(EventKind::Rejected);
    assert_eq!(rejected.status, EventStatus::Refused(RejReason::INVALID_SERVICE_ID.0));
}

/// A server of one client after the other listens anew in between.
#[test]
fn a_listener_that_comes_a_moment_later_is_found() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    listener.destroy().expect("destroyed");
    let client = near.resolved(IdKind::CONNECTED, &address);
    client.connect(&near.qp().params(&[])).expect("asks");
    let again = far.id(IdKind::CONNECTED);
    again.bind(&address).expect("binds");
    again.listen(0).expect("listens");
    far.expect(EventKind::ConnectRequest);
}

#[test]
fn requests_beyond_the_backlog_wait_for_their_turn() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 1);
    let clients: Vec<Id> = (0..4).map(|_| near.resolved(IdKind::CONNECTED, &address)).collect();
    let qps: Vec<QpEnd> = clients.iter().map(|_| near.qp()).collect();
    for (client, qp) in clients.iter().zip(&qps) {
        client.connect(&qp.params(&[])).expect("asks");
    }
    // Each request that the application sees makes room for the next, though none is answered.
    for _ in &clients {
        far.expect(EventKind::ConnectRequest);
    }
}

#[test]
fn an_identifier_that_is_destroyed_tells_its_peer() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    let Connected { client, server, .. } = connect(&near, &far, &address);
    client.destroy().expect("destroyed");
    assert_eq!(far.expect(EventKind::Disconnected).id, server);
    server.destroy().expect("destroyed");

    let second = near.resolved(IdKind::CONNECTED, &address);
    second.connect(&near.qp().params(&[])).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    request.id.destroy().expect("destroyed");
    near.expect(EventKind::Rejected);

    let third = near.resolved(IdKind::CONNECTED, &address);
    third.connect(&near.qp().params(&[])).expect("asks");
    assert!(is_readable(&far.channel, PATIENCE), "a request that nobody takes");
    listener.destroy().expect("destroyed");
    assert!(!is_readable(&far.channel, Duration::ZERO), "it went with its listener");
    near.expect(EventKind::Rejected);
}

#[test]
fn closing_the_channel_ends_its_connections() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let connected = connect(&near, &far, &address);
    drop(near);
    assert_eq!(far.expect(EventKind::Disconnected).id, connected.server);
    assert_eq!(connected.client.state(), Err(Error::UnknownId));
}

#[test]
fn a_process_connects_to_itself() {
    let end = End::new();
    let (_listener, address) = end.listen(IdKind::CONNECTED, 0);
    let client = end.resolved(IdKind::CONNECTED, &address);
    let (near, far) = (end.qp(), end.qp());
    near.follow(&client, &[QpState::Init]);
    client.connect(&near.params(&[])).expect("asks");
    let request = end.expect(EventKind::ConnectRequest);
    far.follow(&request.id, &ALL);
    request.id.accept(2, &far.params(&[])).expect("accepts");
    end.expect(EventKind::ConnectResponse);
    near.follow(&client, &[QpState::Rtr, QpState::Rts]);
    client.establish().expect("confirms");
    end.expect(EventKind::Established);
    far.qp.post_recv(1, &[far.mr.sge(0, 8)]).expect("posts");
    near.qp.post(WorkRequest::send().sge(near.mr.sge(0, 8)).id(2)).expect("posts");
    end.context.device();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let end = End::new();
    let id = end.id(IdKind::CONNECTED);
    assert_eq!(id.connect(&ConnParams::default()), Err(Error::Invalid));
    assert_eq!(id.resolve_route(PATIENCE), Err(Error::Invalid));
    assert_eq!(id.disconnect(), Err(Error::Invalid));
    assert_eq!(id.accept(1, &ConnParams::default()), Err(Error::Invalid));
    assert_eq!(id.establish(), Err(Error::Invalid));
    assert_eq!(id.reject(0, &[]), Err(Error::Invalid));
    assert_eq!(id.notify_established(), Err(Error::Invalid));
    assert_eq!(id.qp_attributes(QpState::Init).map(|_| ()), Err(Error::Invalid), "no device");
    let (listener, address) = end.listen(IdKind::CONNECTED, 0);
    assert_eq!(listener.bind(&address), Err(Error::Invalid));
    assert_eq!(listener.listen(0), Err(Error::Invalid));
    let client = end.resolved(IdKind::CONNECTED, &address);
    let long = ConnParams { private: vec![0; 57], ..ConnParams::default() };
    assert_eq!(client.connect(&long), Err(Error::Invalid));
    assert!(client.qp_attributes(QpState::Rtr).is_ok(), "as towards INIT, before anything is known");
}
