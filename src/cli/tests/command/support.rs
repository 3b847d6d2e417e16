//! Running the command.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

pub const SOFTRNIC: &str = env!("CARGO_BIN_EXE_softrnic");

/// The result of a run of the command.
pub struct Outcome {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The command, in an environment that does not configure it. It is killed if it hangs.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", SOFTRNIC]).args(arguments);
    unconfigured(command)
}

/// Removes the settings that tests inherit.
pub fn unconfigured(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SOFTRNIC_") {
            command.env_remove(name);
        }
    }
    command
}

pub fn softrnic(arguments: &[&str]) -> Outcome {
    outcome(command(arguments).output().expect("the command starts"))
}

pub fn outcome(output: Output) -> Outcome {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    Outcome { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Outcome {
    #[track_caller]
    pub fn expect(self, status: i32) -> Outcome {
        assert_eq!(self.status, Some(status), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The only message on standard error.
    #[track_caller]
    pub fn says(&self, part: &str) {
        assert!(self.stderr.contains(part), "no '{part}' in:\n{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// An empty directory for one test.
pub fn directory(test: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Sends a signal.
pub fn kill(signal: &str, process: impl AsRef<OsStr>) {
    let killed = Command::new("kill").arg(signal).arg(process).status().expect("kill starts");
    assert!(killed.success(), "the process is there");
}
