//! Identifiers over real links, each end with a manager and a device of its own.

mod accounting;
mod addresses;
mod connections;
mod datagrams;
mod serving;
mod users;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_transport::{QpState, Status};

use crate::*;
use softrnic_nic::verbs::{self, Access, Context, Cq, DeviceSpec, Mr, Pd, Qp, QpOptions, WorkRequest};

/// The one device of an end.
struct One(Context);

impl Devices for One {
    fn count(&self) -> usize {
        1
    }

    fn identity(&self, _: usize) -> DeviceIdentity {
        DeviceIdentity { guid: self.0.device().guid(), index: 7 }
    }

    fn open(&self, _: usize) -> Result<Context, verbs::Error> {
        Ok(self.0.clone())
    }
}

/// A manager with a device, and a channel.
struct End {
    manager: Arc<Manager>,
    channel: EventChannel,
    context: Context,
}

/// Long enough for any machine, since nothing waits for it that goes well.
const TIMEOUT: Duration = Duration::from_secs(20);

impl End {
    fn new() -> End {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("cm{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        End::on(Context::open(&DeviceSpec { name, ..DeviceSpec::default() }).expect("a device"))
    }

    fn on(context: Context) -> End {
        let manager = Manager::new(Box::new(One(context.clone())));
        let channel = EventChannel::new(&manager).expect("a channel");
        End { manager, channel, context }
    }

    fn id(&self, kind: IdKind) -> Id {
        self.channel.create_id(kind, 1).expect("an identifier")
    }

    /// The next event, which is of this kind.
    fn expect(&self, kind: EventKind) -> Event {
        let event = next(&self.channel, TIMEOUT).unwrap_or_else(|| panic!("no {kind:?}"));
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// A listener on any port of 127.0.0.1 in both, and its address.
    fn listen(&self, kind: IdKind, backlog: i32) -> (Id, Address) {
        let listener = self.id(kind);
        listener.bind(&at("127.0.0.1:0")).expect("binds");
        listener.listen(backlog).expect("listens");
        let local = listener.query().expect("there").local.expect("bound");
        (listener, local)
    }

    /// An identifier that has the way to a destination.
    fn resolved(&self, kind: IdKind, destination: &Address) -> Id {
        let id = self.id(kind);
        id.resolve_addr(None, destination, TIMEOUT).expect("resolves");
        self.expect(EventKind::AddressResolved);
        id.resolve_route(TIMEOUT).expect("resolves");
        self.expect(EventKind::RouteResolved);
        id
    }

    fn qp(&self) -> QpEnd {
        let pd = self.context.alloc_pd().expect("a PD");
        let cq = self.context.create_cq(16, None).expect("a CQ");
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("a QP");
        let mr = pd.register(vec![0u8; 4096], Access::LOCAL_WRITE).expect("a region");
        QpEnd { qp, cq, mr, _pd: pd }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.channel.clone().close();
    }
}

struct QpEnd {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    mr: Mr,
    _pd: Arc<Pd>,
}

impl QpEnd {
    fn params(&self, private: &[u8]) -> ConnParams {
        ConnParams {
            qpn: self.qp.qpn(),
            private: private.to_vec(),
            responder_resources: 3,
            initiator_depth: 2,
            retry_count: 7,
            rnr_retry: 7,
            ..ConnParams::default()
        }
    }

    /// Sets the QP to what the identifier says.
    fn follow(&self, id: &Id, states: &[QpState]) {
        for &state in states {
            let (attributes, mask) = id.qp_attributes(state).expect("known by now");
            self.qp.modify(mask, &attributes).unwrap_or_else(|error| panic!("to {state:?}: {error}"));
        }
    }

    fn completion(&self) -> verbs::Cqe {
        let start = std::time::Instant::now();
        loop {
            let mut found = None;
            self.cq.poll_with(1, |cqe| found = Some(cqe));
            if let Some(cqe) = found {
                assert_eq!(cqe.status, Status::Success);
                return cqe;
            }
            assert!(start.elapsed() < TIMEOUT, "no completion");
        }
    }
}

const ALL: [QpState; 3] = [QpState::Init, QpState::Rtr, QpState::Rts];

/// A connection between two identifiers, with their QPs.
struct Connected {
    client: Id,
    server: Id,
    near: QpEnd,
    far: QpEnd,
}

/// Connects `near` to `far`, as programs do it.
fn connect(near: &End, far: &End, to: &Address) -> Connected {
    let client = near.resolved(IdKind::CONNECTED, to);
    let near_qp = near.qp();
    near_qp.follow(&client, &[QpState::Init]);
    client.connect(&near_qp.params(b"hello")).expect("asks");

    let request = far.expect(EventKind::ConnectRequest);
    let far_qp = far.qp();
    far_qp.follow(&request.id, &ALL);
    request.id.accept(2, &far_qp.params(b"welcome")).expect("accepts");

    let response = near.expect(EventKind::ConnectResponse);
    assert_eq!(response.id, client);
    let EventData::Conn(params) = &response.data else { panic!("{response:?}") };
    assert_eq!((&params.private[..7], params.private.len()), (&b"welcome"[..], 196));
    near_qp.follow(&client, &[QpState::Rtr, QpState::Rts]);
    client.establish().expect("confirms");
    let established = far.expect(EventKind::Established);
    assert_eq!((established.context, &established.id), (2, &request.id));
    Connected { client, server: request.id, near: near_qp, far: far_qp }
}

/// The next event, if one comes in time.
fn next(channel: &EventChannel, timeout: Duration) -> Option<Event> {
    is_readable(channel, timeout).then(|| channel.event().expect("an event"))
}

fn is_readable(channel: &EventChannel, timeout: Duration) -> bool {
    // SAFETY: the channel is open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(channel.descriptor()) };
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).expect("polls") == 1
}

fn at(text: &str) -> Address {
    Address::Ip(text.parse::<SocketAddr>().expect("an address"))
}
