//! Studies of networks, small and large.

use clap::Args;
use serde::Serialize;
use softrnic_study::{Description, Study};
use std::path::Path;

use super::resident::resident;
use crate::process::{Result, cpu_time};

/// Flows between whole NICs on a modelled Clos network, in virtual time: events, packets and memory
#[derive(Args)]
pub struct NetworkArgs {
    /// Hosts, 16 at each leaf
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(16..=1024))]
    hosts: u16,
    /// Flows of each host, to others at random
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    flows: u16,
    /// Bytes of each flow
    #[arg(long, default_value_t = 256 << 10)]
    size: u64,
}

#[derive(Serialize)]
pub struct Network {
    hosts: u16,
    flows: usize,
    /// Events of the model.
    events: u64,
    /// Packets times links.
    hops: u64,
    /// Of the processor, for the flows alone.
    seconds: f64,
    events_per_second: f64,
    hops_per_second: f64,
    /// Bytes of memory before anything is sent: of a host with its NIC and its share of the network, and of a flow.
    bytes_per_host: f64,
    bytes_per_flow: f64,
    /// Hosts that fit into 1 GB, each with so many flows, while they run.
    hosts_per_gb: f64,
}

pub fn run(args: &NetworkArgs) -> Result<Network> {
    let hosts = u64::from(args.hosts);
    let start = resident()?;
    // It stays, or the other study would be put into its memory and take none.
    let _few = described(args, 1)?;
    let begin = resident()?;
    let with_few = begin.saturating_sub(start);
    let (description, mut study) = described(args, args.flows)?;
    let with_many = resident()?.saturating_sub(begin).max(with_few);
    let before = cpu_time();
    study.play(&description, |_| {})?;
    let seconds = (cpu_time() - before).as_secs_f64();
    let at_end = resident()?.saturating_sub(begin);
    let report = study.report();
    if let Some(flow) = report.flows.iter().find(|flow| flow.fct_ns.is_none()) {
        return Err(format!("flow {} did not end: {:?}", flow.flow, flow.error).into());
    }
    let bytes_per_flow = (with_many - with_few) as f64 / (hosts * (u64::from(args.flows) - 1)) as f64;
    Ok(Network {
        hosts: args.hosts,
        flows: report.flows.len(),
        events: report.events,
        hops: report.hops,
        seconds,
        events_per_second: report.events as f64 / seconds,
        hops_per_second: report.hops as f64 / seconds,
        bytes_per_host: (with_few as f64 / hosts as f64 - bytes_per_flow).max(0.0),
        bytes_per_flow,
        hosts_per_gb: hosts as f64 * 1e9 / at_end.max(1) as f64,
    })
}

/// A network with lossless links and DCQCN, and each host sending to the next ones by the same number of hosts.
fn described(args: &NetworkArgs, flows: u16) -> Result<(Description, Study)> {
    let leaves = args.hosts.div_ceil(16);
    let mut text = format!(
        r#"
        [network]
        generator = "clos"
        leaves = {leaves}
        spines = 4
        hosts = 16
        edge = {{ rate = "100Gbps", delay = "1us" }}
        core = {{ rate = "400Gbps", delay = "1us" }}
        [switch]
        pfc = [3]
        ecn = {{ kmin = "100KB", kmax = "400KB", pmax = 0.2, priorities = [3] }}
        buffer = "64MiB"
        [nic]
        dcqcn = true
        "#
    );
    let hosts = 16 * leaves;
    for from in 0..hosts {
        for flow in 0..flows {
            // Steps that are no multiple of each other, so that no host gets all.
            let to = (from + 1 + flow * 37 % (hosts - 1)) % hosts;
            let to = if to == from { (to + 1) % hosts } else { to };
            text += &format!(
                "[[flow]]\nfrom = \"h{from}\"\nto = \"h{to}\"\nbytes = \"{}B\"\ndscp = 24\n",
                args.size
            );
        }
    }
    let description = Description::read(&text, Path::new("."))?;
    let study = Study::described(&description)?;
    Ok((description, study))
}
