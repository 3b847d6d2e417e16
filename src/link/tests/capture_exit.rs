//! A capture file is complete when its process ends, however that ends. Without a harness, so that the
//! processes have no threads that a fork or an exit could surprise.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use pcap_file::pcapng::{Block, PcapNgReader};
use softrnic_link::capture::{Capture, CaptureLink, CaptureOptions};
use softrnic_link::sim::{Fabric, SimLink, SimOptions};
use softrnic_link::{Flow, Link};
use softrnic_wire::Time;

const SRC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const DST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

/// Bytes that a process may write to a file before the system says that there is no more room.
const ROOM: u64 = 2_000_000;

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
        let ended = start(role, &path).status().expect("a process");
        assert_eq!(ended.code(), status, "{role}");
        assert_eq!(contents(&path), (packets, statistics), "{role}: packets and statistics");
        std::fs::remove_file(&path).expect("the file of the test");
        println!("a capture ends well after {role}");
    }
    a_killed_process_leaves_whole_packets();
    a_full_disk_is_told_and_leaves_whole_packets();
    an_exit_waits_for_a_slow_file();
    an_exit_does_not_wait_for_a_file_that_stands_still();
    ExitCode::SUCCESS
}

fn start(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.arg(role).arg(path);
    command
}

/// What has been handed to the system stays, up to a whole packet: here, all but what was recorded a moment before.
fn a_killed_process_leaves_whole_packets() {
    let path = file("kill");
    let mut process = start("endless", &path).spawn().expect("a process");
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 4_000_000 {
        assert!(process.try_wait().expect("ours").is_none(), "it goes on until it is killed");
        std::thread::yield_now();
    }
    process.kill().expect("ours");
    process.wait().expect("ours");
    let (packets, statistics) = contents(&path);
    assert!(packets > 1000 && statistics == 0, "{packets} packets, {statistics} statistics");
    std::fs::remove_file(&path).expect("the file of the test");
    println!("a killed process leaves {packets} whole packets");
}

fn a_full_disk_is_told_and_leaves_whole_packets() {
    let path = file("full");
    let output = start("full", &path).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "the program goes on: {said}");
    assert!(
        said.contains("the capture ends here, and the program continues without it: File too large"),
        "{said}"
    );
    let (packets, _) = contents(&path);
    let len = std::fs::metadata(&path).expect("the file").len();
    assert!(len <= ROOM && len > ROOM / 2, "{len} bytes");
    let lost = 4000 - packets;
    assert!(said.contains(&format!("{lost} packets could not be written: File too large")), "{lost}: {said}");
    std::fs::remove_file(&path).expect("the file of the test");
    println!("a full disk leaves {packets} whole packets, and {lost} are counted");
}

fn pipe(role: &str) -> (PathBuf, File) {
    let path = file(role);
    let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no zeros");
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("a pipe");
    (path, reader)
}

/// The process has long ended its work when the reader begins.
fn an_exit_waits_for_a_slow_file() {
    let (path, mut reader) = pipe("slow");
    let mut process = start("thousand", &path).stdout(Stdio::piped()).spawn().expect("a process");
    let mut said = [0];
    process.stdout.take().expect("piped").read_exact(&mut said).expect("that it exits now");
    let mut all = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => all.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        // 400 kB/s: it takes longer than the exit waits for a file that stands still.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(process.wait().expect("ours").code(), Some(0));
    assert_eq!(contents_of(all.as_slice()), (1000, 1));
    std::fs::remove_file(&path).expect("the pipe of the test");
    println!("an exit waits for a slow file");
}

fn an_exit_does_not_wait_for_a_file_that_stands_still() {
    let (path, _reader) = pipe("still");
    let output = start("thousand", &path).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the last packets are missing: writing them took too long"), "{said}");
    std::fs::remove_file(&path).expect("the pipe of the test");
    println!("an exit does not wait for a file that stands still");
}

fn play(role: &str, path: &Path) -> ExitCode {
    if role == "full" {
        let limit = libc::rlimit { rlim_cur: ROOM, rlim_max: ROOM };
        // SAFETY: a limit, and a signal that is ignored, of this process, which has one thread.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    }
    let fabric = Fabric::new(0);
    let options = SimOptions { transmit_buffer: usize::MAX, ..SimOptions::default() };
    let link = fabric.attach(SRC, options).expect("a free address");
    let mut link = Capture::create(path, CaptureOptions::default()).expect("a file").wrap(link, "softrnic0");
    match role {
        "exit" => {
            (0..100).for_each(|_| record(&mut link));
            // As a program in C ends: nothing is dropped.
            std::process::exit(3);
        }
        "abort" => {
            record(&mut link);
            assert!(link.capture().flush(Duration::from_secs(5)));
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
        "endless" => loop {
            record(&mut link);
        },
        "full" => {
            (0..4000).for_each(|_| record(&mut link));
            std::process::exit(0);
        }
        "thousand" => {
            (0..1000).for_each(|_| record(&mut link));
            println!();
            std::process::exit(0);
        }
        other => panic!("no role is called {other}"),
    }
}

fn record(link: &mut CaptureLink<SimLink>) {
    let flow = Flow { src: SRC, dst: DST, sport: 4791, slot: None, tos: 0, ttl: 64 };
    // The link pauses while the file cannot keep up.
    while link.reserve(Time::ZERO, &flow, 1000).is_err() {
        std::thread::yield_now();
    }
    link.commit(Time::ZERO);
    link.flush(Time::ZERO);
}

fn file(role: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softrnic-capture-{role}-{}.pcapng", std::process::id()))
}

/// How many packets and statistics blocks there are; a block that is cut short fails the test.
fn contents(path: &Path) -> (usize, usize) {
    contents_of(File::open(path).expect("the file"))
}

fn contents_of(source: impl Read) -> (usize, usize) {
    let mut reader = PcapNgReader::new(source).expect("a section");
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
