//! `softrnic grant`, as far as it can be tried without privileges.

use std::process::Command;

use crate::support::{SOFTRNIC, outcome, unconfigured};

/// Root without any capability is as good as anybody else.
#[test]
fn without_privileges_it_says_so_instead_of_running_the_command() {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { SOFTRNIC });
    if is_root {
        command.args(["--bounding-set=-all", "--inh-caps=-all", SOFTRNIC]);
    }
    command.args(["grant", "--interface", "lo", "--user", "65534", "--", "echo", "it ran"]);
    let refused = outcome(unconfigured(command).output().expect("it starts")).expect(1);
    refused.says("cannot be granted without CAP_NET_RAW, CAP_NET_ADMIN");
    refused.says("sudo");
    assert_eq!(refused.stdout, "");
}
