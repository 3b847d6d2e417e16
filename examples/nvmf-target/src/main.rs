//! Serves a file as an NVMe disk over RDMA, from a machine without a NIC.
//!
//!     nvmf-target [--port PORT] [--nqn NQN] FILE
//!
//! The host is any NVMe over RDMA initiator: Linux's `nvme connect -t rdma`, or `nvmeof` from PyPI on SoftRNIC. The file stays as
//! long as it is; its blocks have 4096 bytes. `SOFTRNIC_DEVICES` names the NIC, such as `udp:10.0.0.5`; `SOFTRNIC_FAULT` breaks its
//! network, `SOFTRNIC_PCAP` records it.

mod command;
mod disk;
mod identify;
mod queue;
mod subsystem;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{BLOCK, Disk};
use queue::{Queue, Request};
use softrnic_cma::{
    Address, ConnParams, Event, EventChannel, EventData, EventKind, IdKind, Manager, RejReason,
};
use softrnic_nic::verbs::{CompletionChannel, Context, Pd};
use subsystem::Subsystem;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: nvmf-target [--port PORT] [--nqn NQN] FILE";
const NQN: &str = "nqn.2026-11.org.softrnic:disk";
/// The port that is assigned to NVMe over RDMA.
const PORT: u16 = 4420;
/// REJ with private data of the application's (IBTA 12.6.7.2: consumer reject).
const CONSUMER_REJECT: RejReason = RejReason(28);

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nvmf-target: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    port: u16,
    nqn: String,
    file: PathBuf,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let (mut port, mut nqn, mut file) = (PORT, NQN.to_owned(), None);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--port" => {
                    port =
                        arguments.next().ok_or(USAGE)?.parse().map_err(|error| format!("--port: {error}"))?
                }
                "--nqn" => nqn = arguments.next().ok_or(USAGE)?,
                option if option.starts_with('-') => return Err(USAGE.into()),
                path if file.is_none() => file = Some(path.into()),
                _ => return Err(USAGE.into()),
            }
        }
        // Base 2.0, 4.5, and what hosts take.
        if !(11..=223).contains(&nqn.len()) {
            return Err(format!("--nqn: a name has 11 to 223 bytes, and this one {}", nqn.len()).into());
        }
        Ok(Options { port, nqn, file: file.ok_or(USAGE)? })
    }
}

fn serve(options: Options) -> Result<()> {
    let file = options.file.display();
    let disk = Disk::open(&options.file).map_err(|error| format!("{file}: {error}"))?;
    if disk.blocks() == 0 {
        return Err(format!("{file} has no block of {BLOCK} bytes: truncate --size 64M {file}").into());
    }
    let blocks = disk.blocks();
    let context = Context::open_default()?;
    let manager = Manager::new(Box::new(context.clone()));
    let events = EventChannel::new(&manager)?;
    let listener = events.create_id(IdKind::CONNECTED, 0)?;
    listener.bind(&Address::Ip((Ipv6Addr::UNSPECIFIED, options.port).into()))?;
    listener.listen(64)?;
    let target = Target {
        subsystem: Arc::new(Subsystem::new(options.nqn, disk)),
        pd: context.alloc_pd()?,
        completions: context.create_channel()?,
        queues: Mutex::default(),
    };
    println!(
        "{file}, {blocks} blocks of {BLOCK} bytes: {} at {} port {}",
        target.subsystem.nqn,
        context.address(),
        options.port
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = target.work();
            eprintln!("nvmf-target: {error}");
            std::process::exit(1);
        });
        loop {
            target.on_event(events.event()?);
        }
    })
}

struct Target {
    subsystem: Arc<Subsystem>,
    pd: Arc<Pd>,
    completions: Arc<CompletionChannel>,
    /// By the tokens of their completion queues.
    queues: Mutex<HashMap<u64, Queue>>,
}

impl Target {
    /// Executes commands until their events cannot be waited for.
    fn work(&self) -> io::Error {
        loop {
            let token = match self.completions.event() {
                Ok(token) => token,
                Err(error) => return error,
            };
            let mut queues = self.queues();
            // A queue that was closed meanwhile may have left an event.
            if let Some(queue) = queues.get_mut(&token)
                && let Err(error) = queue.work()
            {
                eprintln!("a queue ends: {error}");
                if let Some(queue) = queues.remove(&token) {
                    queue.close();
                }
            }
        }
    }

    fn on_event(&self, Event { kind, id, data, .. }: Event) {
        match (kind, data) {
            (EventKind::ConnectRequest, EventData::Conn(params)) => {
                let refused = match Request::parse(&params.private) {
                    Ok(request) => self.accept(&id, request, &params).map_err(|error| (NO_RESOURCES, error)),
                    Err(status) => Err((status, "its private data is not that of NVMe over RDMA".into())),
                };
                if let Err((status, error)) = refused {
                    eprintln!("a connection is refused: {error}");
                    let [low, high] = status.to_le_bytes();
                    let _rejected = id.reject(CONSUMER_REJECT.0 as u8, &[0, 0, low, high]);
                    let _destroyed = id.destroy();
                }
            }
            (EventKind::Established | EventKind::TimewaitExit, _) => {}
            _ => {
                let mut queues = self.queues();
                let found = queues.iter().find(|(_, queue)| queue.id.number() == id.number());
                if let Some(token) = found.map(|(token, _)| *token)
                    && let Some(queue) = queues.remove(&token)
                {
                    queue.close();
                }
            }
        }
    }

    fn accept(&self, id: &softrnic_cma::Id, request: Request, params: &ConnParams) -> Result<()> {
        let reads = params.initiator_depth;
        let queue = Queue::new(id.clone(), &self.pd, &self.completions, &self.subsystem, request, reads)?;
        // The first command may come as soon as the request is accepted.
        let mut queues = self.queues();
        queue.accept(reads)?;
        queues.insert(queue.token(), queue);
        Ok(())
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<u64, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a rejection (NVMe over RDMA 1.0, 3.5).
const NO_RESOURCES: u16 = 6;
