//! `softrnic check`: verbs programs on our NIC, which tells what they do wrong.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use softrnic_check::{Kind, Suppressions};

use crate::environment::EnvironmentArgs;
use crate::failure::{Doing, Failure, Result};
use crate::output;
use crate::run::replace_with;

const EXAMPLES: &str = "\
Examples:
  softrnic check -- ./program
  softrnic check --error-exitcode 9 -- make test        a test fails if its program does something wrong
  softrnic check --log-file check.%p -- mpirun -n 2 ./program
  softrnic check --report check.json -- python3 program.py
  softrnic check --device udp:10.0.0.5 --leak-check full -- ./server
  softrnic check --list                                 the kinds of mistakes

Compile the program with -g: the reports name files and lines.

Exit status: the program's, or that of --error-exitcode; 127 if the program does not exist, 126 if it cannot be run, 1 or 2 if it
was not tried.";

/// Run a verbs program on SoftRNIC, and say what it does wrong with verbs, and in which line
///
/// A wrong key, a buffer that is used again too early, a queue that fills up: each gets a report with the calls that led to it, as
/// from AddressSanitizer or Valgrind.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The exit status if something was found; the program's own without this option
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u8).range(1..))]
    error_exitcode: Option<u8>,
    /// End the program with the first report
    #[arg(long)]
    halt_on_error: bool,
    /// Write reports to FILE instead of standard error; %p becomes the process id
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Write a report for machines to FILE when the program ends, as JSON; %p becomes the process id
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Do not report what the rules in FILE name
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// What to say about objects that the program does not destroy
    #[arg(long, value_name = "HOW", default_value = "summary")]
    leak_check: Leaks,
    /// List the kinds of mistakes, and run nothing
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The program and its arguments
    #[arg(required_unless_present = "list", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Leaks {
    /// Nothing
    No,
    /// How many of each kind
    Summary,
    /// A report for each, which counts as an error
    Full,
}

/// Replaces this process with the program.
pub fn run(args: CheckArgs) -> Result {
    if args.list {
        for kind in Kind::ALL {
            output::write_bytes(format!("{:24}{}\n", kind.name(), kind.means()).as_bytes());
        }
        return Ok(());
    }
    let mut variables = args.environment.variables()?;
    let mut set = |name, value: OsString| variables.push((name, value));
    set("SOFTRNIC_CHECK", "1".into());
    if let Some(status) = args.error_exitcode {
        set("SOFTRNIC_CHECK_EXITCODE", status.to_string().into());
    }
    if args.halt_on_error {
        set("SOFTRNIC_CHECK_HALT", "1".into());
    }
    if let Some(file) = &args.log_file {
        set("SOFTRNIC_CHECK_LOG", absolute(file)?);
    }
    if let Some(file) = &args.report {
        set("SOFTRNIC_CHECK_REPORT", absolute(file)?);
    }
    if let Some(file) = &args.suppressions {
        // Checked here, where somebody sees what is wrong with it.
        let text = std::fs::read_to_string(file).doing(|| format!("cannot read {}", file.display()))?;
        Suppressions::parse(&text).map_err(|error| Failure::usage(format!("{}, {error}", file.display())))?;
        set("SOFTRNIC_CHECK_SUPPRESSIONS", absolute(file)?);
    }
    let leaks = args.leak_check.to_possible_value().map(|value| value.get_name().to_owned());
    set("SOFTRNIC_CHECK_LEAKS", leaks.unwrap_or_default().into());
    replace_with(variables, &args.command)
}

/// Programs may change directory.
fn absolute(file: &Path) -> Result<OsString> {
    Ok(std::path::absolute(file).doing(|| format!("cannot use {}", file.display()))?.into())
}
