//! Topics of the help that belong to no command: `softrnic help faults`, `softrnic help environment`.

use clap::Args;
use softrnic_link::fault;

use crate::failure::Result;
use crate::output;

const ENVIRONMENT: &str = include_str!("environment.txt");

const FAULT_EXAMPLES: &str = "\
Examples:
  softrnic run --fault seed=7,drop=1%,delay=200us:5% -- ./program
  softrnic run --fault drop:op=ack:nth=3 -- ./program               the third ACK that it sends is lost
  softrnic run --fault drop:op=rc_send*:dir=rx:nth=1-2 -- ./program  the first two SEND packets that it gets
  softrnic run --fault drop:op=cm_rep:nth=1 --pcap x.pcapng -- ./program; softrnic explain x.pcapng";

const ENVIRONMENT_EXAMPLES: &str = "\
Examples:
  SOFTRNIC_LOG=info softrnic run -- ./program
  export SOFTRNIC_DEVICES=udp:10.0.0.5 SOFTRNIC_FAULT=drop=1%
  softrnic env                     prints what `softrnic run` sets";

/// How faults are written, for --fault and SOFTRNIC_FAULT
#[derive(Args)]
#[command(after_help = FAULT_EXAMPLES, after_long_help = format!("{}\n{FAULT_EXAMPLES}", fault::GRAMMAR))]
pub struct FaultsArgs {}

/// The environment variables that SoftRNIC reads
#[derive(Args)]
#[command(after_help = ENVIRONMENT_EXAMPLES, after_long_help = format!("{ENVIRONMENT}\n{ENVIRONMENT_EXAMPLES}"))]
pub struct EnvironmentArgs {}

pub fn faults() -> Result {
    print(fault::GRAMMAR, FAULT_EXAMPLES)
}

pub fn environment() -> Result {
    print(ENVIRONMENT, ENVIRONMENT_EXAMPLES)
}

fn print(text: &str, examples: &str) -> Result {
    output::write_bytes(format!("{text}\n{examples}\n").as_bytes());
    Ok(())
}
