//! Hosts as network namespaces, for tests that need root.

use std::env;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub mod traffic;

use softrnic_wire::Time;

/// Whether the test can run. If not, prints the reason, and fails if `CI=true`.
pub fn can_run(test: &str) -> bool {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    let message = format!("SKIPPED {test}: it makes network namespaces, which takes root");
    assert!(env::var("CI").as_deref() != Ok("true"), "{message}");
    say(&message);
    false
}

/// Whether the running kernel is at least this one.
pub fn kernel_is(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Whether the kernel has VLAN interfaces. If not, prints that.
pub fn has_vlans(test: &str) -> bool {
    let namespace = Namespace::new("vlan");
    let arguments = "link add link lo name vlan type vlan id 1".split_whitespace();
    let output = Command::new("ip").args(["-n", namespace.name()]).args(arguments).output().expect("ip");
    let has = !String::from_utf8_lossy(&output.stderr).contains("Unknown device type");
    if !has {
        say(&format!("note: {test}: this kernel has no VLAN interfaces (CONFIG_VLAN_8021Q)"));
    }
    has
}

/// Prints to the descriptor, because the test harness hides what tests print, and to the summary of `make test`.
fn say(message: &str) {
    let line = format!("{message}\n");
    io::Write::write_all(&mut io::stderr(), line.as_bytes()).expect("standard error");
    if let Some(path) = env::var_os("SOFTRNIC_TEST_SKIPS") {
        let mut summary = File::options().append(true).open(path).expect("the summary of skips");
        io::Write::write_all(&mut summary, line.as_bytes()).expect("the summary of skips");
    }
}

/// An address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

/// A network namespace that is deleted when dropped.
pub struct Namespace(String);

impl Namespace {
    /// A new one with loopback up and no duplicate address detection.
    pub fn new(name: &str) -> Namespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace(format!("softrnic-{}-{count}-{name}", process::id()));
        run("ip", &["netns", "add", &namespace.0]);
        namespace.ip("link set lo up");
        for file in ["all/accept_dad", "default/accept_dad"] {
            let path = format!("/proc/sys/net/ipv6/conf/{file}");
            namespace.enter(|| std::fs::write(path, "0")).expect("sysctl");
        }
        namespace
    }

    /// The name that `ip netns` knows.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs `ip` inside.
    pub fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &self.0];
        all.extend(arguments.split_whitespace());
        run("ip", &all);
    }

    /// A command that will run inside.
    pub fn command(&self, command: &str) -> Command {
        let mut words = command.split_whitespace();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).args(&mut words);
        command
    }

    /// Runs `work` inside, on a thread of its own.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(|| self.enter_here(work)).join()).unwrap_or_else(|panic| {
            std::panic::resume_unwind(panic);
        })
    }

    /// Moves this thread inside for good, and then does `work`.
    pub fn enter_here<T>(&self, work: impl FnOnce() -> T) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("namespace");
        // SAFETY: the descriptor is open; the call changes this thread only.
        assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
        work()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Two hosts joined by a veth pair, whose ends are called `eth0` in both.
pub struct Pair {
    /// Has 10.0.0.1/24 and fd00::1/64.
    pub a: Namespace,
    /// Has 10.0.0.2/24 and fd00::2/64.
    pub b: Namespace,
}

impl Pair {
    /// Both ends with `mtu`, and as many queues as `queues`.
    pub fn new(mtu: u32, queues: u32) -> Pair {
        let pair = Pair { a: Namespace::new("a"), b: Namespace::new("b") };
        join(&pair.a, "eth0", &pair.b, "eth0", mtu, queues);
        for (host, number) in [(&pair.a, 1), (&pair.b, 2)] {
            host.ip(&format!("addr add 10.0.0.{number}/24 dev eth0"));
            host.ip(&format!("addr add fd00::{number}/64 dev eth0 nodad"));
        }
        pair
    }
}

/// Joins two hosts by a veth pair that is up.
pub fn join(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str, mtu: u32, queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    a.ip(&format!(
        "link add {a_name} mtu {mtu} {queues} type veth peer name {b_name} netns {} mtu {mtu} {queues}",
        b.name()
    ));
    a.ip(&format!("link set {a_name} up"));
    b.ip(&format!("link set {b_name} up"));
}

/// Runs a command that must succeed, and returns what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Time since the first call.
pub fn now() -> Time {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    Time::from_nanos(1 + start.elapsed().as_nanos() as u64)
}

/// Calls `done` until it is true; fails after ten seconds.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "gave up waiting for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
