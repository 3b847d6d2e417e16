//! `softrnic fabric`: networks that are modelled.

mod chart;
mod page;
mod pauses;
mod study;

use clap::{Args, Subcommand};

use crate::failure::Result;

const EXAMPLES: &str = "\
Examples:
  softrnic fabric study incast.toml                 completion times, marks, pauses and drops, in virtual time
  softrnic fabric study clos.toml --csv results     the same for every flow and port, as files
  softrnic fabric study clos.toml --html clos.html  a page with plots of goodput and queues
  softrnic fabric study clos.toml --seed 7 --json

docs/fabric.md describes the file.";

/// Study networks: switches, queues, congestion and failing links
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct FabricArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Study(study::StudyArgs),
}

pub fn run(args: FabricArgs) -> Result {
    match args.command {
        Command::Study(args) => study::run(args),
    }
}
