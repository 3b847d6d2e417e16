//! The `softrnic` command.

#![forbid(unsafe_code)]

mod bench;
mod capabilities;
mod capture_file;
mod check;
mod decode;
mod demo;
mod device;
mod devices;
mod doctor;
mod drill;
mod endpoint;
mod environment;
mod explain;
mod fabric;
mod failure;
#[cfg(feature = "xdp")]
mod grant;
mod lab;
mod libraries;
mod link;
mod output;
mod pages;
mod pair;
mod pattern;
mod peer;
mod playground;
mod program;
mod progress;
mod run;
mod stats;
mod table;
mod top;
mod topics;
mod units;
mod why;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use softrnic_page as web_page;

use failure::Result;
use table::BAD;

const EXAMPLES: &str = "\
Examples:
  softrnic demo                    two NICs on this machine move memory, checked byte by byte
  softrnic bench --svg bench.svg   bandwidth, message rate and latency, with a plot
  softrnic devices                 the devices that programs get here
  softrnic run -- ib_write_bw      an unmodified verbs program on SoftRNIC
  softrnic check -- ./program      what it does wrong with verbs, and in which line
  softrnic decode trace.pcap       the packets of a capture, one per line
  softrnic explain trace.pcap      what happened in it, and what went wrong
  softrnic drill --peer 10.0.0.5 --all    check a peer against the specification
  softrnic top                     the NICs of your running processes, live
  softrnic link mlx5_0 down        a port loses its link; the program sees what it would see of hardware";

/// A RoCEv2 network adapter in software
#[derive(Parser)]
#[command(name = "softrnic", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Bench(bench::BenchArgs),
    Devices(devices::DevicesArgs),
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Env(run::EnvArgs),
    Decode(decode::DecodeArgs),
    Explain(explain::ExplainArgs),
    Drill(drill::DrillArgs),
    Fabric(fabric::FabricArgs),
    Top(top::TopArgs),
    Stats(stats::StatsArgs),
    Why(why::WhyArgs),
    Link(link::LinkArgs),
    Doctor(doctor::DoctorArgs),
    Lab(lab::LabArgs),
    #[cfg(feature = "xdp")]
    Grant(grant::GrantArgs),
    Playground(playground::PlaygroundArgs),
    Faults(topics::FaultsArgs),
    Environment(topics::EnvironmentArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
    #[command(hide = true)]
    Peer(peer::PeerArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("{BAD}softrnic: error:{BAD:#} {failure}");
            ExitCode::from(failure.status)
        }
    }
}

fn run(command: Command) -> Result {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(args),
        Command::Env(args) => run::env(args),
        Command::Decode(args) => decode::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Drill(args) => drill::run(args),
        Command::Fabric(args) => fabric::run(args),
        Command::Top(args) => top::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Why(args) => why::run(args),
        Command::Link(args) => link::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Lab(args) => lab::run(args),
        #[cfg(feature = "xdp")]
        Command::Grant(args) => grant::run(args),
        Command::Playground(args) => playground::run(args),
        Command::Faults(_) => topics::faults(),
        Command::Environment(_) => topics::environment(),
        Command::Completions(args) => pages::completions(Cli::command(), args),
        Command::Man(args) => pages::man(Cli::command(), args),
        Command::Peer(args) => peer::run(args),
    }
}
