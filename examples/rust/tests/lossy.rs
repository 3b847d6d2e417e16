//! Both ends over a network that loses packets, the same ones each time. Captures stay if it fails.
//!
//! `FAULTS` replaces the faults, `CAPTURES` the directory of the captures.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that does not outlive its test.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        // It has ended already, if all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(captures: &Path, name: &str, arguments: &[&str]) -> End {
    let faults = std::env::var("FAULTS").unwrap_or("seed=7,drop=2%,dup=1%,reorder=1%".into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_pingpong-in-rust"));
    command.args(arguments).env("SOFTRNIC_FAULT", faults).env("SOFTRNIC_PCAP", captures.join(name));
    End(command.stdout(Stdio::piped()).spawn().expect("the program starts"))
}

#[test]
fn messages_arrive_over_a_network_that_loses_some() {
    let captures = std::env::var_os("CAPTURES")
        .map_or(Path::new(env!("CARGO_TARGET_TMPDIR")).join("captures"), PathBuf::from);
    std::fs::create_dir_all(&captures).expect("a directory for captures");
    let mut server = start(&captures, "server.pcapng", &[]);
    let mut port = String::new();
    // Kept open until the server ends: it prints more.
    let mut output = BufReader::new(server.0.stdout.take().expect("a pipe"));
    output.read_line(&mut port).expect("the server prints its port");
    let mut client = start(&captures, "client.pcapng", &["127.0.0.1", port.trim()]);
    assert!(client.0.wait().expect("the client ends").success(), "see {}", captures.display());
    assert!(server.0.wait().expect("the server ends").success(), "see {}", captures.display());
    std::fs::remove_dir_all(captures).expect("removed");
}
