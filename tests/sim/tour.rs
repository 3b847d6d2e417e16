//! The captures of `docs/tour`, regenerated and compared with those stored there.
//!
//! `SOFTRNIC_UPDATE=1` stores the new ones instead.

use std::path::{Path, PathBuf};
use std::time::Duration;

use softrnic_link::sim::Path as Network;
use softrnic_sim_tests::recorded::{A, B, Recording, Setup};
use softrnic_sim_tests::world::Agreement;
use softrnic_transport::{QpState, Status};

fn send(setup: Setup, file: &Path) -> Vec<u8> {
    let mut r = Recording::new(file, &setup);
    for len in [2500, 100] {
        r.recv(B, 4096);
        r.send(A, len);
        r.run();
    }
    r.recv(A, 4096);
    r.send(B, 41);
    r.run();
    assert_eq!((r.completions(A).len(), r.completions(B).len()), (3, 3));
    r.finish()
}

fn write(setup: Setup, file: &Path) -> Vec<u8> {
    let mut r = Recording::new(file, &setup);
    r.write(A, 3000);
    r.run();
    assert!(r.completions(B).is_empty(), "a WRITE tells its target nothing");
    r.recv(B, 0);
    r.write_imm(A, 600, 0xC0DE);
    r.run();
    assert_eq!((r.completions(A).len(), r.completions(B).len()), (2, 1));
    r.finish()
}

fn read(setup: Setup, file: &Path) -> Vec<u8> {
    let mut r = Recording::new(file, &setup);
    r.recv(B, 100);
    r.read(A, 3000);
    r.send(A, 100);
    r.run();
    r.read(A, 500);
    r.run();
    assert_eq!((r.completions(A).len(), r.completions(B).len()), (3, 1));
    r.finish()
}

fn atomic(setup: Setup, file: &Path) -> Vec<u8> {
    // The answer to the last one is lost, so that it is asked for twice.
    let mut r = Recording::new(file, &Setup { faults: ["", "drop:op=rc_atomic_acknowledge:nth=4"], ..setup });
    r.set_word(B, 41);
    r.fetch_add(A, 1);
    r.run();
    r.compare_swap(A, 42, 7);
    r.run();
    r.compare_swap(A, 42, 8);
    r.run();
    r.fetch_add(A, 100);
    r.run();
    assert!(r.completions(A).iter().all(|cqe| cqe.status == Status::Success));
    r.finish()
}

fn loss(setup: Setup, file: &Path) -> Vec<u8> {
    let faults = ["", "drop:psn=102:nth=1:dir=rx,drop:psn=106:nth=1:dir=rx"];
    let mut r = Recording::new(file, &Setup { faults, early_retransmission: false, ..setup });
    r.recv(B, 8192);
    r.send(A, 6000);
    r.run();
    r.recv(B, 8192);
    r.send(A, 100);
    r.run();
    assert_eq!((r.completions(A).len(), r.completions(B).len()), (2, 2));
    r.finish()
}

fn rnr(setup: Setup, file: &Path) -> Vec<u8> {
    let mut r = Recording::new(file, &setup);
    r.send(A, 1500);
    r.run_for(Duration::from_micros(900));
    r.recv(B, 4096);
    r.run();
    assert_eq!((r.completions(A).len(), r.completions(B).len()), (1, 1));
    r.finish()
}

fn error(setup: Setup, file: &Path) -> Vec<u8> {
    let mut r = Recording::new(file, &setup);
    r.write(A, 200);
    r.run();
    r.write_with_wrong_key(A, 200);
    r.write(A, 100);
    r.run();
    let ends: Vec<Status> = r.completions(A).iter().map(|cqe| cqe.status).collect();
    assert_eq!(ends, [Status::Success, Status::RemoteAccess, Status::Flushed]);
    assert_eq!(r.state(A), QpState::Err);
    r.finish()
}

fn congestion(setup: Setup, file: &Path) -> Vec<u8> {
    // ECT(0): switches may mark the packets instead of dropping them.
    let agreement = Agreement { tos: 2, ..setup.agreement };
    let bandwidth = Some(10_000_000_000);
    let mut r = Recording::new(file, &Setup { agreement, bandwidth, congestion_control: true, ..setup });
    // A switch on the way from A to B is full for a while.
    let full = Network { mark: 1.0, ..Network::default() };
    let [a, b] = [A, B].map(|side| r.world.nodes[side].address);
    r.world.fabric.set_path(a, b, full);
    for _ in 0..4 {
        r.write(A, 4 << 10);
        r.run_for(Duration::from_micros(100));
    }
    r.world.fabric.set_path(a, b, Network::default());
    r.write(A, 4 << 10);
    r.run_for(Duration::from_millis(2));
    assert_eq!(r.completions(A).len(), 5);
    r.finish()
}

type Lesson = (&'static str, fn(Setup, &Path) -> Vec<u8>);

const LESSONS: [Lesson; 8] = [
    ("1-send", send),
    ("2-write", write),
    ("3-read", read),
    ("4-atomic", atomic),
    ("5-loss", loss),
    ("6-rnr", rnr),
    ("7-error", error),
    ("8-congestion", congestion),
];

#[test]
fn the_captures_of_the_tour_are_what_the_nics_do() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour");
    let update = std::env::var_os("SOFTRNIC_UPDATE").is_some();
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut changed = Vec::new();
    for (name, record) in LESSONS {
        let made = record(Setup::default(), &scratch.join(format!("{name}.pcapng")));
        let again = record(Setup::default(), &scratch.join(format!("{name}-again.pcapng")));
        assert!(made == again, "{name} is another each time");
        let kept = directory.join(format!("{name}.pcapng"));
        if update {
            std::fs::write(&kept, &made).expect("written");
        } else if std::fs::read(&kept).ok().as_ref() != Some(&made) {
            changed.push(name);
        }
    }
    assert!(changed.is_empty(), "{changed:?} have changed; SOFTRNIC_UPDATE=1 keeps the new ones");
}
