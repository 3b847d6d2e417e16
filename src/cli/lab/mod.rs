//! `softrnic lab`: hosts as network namespaces of this machine, connected by virtual cables.

mod ip;
pub mod plan;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anstream::{print, println};
use clap::{Args, Subcommand};

use crate::failure::{Failure, Result};
use crate::table::{GOOD, QUIET, Table};
use plan::{Layout, Plan, Topology};

const EXAMPLES: &str = "\
Examples:
  sudo softrnic lab up --hosts 3 --mtu 4500
  sudo softrnic lab run h1 -- ping -c 3 10.77.0.2
  sudo softrnic lab shell h2
  sudo softrnic lab down
  sudo softrnic lab up --name routed --gateway --vlan 7

Each host has an interface eth0, so `--device xdp:eth0` is its NIC. Nothing outside the lab is touched, and
`lab down` leaves nothing behind.";

/// Hosts as network namespaces joined by virtual cables, to try real interfaces on one machine (needs root)
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Create a lab
    Up(UpArgs),
    /// Remove a lab; does nothing if there is none
    Down {
        #[command(flatten)]
        lab: Name,
    },
    /// Show the hosts of a lab and their addresses
    Show {
        #[command(flatten)]
        lab: Name,
    },
    /// Start a shell in a host
    Shell {
        #[command(flatten)]
        lab: Name,
        /// The host: h1, h2, …, gw or switch
        host: String,
    },
    /// Run a program in a host, and end with its exit status
    Run {
        #[command(flatten)]
        lab: Name,
        /// The host: h1, h2, …, gw or switch
        host: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct Name {
    /// The name of the lab; there can be several
    #[arg(long = "name", value_name = "NAME", default_value = "lab", value_parser = lab_name)]
    name: String,
}

#[derive(Args)]
struct UpArgs {
    #[command(flatten)]
    lab: Name,
    /// How many hosts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=200))]
    hosts: u8,
    /// IP MTU of all interfaces, in bytes; 4200 and more carries IB MTU 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4500, value_parser = clap::value_parser!(u16).range(1280..=9216))]
    mtu: u16,
    /// First IPv4 network, a /24; a second one behind a gateway follows it
    #[arg(long, value_name = "NETWORK", default_value = "10.77.0.0")]
    ipv4: Ipv4Addr,
    /// First IPv6 network, a /64; a second one behind a gateway follows it
    #[arg(long, value_name = "NETWORK", default_value = "fd77::")]
    ipv6: Ipv6Addr,
    /// Receive and transmit queues of each interface
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Put the addresses on a VLAN with this id, on top of eth0
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Two networks with a router, gw, between them; the hosts alternate between the two
    #[arg(long, conflicts_with = "cable")]
    gateway: bool,
    /// Join two hosts directly, without a bridge
    #[arg(long)]
    cable: bool,
}

fn lab_name(text: &str) -> std::result::Result<String, String> {
    let fits = (1..=32).contains(&text.len());
    // No '-': it separates the parts of a namespace's name.
    match fits && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("use lower-case letters and digits, at most 32".into()),
    }
}

pub fn run(args: LabArgs) -> Result {
    match args.command {
        LabCommand::Up(args) => up(args),
        LabCommand::Down { lab } => down(&lab.name),
        LabCommand::Show { lab } => show(&lab.name),
        LabCommand::Shell { lab, host } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
            enter(&lab.name, &host, &[shell])
        }
        LabCommand::Run { lab, host, command } => enter(&lab.name, &host, &command),
    }
}

fn up(args: UpArgs) -> Result {
    let plan = Plan::new(Layout {
        name: args.lab.name,
        hosts: args.hosts,
        mtu: args.mtu,
        ipv4: args.ipv4,
        ipv6: args.ipv6,
        queues: args.queues,
        vlan: args.vlan,
        topology: match (args.gateway, args.cable) {
            (true, _) => Topology::Gateway,
            (_, true) => Topology::Cable,
            _ => Topology::Bridge,
        },
    })
    .map_err(Failure::usage)?;
    make(&plan)?;
    println!("{GOOD}Lab {} is up{GOOD:#}", plan.name());
    print!("{}", hosts_table(&plan));
    let name = match plan.name() {
        "lab" => String::new(),
        name => format!("--name {name} "),
    };
    if let [first, second, ..] = plan.hosts() {
        println!();
        println!(
            "{QUIET}Try:{QUIET:#}  softrnic lab run {name}{} -- ping -c 1 {}",
            first.name, second.addresses[0]
        );
    }
    println!("{QUIET}End:{QUIET:#}  softrnic lab down {name}");
    Ok(())
}

/// Creates the whole lab, or nothing.
pub fn make(plan: &Plan) -> Result {
    let existing = ip::namespaces(plan.name())?;
    if !existing.is_empty() {
        let name = plan.name();
        return Err(Failure::new(format!(
            "lab {name} is up already; `softrnic lab down --name {name}` removes it"
        )));
    }
    let made = plan.steps().iter().try_for_each(ip::take);
    if made.is_err() {
        // The first error says what went wrong.
        let _ = unmake(plan.name());
    }
    made
}

/// Removes a lab, and returns how many namespaces it had.
pub fn unmake(name: &str) -> Result<usize> {
    let namespaces = ip::namespaces(name)?;
    namespaces.iter().try_for_each(|namespace| ip::delete(namespace))?;
    Ok(namespaces.len())
}

fn down(name: &str) -> Result {
    match unmake(name)? {
        0 => println!("There is no lab {name}."),
        _ => println!("Lab {name} is removed."),
    }
    Ok(())
}

fn show(name: &str) -> Result {
    let namespaces = ip::namespaces(name)?;
    if namespaces.is_empty() {
        return Err(no_lab(name));
    }
    let mut table = Table::new(4, &["host", "namespace", "interface", "addresses"]);
    for namespace in namespaces {
        let host = namespace.rsplit('-').next().unwrap_or(&namespace).to_owned();
        if host == plan::SWITCH {
            continue;
        }
        for (interface, addresses) in ip::addresses(&namespace)? {
            table.row(vec![host.clone(), namespace.clone(), interface, join(&addresses)]);
        }
    }
    print!("{table}");
    Ok(())
}

/// Runs a command in a host. Like a shell, this process then ends as the command did.
fn enter(lab: &str, host: &str, command: &[String]) -> Result {
    let namespaces = ip::namespaces(lab)?;
    let host = if host.bytes().all(|c| c.is_ascii_digit()) { format!("h{host}") } else { host.to_owned() };
    let namespace = plan::namespace(lab, &host);
    if namespaces.is_empty() {
        return Err(no_lab(lab));
    }
    if !namespaces.contains(&namespace) {
        let hosts: Vec<_> = namespaces.iter().filter_map(|name| name.rsplit('-').next()).collect();
        return Err(Failure::usage(format!("lab {lab} has no host '{host}', but {}", hosts.join(", "))));
    }
    // So that a signal for this process is one for the command.
    let error = Command::new("ip")
        .args(["netns", "exec", &namespace])
        .args(command)
        .env("SOFTRNIC_LAB", lab)
        .env("SOFTRNIC_LAB_HOST", &host)
        .exec();
    Err(Failure::new(format!("cannot run ip (package iproute2): {error}")))
}

fn no_lab(name: &str) -> Failure {
    Failure::new(format!("there is no lab {name}; `softrnic lab up --name {name}` creates it"))
}

fn hosts_table(plan: &Plan) -> Table {
    let mut table = Table::new(4, &["host", "namespace", "interface", "addresses"]);
    for host in plan.hosts() {
        table.row(vec![
            host.name.clone(),
            plan::namespace(plan.name(), &host.name),
            host.interface.clone(),
            join(&host.addresses),
        ]);
    }
    table
}

fn join(addresses: &[IpAddr]) -> String {
    addresses.iter().fold(String::new(), |mut text, address| {
        let separator = if text.is_empty() { "" } else { "  " };
        let _ = write!(text, "{separator}{address}");
        text
    })
}
