//! `softrnic run` and `softrnic env`, with libraries that are only files. What real ones do is tested in
//! tests/verbs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Outcome, SOFTRNIC, directory, outcome, unconfigured};

/// A copy of the command as `make install` leaves it, with libraries or without.
struct Installation(PathBuf);

impl Installation {
    fn new(test: &str) -> Installation {
        let root = directory(test);
        let libraries = root.join("lib/softrnic");
        std::fs::create_dir_all(&libraries).expect("a directory");
        std::fs::create_dir_all(root.join("bin")).expect("a directory");
        std::fs::copy(SOFTRNIC, root.join("bin/softrnic")).expect("a copy");
        for file in ["libibverbs.so.1", "libsoftrnic_interpose.so"] {
            std::fs::write(libraries.join(file), "").expect("a file");
        }
        Installation(root)
    }

    fn library(&self, file: &str) -> PathBuf {
        self.0.join("lib/softrnic").join(file)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = unconfigured(Command::new(self.0.join("bin/softrnic")));
        command.args(arguments).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        command.env("XDG_RUNTIME_DIR", &self.0);
        command
    }

    fn softrnic(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments).output().expect("the command starts"))
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Prints what a program is given.
const SHOW: [&str; 4] = ["--", "sh", "-c", "env | grep -E '^(LD_|SOFTRNIC_)' | sort"];

#[test]
fn a_program_gets_the_libraries_and_the_requested_settings() {
    let installation = Installation::new("run");
    let given = ["run", "--device", "udp", "--device", "b=udp:127.77.4.1", "--pcap", "x-%p.pcapng"];
    let given = [&given[..], &["--fault", "seed=3,drop=1%", "--log", "debug"], &SHOW].concat();
    let shown = installation.softrnic(&given).expect(0).stdout;
    let here = std::env::current_dir().expect("a directory");
    let sysfs = shown.lines().find_map(|line| line.strip_prefix("SOFTRNIC_SYSFS=")).expect("a directory");
    let expected = format!(
        "LD_LIBRARY_PATH={}\nLD_PRELOAD={}:{}\nSOFTRNIC_DEVICES=udp,b=udp:127.77.4.1\nSOFTRNIC_FAULT=seed=3,drop=1%\n\
         SOFTRNIC_LOG=debug\nSOFTRNIC_PCAP={}\nSOFTRNIC_SYSFS={sysfs}\n",
        installation.0.join("lib/softrnic").display(),
        installation.library("libsoftrnic_interpose.so").display(),
        installation.library("libibverbs.so.1").display(),
        here.join("x-%p.pcapng").display(),
    );
    assert_eq!(shown, expected);
    let private = Path::new(sysfs).parent().expect("a private directory");
    assert_eq!(private.metadata().expect("it is there").mode() & 0o777, 0o700);
}

#[test]
fn the_options_of_a_capture_are_checked_and_passed_on() {
    let installation = Installation::new("pcap");
    let given = ["run", "--pcap", "/x.pcapng", "--pcap-snaplen", "128", "--pcap-filesize", "100M"];
    let given = [&given[..], &["--pcap-files", "5", "--pcap-lossy"], &SHOW].concat();
    let shown = installation.softrnic(&given).expect(0).stdout;
    let capture: Vec<&str> = shown.lines().filter(|line| line.starts_with("SOFTRNIC_PCAP")).collect();
    assert_eq!(
        capture,
        [
            "SOFTRNIC_PCAP=/x.pcapng",
            "SOFTRNIC_PCAP_FILES=5",
            "SOFTRNIC_PCAP_FILESIZE=100000000",
            "SOFTRNIC_PCAP_LOSSY=1",
            "SOFTRNIC_PCAP_SNAPLEN=128",
        ]
    );
    for wrong in [
        &["--pcap", "x", "--pcap-snaplen", "10"][..],
        &["--pcap", "x", "--pcap-filesize", "1T"],
        &["--pcap", "x", "--pcap-files", "3"],
        &["--pcap-lossy"],
    ] {
        installation.softrnic(&[&["run"], wrong, &SHOW[..]].concat()).expect(2);
    }
}

#[test]
fn a_shell_can_be_set_up_the_same_way_and_twice() {
    let installation = Installation::new("env");
    let once =
        installation.softrnic(&["run", "--device", "udp:127.77.4.2", "--", "sh", "-c", SHOW[3]]).expect(0);
    let mut shell = unconfigured(Command::new("sh"));
    let set_up = format!("{}/bin/softrnic env --device udp:127.77.4.2", installation.0.display());
    shell.args(["-c", &format!("eval \"$({set_up})\" && eval \"$({set_up})\" && {}", SHOW[3])]);
    shell.env("XDG_RUNTIME_DIR", &installation.0).env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    let twice = outcome(shell.output().expect("a shell starts")).expect(0);
    assert_eq!(twice.stdout, once.stdout);
}

#[test]
fn earlier_preloads_stay() {
    let installation = Installation::new("preloaded");
    let mut run = installation.command(&[&["run"][..], &SHOW].concat());
    let shown =
        outcome(run.env("LD_LIBRARY_PATH", "/a:/b").output().expect("the command starts")).expect(0).stdout;
    assert!(shown.contains("lib/softrnic:/a:/b\n"), "{shown}");
    assert!(!shown.contains("SOFTRNIC_DEVICES"), "each process finds an address of its own: {shown}");
}

#[test]
fn the_command_becomes_the_program() {
    let installation = Installation::new("becomes");
    let run = installation.command(&["run", "--", "sh", "-c", "echo $$; exit 42"]);
    let child = { run }.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.expect("the command starts");
    let process = child.id();
    let ended = outcome(child.wait_with_output().expect("it ends")).expect(42);
    assert_eq!(ended.stdout, format!("{process}\n"));
}

#[test]
fn programs_that_cannot_be_run_have_the_status_of_shells() {
    let installation = Installation::new("status");
    installation
        .softrnic(&["run", "--", "no-such-program"])
        .expect(127)
        .says("no-such-program: no such program");
    installation.softrnic(&["run", "--", "/etc/passwd"]).expect(126).says("/etc/passwd");
}

/// A copy of a program, changed by `change`.
fn changed(installation: &Installation, name: &str, change: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let mut program = std::fs::read("/usr/bin/true").expect("a program");
    change(&mut program);
    let path = installation.0.join(name);
    std::fs::write(&path, program).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a program");
    path
}

/// Where a part is in a program.
fn find(program: &[u8], part: &[u8]) -> usize {
    program.windows(part.len()).position(|bytes| bytes == part).expect("it is there")
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "changes a program for that")]
fn a_program_that_cannot_be_given_the_libraries_is_named_with_the_reason() {
    let installation = Installation::new("obstacles");
    let warning = |arguments: &[&str]| {
        let run = [&["run", "--"], arguments].concat();
        let stderr = installation.softrnic(&run).stderr;
        stderr.lines().filter(|line| line.contains("gets no SoftRNIC device")).collect::<String>()
    };
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let plain = path(&changed(&installation, "plain", |_| {}));
    assert_eq!(warning(&[&plain]), "");
    assert_eq!(warning(&["true"]), "");

    let other = changed(&installation, "musl", |program| {
        let at = find(program, b"/lib64/ld-linux-x86-64.so.2");
        program[at..at + 27].copy_from_slice(b"/lib/ld-musl-x86_64.so.1\0\0\0");
    });
    let said = warning(&[&path(&other)]);
    assert!(said.contains(&format!("{} gets", other.display())), "{said}");
    assert!(said.contains("its dynamic linker is /lib/ld-musl-x86_64.so.1"), "{said}");

    let machine = changed(&installation, "machine", |program| program[18] = 0xF3);
    assert!(warning(&[&path(&machine)]).contains("for another processor"));

    // PT_INTERP is the type of the segment that names the linker.
    let alone = changed(&installation, "static", |program| {
        let at = find(program, b"\x03\0\0\0\x04\0\0\0");
        program[at] = 0;
    });
    assert!(warning(&[&path(&alone)]).contains("statically linked"));
    let script = installation.0.join("script");
    std::fs::write(&script, format!("#! {} -x\n", alone.display())).expect("a file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a script");
    let said = warning(&[&path(&script)]);
    assert!(said.contains(&format!("{} gets", alone.display())), "{said}");
    // The dynamic linker itself needs none.
    assert_eq!(warning(&["/lib64/ld-linux-x86-64.so.2", &plain]), "");

    // Root runs a program as another user; only root can make one.
    let privileged = changed(&installation, "privileged", |_| {});
    if std::os::unix::fs::chown(&privileged, Some(65534), None).is_ok() {
        std::fs::set_permissions(&privileged, PermissionsExt::from_mode(0o4755)).expect("a program");
        assert!(warning(&[&path(&privileged)]).contains("setuid"));
    }
}

#[test]
fn an_invalid_device_is_reported_before_the_program_runs() {
    let installation = Installation::new("wrong-device");
    installation
        .softrnic(&["run", "--device", "ftp", "--", "echo", "ran"])
        .expect(2)
        .says("'ftp' is not a link");
    let mut run = installation.command(&["run", "--", "echo", "ran"]);
    let outcome = outcome(run.env("SOFTRNIC_DEVICES", "ftp").output().expect("the command starts")).expect(2);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn missing_libraries_are_named_with_the_command_that_builds_them() {
    let installation = Installation::new("missing");
    std::fs::remove_file(installation.library("libsoftrnic_interpose.so")).expect("removed");
    installation.softrnic(&["run", "--", "true"]).expect(1).says("lib/softrnic/libsoftrnic_interpose.so");
    std::fs::remove_file(installation.library("libibverbs.so.1")).expect("removed");
    let outcome = installation.softrnic(&["env"]).expect(1);
    outcome.says("lib/softrnic/libibverbs.so.1");
    outcome.says(&format!("make install PREFIX={}", installation.0.display()));
    assert_eq!(outcome.stdout, "");
}

#[test]
fn a_directory_that_is_not_private_is_not_used() {
    let installation = Installation::new("not-private");
    std::fs::create_dir(installation.0.join("softrnic")).expect("a directory");
    let open = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(installation.0.join("softrnic"), open).expect("opened");
    let shown = installation.softrnic(&[&["run"][..], &SHOW].concat()).expect(0).stdout;
    let used = shown.lines().find(|line| line.starts_with("SOFTRNIC_SYSFS=")).expect("another one is");
    assert!(!used.contains(&*installation.0.to_string_lossy()), "{shown}");
}
