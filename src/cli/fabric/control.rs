//! `softrnic fabric ctl` and `softrnic fabric down`: commands to a fabric that runs.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use softrnic_fabric_link::control;
use softrnic_study::PortResult;

use crate::failure::{Failure, Result};
use crate::output::say;
use crate::table::{BAD, HEADING, Table};

const EXAMPLES: &str = "\
Examples:
  softrnic fabric ctl clos show                       hosts, and what each port has counted
  softrnic fabric ctl clos show --json | jq '.ports[] | select(.dropped > 0)'
  softrnic fabric ctl clos link leaf0-spine1 down     the cable fails: both ends see it, and routes follow
  softrnic fabric ctl clos link leaf0-spine1 up
  softrnic fabric ctl clos link h3-leaf0 flap         down, and up again after 100 ms
  softrnic fabric ctl clos link h3-leaf0 rate 25Gbps
  softrnic fabric ctl clos link h3-leaf0 ber 1e-6
  softrnic fabric ctl clos link h3-leaf0 blackhole    everything is lost, and nobody sees it; `up` ends that
  softrnic fabric ctl clos link h3-leaf0 fault drop:op=ack:nth=3    the third ACK that h3 sends is lost; `fault off`
  softrnic fabric ctl clos host h3 down               all of its cables; likewise `switch spine1 down`
  softrnic fabric ctl clos pause-storm h3             its NIC pauses lossless priorities; `off` ends that

Exit status: 0 if it was done, 1 if the fabric refused or does not run.";

/// How long a fabric may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Change a fabric that runs, or look at it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// The fabric
    #[arg(value_name = "NAME")]
    fabric: String,
    /// `show` as JSON
    #[arg(long)]
    json: bool,
    /// show, link A-B CHANGE, host HOST down|up, switch SWITCH down|up, pause-storm HOST [PRIORITY…|off]
    #[arg(required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// End a fabric that runs
///
/// The programs that are on it lose their network: their connections end as those on a dead network do.
#[derive(Args)]
pub struct DownArgs {
    /// The fabric
    #[arg(value_name = "NAME")]
    fabric: String,
}

pub fn run(args: CtlArgs) -> Result {
    if args.command != ["show"] {
        return control::command(&args.fabric, &args.command.join(" "), TIMEOUT).map(drop).map_err(refused);
    }
    if args.json {
        say!("{}", control::command(&args.fabric, "show", TIMEOUT).map_err(refused)?);
        return Ok(());
    }
    print(&show(&args.fabric)?);
    Ok(())
}

pub fn down(args: DownArgs) -> Result {
    control::command(&args.fabric, "down", TIMEOUT).map_err(refused)?;
    control::wait_for_end(&args.fabric, TIMEOUT).map_err(refused)
}

/// What a fabric says of itself.
pub fn show(fabric: &str) -> Result<Value> {
    let text = control::command(fabric, "show", TIMEOUT).map_err(refused)?;
    serde_json::from_str(&text)
        .map_err(|_| Failure::new(format!("the fabric {fabric} is of another version")))
}

/// By how much its time is slowed.
pub fn slow_of(state: &Value) -> u64 {
    state["slow"].as_u64().unwrap_or(1)
}

fn refused(error: softrnic_fabric_link::JoinError) -> Failure {
    Failure::new(error.to_string())
}

/// Its time, in seconds.
pub fn seconds_of(state: &Value) -> f64 {
    state["time_ns"].as_f64().unwrap_or(0.0) / 1e9
}

pub fn print_heading(state: &Value) {
    let (name, seconds) = (state["name"].as_str().unwrap_or_default(), seconds_of(state));
    let slow = if slow_of(state) > 1 { format!(", {} times slower", slow_of(state)) } else { String::new() };
    say!("{HEADING}The fabric {name}{HEADING:#}, up for {seconds:.3} s of its time{slow}");
}

fn print(state: &Value) {
    print_heading(state);
    let mut table = Table::new(2, &["host", "address", "link", "processes", "overruns"]);
    for host in state["hosts"].as_array().into_iter().flatten() {
        let text = |key: &str| host[key].as_str().unwrap_or_default().to_owned();
        let link = if host["up"].as_bool() == Some(true) { "up" } else { "down" };
        table.row(vec![
            text("host"),
            if host["interface"].is_null() { text("address") } else { text("interface") },
            link.into(),
            host["processes"].to_string(),
            host["overruns"].to_string(),
        ]);
    }
    say!("{table}");
    let down: Vec<&str> =
        state["links_down"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !down.is_empty() {
        say!("{BAD}Down:{BAD:#} {}\n", down.join(", "));
    }
    print_ports(&ports_of(state), seconds_of(state));
    let micros = |key: &str| state[key].as_f64().unwrap_or(0.0) / 1e3;
    say!(
        "Frames are delivered {:.2} us late on average, {:.1} us at most; {} were for nobody",
        micros("late_mean_ns"),
        micros("late_most_ns"),
        state["astray"]
    );
}

/// What each port has counted.
pub fn ports_of(state: &Value) -> Vec<PortResult> {
    let ports = state["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| PortResult::deserialize(port).ok()).collect()
}

/// The ports that have sent or lost anything in some time.
pub fn print_ports(ports: &[PortResult], seconds: f64) {
    let titles = [
        "port",
        "frames",
        "bytes",
        "marked",
        "dropped",
        "damaged",
        "down",
        "faults",
        "pauses",
        "paused us",
        "longest queue B",
        "Gb/s",
    ];
    let mut table = Table::new(1, &titles);
    for port in ports.iter().filter(|port| port.counts().iter().any(|count| *count > 0)) {
        let mut row = vec![port.port.clone()];
        row.extend(port.counts().iter().map(u64::to_string));
        row.push(format!("{:.1}", port.paused_ns / 1e3));
        row.push(port.queue_peak.to_string());
        row.push(format!("{:.3}", port.tx_bytes as f64 * 8e-9 / seconds.max(1e-12)));
        table.row(row);
    }
    say!("{table}");
}
