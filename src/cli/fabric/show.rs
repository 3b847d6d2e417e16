//! `softrnic fabric show`: what a fabric carries now.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use softrnic_study::PortResult;

use super::control::{ports_of, print_heading, print_ports, seconds_of, show};
use crate::failure::Result;
use crate::output::say;

/// Show what each port of a running fabric carries, marks and loses
///
/// Rates are those of the fabric's time, as the description's are. `softrnic fabric ctl NAME show` has the totals, and the
/// hosts.
#[derive(Args)]
pub struct ShowArgs {
    /// The fabric
    #[arg(value_name = "NAME")]
    fabric: String,
    /// Seconds of the clock between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// End after so many intervals
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: ShowArgs) -> Result {
    let mut before = show(&args.fabric)?;
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        std::thread::sleep(Duration::from_secs(args.interval));
        let after = show(&args.fabric)?;
        let seconds = seconds_of(&after) - seconds_of(&before);
        let ports: Vec<PortResult> =
            ports_of(&after).iter().zip(&ports_of(&before)).map(|(new, old)| new.since(old)).collect();
        if args.json {
            say!("{}", json!({ "seconds": seconds, "ports": ports }));
        } else {
            print_heading(&after);
            print_ports(&ports, seconds);
        }
        before = after;
    }
    Ok(())
}
