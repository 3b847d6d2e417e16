//! `softrnic run` and `softrnic env`: unmodified verbs programs on our NIC.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::environment::EnvironmentArgs;
use crate::failure::{Doing, Failure, Result};
use crate::output;
use crate::program;

/// The same as in shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

const RUN_EXAMPLES: &str = "\
Examples:
  softrnic run -- ibv_devinfo
  softrnic run -- ib_write_bw            and in another shell, with the server's host:
  softrnic run -- ib_write_bw localhost
  softrnic run --device udp:10.0.0.5 -- ibv_rc_pingpong -g 0
  softrnic run --device udp:eth0 -- rping -s
  softrnic run --device fabric:clos/h0 -- ib_write_bw
  softrnic run --pcap /tmp/%p.pcapng --fault drop=1% -- ./program
  softrnic run --report -- ./program     say at the end what went wrong

The default device's address is at GID indices 0 and 1: -g 0 for the pingpongs; perftest finds it by itself.

Exit status: the program's; 127 if it does not exist, 126 if it cannot be run, 1 or 2 if it was not tried.";

const ENV_EXAMPLES: &str = "\
Examples:
  eval \"$(softrnic env)\"
  eval \"$(softrnic env --device udp:10.0.0.5 --log info)\"";

/// Run a verbs program, unmodified, on SoftRNIC
///
/// The program loads SoftRNIC's libibverbs and finds its devices there. By default, each process has one device, on a
/// loopback address of its own.
#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Say at the end which QPs have failed, what was dropped, and what was not destroyed or polled: on standard error, or as
    /// JSON in FILE, where %p becomes the process id
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    report: Option<PathBuf>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Print the variables that set up a shell as `softrnic run` sets up a program
#[derive(Args)]
#[command(after_help = ENV_EXAMPLES)]
pub struct EnvArgs {
    #[command(flatten)]
    environment: EnvironmentArgs,
}

pub fn run(args: RunArgs) -> Result {
    let mut variables = args.environment.variables()?;
    if let Some(file) = args.report {
        // Programs may change directory.
        let absolute = || std::path::absolute(&file).doing(|| format!("cannot use {}", file.display()));
        let to = if file.as_os_str() == "-" { file.clone() } else { absolute()? };
        variables.push(("SOFTRNIC_REPORT", to.into()));
    }
    replace_with(variables, &args.command)
}

/// Replaces this process with a program in this environment.
pub fn replace(environment: &EnvironmentArgs, command: &[OsString]) -> Result {
    replace_with(environment.variables()?, command)
}

/// Replaces this process with a program, in whose environment the variables are set.
pub fn replace_with(variables: Vec<(&'static str, OsString)>, command: &[OsString]) -> Result {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::usage("no program was named"));
    };
    if let Some((file, obstacle)) = program::obstacle(program) {
        eprintln!("softrnic: warning: {} gets no SoftRNIC device: {obstacle}", file.display());
    }
    let error = Command::new(program).args(arguments).envs(variables).exec();
    let name = program.to_string_lossy();
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::with_status(format!("{name}: no such program"), NOT_FOUND),
        _ => Failure::with_status(format!("cannot run {name}: {error}"), NOT_EXECUTABLE),
    })
}

pub fn env(args: EnvArgs) -> Result {
    for (name, value) in args.environment.variables()? {
        output::write_bytes(&[b"export ", name.as_bytes(), b"=", &quoted(&value), b"\n"].concat());
    }
    Ok(())
}

/// Quoted for every POSIX shell.
fn quoted(value: &OsStr) -> Vec<u8> {
    let parts: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_a_shell() {
        assert_eq!(quoted(OsStr::new("/a b")), b"'/a b'");
        assert_eq!(quoted(OsStr::new("it's")), b"'it'\\''s'");
    }
}
