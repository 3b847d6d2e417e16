//! `softrnic doctor`: finds what on this machine prevents a device from working, and what to do about it.

mod finding;
mod interfaces;
mod kernel;
mod peer;
mod port;
mod privileges;
mod sockets;
mod trial;

use std::net::IpAddr;

use clap::Args;
use softrnic_netdev::Host;

use crate::failure::{Doing, FAILED, Failure, Result};
use crate::output::say;
use finding::{Finding, Findings, Level};

const EXAMPLES: &str = "\
Examples:
  softrnic doctor
  softrnic doctor --peer 10.0.0.2
  sudo softrnic doctor --interface eth0 --peer 10.0.0.2
  softrnic doctor --json

Exit status: 0 if there is no problem, 1 if there is one, 2 for wrong arguments.";

/// Check what devices need on this machine, and say how to fix problems
///
/// Without --interface, it checks devices over UDP sockets, and problems of xdp devices are only warnings. As root, it
/// briefly creates a network namespace to find out what AF_XDP can do on this kernel.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// An interface to use with xdp; it is opened briefly, and its RoCEv2 datagrams are taken meanwhile
    #[arg(long, value_name = "INTERFACE")]
    interface: Vec<String>,
    /// A peer's address to check
    #[arg(long, value_name = "ADDRESS")]
    peer: Vec<IpAddr>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: DoctorArgs) -> Result {
    let mut host = Host::open().doing(|| "cannot read this machine's interfaces".into())?;
    let mut findings = Findings::default();
    kernel::check(&mut findings);
    sockets::check(&mut findings);
    port::check(&mut findings);
    let can_open = privileges::check(&mut findings, !args.interface.is_empty());
    if can_open {
        trial::check(&mut findings);
    }
    interfaces::check(&mut findings, &host, &args.interface);
    for address in args.peer {
        peer::check(&mut findings, &mut host, address);
    }
    report(&findings, args.json)
}

fn report(findings: &Findings, json: bool) -> Result {
    let findings = findings.all();
    if json {
        say!("{}", serde_json::to_string_pretty(findings)?);
    } else {
        findings.iter().for_each(Finding::print);
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let problems = count(Level::Fail);
    if !json {
        say!("");
        say!("{} ok, {} warnings, {problems} problems", count(Level::Ok), count(Level::Warn));
    }
    match problems {
        0 => Ok(()),
        // Everything has been said.
        _ if json => std::process::exit(FAILED.into()),
        1 => Err(Failure::new("found a problem, see above")),
        problems => Err(Failure::new(format!("found {problems} problems, see above"))),
    }
}
