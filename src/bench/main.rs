//! `softrnic-bench`: one loop per run, whose result is one line of JSON. `tools/bench` runs them in turns with
//! SoftRNIC and with others' benchmarks.

mod bare;
mod options;
mod process;
mod scale;
mod stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

use process::Result;

/// Loops to compare SoftRNIC with, and loads on it that no other benchmark makes
#[derive(Parser)]
#[command(name = "softrnic-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Wire(bare::wire::WireArgs),
    Raw(bare::raw::RawArgs),
    Ping(bare::ping::PingArgs),
    WirePing(bare::wire_ping::WirePingArgs),
    Rate(bare::rate::RateArgs),
    Shm(bare::shm::ShmArgs),
    ShmPing(bare::shm_ping::ShmPingArgs),
    Memcpy(bare::memory::MemoryArgs),
    /// A cache line from one processor to another and back
    CacheLine,
    Xdp(bare::xdp_stream::XdpArgs),
    XdpPing(bare::xdp_ping::XdpPingArgs),
    XdpWirePing(bare::xdp_wire_ping::XdpWirePingArgs),
    XdpRaw(bare::xdp_raw::XdpRawArgs),
    Connections(scale::connections::ConnectionsArgs),
    Fan(scale::fan::FanArgs),
    Holds(scale::holds::HoldsArgs),
    Network(scale::network::NetworkArgs),
    Idle(scale::idle::IdleArgs),
    Resident(scale::resident::ResidentArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softrnic-bench: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Wire(args) => print(&bare::wire::run(&args)?),
        Command::Raw(args) => print(&bare::raw::run(&args)?),
        Command::Ping(args) => print(&bare::ping::run(&args)?),
        Command::WirePing(args) => print(&bare::wire_ping::run(&args)?),
        Command::Rate(args) => print(&bare::rate::run(&args)?),
        Command::Shm(args) => print(&bare::shm::run(&args)?),
        Command::ShmPing(args) => print(&bare::shm_ping::run(&args)?),
        Command::Memcpy(args) => print(&bare::memory::run(&args)?),
        Command::CacheLine => print(&bare::cache_line::run()?),
        Command::Xdp(args) => print(&bare::xdp_stream::run(&args)?),
        Command::XdpPing(args) => print(&bare::xdp_ping::run(&args)?),
        Command::XdpWirePing(args) => print(&bare::xdp_wire_ping::run(&args)?),
        Command::XdpRaw(args) => print(&bare::xdp_raw::run(&args)?),
        Command::Connections(args) => print(&scale::connections::run(&args)?),
        Command::Fan(args) => print(&scale::fan::run(&args)?),
        Command::Holds(args) => print(&scale::holds::run(&args)?),
        Command::Network(args) => print(&scale::network::run(&args)?),
        Command::Idle(args) => print(&scale::idle::run(&args)?),
        Command::Resident(args) => print(&scale::resident::run(&args)?),
    }
}

fn print(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}
