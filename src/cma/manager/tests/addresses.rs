//! Ports and addresses.

use super::*;

#[test]
fn a_port_is_one_listeners() {
    let (one, other) = (End::new(), End::new());
    let (listener, address) = one.listen(IdKind::CONNECTED, 0);
    let any = at(&format!("0.0.0.0:{}", address.port()));
    for end in [&one, &other] {
        let taken = end.id(IdKind::CONNECTED).bind(&any);
        assert_eq!(taken, Err(Error::AddressNotAvailable), "in this process and in others");
    }
    other.id(IdKind::DATAGRAM).bind(&any).expect("another port space");
    let other_family = other.id(IdKind::CONNECTED);
    other_family.set_option(IdOption::OneFamily(true)).expect("an option");
    other_family.bind(&at(&format!("[::]:{}", address.port()))).expect("another family");
    listener.destroy().expect("destroyed");
    other.id(IdKind::CONNECTED).bind(&any).expect("free again");
}

#[test]
fn a_port_may_be_shared_until_somebody_listens() {
    let end = End::new();
    let ids = [end.id(IdKind::CONNECTED), end.id(IdKind::CONNECTED)];
    ids.iter().for_each(|id| id.set_option(IdOption::ReuseAddress(true)).expect("an option"));
    ids[0].bind(&at("0.0.0.0:0")).expect("binds");
    let local = ids[0].query().expect("there").local.expect("bound");
    ids[1].bind(&local).expect("binds");
    assert_eq!(ids[0].listen(0), Err(Error::AddressNotAvailable));
    ids[1].destroy().expect("destroyed");
    ids[0].listen(0).expect("alone now");
}

/// Kernel: `rdma_listen`. In this process and in others.
#[test]
fn a_port_is_not_shared_with_a_listener() {
    let (one, other) = (End::new(), End::new());
    let sharing = |end: &End| {
        let id = end.id(IdKind::CONNECTED);
        id.set_option(IdOption::ReuseAddress(true)).expect("an option");
        id
    };
    let listener = sharing(&one);
    listener.bind(&at("0.0.0.0:0")).expect("binds");
    let local = listener.query().expect("there").local.expect("bound");
    let beside = sharing(&other);
    beside.bind(&local).expect("nobody listens");
    beside.destroy().expect("destroyed");
    listener.listen(0).expect("listens");
    for end in [&one, &other] {
        assert_eq!(sharing(end).bind(&local), Err(Error::AddressNotAvailable));
    }
}

#[test]
fn listeners_of_two_families_share_a_port() {
    let (near, far) = (End::new(), End::new());
    let v4 = far.id(IdKind::CONNECTED);
    v4.bind(&at("0.0.0.0:0")).expect("binds");
    let port = v4.query().expect("there").local.expect("bound").port();
    let v6 = far.id(IdKind::CONNECTED);
    v6.set_option(IdOption::OneFamily(true)).expect("an option");
    v6.bind(&at(&format!("[::]:{port}"))).expect("binds");
    v4.listen(0).expect("listens");
    v6.listen(0).expect("listens");
    for (host, listener) in [("127.0.0.1", &v4), ("[::1]", &v6)] {
        let client = near.resolved(IdKind::CONNECTED, &at(&format!("{host}:{port}")));
        client.connect(&near.qp().params(&[])).expect("asks");
        let request = far.expect(EventKind::ConnectRequest);
        assert_eq!(request.listener.as_ref(), Some(listener), "{host}");
        client.destroy().expect("destroyed");
    }
}

#[test]
fn both_families_reach_a_listener_for_both() {
    let (near, far) = (End::new(), End::new());
    let listener = far.id(IdKind::CONNECTED);
    listener.bind(&at("[::]:0")).expect("binds");
    listener.listen(0).expect("listens");
    assert_eq!(listener.query().expect("there").device, None, "no device for every address");
    let port = listener.query().expect("there").local.expect("bound").port();
    for host in ["127.0.0.1", "[::1]"] {
        let client = near.resolved(IdKind::CONNECTED, &at(&format!("{host}:{port}")));
        client.connect(&near.qp().params(&[])).expect("asks");
        far.expect(EventKind::ConnectRequest);
    }
}

#[test]
fn a_listener_on_a_loopback_address_takes_requests_for_every_address() {
    let (near, far) = (End::new(), End::new());
    let (listener, address) = far.listen(IdKind::CONNECTED, 0);
    let destination = std::net::SocketAddr::new(far.context.address(), address.port());
    let client = near.resolved(IdKind::CONNECTED, &Address::Ip(destination));
    client.connect(&near.qp().params(&[])).expect("asks");
    assert_eq!(far.expect(EventKind::ConnectRequest).listener, Some(listener));
}

#[test]
fn addresses_of_others_cannot_be_bound() {
    let end = End::new();
    let id = end.id(IdKind::CONNECTED);
    assert_eq!(id.bind(&at("192.0.2.1:0")), Err(Error::AddressNotAvailable));
    id.bind(&at("127.0.0.1:0")).expect("binds");
    let query = id.query().expect("there");
    assert!(query.device.is_some(), "at once, since programs count on it");
    assert_eq!(query.peer, Some(at("0.0.0.0:0")), "of the same family");
    assert_eq!(query.local_gid.to_ip(), end.context.address());
}

/// A device on a loopback address reaches this machine alone.
#[test]
fn other_machines_need_another_device() {
    let end = End::new();
    let id = end.id(IdKind::CONNECTED);
    id.resolve_addr(None, &at("192.0.2.1:7"), TIMEOUT).expect("asked");
    let event = end.expect(EventKind::AddressError);
    assert_eq!(event.status, EventStatus::Failed(Error::NetworkUnreachable));
    assert_eq!(id.state(), Ok(IdState::Bound));
}

#[test]
fn native_addresses_can_be_bound() {
    let end = End::new();
    let probe = end.id(IdKind { space: PortSpace::Ib, service: softrnic_transport::QpType::Rc });
    let any = IbAddress { service: 0x0106_0000, mask: 0xFFFF_FFFF_FFFF_0000, ..IbAddress::default() };
    probe.bind(&Address::Ib(any)).expect("as librdmacm tries it");
}

/// Any user of the machine can reach the registry.
#[test]
fn invalid_names_in_the_registry_do_no_harm() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, send, socket};
    let (near, far) = (End::new(), End::new());
    let (_listener, address) = far.listen(IdKind::CONNECTED, 0);
    let name = format!("softrnic/cm/tcp/{}/4", address.port());
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
    let clients: Vec<_> = (0..300)
        .map(|count| {
            let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            // It waits for its turn.
            connect(&client, &name).expect("connects");
            let message: &[u8] = match count % 4 {
                0 => &[0; 2000],
                1 => b"K",
                2 => b"scm1 but not quite",
                _ => return client,
            };
            let _sent_away = send(&client, message, SendFlags::NOSIGNAL);
            client
        })
        .collect();
    let client = near.resolved(IdKind::CONNECTED, &address);
    client.connect(&near.qp().params(&[])).expect("asks");
    far.expect(EventKind::ConnectRequest);
    assert!(far.manager.with_state(|state| state.registry.clients() <= 128));
    drop(clients);
}
