//! Captures with one fault, planted by the fault layer or by the application; `explain` must name each, and find
//! nothing in the clean ones.

use std::path::PathBuf;
use std::time::Duration;

use softrnic_explain::{Kind, Limits, Report, TextOptions, explain, write_text};
use softrnic_inspect::capture::Reader;
use softrnic_link::sim::Path as Network;
use softrnic_sim_tests::recorded::{A, B, Recording, Setup};

/// ECT(0): switches may mark the packets instead of dropping them.
const ECN_CAPABLE: u8 = 2;

/// A capture, and what must be found in it.
struct Case {
    name: &'static str,
    setup: Setup,
    act: fn(&mut Recording),
    /// Every kind of fault that is found, and no other.
    faults: &'static [Kind],
    /// What else is reported.
    told: &'static [Kind],
}

/// PSNs: A's first three messages succeed and use 100 to 102; what an `act` posts begins at 103.
fn case(
    name: &'static str,
    faults: [&'static str; 2],
    act: fn(&mut Recording),
    found: &'static [Kind],
) -> Case {
    let setup = Setup { faults, ..Setup::default() };
    Case { name, setup, act, faults: found, told: &[] }
}

impl Case {
    /// Losses are repaired only by the timer of the attributes, 16.8 ms.
    fn timer_only(mut self) -> Case {
        self.setup.early_retransmission = false;
        self.setup.agreement.timeout = 12;
        self
    }

    fn telling(self, told: &'static [Kind]) -> Case {
        Case { told, ..self }
    }

    fn with(mut self, change: fn(&mut Setup)) -> Case {
        change(&mut self.setup);
        self
    }
}

fn sends(r: &mut Recording, count: usize) {
    for _ in 0..count {
        r.recv(B, 4096);
        r.send(A, 100);
    }
    r.run();
}

fn four_sends(r: &mut Recording) {
    sends(r, 4);
}

fn one_send(r: &mut Recording) {
    sends(r, 1);
}

fn read(r: &mut Recording) {
    r.read(A, 4000);
    r.run();
}

fn add(r: &mut Recording) {
    r.fetch_add(A, 5);
    r.run();
}

fn cases() -> Vec<Case> {
    use Kind::*;
    vec![
        case("request-dropped-before-the-capture", ["drop:psn=104:nth=1", ""], four_sends, &[RequestLost]),
        case(
            "request-dropped-after-the-capture",
            ["", "drop:psn=104:nth=1:dir=rx"],
            four_sends,
            &[RequestLost],
        ),
        case("request-dropped-twice", ["", "drop:psn=104:nth=1-2:dir=rx"], four_sends, &[RequestLost]),
        case("first-of-a-message-dropped", ["", "drop:psn=103:nth=1:dir=rx"], long_write, &[RequestLost]),
        case(
            "request-corrupted-before-the-capture",
            ["corrupt:psn=104:nth=1", ""],
            four_sends,
            &[BadIcrc, RequestCorrupted],
        ),
        case(
            "request-corrupted-after-the-capture",
            ["", "corrupt:psn=104:nth=1:dir=rx"],
            four_sends,
            &[RequestLost],
        ),
        case("request-duplicated", ["duplicate:psn=104:nth=1", ""], four_sends, &[Duplicate]),
        case(
            "requests-reordered",
            ["reorder:psn=103:nth=1:depth=2", ""],
            four_sends,
            &[Reordered, SequenceNak],
        ),
        case("tail-dropped", ["", "drop:psn=103:nth=1:dir=rx"], one_send, &[Timeout]).timer_only(),
        // To the packets it might as well be a peer that was slow to answer.
        case("tail-dropped-and-early-retransmission", ["", "drop:psn=103:nth=1:dir=rx"], one_send, &[])
            .telling(&[EarlyResend]),
        case(
            "ack-dropped-before-the-capture",
            ["", "drop:op=rc_acknowledge:psn=103:nth=1"],
            one_send,
            &[Timeout],
        )
        .timer_only(),
        case(
            "ack-dropped-after-the-capture",
            ["drop:op=rc_acknowledge:psn=103:nth=1:dir=rx", ""],
            one_send,
            &[AckLost],
        )
        .timer_only(),
        case("ack-corrupted", ["", "corrupt:op=rc_acknowledge:psn=103:nth=1"], one_send, &[BadIcrc, Timeout])
            .timer_only(),
        case("ack-delayed", ["", "delay:op=rc_acknowledge:psn=103:nth=1:by=17ms"], one_send, &[AckDelayed])
            .timer_only(),
        case("ack-duplicated", ["", "duplicate:op=rc_acknowledge:psn=103:nth=1"], one_send, &[Duplicate]),
        case(
            "nak-dropped-after-the-capture",
            ["drop:op=rc_acknowledge:psn=104:nth=1:dir=rx", "drop:psn=104:nth=1:dir=rx"],
            four_sends,
            &[NakLost],
        )
        .timer_only(),
        case(
            "nak-dropped-before-the-capture",
            ["", "drop:psn=104:nth=1:dir=rx,drop:op=rc_acknowledge:psn=104:nth=1"],
            four_sends,
            &[Timeout],
        )
        .timer_only(),
        case("peer-gone", ["", "drop:psn=103-200:dir=rx"], one_send, &[RetryExhausted]).timer_only(),
        case("read-request-dropped", ["", "drop:op=rc_read_request:nth=1:dir=rx"], read, &[Timeout])
            .timer_only(),
        case("read-request-duplicated", ["duplicate:op=rc_read_request:nth=1", ""], read, &[Duplicate]),
        case("read-response-dropped-before-the-capture", ["", "drop:psn=104:nth=1"], read, &[ResponseLost]),
        case(
            "read-response-dropped-after-the-capture",
            ["drop:psn=104:nth=1:dir=rx", ""],
            read,
            &[ResponseLost],
        ),
        case("read-response-corrupted", ["", "corrupt:psn=105:nth=1"], read, &[BadIcrc, ResponseLost]),
        case("last-read-response-dropped", ["", "drop:psn=106:nth=1"], read, &[ResponseLost]).timer_only(),
        case("atomic-answer-dropped", ["", "drop:op=rc_atomic_acknowledge:nth=1"], add, &[Timeout])
            .timer_only(),
        case(
            "atomic-answer-dropped-after-the-capture",
            ["drop:op=rc_atomic_acknowledge:nth=1:dir=rx", ""],
            add,
            &[ResponseLost],
        )
        .timer_only()
        .telling(&[AtomicReplay]),
        case("atomic-request-duplicated", ["duplicate:op=0x14:nth=1", ""], add, &[Duplicate]),
        case("receiver-not-ready", ["", ""], late_receive, &[RnrNak]),
        case("receiver-never-ready", ["", ""], no_receive, &[RnrRetryExhausted])
            .with(|setup| setup.agreement.rnr_retry = 3),
        case("wrong-key", ["", ""], wrong_key, &[RemoteAccess]),
        case("past-the-end-of-a-region", ["", ""], past_the_end, &[RemoteAccess]),
        case("receive-too-small", ["", ""], too_long, &[InvalidRequest]),
        case("misaligned-atomic", ["", ""], misaligned, &[InvalidRequest, Misaligned]),
        case("congestion", ["", ""], long_write, &[]).telling(&[Cnp]).with(|setup| {
            setup.congestion_control = true;
            setup.agreement.tos = ECN_CAPABLE;
            setup.path = Network { mark: 1.0, ..Network::default() };
        }),
    ]
}

fn long_write(r: &mut Recording) {
    r.write(A, 6000);
    r.run();
}

fn late_receive(r: &mut Recording) {
    r.send(A, 100);
    r.run_for(Duration::from_micros(900));
    r.recv(B, 100);
    r.run();
}

fn no_receive(r: &mut Recording) {
    r.send(A, 100);
    r.run();
}

fn wrong_key(r: &mut Recording) {
    r.write_with_wrong_key(A, 100);
    r.run();
}

fn past_the_end(r: &mut Recording) {
    r.write_past_the_end(A, 50, 100);
    r.run();
}

fn too_long(r: &mut Recording) {
    r.recv(B, 50);
    r.send(A, 100);
    r.run();
}

fn misaligned(r: &mut Recording) {
    r.fetch_add_unaligned(A);
    r.run();
}

/// Everything that a connection can be used for.
fn everything(r: &mut Recording) {
    four_sends(r);
    for side in [A, B] {
        r.write(side, 5000);
        r.read(side, 5000);
        r.fetch_add(side, 1);
        r.compare_swap(side, 1, 2);
        r.recv(1 - side, 3000);
        r.write_imm(side, 3000, 7);
    }
    r.run();
    four_sends(r);
}

fn record(name: &str, setup: &Setup, act: fn(&mut Recording)) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("planted-{name}.pcapng"));
    let mut recording = Recording::new(&path, setup);
    for _ in 0..3 {
        one_send(&mut recording);
    }
    act(&mut recording);
    recording.finish()
}

fn explained(file: &[u8]) -> (Report, String) {
    let report = explain(&mut Reader::new(file).expect("a capture"), Limits::default(), |_| {});
    let mut text = Vec::new();
    write_text(&report, TextOptions::default(), &mut text).expect("written");
    (report, String::from_utf8(text).expect("text"))
}

#[test]
fn every_planted_fault_is_named_and_nothing_else() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 20);
    for case in &cases {
        let (report, text) = explained(&record(case.name, &case.setup, case.act));
        let mut found: Vec<Kind> = report.faults().map(|finding| finding.kind).collect();
        found.sort();
        found.dedup();
        let mut expected = case.faults.to_vec();
        expected.sort();
        let told = |kind: &Kind| report.findings.iter().any(|finding| finding.kind == *kind);
        if found != expected || !case.told.iter().all(told) {
            wrong.push(format!(
                "{}: found {found:?}, planted {expected:?}, {:?}\n{text}",
                case.name, case.told
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn nothing_is_found_where_nothing_went_wrong() {
    for bandwidth in [None, Some(1_000_000_000)] {
        for early_retransmission in [false, true] {
            let setup = Setup { bandwidth, early_retransmission, ..Setup::default() };
            let (report, text) = explained(&record("clean", &setup, everything));
            assert_eq!(report.faults().count(), 0, "{text}");
            assert!(report.pairs[0].message_counts.iter().sum::<u64>() >= 21, "{text}");
        }
    }
}
