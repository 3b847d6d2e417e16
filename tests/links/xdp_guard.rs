//! Which processes may attach, and what remains after they end.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use softrnic_link::Link;
use softrnic_netdev::Host;
use softrnic_xdp::{Grant, GrantRequest, XdpError, XdpLink, XdpOptions};

use softrnic_link_tests::traffic::{contents, flow, open_again, send, settle};
use softrnic_link_tests::{Namespace, Pair, can_run, now, run, wait_for};

/// The variable that tells the child of a test its namespace.
const CHILD: &str = "SOFTRNIC_TEST_CHILD";

/// Identifiers of the XDP programs on `eth0`.
fn programs(host: &Namespace) -> Vec<u32> {
    let host = host.enter(|| Host::open().expect("host"));
    host.interface_by_name("eth0").expect("interface").xdp_programs.clone()
}

#[test]
fn a_killed_process_leaves_no_program() {
    if let Ok(namespace) = env::var(CHILD) {
        return hold_a_link(&namespace);
    }
    if !can_run("a_killed_process_leaves_no_program") {
        return;
    }
    let pair = Pair::new(4500, 1);
    let mut child = Command::new(env::current_exe().expect("test program"))
        .args(["--exact", "a_killed_process_leaves_no_program", "--nocapture"])
        .env(CHILD, pair.a.name())
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
    assert!(lines.any(|line| line.expect("line").contains("attached")));
    assert_eq!(programs(&pair.a).len(), 1);
    // SIGKILL.
    child.kill().expect("kill");
    child.wait().expect("wait");
    wait_for("the program to go", || programs(&pair.a).is_empty());
    pair.a.enter(|| open_again("eth0", &XdpOptions::default()).expect("link"));
}

fn hold_a_link(namespace: &str) {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("namespace");
    // SAFETY: the descriptor is open; the call changes this thread only.
    assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    let _link = XdpLink::open("eth0", &XdpOptions::default()).expect("link");
    println!("attached");
    thread::sleep(Duration::from_secs(60));
    panic!("nobody killed us");
}

#[test]
fn a_link_that_is_dropped_leaves_no_program_and_frees_its_queues() {
    if !can_run("a_link_that_is_dropped_leaves_no_program_and_frees_its_queues") {
        return;
    }
    let pair = Pair::new(4500, 2);
    for _ in 0..3 {
        let link = pair.a.enter(|| open_again("eth0", &XdpOptions::default()).expect("link"));
        assert_eq!(programs(&pair.a).len(), 1);
        drop(link);
        wait_for("the program to go", || programs(&pair.a).is_empty());
    }
}

#[test]
fn another_program_is_not_replaced() {
    if !can_run("another_program_is_not_replaced") {
        return;
    }
    let pair = Pair::new(1500, 1);
    let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xdp-prog/softrnic_xdp.bpf.o");
    for mode in ["xdpgeneric", "xdpdrv"] {
        pair.a.ip(&format!("link set dev eth0 {mode} obj {object} sec xdp"));
        let theirs = programs(&pair.a);
        assert_eq!(theirs.len(), 1);
        let refusal = pair.a.enter(|| XdpLink::open("eth0", &XdpOptions::default()).err()).expect("refusal");
        assert!(matches!(refusal, XdpError::Occupied { .. }));
        let message = format!(
            "eth0 already has an XDP program (id {}, steer_linear), which is not replaced: detach it, or stop \
             the process that it belongs to",
            theirs[0]
        );
        assert_eq!(refusal.to_string(), message);
        assert_eq!(programs(&pair.a), theirs);
        pair.a.ip(&format!("link set dev eth0 {mode} off"));
    }
    let ours = pair.a.enter(|| XdpLink::open("eth0", &XdpOptions::default()).expect("link"));
    let refusal = pair.a.enter(|| XdpLink::open("eth0", &XdpOptions::default()).err()).expect("refusal");
    assert!(refusal.to_string().contains("steer_frags"), "{refusal}");
    // Nor is ours replaced.
    let arguments = ["-n", pair.a.name(), "link", "set", "dev", "eth0", "xdp", "obj", object, "sec", "xdp"];
    assert!(!Command::new("ip").args(arguments).stderr(Stdio::null()).status().expect("ip").success());
    drop(ours);
    wait_for("our program to go", || programs(&pair.a).is_empty());
    run("ip", &arguments);
}

#[test]
fn a_grant_opens_a_link_without_privilege() {
    if !can_run("a_grant_opens_a_link_without_privilege") {
        return;
    }
    let pair = Pair::new(1500, 1);
    // It fits in the usual limit for locked memory.
    let options = XdpOptions { rx_chunks: 256, tx_slots: 64, ..XdpOptions::default() };
    let mut b = pair.b.enter(|| XdpLink::open("eth0", &options).expect("link of b"));
    thread::scope(|scope| {
        let unprivileged = scope.spawn(|| {
            pair.a.enter_here(|| {
                let (near, far) = UnixStream::pair().expect("a pair");
                let _helper = thread::spawn(|| {
                    let request = GrantRequest::read(far).expect("a request");
                    let keeper = request.grant(&XdpOptions::default()).expect("sent").expect("a grant");
                    keeper.keep().expect("an application that makes sense");
                });
                become_nobody();
                let refusal = Grant::acquire("lo", &options).err().expect("refusal").to_string();
                assert_eq!(refusal, "an AF_XDP socket needs CAP_NET_RAW");
                let grant = Grant::ask(near, "eth0", &options).expect("a grant");
                let mut link = XdpLink::with_grant(grant, &options).expect("link of a");
                assert_eq!(link.mode().queues, [0]);
                for number in 0..100 {
                    send(&mut link, &flow("10.0.0.1", "10.0.0.2"), contents(number, 900), 900);
                }
                link.flush(now());
                settle(&mut link);
                link
            })
        });
        let mut a = unprivileged.join().expect("host a");
        // An address that comes later is steered, too.
        pair.a.ip("addr add 10.0.0.101/24 dev eth0");
        let mut arrived = 0;
        wait_for("a datagram", || {
            pair.b.enter(|| send(&mut b, &flow("10.0.0.2", "10.0.0.101"), contents(0, 900), 900));
            b.flush(now());
            a.receive(now(), 64, &mut |_| arrived += 1);
            arrived > 0
        });
    });
    let mut arrived = 0;
    b.receive(now(), usize::MAX, &mut |_| arrived += 1);
    assert_eq!(arrived, 100);
}

/// Drops all privileges of this thread. (The wrappers in libc would drop those of all threads.)
fn become_nobody() {
    const NOBODY: libc::c_long = 65_534;
    // SAFETY: no pointers; the calls change this thread only.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
        // Leaving user 0 for good clears all capabilities.
        assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
    }
    assert!(std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").is_err(), "still privileged");
}
