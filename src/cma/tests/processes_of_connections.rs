//! Connections between processes, one of which is killed, exits or forks.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::BorrowedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softrnic_cma::{
    Address, ConnParams, DeviceIdentity, Devices, Error, Event, EventChannel, EventKind, Id, IdKind, Manager,
};
use softrnic_nic::verbs::{self, Context, DeviceSpec, Qpn};

/// Tells the copy of this program what to do.
const ROLE: &str = "TEST_CONNECTION_ROLE";
const TIMEOUT: Duration = Duration::from_secs(20);

struct One(Context);

impl Devices for One {
    fn count(&self) -> usize {
        1
    }

    fn identity(&self, _: usize) -> DeviceIdentity {
        DeviceIdentity { guid: self.0.device().guid(), index: 0 }
    }

    fn open(&self, _: usize) -> Result<Context, verbs::Error> {
        Context::open(&DeviceSpec { name: self.0.device().name().to_owned(), ..DeviceSpec::default() })
    }
}

fn manager() -> (Arc<Manager>, Context) {
    let name = format!("processes{}", std::process::id());
    let context = Context::open(&DeviceSpec { name, ..DeviceSpec::default() }).expect("a device");
    (Manager::new(Box::new(One(context.clone()))), context)
}

fn expect(channel: &EventChannel, kind: EventKind) -> Event {
    // SAFETY: the channel is open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(channel.descriptor()) };
    let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).expect("polls");
    assert_eq!(ready, 1, "no {kind:?}");
    let event = channel.event().expect("an event");
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

fn params(qpn: u32) -> ConnParams {
    ConnParams { qpn: Qpn::new(qpn), ..ConnParams::default() }
}

fn connect(channel: &EventChannel, port: u16) -> Id {
    let id = channel.create_id(IdKind::CONNECTED, 0).expect("an identifier");
    let server = Address::Ip(([127, 0, 0, 1], port).into());
    id.resolve_addr(None, &server, TIMEOUT).expect("resolves");
    expect(channel, EventKind::AddressResolved);
    id.resolve_route(TIMEOUT).expect("resolves");
    expect(channel, EventKind::RouteResolved);
    id.connect(&params(2 + u32::from(port))).expect("asks");
    expect(channel, EventKind::ConnectResponse);
    id.establish().expect("confirms");
    id
}

fn listen(channel: &EventChannel, port: u16) -> Result<(Id, u16), Error> {
    let listener = channel.create_id(IdKind::CONNECTED, 0)?;
    listener.bind(&Address::Ip(([0, 0, 0, 0], port).into()))?;
    listener.listen(4)?;
    let port = listener.query()?.local.expect("bound").port();
    Ok((listener, port))
}

/// A copy of this program that listens, says where, and has accepted one client when it says "connected".
struct Server {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    port: u16,
}

impl Server {
    fn start(role: &str) -> Server {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "a_server_of_the_others", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let port = said(&mut output, "port ").parse().expect("a port");
        Server { child, output, port }
    }

    fn connected(&mut self) {
        said(&mut self.output, "connected");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn said(output: &mut impl BufRead, what: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(output.read_line(&mut line).expect("reads"), 0, "it never said {what}");
        // The line may also contain output of the test runner.
        if let Some((_, rest)) = line.trim_end().split_once(what) {
            return rest.to_owned();
        }
    }
}

/// Not a test of its own: what the copies do.
#[test]
fn a_server_of_the_others() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (manager, _context) = manager();
    let channel = EventChannel::new(&manager).expect("a channel");
    let (_listener, port) = listen(&channel, 0).expect("listens");
    println!("port {port}");
    let request = expect(&channel, EventKind::ConnectRequest);
    request.id.accept(0, &params(77)).expect("accepts");
    expect(&channel, EventKind::Established);
    println!("connected");
    // Until the other side says so.
    let _ended = std::io::stdin().read(&mut [0]);
    if role == "exit" {
        std::process::exit(0);
    }
    panic!("nothing is said to a server that is to be killed");
}

#[test]
fn the_peer_of_a_killed_process_learns_it_at_once() {
    let (manager, context) = manager();
    let channel = EventChannel::new(&manager).expect("a channel");
    let mut server = Server::start("killed");
    let id = connect(&channel, server.port);
    server.connected();
    server.child.kill().expect("killed");
    assert_eq!(expect(&channel, EventKind::Disconnected).id, id);
    let count = |name| context.statistics().expect("serves").into_iter().find(|(known, _)| *known == name);
    assert_eq!(count("cm_rx_msgs"), Some(("cm_rx_msgs", 1)), "a REP, and no DREQ");
    server.child.wait().expect("over");
    // Its port is free.
    listen(&channel, server.port).expect("listens");
    channel.close();
}

#[test]
fn the_peer_of_a_process_that_exits_is_asked_to_disconnect() {
    let (manager, context) = manager();
    let channel = EventChannel::new(&manager).expect("a channel");
    let mut server = Server::start("exit");
    connect(&channel, server.port);
    server.connected();
    drop(server.child.stdin.take());
    let event = expect(&channel, EventKind::Disconnected);
    event.id.disconnect().expect("agrees");
    assert!(server.child.wait().expect("ends").success());
    let counters = context.statistics().expect("serves");
    let received = counters.iter().find(|(name, _)| *name == "cm_rx_msgs").map(|(_, value)| *value);
    assert!(received >= Some(2), "a REP and a DREQ: {received:?}");
    channel.close();
}

#[test]
fn a_child_starts_without_its_parents_connections() {
    let (manager, _context) = manager();
    let channel = EventChannel::new(&manager).expect("a channel");
    let (listener, port) = listen(&channel, 0).expect("listens");
    let mut server = Server::start("exit");
    let id = connect(&channel, server.port);
    server.connected();
    // SAFETY: the child uses what the handlers of a fork have left in order, and ends by itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_the_child(&manager, &channel, &id)));
        // SAFETY: ends the process.
        unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child failed");
    // The child has ended no connection of its parent.
    assert_eq!(id.state(), Ok(softrnic_cma::IdState::Connect));
    drop(server.child.stdin.take());
    expect(&channel, EventKind::Disconnected);
    listener.destroy().expect("destroyed");
    listen(&channel, port).expect("the name was the parent's alone");
    channel.close();
}

fn in_the_child(manager: &Arc<Manager>, inherited: &EventChannel, id: &Id) {
    assert_eq!(inherited.event().map_err(|error| error.raw_os_error()).err(), Some(Some(libc::EIO)));
    assert_eq!(id.state(), Err(Error::Gone));
    assert_eq!(inherited.create_id(IdKind::CONNECTED, 0).err(), Some(Error::Gone));
    inherited.shut();
    let channel = EventChannel::new(manager).expect("a channel of its own");
    let (_listener, port) = listen(&channel, 0).expect("listens on a NIC of its own");
    let client = channel.create_id(IdKind::CONNECTED, 0).expect("an identifier");
    client.resolve_addr(None, &Address::Ip(([127, 0, 0, 1], port).into()), TIMEOUT).expect("resolves");
    expect(&channel, EventKind::AddressResolved);
}
