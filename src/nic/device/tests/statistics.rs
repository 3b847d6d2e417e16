//! Statistics and the NIC do not disturb each other.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::*;
use softrnic_stats::{ask, private_directory};

fn socket_of(device: &str) -> PathBuf {
    private_directory().expect("there").join(format!("{}-{device}.sock", std::process::id()))
}

fn threads_that_answer() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "softrnic-stats").count()
}

#[test]
fn statistics_answer_while_the_progress_thread_is_kicked_all_the_time() {
    let (link, ..) = wire(1);
    let running = Running::with_link(Box::new(link), IpAddr::from(NEAR), "kicked").expect("starts");
    let done = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                running.nic.kick.kick();
            }
        });
        let answers: Vec<_> = (0..5).map(|_| ask(&socket_of("kicked"))).collect();
        done.store(true, Ordering::Relaxed);
        answers
    });
    for answer in answers {
        assert_eq!(answer.expect("an answer").device, "kicked");
    }
}

#[test]
fn many_statistics_clients_stop_the_nic_only_now_and_then() {
    let Pair { near, far, .. } = pair();
    let device = far.context.device().name().to_owned();
    let socket = socket_of(&device);
    let done = AtomicBool::new(false);
    let begun = far.context.now();
    let seen: Vec<u64> = std::thread::scope(|scope| {
        let ask_on = || {
            let mut seen = Vec::new();
            let mut never_read = Vec::new();
            while !done.load(Ordering::Relaxed) {
                seen.extend(ask(&socket).map(|snapshot| snapshot.time_ns));
                never_read.extend(UnixStream::connect(&socket));
                never_read.truncate(200);
            }
            seen
        };
        let flood: Vec<_> = (0..4).map(|_| scope.spawn(ask_on)).collect();
        for id in 0..2000 {
            near.qp.post(near.write_to(&far, id)).expect("posts");
            assert_eq!(near.completion().status, Status::Success);
        }
        done.store(true, Ordering::Relaxed);
        flood.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    // A snapshot takes one hold of the NIC; however many look, they share it for 100 ms.
    let lifetimes = far.context.now().since(begun).as_nanos() / 100_000_000 + 1;
    let mut snapshots = seen.clone();
    snapshots.sort_unstable();
    snapshots.dedup();
    assert!(
        !snapshots.is_empty() && snapshots.len() as u128 <= lifetimes,
        "{} in {lifetimes}",
        snapshots.len()
    );
}

#[test]
fn a_device_without_statistics_clients_has_no_thread_for_them() {
    let (link, ..) = wire(1);
    let running = Running::with_link(Box::new(link), IpAddr::from(NEAR), "unseen").expect("starts");
    assert_eq!(threads_that_answer(), 0);
    ask(&socket_of("unseen")).expect("an answer");
    assert_eq!(threads_that_answer(), 1);
    // It ends with the device, without waiting for a client.
    drop(running);
    assert_eq!(threads_that_answer(), 0);
}
