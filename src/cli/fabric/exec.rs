//! `softrnic fabric exec`: a program on a host of a fabric.

use std::ffi::OsString;

use clap::Args;

use super::control::show;
use crate::environment::EnvironmentArgs;
use crate::failure::{Failure, Result};
use crate::run::replace;

const EXAMPLES: &str = "\
Examples:
  softrnic fabric exec clos h0 -- ib_write_bw           and in another shell:
  softrnic fabric exec clos h5 -- ib_write_bw localhost
  mpirun -n 8 softrnic fabric exec clos --rank -- ./program    one rank on each host, in turn

It is the same as `softrnic run --device fabric:NAME/HOST -- PROGRAM`.

Exit status: the program's; 127 if it does not exist, 126 if it cannot be run, 1 or 2 if it was not tried.";

/// The variables by which launchers tell a process its rank: Open MPI, Hydra and others with PMI, PMIx, Slurm.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// Run a verbs program, unmodified, on a host of a running fabric
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExecArgs {
    /// The fabric
    #[arg(value_name = "NAME")]
    fabric: String,
    /// The host
    #[arg(value_name = "HOST", required_unless_present = "rank", conflicts_with = "rank")]
    host: Option<String>,
    /// Choose the host by the rank that mpirun gives the process: rank 0 is on the first, rank 1 on the second, and so on
    #[arg(long)]
    rank: bool,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: ExecArgs) -> Result {
    let state = show(&args.fabric)?;
    let hosts: Vec<&str> = state["hosts"]
        .as_array()
        .map_or_else(Vec::new, |hosts| hosts.iter().filter_map(|host| host["host"].as_str()).collect());
    let host = match &args.host {
        Some(host) => host.as_str(),
        None => hosts.get(rank()? % hosts.len().max(1)).copied().unwrap_or_default(),
    };
    if !hosts.contains(&host) {
        let known = hosts.iter().take(16).copied().collect::<Vec<_>>().join(", ");
        let more = if hosts.len() > 16 { ", …" } else { "" };
        return Err(Failure::new(format!(
            "the fabric {} has no host {host}: it has {known}{more}",
            args.fabric
        )));
    }
    let device = format!("fabric:{}/{host}", args.fabric);
    replace(&args.environment.with_device(device), &args.command)
}

/// The rank of this process among those of its job.
fn rank() -> Result<usize> {
    let found = RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    found.ok_or_else(|| {
        Failure::usage(format!(
            "--rank needs a launcher that says which rank this is, by {}",
            RANKS.join(", ")
        ))
    })
}
