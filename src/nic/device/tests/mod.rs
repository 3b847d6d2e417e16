//! A running NIC, with real threads and in real time. `driving` has the rules of which thread drives it, in virtual
//! time.

mod beside;
mod driving;
mod statistics;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use softrnic_transport::{QpState, Status, WcOpcode};
use softrnic_wire::{Mtu, Psn};

use crate::verbs::{
    Access, AddressVector, CompletionChannel, Context, Cq, Cqe, Mr, Pd, Qp, QpOptions, Running, WorkRequest,
};
use wire::{Direction, WireLink, wire};

/// A device with a connected QP.
struct End {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    channel: Arc<CompletionChannel>,
    mr: Mr,
    context: Context,
    _pd: Arc<Pd>,
}

struct Pair {
    near: End,
    far: End,
    /// From near to far, and back.
    there: Arc<Direction>,
    back: Arc<Direction>,
}

const NEAR: [u8; 4] = [127, 0, 77, 1];
const FAR: [u8; 4] = [127, 0, 77, 2];
const NEAR_PSN: Psn = Psn::new(10);
const FAR_PSN: Psn = Psn::new(20);

fn pair() -> Pair {
    pair_on(wire(1))
}

fn pair_on(wire: (WireLink, WireLink, Arc<Direction>, Arc<Direction>)) -> Pair {
    pair_of(wire, |link, address, name| Running::with_link(Box::new(link), address, name).expect("starts"))
}

fn pair_of(
    (near_link, far_link, there, back): (WireLink, WireLink, Arc<Direction>, Arc<Direction>),
    start: impl Fn(WireLink, IpAddr, &str) -> Arc<Running>,
) -> Pair {
    // Every device of the process has a name of its own, which its statistics go by.
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let open = |link, address: [u8; 4]| {
        let name = format!("test{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let context = Context::on(start(link, IpAddr::from(address), &name)).expect("opens");
        let pd = context.alloc_pd().expect("PD");
        let channel = context.create_channel().expect("channel");
        let cq = context.create_cq(256, Some(&channel)).expect("CQ");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.register(vec![0u8; 1 << 16], access).expect("MR");
        let qp = pd.create_rc_qp(&cq, &cq, QpOptions::default()).expect("QP");
        End { qp, cq, channel, mr, context, _pd: pd }
    };
    let (near, far) = (open(near_link, NEAR), open(far_link, FAR));
    let connect = |end: &End, peer: &End, own: Psn, other: Psn| {
        let address = AddressVector::to(peer.context.address());
        end.qp.connect(address, peer.qp.qpn(), Mtu::B1024, own, other).expect("connects");
    };
    connect(&near, &far, NEAR_PSN, FAR_PSN);
    connect(&far, &near, FAR_PSN, NEAR_PSN);
    Pair { near, far, there, back }
}

impl End {
    fn write_to(&self, peer: &End, wr_id: u64) -> WorkRequest {
        WorkRequest::write(peer.mr.addr(), peer.mr.rkey()).sge(self.mr.sge(0, 64)).id(wr_id)
    }

    fn completion(&self) -> Cqe {
        let end = Instant::now() + Duration::from_secs(20);
        let mut found = None;
        while found.is_none() {
            assert!(Instant::now() < end, "no completion came");
            self.cq.poll_with(1, |cqe| found = Some(cqe));
        }
        found.expect("found")
    }
}

#[test]
fn a_post_on_an_idle_qp_leaves_at_once() {
    let Pair { near, far, there, .. } = pair();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    assert_eq!(there.sent(), 1, "the packet left before the post returned");
}

#[test]
fn a_process_that_calls_nothing_is_served() {
    let Pair { near, far, .. } = pair();
    near.mr.write(0, &[9; 64]).expect("inside");
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    // Only the near side polls; the far side's memory changes all the same.
    assert_eq!(near.completion().status, Status::Success);
    let mut bytes = [0; 64];
    far.mr.read(0, &mut bytes).expect("inside");
    assert_eq!(bytes, [9; 64]);
}

#[test]
fn a_caller_who_polls_lets_the_holder_of_the_nic_have_the_processor() {
    let Pair { near, .. } = pair();
    let nic = near.context.nic();
    let mut processors = sched_getaffinity(None).expect("processors");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| processors.is_set(*cpu)).expect("one");
    processors.clear();
    processors.set(first);
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("positive");
    let hold = Duration::from_millis(30);
    let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(None, &processors).expect("one processor");
            let held = nic.control(|_, _| {
                held.store(true, Ordering::SeqCst);
                let start = cpu_time();
                while cpu_time() - start < hold {}
            });
            done.store(true, Ordering::SeqCst);
            held.expect("works");
        });
        scope.spawn(|| {
            sched_setaffinity(None, &processors).expect("one processor");
            while !held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let start = cpu_time();
            while !done.load(Ordering::SeqCst) {
                near.cq.poll_with(1, |_| {});
            }
            let polled = cpu_time() - start;
            assert!(polled < hold / 2, "polled for {polled:?} while the holder had {hold:?}");
        });
    });
}

#[test]
fn arming_hands_the_link_over_and_the_event_comes() {
    let Pair { near, far, .. } = pair();
    for id in 0..50 {
        near.cq.poll_with(16, |_| {});
        near.cq.arm(false);
        near.qp.post(near.write_to(&far, id)).expect("posts");
        assert_eq!(near.channel.event().expect("an event"), near.cq.token());
        assert_eq!(near.completion().wr_id, id);
    }
}

#[test]
fn only_solicited_completions_wake_a_cq_that_asked_for_those() {
    use std::os::fd::{AsFd, AsRawFd};
    let Pair { near, far, .. } = pair();
    for id in 0..2 {
        far.qp.post_recv(id, &[far.mr.sge(0, 64)]).expect("posts");
    }
    far.cq.arm(true);
    near.qp.post(WorkRequest::send().inline(b"quiet")).expect("posts");
    assert_eq!(near.completion().status, Status::Success);
    let mut poll = libc::pollfd { fd: far.channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor of ours, no waiting.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0, "an ordinary SEND fires nothing");
    near.qp.post(WorkRequest::send().inline(b"loud").solicited()).expect("posts");
    assert_eq!(far.channel.event().expect("an event"), far.cq.token());
}

#[test]
fn retransmission_needs_no_caller() {
    let Pair { near, far, there, .. } = pair();
    there.cut();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    there.wait_sent(3);
}

#[test]
fn an_idle_device_takes_no_ticks() {
    let Pair { near, .. } = pair();
    near.cq.poll_with(1, |_| {});
    let nic = near.context.nic();
    // The grace period for callers that poll runs out, and then nothing wakes the thread.
    let mut last = nic.wakeups();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = nic.wakeups();
        if now == last {
            break;
        }
        last = now;
        assert!(Instant::now() < end, "the thread keeps waking");
    }
}

#[test]
fn signals_stay_with_the_application() {
    let Pair { near, far, .. } = pair();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    near.completion();
    // A thread has its name only once it runs, and completions need not wait for it.
    let end = Instant::now() + Duration::from_secs(20);
    while progress_threads_that_block_signals() < 2 {
        assert!(Instant::now() < end, "both progress threads were looked at");
        std::thread::yield_now();
    }
}

/// Looks at every progress thread of this process, and fails if one of them could take a signal that is not of a fault
/// of its own.
fn progress_threads_that_block_signals() -> usize {
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("proc") {
        let status = std::fs::read_to_string(task.expect("entry").path().join("status")).unwrap_or_default();
        if !status.starts_with("Name:\tsoftrnic\n") {
            continue;
        }
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask").trim();
        let blocked = u64::from_str_radix(blocked, 16).expect("hex");
        let taken = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS];
        // And the two that libc keeps to itself.
        let taken = taken.iter().fold(0b11 << 31, |set, signal| set | 1u64 << (signal - 1));
        assert_eq!(blocked, !taken, "blocked signals {blocked:#x}");
        seen += 1;
    }
    seen
}

#[test]
fn the_progress_thread_keeps_the_priority_of_its_creator() {
    const NICE: i32 = 3;
    // SAFETY: takes no pointers; on Linux it concerns this thread alone.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }, 0);
    let Pair { near, far, .. } = pair();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    near.completion();
    // The thread has acted on its scheduling before it first sleeps, and an idle NIC lets it sleep.
    let end = Instant::now() + Duration::from_secs(20);
    while near.context.nic().wakeups() == 0 {
        assert!(Instant::now() < end, "the thread never slept");
        std::thread::yield_now();
    }
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("proc") {
        let stat = std::fs::read_to_string(task.expect("entry").path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        if name.ends_with("(softrnic") {
            // Field 19 of stat(5); `rest` begins with the third.
            assert_eq!(rest.split_whitespace().nth(16), Some("3"), "{stat}");
            seen += 1;
        }
    }
    assert!(seen > 0, "a progress thread was looked at");
}

#[test]
fn memory_is_out_of_reach_once_deregistered() {
    let Pair { near, far, .. } = pair();
    let request = near.write_to(&far, 1);
    let End { qp, cq, context, mr, .. } = far;
    drop(mr);
    near.qp.post(request).expect("posts");
    assert_eq!(near.completion().status, Status::RemoteAccess);
    assert_eq!(near.qp.state(), QpState::Err);
    drop((qp, cq, context));
}

#[test]
fn many_threads_post_and_poll_at_once() {
    const THREADS: usize = 8;
    const EACH: usize = 500;
    let Pair { near, far, .. } = pair();
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut posted = 0;
                let mut last = Instant::now();
                while done.load(std::sync::atomic::Ordering::SeqCst) < THREADS * EACH {
                    if posted < EACH && near.qp.post(near.write_to(&far, 1)).is_ok() {
                        posted += 1;
                    }
                    let found = near.cq.poll_with(8, |cqe| assert_eq!(cqe.status, Status::Success));
                    if found > 0 {
                        last = Instant::now();
                        done.fetch_add(found, std::sync::atomic::Ordering::SeqCst);
                    }
                    assert!(last.elapsed() < Duration::from_secs(20), "nothing completes any more");
                }
            });
        }
    });
    assert_eq!(done.into_inner(), THREADS * EACH);
}

#[test]
fn a_forked_child_has_a_device_of_its_own_and_the_parent_keeps_its() {
    let Pair { near, far, .. } = pair();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    near.completion();
    // SAFETY: the child calls nothing but what a forked child of a threaded process may rely on here: the
    // allocator, which glibc keeps usable, and our own code, whose locks the fork handlers have in hand.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inherited_is_dead = near.context.alloc_pd().is_err() && far.context.alloc_pd().is_err();
        let own = Context::open(&Default::default()).is_ok_and(|own| own.alloc_pd().is_ok());
        // SAFETY: leaves without running destructors of the parent's objects.
        unsafe { libc::_exit(if inherited_is_dead && own { 0 } else { 1 }) };
    }
    for id in 0..10 {
        near.qp.post(near.write_to(&far, id)).expect("posts");
        assert_eq!(near.completion().status, Status::Success);
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's device works and the inherited ones fail");
}

#[test]
fn a_device_shows_its_qps_and_counters_to_its_user() {
    let Pair { near, far, .. } = pair();
    near.qp.post(near.write_to(&far, 1)).expect("posts");
    near.completion();
    let qpn = near.qp.qpn().get();
    let ours: Vec<_> = softrnic_stats::running()
        .expect("readable")
        .into_iter()
        .filter(|s| s.pid == std::process::id())
        .collect();
    let found = ours.iter().flat_map(|s| s.qps.iter().map(move |qp| (s, qp))).find(|(_, qp)| qp.qpn == qpn);
    let (snapshot, qp) = found.expect("the QP is shown");
    assert_eq!((qp.state.as_str(), qp.service.as_str()), ("RTS", "RC"));
    // On a machine that is slow for a moment the packet may have been sent again.
    assert_eq!(qp.packets_sent, 1 + qp.retransmitted);
    assert_eq!(qp.peer, far.context.address());
    assert!(qp.bytes_sent > 64 && qp.bytes_received > 0, "{qp:?}");
    for name in snapshot.counters.keys() {
        assert!(
            softrnic_stats::meaning(name).is_some_and(|text| text.ends_with('.')),
            "{name} means nothing"
        );
    }
    // What rxe counts under the same names (ack_deferred is of its own making).
    let rxe = "sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err rcvd_seq_err \
               retry_exceeded_err retry_rnr_exceeded_err completer_retry_err send_err link_downed rdma_sends \
               rdma_recvs";
    for name in rxe.split_whitespace() {
        assert!(snapshot.counters.contains_key(name), "{name} is not counted");
    }
}

#[test]
fn the_ack_of_a_polled_completion_leaves_with_the_answer_and_is_seen_before_it() {
    const ACK: u8 = 0x11;
    const SEND: u8 = 0x04;
    // Only a segmented send has a reason to end with the ACK.
    for (segments, ack_first) in [(1, true), (16, false)] {
        let Pair { near, far, there, .. } = pair_on(wire(segments));
        for id in 0..100 {
            near.qp.post_recv(id, &[near.mr.sge(0, 64)]).expect("posts");
            far.qp.post(WorkRequest::send().inline(b"question").id(id)).expect("posts");
            let question = near.completion();
            assert_eq!(question.status, Status::Success);
            far.qp.post_recv(id, &[far.mr.sge(0, 64)]).expect("posts");
            near.qp.post(WorkRequest::send().inline(b"answer").unsignaled()).expect("posts");
            // In this order, on which programs rely that wait for one of two CQs on one channel.
            for expected in [WcOpcode::Send, WcOpcode::Recv] {
                let completion = far.completion();
                assert_eq!((completion.status, completion.opcode), (Status::Success, expected));
            }
        }
        // If the progress thread was faster, the ACK has already left; most of the time, a polling caller is.
        let together = there.sent() - there.flushes();
        assert!(together > 0, "no ACK of 100 shared a send with the answer");
        // By number: a machine that stood still for a moment has sent some of them again.
        let packets = there.packets();
        let place =
            |opcode, psn| packets.iter().position(|&packet| packet == (opcode, psn)).expect("was sent");
        let leads = |n: &u32| place(ACK, FAR_PSN + *n) < place(SEND, NEAR_PSN + *n);
        let acks_first = (0..100).filter(leads).count();
        assert_eq!(acks_first == 100, ack_first, "{acks_first} ACKs of 100 left first");
    }
}

#[test]
fn the_ack_of_a_polled_completion_leaves_although_nobody_calls() {
    let Pair { near, far, there, .. } = pair();
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"question")).expect("posts");
    near.completion();
    there.wait_sent(1);
}

#[test]
fn the_ack_of_a_polled_completion_leaves_before_the_qp_is_destroyed() {
    let Pair { near, far, there, .. } = pair();
    near.qp.post_recv(1, &[near.mr.sge(0, 64)]).expect("posts");
    far.qp.post(WorkRequest::send().inline(b"question")).expect("posts");
    near.completion();
    drop(near);
    assert_eq!(there.sent(), 1);
    assert_eq!(far.completion().status, Status::Success);
}
