//! `softrnic devices`: the devices that programs would get, and what their links can do here.

use clap::Args;
use serde::Serialize;
use softrnic_nic::verbs::{Context, DeviceSpec, PortState};

use crate::failure::{Failure, Result};
use crate::output::say;
use crate::table::{BAD, HEADING, QUIET};
use crate::units;

const EXAMPLES: &str = "\
Examples:
  softrnic devices
  softrnic devices --device udp:10.0.0.5 --device xdp:eth0
  softrnic devices --json

Exit status: 0 if all could be opened, 1 if not, 2 for wrong arguments.";

/// Show the devices that programs get here, and what their links can do
///
/// Opens each device briefly: those given, else those of SOFTRNIC_DEVICES, else the default device.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DevicesArgs {
    /// A device: [NAME=]udp, [NAME=]udp:ADDRESS, [NAME=]udp:INTERFACE or [NAME=]xdp:INTERFACE, followed by options as
    /// ?key=value&…; mlx5_[0-7]=udp for eight; @FILE for those in a file
    #[arg(long, value_name = "SPEC")]
    device: Vec<String>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// The description of a device.
#[derive(Serialize)]
struct Described {
    name: String,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Device(Device),
    Error {
        /// Why it cannot be opened.
        error: String,
    },
}

#[derive(Serialize)]
struct Device {
    /// The link's kind and the mode it obtained, with what was refused and why.
    mode: String,
    /// The address by which programs know it.
    address: String,
    /// The GID table.
    gids: Vec<String>,
    guid: String,
    active: bool,
    /// The largest path MTU, and the MTU of the IP layer below; bytes.
    active_mtu: u32,
    ip_mtu: usize,
    /// Bytes that are certain to be held while nothing is read.
    receive_buffer: usize,
    /// Datagrams that leave in one send.
    segments: usize,
    zero_copy: bool,
    /// Whether peers of the same user on this machine are reached through shared memory.
    shared_memory: bool,
    /// The other processes that have the address at the moment; absent if no other process may.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_with: Option<Vec<u32>>,
    /// Whether the IP header is seen, so that the whole ICRC is verified.
    sees_ip_header: bool,
}

pub fn run(args: DevicesArgs) -> Result {
    let specs = match args.device.as_slice() {
        [] => DeviceSpec::from_env(),
        given => DeviceSpec::join(given).and_then(|text| DeviceSpec::list(&text)),
    };
    let specs = specs.map_err(|error| Failure::usage(error.to_string()))?;
    let described: Vec<Described> = specs.into_iter().map(describe).collect();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&described)?);
    } else {
        described.iter().for_each(Described::print);
    }
    let failed = described.iter().filter(|one| matches!(one.outcome, Outcome::Error { .. })).count();
    match failed {
        0 => Ok(()),
        1 if described.len() == 1 => Err(Failure::new("the device cannot be opened")),
        _ => Err(Failure::new(format!("{failed} of {} devices cannot be opened", described.len()))),
    }
}

fn describe(spec: DeviceSpec) -> Described {
    // A look must not leave a capture behind.
    let spec = DeviceSpec { pcap: None, ..spec };
    let outcome = match look_at(&spec) {
        Ok(device) => Outcome::Device(device),
        Err(failure) => Outcome::Error { error: failure.message },
    };
    Described { name: spec.name, outcome }
}

fn look_at(spec: &DeviceSpec) -> Result<Device> {
    let context = Context::open(spec)?;
    let (port, link) = (context.port()?, context.link_capabilities()?);
    let mut gids = Vec::new();
    for index in 0..context.gids_used()? {
        gids.push(context.gid(index)?.to_string());
    }
    Ok(Device {
        mode: link.mode,
        address: context.address().to_string(),
        gids,
        guid: guid(context.device().guid()),
        active: port.state == PortState::Active,
        active_mtu: port.active_mtu.bytes(),
        ip_mtu: link.ip_mtu,
        receive_buffer: link.receive_buffer,
        segments: link.segments,
        zero_copy: link.zero_copy,
        shared_memory: link.shared_memory,
        shared_with: context.processes()?.map(others),
        sees_ip_header: link.sees_ip_header,
    })
}

fn others(mut processes: Vec<u32>) -> Vec<u32> {
    let own = processes.iter().position(|&process| process == std::process::id());
    own.map(|place| processes.remove(place));
    processes
}

/// In the format of `ibv_devinfo`.
fn guid(guid: u64) -> String {
    let digits = format!("{guid:016x}");
    [&digits[..4], &digits[4..8], &digits[8..12], &digits[12..]].join(":")
}

impl Described {
    fn print(&self) {
        say!("{HEADING}{}{HEADING:#}", self.name);
        match &self.outcome {
            Outcome::Device(device) => device.print(),
            Outcome::Error { error } => say!("  {BAD}cannot be opened{BAD:#}: {error}"),
        }
    }
}

impl Device {
    fn print(&self) {
        let line = |what: &str, text: String| say!("  {QUIET}{what:<15}{QUIET:#}{text}");
        line("link", self.mode.clone());
        line("address", self.address.clone());
        if let Some(processes) = &self.shared_with {
            let listed = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let nobody = "no other process at the moment".to_owned();
            line("shared with", if processes.is_empty() { nobody } else { listed });
        }
        for (index, gid) in self.gids.iter().enumerate() {
            line(&format!("GID {index}"), gid.clone());
        }
        line("node GUID", self.guid.clone());
        let state = if self.active { "active" } else { "down" };
        line("port", format!("{state}, path MTU up to {} (IP MTU {})", self.active_mtu, self.ip_mtu));
        let held = units::size(self.receive_buffer as u64);
        line("receive buffer", format!("at least {held} are held until they are read"));
        let local = match self.shared_memory {
            true => {
                "of this user: through shared memory (--pcap records it, Wireshark on lo does not see it)"
            }
            false => "without shared memory",
        };
        line("local peers", local.into());
        let icrc = match self.sees_ip_header {
            true => "fully verified",
            false => "verified except for the IPv4 ID, which the link does not show",
        };
        line("ICRC", icrc.into());
    }
}
