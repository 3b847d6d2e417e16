//! `softrnic why`: what a program that hangs waits for.

use clap::Args;
use softrnic_stats::why;

use crate::failure::{Doing, Failure, Result};
use crate::output::write;

/// Say what a program that hangs waits for, and what its peers say about it
///
/// Asks the devices of the process, as `softrnic stats` does, and names each queue pair with requests that are not complete. Peers
/// that are no processes of this user on this machine are asked through their NICs, if these are SoftRNICs.
#[derive(Args)]
#[command(after_help = "Examples:\n  softrnic why 4711\n  softrnic why $(pgrep ib_write_bw)")]
pub struct WhyArgs {
    /// The process
    pid: u32,
}

pub fn run(args: WhyArgs) -> Result {
    let told = why(args.pid).doing(|| "cannot look for devices".into())?;
    let unknown =
        || Failure::new(format!("process {} has no SoftRNIC device, or is not this user's", args.pid));
    write(format_args!("{}", told.ok_or_else(unknown)?));
    Ok(())
}
