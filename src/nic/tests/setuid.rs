//! A program with more privileges than the user who started it does not trust its environment.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use softrnic_nic::device::DeviceSpec;
use softrnic_stats::private_directory;
use softrnic_sys::environment;

/// Tells the copy of this program what to do. No variable of SoftRNIC's, so it comes through.
const CHILD: &str = "TEST_SETUID_CHILD";

#[test]
fn a_setuid_program_ignores_its_environment() {
    if std::env::var_os(CHILD).is_some() {
        return as_setuid_program();
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: to make a setuid program takes root");
    }
    let folder = Folder::new();
    let copy = folder.0.join("program");
    std::fs::copy(std::env::current_exe().expect("our own path"), &copy).expect("copied");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).expect("ours");
    let run = |program: &Path| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program)
            .args(["--exact", "a_setuid_program_ignores_its_environment", "--nocapture"])
            .env(CHILD, "1")
            .env("SOFTRNIC_PCAP", folder.0.join("overwritten"))
            .env("SOFTRNIC_DEVICES", "mine=udp")
            .env("SOFTRNIC_FAULT", "drop=100%")
            .env("SOFTRNIC_SYSFS", &folder.0)
            .env("XDG_RUNTIME_DIR", &folder.0)
            .output()
            .expect("setpriv runs")
    };
    let outcome = run(&copy);
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{text}{}", String::from_utf8_lossy(&outcome.stderr));
    assert!(text.contains("euid 0, softrnic0, believed: []"), "{text}");
    // Without the set-user-ID bit the same program does.
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let text = String::from_utf8_lossy(&run(&copy).stdout).into_owned();
    assert!(text.contains("euid 65534, mine, believed: [\"SOFTRNIC_PCAP\", "), "{text}");
}

fn as_setuid_program() {
    let devices = DeviceSpec::from_env().expect("understood");
    let [device] = devices.as_slice() else { panic!("one device: {devices:?}") };
    let known = ["SOFTRNIC_PCAP", "SOFTRNIC_FAULT", "SOFTRNIC_SYSFS", "SOFTRNIC_GRANT", "XDG_RUNTIME_DIR"];
    let believed: Vec<&str> =
        known.into_iter().filter(|name| environment::variable(name).is_some()).collect();
    println!("euid {}, {}, believed: {believed:?}", rustix::process::geteuid().as_raw(), device.name);
    assert_eq!(device.pcap.is_some(), device.fault.is_some());
    let directory = private_directory().expect("made");
    assert!(
        rustix::process::geteuid().as_raw() != 0
            || !directory.starts_with(std::env::temp_dir().join("softrnic-setuid"))
    );
}

/// A folder that others can enter.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("softrnic-setuid-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
