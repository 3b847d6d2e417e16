//! `softrnic bench`: bandwidth, message rate and latency between two processes.

mod compare;
mod latency;
mod measure;
mod report;
mod sockets;
mod svg;
pub mod target;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use softrnic_nic::verbs::DeviceSpec;

use crate::device::DevicePair;
use crate::failure::{Doing, Result};
use crate::output::say;
use crate::pair::Peer;
use crate::progress::Progress;
use crate::units;
use compare::Bars;
use measure::Bench;
use report::{Point, Report};

/// Depth of the queues.
const DEPTH: usize = 512;

/// The longest message that can be asked for.
const LARGEST: usize = 256 << 20;

/// What is compared unless devices are given: sockets, with the receive buffer that they get where nobody has raised
/// `net.core.rmem_max`, and shared memory.
const SOCKETS: &str = "udp?shm=off&rcvbuf=212992";
const SHARED_MEMORY: &str = "udp?shm=on&rcvbuf=212992";

const EXAMPLES: &str = "\
Examples:
  softrnic bench
  softrnic bench --operations write --sizes 4K,64K,1M --seconds 2
  softrnic bench --json > bench.json
  softrnic bench --svg bench.svg
  softrnic bench --compare --require-bandwidth 0.8 --require-latency 1.5";

/// Bandwidth, message rate and latency of SEND, WRITE and READ between two processes
///
/// Latency is measured with one message at a time and both processes polling: half of a round trip for SEND and
/// WRITE, a whole one for READ. Bandwidth and message rate are measured with many messages outstanding.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Bytes of a message, with K, M and G for powers of 1024
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = message_size,
          default_value = "8,256,4K,64K,1M")]
    sizes: Vec<usize>,
    /// Operations to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "send,write,read")]
    operations: Vec<Operation>,
    /// What to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "bandwidth,latency")]
    measure: Vec<Measure>,
    /// How long each measurement lasts, in seconds
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Draw the results
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    svg: Option<PathBuf>,
    /// Compare 64 KiB WRITE with one TCP stream, and 8-byte SEND with a UDP ping-pong, in turns. Without devices, do so
    /// twice: over sockets with the default receive buffer (udp?shm=off&rcvbuf=212992), and through shared memory
    /// (shm=on). The requirements then apply to sockets
    #[arg(long)]
    compare: bool,
    /// Number of turns of --compare; their medians count
    #[arg(long, value_name = "N", default_value_t = 11, requires = "compare",
          value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// Fail if WRITE has less than this share of TCP's bandwidth
    #[arg(long, value_name = "RATIO", requires = "compare", value_parser = ratio)]
    require_bandwidth: Option<f64>,
    /// Fail if SEND has more than this multiple of UDP's latency
    #[arg(long, value_name = "RATIO", requires = "compare", value_parser = ratio)]
    require_latency: Option<f64>,
    #[command(flatten)]
    devices: DevicePair,
}

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// With the message rate.
    Bandwidth,
    Latency,
}

/// How bytes are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Send,
    Write,
    Read,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::Read => "RDMA READ",
        }
    }
}

fn message_size(text: &str) -> std::result::Result<usize, String> {
    match units::parse_size(text)? {
        size if size <= LARGEST => Ok(size),
        _ => Err(format!("at most {}", units::size(LARGEST as u64))),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number from 0.01 to 600".into()),
    }
}

fn ratio(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio.is_finite() => Ok(ratio),
        _ => Err("not a positive number".into()),
    }
}

fn device(text: &str, name: &str) -> Result<DeviceSpec> {
    Ok(DeviceSpec { name: name.into(), ..crate::device::parse(text)? })
}

pub fn run(args: BenchArgs) -> Result {
    let time = Duration::from_secs_f64(args.seconds);
    let mut peer = Peer::spawn("bench", args.devices.peer_netns.as_deref())?;
    if args.compare {
        let bars = Bars { bandwidth: args.require_bandwidth, latency: args.require_latency };
        let devices = args.devices.texts(SOCKETS)?;
        let shared = args.devices.are_default().then(|| args.devices.texts(SHARED_MEMORY)).transpose()?;
        compare::run(&mut peer, &devices, shared.as_ref(), args.rounds as usize, time, bars, args.json)?;
    } else {
        sweep(&args, &mut peer, &args.devices.texts("udp")?, time)?;
    }
    peer.line().send(&target::Request::Finish)?;
    peer.finish()
}

fn sweep(args: &BenchArgs, peer: &mut Peer, devices: &[String; 2], time: Duration) -> Result {
    let largest = args.sizes.iter().copied().max().unwrap_or(0);
    let mut bench = Bench::open(peer, devices, largest)?;
    let mut progress = Progress::new(args.operations.len() * args.sizes.len());
    let mut points = Vec::new();
    for &operation in &args.operations {
        for &size in &args.sizes {
            progress.next(&format!("{} {}", operation.name(), units::size(size as u64)));
            let wanted = |measure| args.measure.contains(&measure);
            let latency =
                wanted(Measure::Latency).then(|| bench.latency(operation, size, time)).transpose()?;
            let stream =
                wanted(Measure::Bandwidth).then(|| bench.stream(operation, size, time)).transpose()?;
            points.push(Point {
                operation,
                size,
                bytes_per_second: stream.map(|stream| stream.bandwidth()),
                messages_per_second: stream.map(|stream| stream.rate()),
                retransmitted: stream.map(|stream| stream.retransmitted),
                latency_us: latency.flatten(),
            });
        }
    }
    drop(progress);
    let report = Report { modes: bench.modes.clone(), mtu: bench.mtu(), seconds: args.seconds, points };
    drop(bench);
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, svg::draw(&report)).doing(|| format!("cannot write {}", path.display()))?;
        if !args.json {
            say!("The plot is in {}.", path.display());
        }
    }
    Ok(())
}
