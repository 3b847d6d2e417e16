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
fn a_lost_connection_has_no_attributes() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let Connected { client, server, .. } = connect(&near, &far, &address);
    let unknown = |id: &Id| ALL.map(|state| id.qp_attributes(state).map(drop)) == [Err(Error::Invalid); 3];
    client.disconnect().expect("disconnects");
    far.expect(EventKind::Disconnected);
    assert!(unknown(&server), "while the peer waits for it to agree");
    server.disconnect().expect("agrees");
    near.expect(EventKind::Disconnected);
    assert!(unknown(&client) && unknown(&server), "in timewait");
    near.expect(EventKind::TimewaitExit);
    far.expect(EventKind::TimewaitExit);
    assert!(unknown(&client) && unknown(&server), "and after it");

    let refused = near.resolved(IdKind::CONNECTED, &address);
    refused.connect(&near.qp().params(&[])).expect("asks");
    far.expect(EventKind::ConnectRequest).id.reject(0, &[]).expect("rejects");
    near.expect(EventKind::Rejected);
    assert!(unknown(&refused), "nor of one that was refused");
}

#[test]
fn parameters_arrive_on_the_other_side() {
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
    assert!(is_readable(&far.channel, TIMEOUT), "a request that nobody takes");
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
fn invalid_arguments_are_refused() {
    let end = End::new();
    let id = end.id(IdKind::CONNECTED);
    assert_eq!(id.connect(&ConnParams::default()), Err(Error::Invalid));
    assert_eq!(id.resolve_route(TIMEOUT), Err(Error::Invalid));
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

/// Many, one after the other and then at once; nothing of them is left.
#[test]
fn connections_leave_nothing_behind() {
    const AT_ONCE: usize = 100;
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    let (near_qp, far_qp) = (near.qp(), far.qp());
    let start = std::time::Instant::now();
    for _ in 0..AT_ONCE {
        let client = near.resolved(IdKind::CONNECTED, &address);
        client.connect(&near_qp.params(&[])).expect("asks");
        let server = far.expect(EventKind::ConnectRequest).id;
        server.accept(0, &far_qp.params(&[])).expect("accepts");
        near.expect(EventKind::ConnectResponse);
        client.establish().expect("confirms");
        far.expect(EventKind::Established);
        client.disconnect().expect("disconnects");
        far.expect(EventKind::Disconnected);
        server.destroy().expect("destroyed");
        near.expect(EventKind::Disconnected);
        client.destroy().expect("destroyed");
    }
    println!("{:?} each", start.elapsed() / AT_ONCE as u32);
    let start = std::time::Instant::now();
    let qps: Vec<QpEnd> = (0..AT_ONCE).map(|_| near.qp()).collect();
    let clients: Vec<Id> = qps.iter().map(|_| near.resolved(IdKind::CONNECTED, &address)).collect();
    for (client, qp) in clients.iter().zip(&qps) {
        client.connect(&qp.params(&[])).expect("asks");
    }
    let servers: Vec<Id> = clients.iter().map(|_| far.expect(EventKind::ConnectRequest).id).collect();
    // One QP for all would be a stale connection each time.
    let far_qps: Vec<QpEnd> = servers.iter().map(|_| far.qp()).collect();
    for (server, qp) in servers.iter().zip(&far_qps) {
        server.accept(0, &qp.params(&[])).expect("accepts");
    }
    for _ in &clients {
        near.expect(EventKind::ConnectResponse).id.establish().expect("confirms");
    }
    servers.iter().for_each(|_| drop(far.expect(EventKind::Established)));
    println!("{:?} each at once", start.elapsed() / AT_ONCE as u32);
    for client in &clients {
        client.destroy().expect("destroyed");
    }
    servers.iter().for_each(|_| drop(far.expect(EventKind::Disconnected)));
    for server in &servers {
        server.destroy().expect("destroyed");
    }
    listener.destroy().expect("destroyed");
    for end in [&near, &far] {
        assert!(!is_readable(&end.channel, Duration::ZERO));
        end.manager.with_state(|state| {
            assert_eq!((state.ids.iter().count(), state.connections.len()), (0, 0));
            assert!(state.listeners.is_empty() && state.registry.is_empty() && state.ports.is_empty());
        });
        let over = std::time::Instant::now() + TIMEOUT;
        let usage = || end.manager.with_state(|state| state.with_cm(0, |cm, _| cm.cm().usage()));
        while usage().expect("serves").connections > 0 {
            assert!(std::time::Instant::now() < over, "{:?}", usage());
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = usage().expect("serves");
        assert_eq!(
            (left.pending, left.listeners, left.timers, left.index_entries, left.events),
            (0, 0, 0, 0, 0)
        );
    }
}

/// A process that is stopped holds its port, and answers nothing.
#[test]
fn a_listener_that_does_not_answer_is_unreachable_after_a_second() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let near = End::new();
    let stopped = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let port = (20000..30000).find(|port| {
        let name = SocketAddrUnix::new_abstract_name(format!("softrnic/cm/tcp/{port}/4").as_bytes());
        bind(&stopped, &name.expect("short")).is_ok()
    });
    listen(&stopped, 8).expect("listens");
    let client = near.resolved(IdKind::CONNECTED, &at(&format!("127.0.0.1:{}", port.expect("a free port"))));
    let start = std::time::Instant::now();
    client.connect(&near.qp().params(&[])).expect("asks");
    assert_eq!(near.expect(EventKind::Unreachable).status, EventStatus::Failed(Error::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(900));
}

#[test]
fn an_xrc_connection_has_an_initiator_and_a_target() {
    use softrnic_transport::{AttrMask, QpType};
    let (near, far) = (End::new(), End::new());
    let kind = |service| IdKind { space: PortSpace::Ib, service };
    let listener = far.id(kind(QpType::XrcTarget));
    listener.bind(&at("127.0.0.1:0")).expect("binds");
    listener.listen(0).expect("listens");
    let address = listener.query().expect("there").local.expect("bound");
    let client = near.resolved(kind(QpType::XrcInitiator), &address);
    let params = |qpn| ConnParams { qpn: verbs::Qpn::new(qpn), initiator_depth: 4, ..ConnParams::default() };
    client.connect(&params(0x111)).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    let (_, mask) = request.id.qp_attributes(QpState::Rtr).expect("known");
    assert!(mask.contains(AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER)));
    request.id.accept(2, &params(0x222)).expect("accepts");
    near.expect(EventKind::ConnectResponse);
    let (attributes, mask) = client.qp_attributes(QpState::Rtr).expect("known");
    assert_eq!(attributes.transport.dest_qpn.get(), 0x222, "the target");
    assert!(!mask.contains(AttrMask::MAX_DEST_RD_ATOMIC), "an initiator serves nothing");
    let (_, mask) = client.qp_attributes(QpState::Rts).expect("known");
    assert!(mask.contains(AttrMask::RETRY_CNT.union(AttrMask::TIMEOUT)));
    // A listener of another service refuses.
    let wrong = near.resolved(kind(QpType::Rc), &address);
    wrong.connect(&params(0x333)).expect("asks");
    assert_eq!(near.expect(EventKind::Rejected).status, EventStatus::Refused(28));
}

#[test]
fn vendor_options_and_the_timeout_reach_their_destination() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let client = near.id(IdKind::CONNECTED);
    client.set_option(IdOption::AckTimeout(9)).expect("an option");
    client.resolve_addr(None, &address, TIMEOUT).expect("resolves");
    near.expect(EventKind::AddressResolved);
    client.resolve_route(TIMEOUT).expect("resolves");
    near.expect(EventKind::RouteResolved);
    let ece = |options| Ece { vendor_id: 0x15B3, options };
    client.connect(&ConnParams { ece: ece(5), ..near.qp().params(&[]) }).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    assert_eq!(request.ece, ece(5));
    request.id.accept(2, &ConnParams { ece: ece(4), ..far.qp().params(&[]) }).expect("accepts");
    assert_eq!(near.expect(EventKind::ConnectResponse).ece, ece(4));
    let (attributes, _) = client.qp_attributes(QpState::Rts).expect("known");
    assert_eq!(attributes.transport.timeout, 9);
    let (attributes, _) = request.id.qp_attributes(QpState::Rts).expect("known");
    assert_eq!(attributes.transport.timeout, 15, "of the request, whose path is as short");
    assert_eq!(near.id(IdKind::DATAGRAM).set_option(IdOption::AckTimeout(9)), Err(Error::Invalid));
}

/// A request has the addresses of both sides in front of its data, or it is for native addresses.
#[test]
fn requests_without_addresses_are_for_native_listeners() {
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let native = |gid, port: u16| {
        let service = 0x0106_0000 | u64::from(port);
        Address::Ib(IbAddress { gid, service, mask: u64::MAX, ..IbAddress::default() })
    };
    let nobodys = native(far.context.address().into(), address.port());
    let client = near.id(IdKind::CONNECTED);
    client.resolve_addr(None, &nobodys, TIMEOUT).expect("resolves");
    near.expect(EventKind::AddressResolved);
    // As a peer that knows the device's address would ask it, without the registry.
    near.manager.with_state(|state| {
        let route = softrnic_cm::Route { local: near.context.address(), remote: far.context.address() };
        let entry = state.entry_mut(client.number()).expect("there");
        (entry.route, entry.on_machine) = (Some(route), false);
    });
    client.resolve_route(TIMEOUT).expect("resolves");
    near.expect(EventKind::RouteResolved);
    client.connect(&near.qp().params(&[1; 92])).expect("asks");
    assert_eq!(near.expect(EventKind::Rejected).status, EventStatus::Refused(28));

    let listener = far.id(IdKind::CONNECTED);
    listener.bind(&native(softrnic_wire::Gid::default(), 0)).expect("binds");
    listener.listen(0).expect("listens");
    let Some(Address::Ib(bound)) = listener.query().expect("there").local else { panic!("native") };
    let client = near.id(IdKind::CONNECTED);
    let to = native(far.context.address().into(), bound.service as u16);
    client.resolve_addr(None, &to, TIMEOUT).expect("resolves");
    near.expect(EventKind::AddressResolved);
    client.resolve_route(TIMEOUT).expect("resolves");
    near.expect(EventKind::RouteResolved);
    client.connect(&near.qp().params(&[1; 92])).expect("asks");
    let request = far.expect(EventKind::ConnectRequest);
    let EventData::Conn(params) = &request.data else { panic!("{request:?}") };
    assert_eq!(params.private, [1; 92], "all of it");
    request.id.accept(2, &far.qp().params(&[])).expect("accepts");
    near.expect(EventKind::ConnectResponse);
}
