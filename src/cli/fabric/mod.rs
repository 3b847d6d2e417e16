//! `softrnic fabric`: networks that are modelled, in virtual time and for running programs.

mod control;
mod exec;
mod seeds;
mod show;
mod study;
mod up;

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use softrnic_link::capture::{Capture, CaptureOptions, WhenFull};

pub use self::control::{show, slow_of};
use crate::failure::{Doing, Failure, Result};

/// How long the end of a capture may take.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "\
Examples:
  softrnic fabric study incast.toml                 completion times, marks, pauses and drops, in virtual time
  softrnic fabric study clos.toml --csv results     the same for every flow and port, as files
  softrnic fabric study clos.toml --html clos.html  a page with plots of goodput and queues
  softrnic fabric study clos.toml --seed 7 --json
  softrnic fabric up clos.toml                      the network in real time, for the programs of this machine
  softrnic fabric exec clos h0 -- ib_write_bw       a program on one of its hosts
  softrnic fabric ctl clos link leaf0-spine1 down   a cable fails
  softrnic fabric show clos                         what each port carries

docs/fabric.md describes the file.";

/// Model networks: switches, queues, congestion and failing links
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct FabricArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Study(study::StudyArgs),
    Up(up::UpArgs),
    Exec(exec::ExecArgs),
    Ctl(control::CtlArgs),
    Show(show::ShowArgs),
    Down(control::DownArgs),
}

/// Begins a capture with an interface for each port. Nothing is lost: the network waits for the file.
fn capture(path: &Path) -> Result<Capture> {
    let options = CaptureOptions { when_full: WhenFull::Wait, repeatable: true, ..CaptureOptions::default() };
    Capture::create(path, options).doing(|| format!("cannot write {}", path.display()))
}

/// Waits until a capture is in its file.
fn finish(capture: &Capture) -> Result {
    capture.flush(LONGEST_WRITE);
    match capture.error() {
        Some(error) => Err(Failure::new(format!("cannot write {}: {error}", capture.path().display()))),
        None => Ok(()),
    }
}

pub fn run(args: FabricArgs) -> Result {
    match args.command {
        Command::Study(args) => study::run(args),
        Command::Up(args) => up::run(args),
        Command::Exec(args) => exec::run(args),
        Command::Ctl(args) => control::run(args),
        Command::Show(args) => show::run(args),
        Command::Down(args) => control::down(args),
    }
}
