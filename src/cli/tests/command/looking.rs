//! Devices of the test process, for commands that show devices.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrnic_cma::{Address, ConnParams, EventChannel, EventKind, IdKind, Manager};
use softrnic_nic::verbs::{
    AddressVector, Context, Cq, DeviceSpec, Mtu, Psn, Qp, QpOptions, Qpn, Status, WorkRequest,
};

/// One end of a connection.
pub struct End {
    pub context: Context,
    pub qp: Arc<Qp>,
    cq: Arc<Cq>,
}

/// Two devices with names that only this test uses, and connected QPs.
pub fn pair(test: &str) -> [End; 2] {
    pair_on(test, "udp")
}

/// The same, on links of which more is said.
pub fn pair_on(test: &str, link: &str) -> [End; 2] {
    let ends = ["a", "b"].map(|side| {
        let spec: DeviceSpec = format!("{test}_{side}={link}").parse().expect("a device");
        let context = Context::open(&spec).expect("a device");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(64, None).expect("a CQ");
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("a QP");
        End { context, qp, cq }
    });
    for (own, other, psns) in [(0, 1, [10, 20]), (1, 0, [20, 10])] {
        let to = AddressVector::to(ends[other].context.address());
        let [send, receive] = psns.map(Psn::new);
        ends[own].qp.connect(to, ends[other].qp.qpn(), Mtu::B1024, send, receive).expect("connected");
    }
    ends
}

/// A device that is connected with itself by the connection manager.
pub struct Connection {
    pub port: u16,
    _manager: Arc<Manager>,
}

/// Connects a device, with a name that only this test uses, to itself.
pub fn connect(test: &str) -> Connection {
    let spec = DeviceSpec { name: test.into(), ..DeviceSpec::default() };
    let manager = Manager::new(Box::new(Context::open(&spec).expect("a device")));
    let channel = EventChannel::new(&manager).expect("a channel");
    let expect = |kind| {
        let event = channel.event().expect("an event");
        assert_eq!(event.kind, kind, "{event:?}");
        event.id
    };
    let create = || channel.create_id(IdKind::CONNECTED, 0).expect("an identifier");
    let (listener, client) = (create(), create());
    let at = |port| Address::Ip((Ipv4Addr::LOCALHOST, port).into());
    listener.bind(&at(0)).expect("bound");
    listener.listen(1).expect("listens");
    let port = listener.query().expect("known").local.expect("bound").port();
    client.resolve_addr(None, &at(port), Duration::from_secs(1)).expect("resolves");
    expect(EventKind::AddressResolved);
    client.resolve_route(Duration::from_secs(1)).expect("resolves");
    expect(EventKind::RouteResolved);
    client.connect(&ConnParams { qpn: Qpn::new(17), ..ConnParams::default() }).expect("connects");
    let server = expect(EventKind::ConnectRequest);
    server.accept(0, &ConnParams { qpn: Qpn::new(18), ..ConnParams::default() }).expect("accepts");
    expect(EventKind::ConnectResponse);
    client.establish().expect("establishes");
    expect(EventKind::Established);
    // The figures may be this old: other tests of this user ask for them as well.
    std::thread::sleep(Duration::from_millis(100));
    Connection { port, _manager: manager }
}

/// Sends some messages from the first end to the second.
pub fn send([from, to]: &[End; 2], messages: u64) {
    for id in 0..messages {
        to.qp.post_recv(id, &[]).expect("posted");
        from.qp.post(WorkRequest::send().id(id)).expect("posted");
        for end in [to, from] {
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut status = None;
            while status.is_none() {
                assert!(Instant::now() < deadline, "no completion");
                end.cq.poll_with(1, |cqe| status = Some(cqe.status));
            }
            assert_eq!(status, Some(Status::Success));
        }
    }
    // The figures may be this old: other tests of this user ask for them as well.
    std::thread::sleep(Duration::from_millis(100));
}

/// This process, for `--pid`.
pub fn own_pid() -> String {
    std::process::id().to_string()
}
