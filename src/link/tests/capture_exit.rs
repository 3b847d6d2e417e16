//! A capture file is complete when its process ends, however that ends. Without a harness, so that the
//! processes have no threads that a fork or an exit could surprise.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pcap_file::pcapng::{Block, PcapNgReader};
use softrnic_link::capture::{Capture, CaptureLink, CaptureOptions};
use softrnic_link::sim::{Fabric, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_wire::Time;

const SRC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const DST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, path] = arguments.as_slice() {
        return play(role, Path::new(path));
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    for (role, status, packets, statistics) in
        [("exit", Some(3), 100, 1), ("abort", None, 1, 0), ("fork", Some(0), 2, 1)]
    {
        let path = file(role);
        let own = std::env::current_exe().expect("our own path");
        let ended = Command::new(own).arg(role).arg(&path).status().expect("a process");
        assert_eq!(ended.code(), status, "{role}");
        assert_eq!(contents(&path), (packets, statistics), "{role}: packets and statistics");
        std::fs::remove_file(&path).expect("the file of the test");
        println!("a capture ends well after {role}");
    }
    ExitCode::SUCCESS
}

fn play(role: &str, path: &Path) -> ExitCode {
    let fabric = Fabric::new(0);
    let link = fabric.attach(SRC, SimOptions::default()).expect("a free address");
    let mut link = Capture::create(path, CaptureOptions::default()).expect("a file").wrap(link, "softrnic0");
    match role {
        "exit" => {
            (0..100).for_each(|_| record(&mut link));
            // As a program in C ends: nothing is dropped.
            std::process::exit(3);
        }
        "abort" => {
            record(&mut link);
            assert!(link.capture().flush(std::time::Duration::from_secs(5)));
            std::process::abort();
        }
        "fork" => {
            record(&mut link);
            // SAFETY: the child lets go of the link and exits.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                drop(link);
                std::process::exit(0);
            }
            // SAFETY: our own child; its status is of no interest.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            record(&mut link);
            ExitCode::SUCCESS
        }
        other => panic!("no role is called {other}"),
    }
}

fn record(link: &mut CaptureLink<SimLink>) {
    let flow = Flow { src: SRC, dst: DST, sport: 4791, part: None, tos: 0, ttl: 64 };
    link.reserve(Time::ZERO, &flow, 1000).expect("room");
    link.commit(Time::ZERO);
    link.flush(Time::ZERO);
}

fn file(role: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softrnic-capture-{role}-{}.pcapng", std::process::id()))
}

/// How many packets and statistics blocks there are; a block that is cut short fails the test.
fn contents(path: &Path) -> (usize, usize) {
    let mut reader = PcapNgReader::new(File::open(path).expect("the file")).expect("a section");
    let (mut packets, mut statistics) = (0, 0);
    while let Some(block) = reader.next_block() {
        match block.expect("a whole block").0 {
            Block::EnhancedPacket(_) => packets += 1,
            Block::InterfaceStatistics(_) => statistics += 1,
            _ => {}
        }
    }
    (packets, statistics)
}
