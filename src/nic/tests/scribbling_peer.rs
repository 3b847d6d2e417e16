//! A process that writes over everything it shares, while traffic flows: its connections fare as if packets were
//! damaged, and nothing else happens.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrnic_nic::verbs::{
    Access, AddressVector, Context, Cq, DeviceSpec, Mr, Mtu, Psn, Qp, QpOptions, Qpn, Status, WorkRequest,
};

/// Tells the copy of this program what to do.
const ROLE: &str = "TEST_SCRIBBLING_ROLE";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const MESSAGE: usize = 6000;
const DEPTH: usize = 16;

/// Byte `at` of message `number`.
fn pattern(number: u64, at: usize) -> u8 {
    (number as usize * 31 + at) as u8
}

/// One QP, and the memory of `DEPTH` messages.
struct End {
    context: Context,
    memory: Mr,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
}

impl End {
    fn open(context: Context) -> End {
        let pd = context.alloc_pd().expect("a PD");
        let memory = pd.register(vec![0; DEPTH * MESSAGE], Access::LOCAL_WRITE).expect("registered");
        let cq = context.create_cq(4 * DEPTH, None).expect("a CQ");
        let options = QpOptions { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..QpOptions::default() };
        let qp = pd.create_rc_qp(&cq, &cq, options).expect("a QP");
        End { context, memory, cq, qp }
    }

    fn name(&self) -> String {
        format!("{} {}", self.context.address(), self.qp.qpn().get())
    }

    fn connect(&self, name: &str) {
        let (address, qpn) = name.trim().split_once(' ').expect("an address and a QP");
        let to = AddressVector::to(address.parse::<IpAddr>().expect("an address"));
        let qpn = Qpn::new(qpn.parse().expect("a number"));
        self.qp.connect(to, qpn, Mtu::B4096, Psn::ZERO, Psn::ZERO).expect("connected");
    }

    fn place(&self, number: u64) -> usize {
        number as usize % DEPTH * MESSAGE
    }

    fn receive(&self, number: u64) {
        let sge = self.memory.sge(self.place(number), MESSAGE);
        // A QP that has failed takes none.
        let _ = self.qp.post_recv(number, &[sge]);
    }
}

fn device(name: &str) -> Context {
    let spec: DeviceSpec = format!("{name}=udp?shm=on").parse().expect("a device");
    Context::open(&spec).expect("a device")
}

/// A copy of this program that sends to an end of ours.
struct Sender {
    child: Child,
    _input: ChildStdin,
    _output: BufReader<ChildStdout>,
    end: End,
    /// What it sends is what arrives. One that writes over its packets before it has computed their ICRC cannot say so.
    is_honest: bool,
    arrived: u64,
    failed: bool,
}

impl Sender {
    fn start(role: &str, context: &Context) -> Sender {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "a_sender_of_the_other", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let (mut input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut output = BufReader::new(output);
        let end = End::open(context.clone());
        let name = loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).expect("reads"), 0, "it never said who it is");
            // The test runner's own words may be on the line as well.
            if let Some((_, name)) = line.split_once("sender ") {
                break name.to_owned();
            }
        };
        end.connect(&name);
        (0..DEPTH as u64).for_each(|number| end.receive(number));
        writeln!(input, "{}", end.name()).expect("said");
        let is_honest = role == "honest";
        Sender { child, _input: input, _output: output, end, is_honest, arrived: 0, failed: false }
    }

    /// Takes what has come.
    fn take(&mut self) {
        let mut done = Vec::new();
        self.end.cq.poll_with(DEPTH, |cqe| done.push((cqe.wr_id, cqe.status)));
        for (number, status) in done {
            if status != Status::Success {
                self.failed = true;
                continue;
            }
            assert_eq!(number, self.arrived, "in order");
            let mut message = vec![0; MESSAGE];
            self.end.memory.read(self.end.place(number), &mut message).expect("in bounds");
            let wrong = (0..MESSAGE).find(|&at| message[at] != pattern(number, at));
            assert!(!self.is_honest || wrong.is_none(), "message {number}: {wrong:?}");
            self.arrived += 1;
            self.end.receive(number + DEPTH as u64);
        }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Kilobytes that are resident, and descriptors.
fn used() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("known");
    let kilobytes = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    (kilobytes, std::fs::read_dir("/proc/self/fd").expect("there").count())
}

#[test]
fn a_peer_that_overwrites_shared_memory_harms_only_its_own_connections() {
    let context = device(&format!("scribbled{}", std::process::id()));
    let mut honest = Sender::start("honest", &context);
    let mut scribbler = Sender::start("scribbler", &context);
    let broken = || context.link_counters().expect("a device").shm_corrupt;
    // So many connections are to be found broken, and so many messages of the other peer to arrive meanwhile.
    const BROKEN: u64 = 3;
    const MESSAGES: u64 = 2000;
    let begun = Instant::now();
    let (resident, descriptors) = used();
    while honest.arrived < MESSAGES || broken() < BROKEN && !scribbler.failed {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{} messages, {} broken", honest.arrived, broken());
        honest.take();
        scribbler.take();
        assert!(!honest.failed, "the other connection fails too");
    }
    assert!(broken() > 0, "nothing was scribbled");
    let after = used();
    assert!(after.0 < resident + (64 << 10), "{} kB, then {}", resident, after.0);
    assert!(after.1 <= descriptors + 8, "{descriptors} descriptors, then {}", after.1);
    assert!(honest.is_running() && scribbler.is_running());
}

#[test]
fn a_sender_of_the_other() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let end = End::open(device("sender"));
    println!("\nsender {}", end.name());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("reads");
    end.connect(&line);
    // The sender ends with the process that has started it.
    std::thread::spawn(|| {
        let _end = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    if role == "scribbler" {
        std::thread::spawn(scribble);
    }
    let mut number = 0;
    let post = |number: u64| {
        let message: Vec<u8> = (0..MESSAGE).map(|at| pattern(number, at)).collect();
        end.memory.write(end.place(number), &message).expect("in bounds");
        let sge = end.memory.sge(end.place(number), MESSAGE);
        end.qp.post(WorkRequest::send().sge(sge).id(number)).is_ok()
    };
    let mut outstanding = 0;
    loop {
        while outstanding < DEPTH / 2 && post(number) {
            number += 1;
            outstanding += 1;
        }
        let mut failed = false;
        outstanding -= end.cq.poll_with(DEPTH, |cqe| failed |= cqe.status != Status::Success);
        if failed {
            // As with a network that damages packets for long. The scribbling goes on.
            std::thread::park();
        }
    }
}

/// Writes over everything of ours that others can read, for ever.
fn scribble() {
    let mut state = u64::from(std::process::id());
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    loop {
        for (start, len) in shared() {
            // Mostly the indices and the records near the front, and now and then all of it.
            let (from, bytes) = match random() % 8 {
                0 => (0, len),
                1..4 => (random() as usize % 32 * 8, 8),
                _ => (4096 + random() as usize % (16 << 10), 8),
            };
            let garbage: Vec<u8> = (0..bytes).map(|_| random() as u8).collect();
            write_over(start + from, &garbage);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The mappings that peers can read.
fn shared() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there");
    let ours = maps.lines().filter(|line| line.contains("softrnic-ring") && line.contains(" rw-s "));
    ours.filter_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
        Some((start?, end? - start?))
    })
    .collect()
}

/// By way of the kernel: a connection may end, and its memory be gone, at any time.
fn write_over(at: usize, garbage: &[u8]) {
    let local = libc::iovec { iov_base: garbage.as_ptr().cast_mut().cast(), iov_len: garbage.len() };
    let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: garbage.len() };
    // SAFETY: reads `garbage`, which lives through the call. What it writes to is the ring of a connection: memory that peers
    // must take for any bytes, and that our own side only writes. Where nothing is mapped any more, it fails.
    unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
}
