//! What connected QPs take of memory.

use std::fs;

use clap::Args;
use serde::Serialize;

use super::end::End;
use crate::process::{Child, Line, Result, limit_time};

/// Resident memory of idle connected RC QPs, of both ends
#[derive(Args)]
pub struct ResidentArgs {
    /// QPs in each of two processes
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=16384))]
    qps: u16,
    /// Work requests of the send queue and of the receive queue
    #[arg(long, default_value_t = 128)]
    depth: usize,
    /// The device of each process
    #[arg(long, default_value = "udp")]
    device: String,
}

#[derive(Serialize)]
pub struct Resident {
    /// Ends of connections in both processes.
    ends: u64,
    /// Bytes that both processes have grown by.
    bytes: u64,
    bytes_per_end: f64,
    /// Bytes of a process with an open device and no QPs.
    without: u64,
}

pub fn run(args: &ResidentArgs) -> Result<Resident> {
    limit_time();
    let mut child = Child::fork(None, |line| other(args, line))?;
    let [without, with] = grow(args, &mut child.line)?;
    let [other_without, other_with] = child.line.hear()?;
    child.line.stop()?;
    child.finish()?;
    let ends = 2 * u64::from(args.qps);
    let bytes = (with + other_with).saturating_sub(without + other_without);
    Ok(Resident { ends, bytes, bytes_per_end: bytes as f64 / ends as f64, without })
}

fn other(args: &ResidentArgs, mut line: Line) -> Result<()> {
    let sizes = grow(args, &mut line)?;
    line.say(&sizes)?;
    line.hear::<1>()?;
    Ok(())
}

/// Resident memory before and after.
fn grow(args: &ResidentArgs, line: &mut Line) -> Result<[u64; 2]> {
    let mut end = End::open(&args.device, 4096, args.depth, 2 * args.depth)?;
    let before = resident()?;
    end.add_qps(args.qps.into())?;
    end.connect(args.qps.into(), line)?;
    Ok([before, resident()?])
}

/// Bytes of this process that are in memory.
pub fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
