//! `softrnic link`: the ports of the NICs of running processes, and commands to them.

use std::net::IpAddr;

use clap::Args;
use softrnic_link::fault::LinkCommand;
use softrnic_stats::{Devices, Look, Snapshot, command, look};

use crate::failure::{Doing, Failure, Result};
use crate::output::write;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  softrnic link                        the ports of your running processes
  softrnic link mlx5_0 down            the device mlx5_0 of each of them loses its link
  softrnic link mlx5_0 up
  softrnic link --pid 4711 mlx5_0 down for=2s
  softrnic link 127.7.0.2 down         whatever device has this address
  softrnic link all flap 3 down=200ms up=1s

Actions:
  down [for=TIME]                      no packet passes any more, in either direction
  up [deaf=TIME]                       packets pass again, or not before this time
  flap N down=TIME up=TIME             down and up several times
  blackhole [in|out] [peer=ADDRESS] [for=TIME]    packets are swallowed while the port is up; or blackhole off
  rate SPEED                           it sends no faster, such as 1Gbit; or rate off
  addr-change                          rdma_cm learns that the interface has another hardware address
  fatal                                the device fails, for good
  faults SPEC                          inject these, as --fault does, and no others; or faults off

Programs get asynchronous events such as IBV_EVENT_PORT_ERR, ibv_query_port and /sys/class/infiniband say the same, and no
packet passes a port that is down. Only root and the user of a process can command it.

Exit status: 0 if all selected devices obeyed; 1 if one did not, or there is none; 2 for wrong arguments.";

/// Show the ports of running processes, take them down and bring them up
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LinkArgs {
    /// The devices: a name, an address, or all
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Only devices of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// What happens to their ports
    #[arg(value_name = "ACTION")]
    action: Vec<String>,
}

pub fn run(args: LinkArgs) -> Result {
    let wanted = args.action.join(" ");
    let wanted =
        (!wanted.is_empty()).then(|| wanted.parse::<LinkCommand>()).transpose().map_err(Failure::usage)?;
    let target = match args.device {
        None => Devices::All,
        Some(word) if wanted.is_none() && word.parse::<LinkCommand>().is_ok() => {
            return Err(Failure::usage(format!(
                "{word} which device? Put its name, its address, or all before"
            )));
        }
        Some(all) if all == "all" => Devices::All,
        Some(name) => name.parse().map_or(Devices::Named(name), Devices::With),
    };
    let found = look().doing(|| "cannot look for devices".into())?;
    let selected =
        |snapshot: &&Snapshot| args.pid.is_none_or(|pid| pid == snapshot.pid) && target.include(snapshot);
    let devices: Vec<&Snapshot> = found.snapshots.iter().filter(selected).collect();
    if devices.is_empty() {
        return Err(Failure::new(nothing(&target, args.pid, &found)));
    }
    match wanted {
        None => {
            show(&devices);
            Ok(())
        }
        Some(command) => tell(&devices, &command),
    }
}

/// Has all devices carry out a command, and names those that do not.
fn tell(devices: &[&Snapshot], wanted: &LinkCommand) -> Result {
    let text = wanted.to_string();
    let mut refused = Vec::new();
    for Snapshot { device, program, pid, socket, .. } in devices {
        if let Err(error) = command(socket, &text) {
            refused.push(format!("{device} of {program} ({pid}): {error}"));
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::new(refused.join("\n"))) }
}

fn nothing(target: &Devices, pid: Option<u32>, found: &Look) -> String {
    let what = match target {
        Devices::All => "device".to_owned(),
        Devices::With(address) => format!("device with the address {address}"),
        Devices::Named(name) => format!("device named {name}"),
    };
    let whose = match pid {
        Some(pid) => format!("process {pid} has no {what}, or is not this user's"),
        None => format!("no process of this user has a {what}"),
    };
    let silent: Vec<String> =
        found.silent.iter().map(|silent| format!("\n{}: {}", silent.name, silent.why)).collect();
    format!("{whose}{}", silent.concat())
}

fn show(devices: &[&Snapshot]) {
    let mut table = Table::new(3, &["device", "program", "process", "address", "state", "speed", ""]);
    for snapshot in devices {
        let address = snapshot.gids.values().max_by_key(|address| address.is_ipv4());
        table.row(vec![
            snapshot.device.clone(),
            snapshot.program.clone(),
            snapshot.pid.to_string(),
            address.map_or("-".into(), IpAddr::to_string),
            snapshot.port.state.clone(),
            snapshot.port.speed(),
            snapshot.port.commanded().unwrap_or_default(),
        ]);
    }
    write(format_args!("{table}"));
}
