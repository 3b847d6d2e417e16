//! `softrnic stats`: the counters of the NICs of the user's running processes.

mod groups;
mod text;

use std::net::{SocketAddr, TcpListener};

use clap::Args;
use serde::Serialize;
use softrnic_stats::{Look, Snapshot, look, look_closely, metrics};

use crate::failure::{Doing, Failure, Result};
use crate::output::{say, write};

pub use groups::Group;
pub use text::{connections, peer, peer_qpn, reach, state, through};

const EXAMPLES: &str = "\
Examples:
  softrnic stats
  softrnic stats --json | jq '.devices[].counters.rcvd_seq_err'
  softrnic stats --metrics 127.0.0.1:9418     and let Prometheus scrape http://127.0.0.1:9418/metrics

Counters have the names of kernel rxe's hw_counters where they mean the same.

Exit status: 0, also when nothing runs; 1 if nothing could be read; 2 for wrong arguments.";

/// Show the counters of the NICs of your running processes
///
/// Asks every device of this user's processes once, and names those that do not answer within a second.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    #[command(flatten)]
    selection: Selection,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also show counters that are 0
    #[arg(short, long, conflicts_with = "json")]
    all: bool,
    /// Serve the counters to Prometheus over HTTP, on this address and port only, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["json", "all"])]
    metrics: Option<SocketAddr>,
}

/// Which devices.
#[derive(Args, Clone)]
pub struct Selection {
    /// Show only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Show only devices with this name
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl Selection {
    /// What is said where none of the selected devices is found.
    pub fn nothing(&self) -> String {
        match (self.pid, &self.device) {
            (None, None) => "No process of this user has a SoftRNIC device.".into(),
            (None, Some(name)) => format!("No process of this user has a SoftRNIC device named {name}."),
            (Some(pid), None) => format!("Process {pid} has no SoftRNIC device, or is not this user's."),
            (Some(pid), Some(name)) => {
                format!("Process {pid} has no SoftRNIC device named {name}, or is not this user's.")
            }
        }
    }

    /// Asks the selected devices.
    pub fn look(&self) -> Result<Look> {
        self.select(look())
    }

    fn select(&self, found: std::io::Result<Look>) -> Result<Look> {
        let mut found = found.doing(|| "cannot look for devices".into())?;
        found.snapshots.retain(|snapshot| {
            self.pid.is_none_or(|pid| pid == snapshot.pid)
                && self.device.as_ref().is_none_or(|name| *name == snapshot.device)
        });
        found.silent.retain(|silent| {
            let (pid, device) = silent.name.split_once('-').unwrap_or((&silent.name, ""));
            self.pid.is_none_or(|wanted| wanted.to_string() == pid)
                && self.device.as_ref().is_none_or(|name| name == device)
        });
        Ok(found)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Everything<'a> {
    devices: &'a [Snapshot],
    silent: Vec<Silent<'a>>,
}

#[derive(Serialize)]
struct Silent<'a> {
    name: &'a str,
    error: &'a str,
}

pub fn run(args: StatsArgs) -> Result {
    if let Some(address) = args.metrics {
        return serve(address, args.selection);
    }
    let look = args.selection.select(if args.json { look_closely() } else { look() })?;
    for directory in &look.passed_over {
        eprintln!("softrnic: {directory}");
    }
    if args.json {
        let silent = look.silent.iter().map(|s| Silent { name: &s.name, error: &s.why }).collect();
        say!("{}", serde_json::to_string_pretty(&Everything { devices: &look.snapshots, silent })?);
    } else {
        write(format_args!("{}", text::report(&look, &args.selection.nothing(), args.all)));
    }
    match look.snapshots.is_empty() && !look.silent.is_empty() {
        true => Err(Failure::new("no device answers")),
        false => Ok(()),
    }
}

/// Serves until the process ends.
fn serve(address: SocketAddr, selection: Selection) -> Result {
    let listener = TcpListener::bind(address).doing(|| format!("cannot listen on {address}"))?;
    say!("metrics at http://{}/metrics", listener.local_addr()?);
    Ok(metrics::serve(listener, move || selection.look().map_err(|failure| failure.message))?)
}
