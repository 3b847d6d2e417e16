//! `softrnic demo`.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{SOFTRNIC, command, directory, kill, outcome, softrnic, unconfigured};

const OPERATIONS: [&str; 7] = [
    "SEND ",
    "SEND with immediate",
    "RDMA WRITE ",
    "RDMA WRITE with imm.",
    "RDMA READ",
    "COMPARE & SWAP",
    "FETCH & ADD",
];

#[test]
fn the_demo_moves_every_byte_and_leaves_a_capture_without_a_malformed_frame() {
    let directory = directory("demo");
    let pcap = directory.join("demo.pcapng");
    let run = command(&["demo", "--seconds", "1"]).current_dir(&directory).arg("--pcap").arg(&pcap).output();
    let shown = outcome(run.expect("the command starts")).expect(0);
    assert_eq!(shown.stderr, "", "no progress where there is no terminal");
    assert!(!shown.stdout.contains('\x1b'), "no colours where there is no terminal");
    assert_eq!(shown.stdout.matches("correct at both ends").count(), 2, "{}", shown.stdout);
    assert!(shown.stdout.contains("Nothing was lost"), "{}", shown.stdout);
    for operation in OPERATIONS {
        assert!(
            shown.stdout.lines().any(|line| line.starts_with(operation)),
            "{operation}:\n{}",
            shown.stdout
        );
    }
    // The last column: packets that were resent in the second pass.
    let resent = |line: &str| line.split_whitespace().last().and_then(|last| last.parse::<u64>().ok());
    let rows =
        shown.stdout.lines().filter(|line| OPERATIONS.iter().any(|operation| line.starts_with(operation)));
    assert!(rows.filter_map(resent).sum::<u64>() > 0, "packets were lost, and resent:\n{}", shown.stdout);

    let files: Vec<_> = directory.read_dir().expect("readable").flatten().map(|entry| entry.path()).collect();
    assert_eq!(files, [pcap.as_path()], "and nothing else");
    if let Some(dissected) = tshark(&pcap, "infiniband") {
        assert!(dissected.len() > 1000, "{} packets", dissected.len());
        let wrong = tshark(&pcap, "_ws.malformed || _ws.expert.severity >= \"Warning\"");
        assert_eq!(wrong, Some(Vec::new()));
        // Both passes are there: each has connections of its own.
        let opcodes = tshark(&pcap, "infiniband.aeth.syndrome.opcode == 3").expect("it worked before");
        assert!(!opcodes.is_empty(), "a NAK of the second pass");
    }
    std::fs::remove_dir_all(directory).expect("removed");
}

/// A line for each packet that the filter selects; `None` where there is no tshark, which CI forbids.
fn tshark(pcap: &Path, filter: &str) -> Option<Vec<String>> {
    let run = Command::new("tshark").args(["-n", "-r"]).arg(pcap).args(["-Y", filter]).output();
    match run {
        Ok(output) => {
            let outcome = outcome(output).expect(0);
            Some(outcome.stdout.lines().map(str::to_owned).collect())
        }
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: tshark is needed: {error}");
            None
        }
        Err(error) => panic!("no tshark: {error}"),
    }
}

#[test]
fn corrupted_and_duplicated_packets_do_no_harm() {
    let faults = "seed=5,corrupt=2%,duplicate=2%,delay=200us:2%";
    let shown =
        softrnic(&["demo", "--no-pcap", "--seconds", "0.5", "--fault", faults, "--seed", "77"]).expect(0);
    assert!(shown.stdout.contains(faults), "{}", shown.stdout);
    assert!(shown.stdout.contains("data seed 77"), "{}", shown.stdout);
}

#[test]
fn an_address_in_use_is_named() {
    let _holder = UdpSocket::bind("127.77.1.1:4791").expect("the address is free");
    for device in ["--device", "--peer-device"] {
        let outcome = softrnic(&["demo", "--no-pcap", device, "udp:127.77.1.1"]).expect(1);
        outcome.says("4791 of 127.77.1.1 is in use");
    }
}

#[test]
fn an_address_of_another_machine_is_named() {
    softrnic(&["demo", "--no-pcap", "--device", "udp:192.0.2.1"]).expect(1).says("192.0.2.1");
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    softrnic(&["demo", "--pcap", "/nonexistent/demo.pcapng"]).expect(1).says("/nonexistent/demo.pcapng");
}

#[test]
fn packets_missing_from_the_capture_on_a_full_disk_are_reported() {
    let outcome = softrnic(&["demo", "--pcap", "/dev/full", "--seconds", "0.5"]).expect(1);
    let line = outcome.stderr.lines().find(|line| line.contains("could not be written"));
    let line = line.unwrap_or_else(|| panic!("nothing is said:\n{}", outcome.stderr));
    let lost = line.strip_prefix("softrnic: /dev/full: ").and_then(|rest| rest.split(' ').next());
    assert!(lost.is_some_and(|lost| lost.parse::<u64>().is_ok_and(|lost| lost > 100)), "{line}");
    assert!(line.contains("No space left on device"), "{line}");
}

/// A demo that would run for long, and the process that it has started.
fn long_demo() -> (std::process::Child, String) {
    let mut demo = unconfigured(Command::new(SOFTRNIC));
    demo.args(["demo", "--no-pcap", "--seconds", "100"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let demo = demo.spawn().expect("the command starts");
    let children = format!("/proc/{0}/task/{0}/children", demo.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut child = None;
    while child.is_none() {
        assert!(Instant::now() < deadline, "the demo starts no second process");
        std::thread::sleep(Duration::from_millis(10));
        let list = std::fs::read_to_string(&children).expect("the demo runs");
        child = list.split_whitespace().next().map(str::to_owned);
    }
    (demo, child.expect("it was found"))
}

#[test]
fn a_peer_that_dies_ends_the_demo_with_an_error() {
    let (demo, child) = long_demo();
    // While it works, at whatever point.
    std::thread::sleep(Duration::from_millis(500));
    kill("-KILL", &child);
    let killed = Instant::now();
    let ended = outcome(demo.wait_with_output().expect("it ends")).expect(1);
    ended.says("error");
    assert!(killed.elapsed() < Duration::from_secs(20), "it took {:?}", killed.elapsed());
}

#[test]
fn the_peer_ends_with_a_demo_that_is_killed() {
    let (mut demo, child) = long_demo();
    std::thread::sleep(Duration::from_millis(500));
    kill("-KILL", demo.id().to_string());
    demo.wait().expect("it ends");
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new("/proc").join(&child).exists() {
        assert!(Instant::now() < deadline, "the second process stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}
