//! Connections that rdma_cm makes and ends between two processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use softrnic_cma::{Address, ConnParams, Event, EventChannel, EventKind, Id, IdKind, Manager};
use softrnic_nic::verbs::{Context, Cq, Pd, Qp, QpOptions, QpState};

use super::resident::resident;
use crate::process::{Child, Line, Result, limit_time};

/// Connections made and ended by rdma_cm: one after the other, and many at once
#[derive(Args)]
pub struct ConnectionsArgs {
    /// Connections one after the other
    #[arg(long, default_value_t = 1000)]
    in_a_row: usize,
    /// Connections at once
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1024))]
    at_once: u16,
    /// The device of each process
    #[arg(long, default_value = "udp")]
    device: String,
}

#[derive(Serialize)]
pub struct Connections {
    /// Made and ended per second, one after the other.
    in_a_row: f64,
    /// Made per second, of many at once.
    at_once: f64,
    /// Bytes that both processes grow by for both ends of a connection, with QPs of one work request each way.
    bytes: f64,
}

pub fn run(args: &ConnectionsArgs) -> Result<Connections> {
    limit_time();
    let mut child = Child::fork(None, |line| serve(args, line))?;
    let [port] = child.line.hear()?;
    let mut client =
        Client { end: End::open(&args.device)?, server: (Ipv4Addr::LOCALHOST, port as u16).into() };
    // The first pays for what is made once.
    client.make_and_end(1)?;
    let start = Instant::now();
    for _ in 0..args.in_a_row {
        client.make_and_end(1)?;
    }
    let in_a_row = args.in_a_row as f64 / start.elapsed().as_secs_f64();
    let many = usize::from(args.at_once);
    let sizes = |line: &mut Line| -> Result<u64> {
        line.say(&[1])?;
        let [server] = line.hear()?;
        Ok(server + resident()?)
    };
    let before = sizes(&mut child.line)?;
    let start = Instant::now();
    let connected = client.make(many)?;
    let at_once = many as f64 / start.elapsed().as_secs_f64();
    let bytes = sizes(&mut child.line)?.saturating_sub(before) as f64 / many as f64;
    client.end(connected)?;
    child.line.stop()?;
    child.finish()?;
    Ok(Connections { in_a_row, at_once, bytes })
}

/// Takes connections until the client says that it is over.
fn serve(args: &ConnectionsArgs, mut line: Line) -> Result<()> {
    let end = End::open(&args.device)?;
    let listener = end.channel.create_id(IdKind::CONNECTED, 0)?;
    listener.bind(&Address::Ip((Ipv4Addr::UNSPECIFIED, 0).into()))?;
    listener.listen(1024)?;
    let port = listener.query()?.local.map_or(0, |local| local.port());
    line.say(&[port.into()])?;
    std::thread::scope(|scope| {
        // Ends with the process.
        scope.spawn(|| {
            if let Err(error) = take(&end) {
                eprintln!("softrnic-bench: error: {error}");
                std::process::exit(1);
            }
        });
        loop {
            match line.hear() {
                Ok([1]) => line.say(&[resident()?])?,
                Ok(_) => std::process::exit(0),
                Err(error) => return Err(error),
            }
        }
    })
}

fn take(end: &End) -> Result<()> {
    let mut qps = std::collections::HashMap::new();
    loop {
        let Event { kind, id, .. } = end.channel.event()?;
        match kind {
            EventKind::ConnectRequest => {
                let qp = end.qp()?;
                follow(&qp, &id, &[QpState::Init, QpState::Rtr, QpState::Rts])?;
                id.accept(0, &params(&qp))?;
                qps.insert(id.number(), qp);
            }
            EventKind::Disconnected => {
                id.disconnect()?;
                qps.remove(&id.number());
                id.destroy()?;
            }
            _ => {}
        }
    }
}

struct Client {
    end: End,
    server: SocketAddr,
}

impl Client {
    fn make_and_end(&mut self, count: usize) -> Result<()> {
        let connected = self.make(count)?;
        self.end(connected)
    }

    fn make(&mut self, count: usize) -> Result<Vec<(Id, Arc<Qp>)>> {
        let mut connecting = std::collections::HashMap::new();
        for _ in 0..count {
            let id = self.end.channel.create_id(IdKind::CONNECTED, 0)?;
            id.resolve_addr(None, &Address::Ip(self.server), WAIT_TIMEOUT)?;
        }
        let mut connected = Vec::with_capacity(count);
        while connected.len() < count {
            let Event { kind, status, id, .. } = self.end.channel.event()?;
            match kind {
                EventKind::AddressResolved => id.resolve_route(WAIT_TIMEOUT)?,
                EventKind::RouteResolved => {
                    let qp = self.end.qp()?;
                    follow(&qp, &id, &[QpState::Init])?;
                    id.connect(&params(&qp))?;
                    connecting.insert(id.number(), qp);
                }
                EventKind::ConnectResponse => {
                    let qp = connecting.remove(&id.number()).ok_or("a connection that nobody wants")?;
                    follow(&qp, &id, &[QpState::Rtr, QpState::Rts])?;
                    id.establish()?;
                    connected.push((id, qp));
                }
                EventKind::TimewaitExit => {}
                _ => return Err(format!("{kind:?}: {status:?}").into()),
            }
        }
        Ok(connected)
    }

    fn end(&self, connected: Vec<(Id, Arc<Qp>)>) -> Result<()> {
        for (id, _) in &connected {
            id.disconnect()?;
        }
        let mut left = connected.len();
        while left > 0 {
            left -= usize::from(self.end.channel.event()?.kind == EventKind::Disconnected);
        }
        for (id, qp) in connected {
            drop(qp);
            id.destroy()?;
        }
        Ok(())
    }
}

const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// What one process has of its own.
struct End {
    channel: EventChannel,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
}

impl End {
    fn open(device: &str) -> Result<End> {
        let context = Context::open(&device.parse()?)?;
        let manager = Manager::new(Box::new(context.clone()));
        let channel = EventChannel::new(&manager)?;
        Ok(End { channel, pd: context.alloc_pd()?, cq: context.create_cq(16, None)? })
    }

    fn qp(&self) -> Result<Arc<Qp>> {
        let options = QpOptions { max_send_wr: 1, max_recv_wr: 1, ..QpOptions::default() };
        Ok(self.pd.create_rc_qp(&self.cq, &self.cq, options)?)
    }
}

fn follow(qp: &Qp, id: &Id, states: &[QpState]) -> Result<()> {
    for &state in states {
        let (attributes, mask) = id.qp_attributes(state)?;
        qp.modify(mask, &attributes)?;
    }
    Ok(())
}

fn params(qp: &Qp) -> ConnParams {
    ConnParams { qpn: qp.qpn(), retry_count: 7, rnr_retry: 7, ..ConnParams::default() }
}
