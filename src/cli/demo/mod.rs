//! `softrnic demo`: two processes, each with its own NIC, and every operation between them.

mod client;
mod passes;
mod plan;
mod report;
pub mod server;
mod step;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use softrnic_link::fault::FaultSpec;
use softrnic_nic::verbs::DeviceSpec;

use crate::device::DevicePair;
use crate::endpoint::random;
use crate::failure::Result;
use crate::output::{self, say};
use crate::pair::Peer;
use crate::table::{GOOD, HEADING, QUIET};
use crate::units;
use passes::Passes;

/// Entries of the queues.
const DEPTH: usize = 64;

const EXAMPLES: &str = "\
Examples:
  softrnic demo
  softrnic demo --pcap /tmp/demo.pcapng --seconds 20
  softrnic demo --fault seed=7,drop=5%,duplicate=1%
  softrnic demo --device udp:127.1.1.1 --peer-device udp:127.1.1.2

Exit status: 0 if every byte arrived where it should, 1 if not or if something failed, 2 for wrong arguments.";

/// Two processes, each with its own NIC, move memory in every way and check every byte
///
/// The second process runs this program too. The two exchange addresses over a pipe, and everything else over RoCEv2. The
/// first pass runs without faults; the second loses and reorders packets on purpose. Needs no privileges.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// File for the packets of this process's NIC
    #[arg(long, value_name = "FILE", default_value = "softrnic-demo.pcapng")]
    pcap: PathBuf,
    /// Do not write packets
    #[arg(long, conflicts_with = "pcap")]
    no_pcap: bool,
    /// Faults of the second pass, at both NICs [default: a random seed, drop=1%,reorder=1%]
    #[arg(long, value_name = "SPEC")]
    fault: Option<FaultSpec>,
    /// About how long to measure, in seconds
    #[arg(long, value_name = "N", default_value_t = 8.0, value_parser = seconds)]
    seconds: f64,
    /// Seed of the data; the same seed moves the same bytes [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    devices: DevicePair,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number from 0.1 to 3600".into()),
    }
}

/// The device of one side; `name` goes into captures.
fn device(text: &str, name: &str, fault: Option<&str>, pcap: Option<&str>) -> Result<DeviceSpec> {
    let mut spec = crate::device::parse(text)?;
    spec.name = name.into();
    spec.fault = fault.map(str::parse).transpose()?;
    spec.pcap = pcap.map(Into::into);
    Ok(spec)
}

/// The faults of the second pass, with a random seed if none was given.
fn faults(given: Option<FaultSpec>) -> Result<FaultSpec> {
    let mut spec = match given {
        Some(spec) => spec,
        None => "drop=1%,reorder=1%".parse()?,
    };
    if spec.seed == 0 {
        spec.seed = random()? & 0xFFFF_FFFF;
    }
    Ok(spec)
}

pub fn run(args: DemoArgs) -> Result {
    let devices = args.devices.texts("udp")?;
    let fault = faults(args.fault)?.to_string();
    let seed = args.seed.map_or_else(random, Ok)?;
    let pcap = (!args.no_pcap).then_some(args.pcap.as_path());

    let mut peer = Peer::spawn("demo", args.devices.peer_netns.as_deref())?;
    say!("{HEADING}SoftRNIC demo{HEADING:#}: two processes, each with a RoCEv2 NIC of its own");
    let started = Instant::now();
    let mut passes = Passes::new(&mut peer, &devices, seed);
    let time = Duration::from_secs_f64(args.seconds / 2.0);
    let measured = [passes.run(None, pcap, time)?, passes.run(Some(&fault), pcap, time)?];
    let moved = passes.moved;
    peer.line().send(&server::Request::Finish)?;
    peer.finish()?;

    say!("");
    output::write(format_args!("{}", report::table(&measured)));
    say!(
        "{QUIET}Latency: from posting one message to its completion, median. Resent: packets, both sides.{QUIET:#}"
    );
    say!("");
    say!(
        "{GOOD}Nothing was lost{GOOD:#}: {} messages, {} checked byte by byte at both ends in {:.1} s \
         (data seed {seed}).",
        moved.messages,
        units::volume(moved.bytes),
        started.elapsed().as_secs_f64(),
    );
    if let Some(path) = pcap {
        let path = path.display();
        say!("The packets are in {path}. Look at them with `wireshark {path}` or `tshark -r {path}`.");
    }
    Ok(())
}
