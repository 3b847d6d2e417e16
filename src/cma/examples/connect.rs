//! Two processes find each other by address and port, connect, and exchange a message.
//!
//!     connect                      # a server on port 7471 of this machine
//!     connect 127.0.0.1            # its client
//!
//! Between machines, with devices on their addresses:
//!
//!     SOFTRNIC_DEVICES=udp:10.0.0.1 connect
//!     SOFTRNIC_DEVICES=udp:10.0.0.2 connect 10.0.0.1

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use softrnic_cma::{Address, ConnParams, Event, EventChannel, EventKind, Id, IdKind, Manager};
use softrnic_nic::verbs::{self, Access, Context, Cq, Mr, Pd, Qp, QpOptions, QpState, Status, WorkRequest};

const PORT: u16 = 7471;
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let server: Option<IpAddr> = std::env::args().nth(1).map(|text| text.parse()).transpose()?;
    let context = Context::open_default()?;
    let manager = Manager::new(Box::new(context.clone()));
    let channel = EventChannel::new(&manager)?;
    match server {
        Some(server) => ask(&context, &channel, SocketAddr::new(server, PORT)),
        None => serve(&context, &channel),
    }?;
    channel.close();
    Ok(())
}

fn ask(context: &Context, channel: &EventChannel, server: SocketAddr) -> Result<(), Box<dyn Error>> {
    let id = channel.create_id(IdKind::CONNECTED, 0)?;
    id.resolve_addr(None, &Address::Ip(server), RESOLVE_TIMEOUT)?;
    expect(channel, EventKind::AddressResolved)?;
    id.resolve_route(RESOLVE_TIMEOUT)?;
    expect(channel, EventKind::RouteResolved)?;
    let queue = Queue::new(context)?;
    queue.follow(&id, &[QpState::Init])?;
    queue.receive()?;
    id.connect(&queue.params())?;
    expect(channel, EventKind::ConnectResponse)?;
    queue.follow(&id, &[QpState::Rtr, QpState::Rts])?;
    id.establish()?;

    queue.send(b"Is anybody there?")?;
    println!("the server says: {}", queue.message()?);
    id.disconnect()?;
    expect(channel, EventKind::Disconnected)?;
    id.destroy()?;
    Ok(())
}

fn serve(context: &Context, channel: &EventChannel) -> Result<(), Box<dyn Error>> {
    let listener = channel.create_id(IdKind::CONNECTED, 0)?;
    listener.bind(&Address::Ip((Ipv4Addr::UNSPECIFIED, PORT).into()))?;
    listener.listen(16)?;
    println!("listening on port {PORT}");
    let id = expect(channel, EventKind::ConnectRequest)?.id;
    let queue = Queue::new(context)?;
    queue.follow(&id, &[QpState::Init])?;
    queue.receive()?;
    queue.follow(&id, &[QpState::Rtr, QpState::Rts])?;
    id.accept(0, &queue.params())?;
    expect(channel, EventKind::Established)?;

    println!("a client says: {}", queue.message()?);
    queue.send(b"Yes.")?;
    expect(channel, EventKind::Disconnected)?;
    id.disconnect()?;
    id.destroy()?;
    listener.destroy()?;
    Ok(())
}

fn expect(channel: &EventChannel, kind: EventKind) -> Result<Event, Box<dyn Error>> {
    let event = channel.event()?;
    if event.kind == kind { Ok(event) } else { Err(format!("{:?} ({:?})", event.kind, event.status).into()) }
}

/// A queue pair with memory for one message each way.
struct Queue {
    qp: Arc<Qp>,
    /// One for each direction.
    sends: Arc<Cq>,
    receives: Arc<Cq>,
    mr: Mr,
    _pd: Arc<Pd>,
}

const ROOM: usize = 64;

impl Queue {
    fn new(context: &Context) -> Result<Queue, verbs::Error> {
        let pd = context.alloc_pd()?;
        let (sends, receives) = (context.create_cq(4, None)?, context.create_cq(4, None)?);
        let qp = pd.create_rc_qp(&sends, &receives, QpOptions::default())?;
        let mr = pd.register(vec![0u8; 2 * ROOM], Access::LOCAL_WRITE)?;
        Ok(Queue { qp, sends, receives, mr, _pd: pd })
    }

    /// Sets the QP's attributes as its connection requires.
    fn follow(&self, id: &Id, states: &[QpState]) -> Result<(), Box<dyn Error>> {
        for &state in states {
            let (attributes, mask) = id.qp_attributes(state)?;
            self.qp.modify(mask, &attributes)?;
        }
        Ok(())
    }

    fn params(&self) -> ConnParams {
        ConnParams { qpn: self.qp.qpn(), retry_count: 7, rnr_retry: 7, ..ConnParams::default() }
    }

    fn receive(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.qp.post_recv(0, &[self.mr.sge(0, ROOM)])?)
    }

    fn send(&self, text: &[u8]) -> Result<(), Box<dyn Error>> {
        self.mr.write(ROOM, text)?;
        self.qp.post(WorkRequest::send().sge(self.mr.sge(ROOM, text.len())))?;
        wait_for(&self.sends)?;
        Ok(())
    }

    fn message(&self) -> Result<String, Box<dyn Error>> {
        let mut text = vec![0; wait_for(&self.receives)?];
        self.mr.read(0, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Polls until a request is complete, and returns the length of its message.
fn wait_for(cq: &Cq) -> Result<usize, Box<dyn Error>> {
    loop {
        let mut found = None;
        cq.poll_with(1, |cqe| found = Some((cqe.status, cqe.byte_len)));
        match found {
            Some((Status::Success, len)) => return Ok(len as usize),
            Some((status, _)) => return Err(format!("{status:?}").into()),
            None => {}
        }
    }
}
