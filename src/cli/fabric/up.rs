//! `softrnic fabric up`: a modelled network in real time.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use softrnic_fabric_link::rendezvous;
use softrnic_live::Live;
use softrnic_study::{Description, MOST_SLOW};

use super::control::print_ports;
use crate::failure::{Doing, Failure, Result};
use crate::output::say;
use crate::table::HEADING;

const EXAMPLES: &str = "\
Examples:
  softrnic fabric up clos.toml                   the fabric clos, until it is interrupted
  softrnic fabric up clos.toml --name test &
  softrnic fabric up clos.toml --slow 1000       in slow motion: programs see its time, and rates no machine could carry
  softrnic fabric exec test h0 -- ib_write_bw    and in another shell, with the server's host:
  softrnic fabric exec test h1 -- ib_write_bw localhost
  softrnic fabric up path.toml --pcap path.pcapng    every packet at every port, and why some are lost
  softrnic fabric down test

Exit status: 0 when it was interrupted or ended by `softrnic fabric down`, 1 if it could not come up.";

/// Run a modelled network in real time, for the programs of this machine
///
/// The network is as the file describes it. Programs are on one of its hosts by `softrnic fabric exec`, or by `--device
/// fabric:NAME/HOST` of other commands. No privileges are needed. Flows and workloads of the file are not run.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct UpArgs {
    /// The description
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// The fabric's name [default: the file's, without its ending]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Use this seed instead of the file's
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Slow motion: a second of the fabric's time takes so many of the clock [default: the file's]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLOW)))]
    slow: Option<u32>,
    /// Record what leaves by each port, as an interface each, with the reasons of losses and the marks
    #[arg(long, value_name = "FILE.pcapng")]
    pcap: Option<PathBuf>,
}

/// Each NIC takes some descriptors, and there may be hundreds.
fn allow_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

pub fn run(args: UpArgs) -> Result {
    let text = fs::read_to_string(&args.file).doing(|| format!("cannot read {}", args.file.display()))?;
    let directory = args.file.parent().unwrap_or(Path::new("."));
    let mut description =
        Description::read_network(&text, directory).doing(|| args.file.display().to_string())?;
    description.seed = args.seed.unwrap_or(description.seed);
    description.slow = args.slow.unwrap_or(description.slow);
    let name = args.name.unwrap_or_else(|| {
        args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    });
    if !rendezvous::is_name(&name) {
        return Err(Failure::usage(format!(
            "'{name}' is not the name of a fabric: use letters, digits, '.', '_' and '-', at most {}",
            rendezvous::MAX_NAME
        )));
    }
    // Before anybody can know that it is up.
    let (stop, stopper) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, stopper.try_clone()?)?;
    }
    allow_all_descriptors();
    let mut live = Live::up(&name, &description).doing(|| format!("cannot bring {name} up"))?;
    let capture = args.pcap.as_deref().map(super::capture).transpose()?;
    if let Some(capture) = &capture {
        live.capture(capture, nanos_since_1970());
    }
    let slow = description.slow;
    let motion = if slow > 1 { format!(", {slow} times slower") } else { String::new() };
    say!("{HEADING}The fabric {name} is up{motion}.{HEADING:#} Its hosts:");
    for (host, address) in live.hosts() {
        say!("  {host:<8} {address}");
    }
    say!("Run programs on them with: softrnic fabric exec {name} HOST -- PROGRAM");
    live.run(stop.as_fd()).doing(|| format!("the fabric {name} has failed"))?;
    let lateness = live.lateness();
    if let Some(capture) = capture {
        super::finish(&capture)?;
    }
    say!("\n{HEADING}The fabric {name} is down.{HEADING:#}");
    print_ports(&live.ports(), live.time().as_secs_f64());
    say!(
        "Frames were delivered {:.2} us late on average, {:.1} us at most",
        lateness.mean().as_secs_f64() * 1e6,
        lateness.most().as_secs_f64() * 1e6
    );
    Ok(())
}

fn nanos_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}
