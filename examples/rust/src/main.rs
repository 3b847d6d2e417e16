//! Two processes, each with a NIC of its own in itself, exchange messages and check each one.
//!
//!     pingpong-in-rust                    a server, which prints the port that it listens on
//!     pingpong-in-rust HOST PORT          its client
//!
//! No C library is involved, and no device is looked for. `SOFTRNIC_DEVICES` gives the NIC another address,
//! `SOFTRNIC_FAULT` breaks its network, `SOFTRNIC_PCAP` records it.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cq, Gid, Mr, Mtu, Psn, Qp, QpOptions, Qpn, Status, WcOpcode, WorkRequest,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SIZE: usize = 16384;
const ROUNDS: usize = 500;
/// A peer that has gone sends nothing any more.
const PATIENCE: Duration = Duration::from_secs(20);
const FIRST_PSN: Psn = Psn::new(0x1234);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [] => serve(),
        [host, port] => ask(host, port),
        _ => Err("usage: pingpong-in-rust [HOST PORT]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pingpong-in-rust: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    println!("{}", listener.local_addr()?.port());
    let mut end = Connection::new(listener.accept()?.0)?;
    for round in 1..=ROUNDS {
        end.receive(round)?;
        end.send(round)?;
    }
    end.finish()
}

fn ask(host: &str, port: &str) -> Result<()> {
    let mut end = Connection::new(TcpStream::connect((host, port.parse()?))?)?;
    for round in 1..=ROUNDS {
        end.send(round)?;
        end.receive(round)?;
    }
    end.finish()
}

/// A queue pair that is connected, with memory for one message each way.
struct Connection {
    peer: TcpStream,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    sends: Mr,
    receives: Mr,
    /// Receives that completed while a send was waited for, and the reverse.
    early: [usize; 2],
}

impl Connection {
    fn new(mut peer: TcpStream) -> Result<Connection> {
        let context = Context::open_default()?;
        let pd = context.alloc_pd()?;
        let sends = pd.register(vec![0; SIZE], Access::LOCAL_WRITE)?;
        let receives = pd.register(vec![0; SIZE], Access::LOCAL_WRITE)?;
        let cq = context.create_cq(4, None)?;
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default())?;

        let mut theirs = [0; 20];
        peer.write_all(&context.gid(0)?.0)?;
        peer.write_all(&qp.qpn().get().to_be_bytes())?;
        peer.read_exact(&mut theirs)?;
        let (gid, qpn) = theirs.split_at(16);
        let to = AddressVector::to(Gid(gid.try_into()?).to_ip());
        qp.connect(to, Qpn::new(u32::from_be_bytes(qpn.try_into()?)), Mtu::B1024, FIRST_PSN, FIRST_PSN)?;
        let mut end = Connection { peer, qp, cq, sends, receives, early: [0; 2] };
        end.post_receive()?;
        // Nothing may come before the other end is connected as well.
        end.peer.write_all(&[0])?;
        end.peer.read_exact(&mut [0])?;
        Ok(end)
    }

    fn post_receive(&self) -> Result<()> {
        Ok(self.qp.post_recv(0, &[self.receives.sge(0, SIZE)])?)
    }

    fn send(&mut self, round: usize) -> Result<()> {
        self.sends.write(0, &[round as u8; SIZE])?;
        self.qp.post(WorkRequest::send().sge(self.sends.sge(0, SIZE)))?;
        self.wait(false)
    }

    fn receive(&mut self, round: usize) -> Result<()> {
        self.wait(true)?;
        let mut got = vec![0; SIZE];
        self.receives.read(0, &mut got)?;
        if got.iter().any(|byte| *byte != round as u8) {
            return Err(format!("round {round}: other bytes than were sent").into());
        }
        if round < ROUNDS { self.post_receive() } else { Ok(()) }
    }

    fn wait(&mut self, received: bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.early[usize::from(received)] == 0 {
            if Instant::now() > deadline {
                return Err("the other end is silent".into());
            }
            let mut failed = None;
            self.cq.poll_with(4, |found| {
                self.early[usize::from(found.opcode == WcOpcode::Recv)] += 1;
                failed = failed.or((found.status != Status::Success).then_some(found.status));
            });
            if let Some(status) = failed {
                return Err(format!("a completion has status {status:?}").into());
            }
        }
        self.early[usize::from(received)] -= 1;
        Ok(())
    }

    /// The other end may still wait for our ACK, which its last send needs.
    fn finish(mut self) -> Result<()> {
        self.peer.set_read_timeout(Some(Duration::from_secs(10)))?;
        self.peer.write_all(&[0])?;
        self.peer.read_exact(&mut [0])?;
        println!("{ROUNDS} rounds of {SIZE} bytes");
        Ok(())
    }
}
